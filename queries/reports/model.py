"""The structure of a report: a document of sections, each a few figures, tables and timelines.

Values stay raw (numbers, datetimes, text) until a renderer writes them; the ``kind`` of a column or figure defines how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from parsers import moments

Kind = Literal["text", "name", "count", "hours", "seconds", "share", "time", "flag"]
Tone = Literal["impact", "degraded", "benign", "plain"]

#: Rows of one table that pages show; JSON always has all.
SHOWN = 40


@dataclass(frozen=True)
class Figure:
    """One number that a reader should see first."""

    label: str
    value: Any
    kind: Kind = "count"
    note: str = ""


@dataclass(frozen=True)
class Column:
    """One column. ``bar`` draws the value against the largest of its column. Raises ``ValueError`` for an unknown kind."""

    key: str
    title: str
    kind: Kind = "text"
    bar: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"column {self.key!r}: there is no kind {self.kind!r}, but {', '.join(get_args(Kind))}")


@dataclass(frozen=True)
class Table:
    """Rows by column key. ``empty`` is the text if there are none."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    empty: str = "Nothing in this period."
    note: str = ""


@dataclass(frozen=True)
class Span:
    """One range of time on a lane. ``end`` None: it had not ended when the data did."""

    start: datetime
    end: datetime | None
    tone: Tone
    text: str


@dataclass(frozen=True)
class Timeline:
    """Lanes (a host, a link) with what happened on them between ``start`` and ``end``."""

    title: str
    start: datetime
    end: datetime
    lanes: Mapping[str, Sequence[Span]]


@dataclass(frozen=True)
class Section:
    """A heading, a sentence on how to read it, and its content in order."""

    key: str
    title: str
    lead: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """A finished report. ``since`` and ``until`` are the requested bounds, None for no bound."""

    name: str
    title: str
    description: str
    since: datetime | None
    until: datetime | None
    sections: tuple[Section, ...] = field(default_factory=tuple)

    def section(self, key: str) -> Section:
        """The section of that key; KeyError names the existing ones."""
        for section in self.sections:
            if section.key == key:
                return section
        raise KeyError(f"{self.name} has no section {key!r}; it has {', '.join(s.key for s in self.sections)}")


def as_utc(moment: datetime | None) -> datetime | None:
    """Naive UTC, as the store keeps time; a naive datetime is taken as UTC."""
    return moment if moment is None or moment.tzinfo is None else moments.utc(moment)
