"""The saved queries of ``queries/library``: one file each, with a header of comments that says what it is for.

``// title:``, ``// description:``, ``// parameters:`` (as in ``declare query_parameters``, or ``none``) and ``// example:``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(__file__).parent / "library"
_HEADER = re.compile(r"^// (title|description|parameters|example): *(.*)$", re.M)


@dataclass(frozen=True)
class Saved:
    """One saved query."""

    name: str
    title: str
    description: str
    parameters: str
    example: str
    text: str


def names() -> list[str]:
    """All saved queries, by name."""
    return sorted(path.stem for path in LIBRARY.glob("*.kql"))


def load(name: str) -> Saved:
    """One saved query. Raises ``KeyError`` if there is none of that name."""
    if name not in names():
        raise KeyError(name)
    text = (LIBRARY / f"{name}.kql").read_text(encoding="utf-8")
    header = dict(_HEADER.findall(text))
    return Saved(name, header["title"], header["description"], header["parameters"], header["example"], text)
