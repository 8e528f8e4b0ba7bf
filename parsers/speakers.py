"""Who may speak of which events, as ``speakers.toml`` lists it by families: the answers depend on names alone, not on lines."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Tags of lines that claim an event of which their writer may not speak begin so.
CLAIMS = "claims:"


@lru_cache(maxsize=1)
def _rules() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@lru_cache(maxsize=1024)
def may_speak(speaker: str, event: str) -> bool:
    """Whether a ``speaker`` of speakers.toml may speak of an event."""
    return event.startswith(tuple(_rules()[speaker]["speaks"]))


@lru_cache(maxsize=4096)
def of_system(program: str | None) -> bool:
    """Whether a program's name is one of the system's; whose it is, the name alone cannot say."""
    return program is not None and program.lower().startswith(tuple(_rules()["programs"]["begin"]))
