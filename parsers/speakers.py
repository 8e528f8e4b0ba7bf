"""Which writers may report which events, as ``speakers.toml`` lists it by families: the result depends on names alone,
not on lines."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Prefix of the tag of a line that claims an event which its writer may not report.
CLAIMS = "claims:"


@lru_cache(maxsize=1)
def _rules() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@lru_cache(maxsize=1024)
def may_speak(speaker: str, event: str) -> bool:
    """Whether a ``speaker`` of speakers.toml may report an event."""
    return event.startswith(tuple(_rules()[speaker]["speaks"]))


@lru_cache(maxsize=4096)
def of_system(program: str | None) -> bool:
    """Whether a program's name belongs to the system; the name alone does not show who ran it."""
    return program is not None and program.lower().startswith(tuple(_rules()["programs"]["begin"]))
