"""Defines document families, and how their lines are kept.

A family is one file that defines ``DOCUMENT = Document(kinds=(...), read=fn)`` and one line in the registry of
``parsers.documents``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath

import polars as pl

from parsers.record import TABLES, Origin, Parsed, frame

#: More warnings about one file help nobody; the rest is counted.
MOST_WARNINGS = 50
#: :meth:`Gathered.add` fills these in for any table.
_FILLED_IN = frozenset({"file", "line", "source", "cluster"})

Row = dict[str, object]
Reader = Callable[[str, bytes, Origin], Parsed]
Recognises = Callable[[PurePosixPath, str], str | None]


@dataclass(frozen=True)
class Document:
    """A family of documents: the kinds it reads and ``read(kind, data, origin)``, which may raise on bad content.

    ``recognises(path, text)``: the kind of a file, from its path and the text of its first 64 KiB; None if it is not of
    this family. Families of installed packages need it. ``parsers.recognise`` handles the built-in ones itself, since
    their order matters.
    """

    kinds: tuple[str, ...]
    read: Reader
    recognises: Recognises | None = None


@dataclass(frozen=True)
class Line:
    """One physical line: its number (from 1), its exact bytes without the line end, and its text."""

    number: int
    data: bytes
    text: str


def split_lines(data: bytes) -> list[Line]:
    """All physical lines; only LF and CR LF end a line (a lone CR or a form feed is content)."""
    pieces = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if pieces and not pieces[-1]:
        pieces.pop()
    lines = []
    for number, piece in enumerate(pieces, 1):
        piece = piece.removesuffix(b"\r")
        lines.append(Line(number, piece, piece.decode("utf-8", "replace")))
    return lines


@dataclass(frozen=True)
class StatedEvent:
    """A fault that a line of a document reports directly: its event, entities and severity."""

    event: str
    entities: dict[str, object] = field(default_factory=dict)
    severity: str = "warning"

    def row(self) -> Row:
        known = {name: value for name, value in self.entities.items() if value not in (None, "")}
        return {
            "event": self.event, "severity": self.severity, "entities": json.dumps(known, sort_keys=True) if known else None,
        }  # fmt: skip


@dataclass
class Gathered:
    """Rows by table, collected for a ``Parsed``; fills in what every row of a file shares."""

    kind: str
    origin: Origin
    rows: dict[str, list[Row]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _warned: int = 0

    def add(self, table: str, row: Row, line: int | None = None) -> None:
        """Adds a row; missing values of ``cluster``, ``file``, ``line`` and ``source`` are filled in. Keys that are not
        columns of the table are dropped, and :meth:`parsed` warns about them. The labels of a metric may be a dict."""
        row.setdefault("file", self.origin.path)
        row.setdefault("line", line)
        row.setdefault("source", self.kind)
        if table == "links":
            row.setdefault("time", self.time)
        if isinstance(labels := row.get("labels"), dict):
            row["labels"] = json.dumps(labels, sort_keys=True)
        if row.get("cluster") is None:
            row["cluster"] = self.origin.cluster
        self.rows.setdefault(table, []).append(row)

    def sample(
        self, metric: str, value: float, device: str | None, /, *, time: datetime | None = None, **labels: str | None
    ) -> None:  # fmt: skip
        """Adds a sample; without a time of its own, it gets the file's."""
        known = {name: text for name, text in labels.items() if text}
        self.add("metrics", {
            "time": time or self.time, "host": self.origin.host, "metric": metric, "value": value, "device": device,
            "labels": json.dumps(known, sort_keys=True) if known else None,
        })  # fmt: skip

    @property
    def time(self) -> datetime | None:
        """When a report without a time of its own was made, as far as known."""
        return self.origin.received or self.origin.reference

    def warn(self, text: str, line: int | None = None) -> None:
        """Adds a warning with the file and line of something that could not be parsed."""
        self._warned += 1
        if self._warned <= MOST_WARNINGS:
            place = self.origin.path or self.kind
            self.warnings.append(f"{place} line {line}: {text}" if line else f"{place}: {text}")

    def keep(
        self, line: Line, time: datetime | None = None, job_id: int | None = None, host: str | None = None,
        resolution_us: int = 1_000_000, stated: StatedEvent | None = None,
    ) -> None:  # fmt: skip
        """Adds a parsed line to ``logs`` verbatim, with the time of its record; ``stated``: the fault that it
        reports."""
        event_columns: Row = stated.row() if stated else {}
        self._log(line, event_columns | {
            "time": time, "time_quality": "line" if time else "received", "job_id": job_id,
            "host": host or self.origin.host, "source": self.kind, "format": self.kind, "tags": [],
            "resolution_us": resolution_us if time else None,
        })  # fmt: skip

    def keep_unread(self, line: Line, why: str | None = None) -> None:
        """Adds a line that could not be parsed to ``logs`` with the tag "unparsed"; nothing is ever dropped."""
        if why:
            self.warn(why, line.number)
        self._log(line, {
            "time_quality": "received", "host": self.origin.host, "source": self.kind, "format": "plain",
            "tags": ["unparsed"],
        })  # fmt: skip

    def _log(self, line: Line, row: Row) -> None:
        if row.get("time") is None:
            row["time"] = self.origin.received
        row.setdefault("event", "other")
        row |= {
            "raw": line.text, "message": line.text, "received_time": self.origin.received,
            "raw_bytes": line.data if "�" in line.text else None,
        }  # fmt: skip
        self.add("logs", row, line.number)

    def parsed(self) -> Parsed:
        """The frames, with the columns of ``parsers.record``. Raises ``ValueError`` for a table that does not exist."""
        for table, rows in self.rows.items():
            if table not in TABLES:
                raise ValueError(f"there is no table {table!r}, but {', '.join(TABLES)}")
            named = set().union(*rows)  # all rows' keys at once: checking each row would cost as much as filling it
            if unknown := sorted(named - TABLES[table].keys() - _FILLED_IN):
                self.warn(
                    f"{table} has no column {', '.join(map(repr, unknown))}, which is dropped; there is {', '.join(TABLES[table])}"
                )
        hidden = self._warned - len(self.warnings)
        more = [f"{self.origin.path or self.kind}: {hidden} more warnings"] if hidden > 0 else []
        return Parsed({name: _framed(name, rows) for name, rows in self.rows.items()}, self.warnings + more)


def of_lines(readers: Mapping[str, Callable[[Gathered, list[Line]], None]]) -> Document:
    """A family whose kinds each have their own function that reads lines."""

    def read(kind: str, data: bytes, origin: Origin) -> Parsed:
        gathered = Gathered(kind, origin)
        readers[kind](gathered, split_lines(data))
        return gathered.parsed()

    return Document(kinds=tuple(readers), read=read)


def _framed(table: str, rows: list[Row]) -> pl.DataFrame:
    """Like ``frame``, but unknown node lists stay null: Polars turns a None among lists into an empty list."""
    made = frame(table, rows)
    lists = [name for name in ("nodes", "waits_for") if name in made.columns]
    return made.with_columns(pl.when(pl.col(name).list.len() > 0).then(pl.col(name)).alias(name) for name in lists)
