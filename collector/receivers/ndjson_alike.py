"""Records of the wire format that differ only in time and offset are described once."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import polars as pl

from collector.columnar.moments import moments
from collector.columnar.objects import Objects
from collector.columnar.otlp_tables import KEY, KIND, TEXT, Array
from collector.receivers.base import Run, micros
from collector.receivers.ndjson_records import CONTENT, WHOLE, To, described, text_of
from collector.receivers.wrapped_columns import parted
from parsers.lines import codes, numbered

#: Fields in which similar records may differ.
_OWN = frozenset(("raw", "time", "read", "offset"))
#: Keys that only a wire record has, or that a format parses whole.
OURS = frozenset((*CONTENT, "document", *WHOLE))
#: Records with more names than this are rarely similar.
_MOST_NAMES = 64
_SCHEMA = {
    name: pl.Int64 if name in ("lines", "received", "time", "read", "pid", "group") else pl.String
    for name in (*Run._fields, "group")
}


class Alike:
    """Adjacent one-line records that differ only in time and offset: described once."""

    def __init__(self, to: To) -> None:
        self._to = to
        self._rest: dict[str, Any] | None = None
        self._full: dict[str, Any] = {}
        self._lines: list[str] = []
        self._times: list[tuple[int | None, int | None]] = []

    def takes(self, record: dict[str, Any], defaults: dict[str, Any]) -> bool:
        """Whether a record is similar: then it is consumed, and empty afterwards."""
        line = record.get("raw")
        if type(line) is not str:
            return False
        rest = {name: value for name, value in record.items() if name not in _OWN} if len(record) > 1 else {}
        if rest != self._rest:
            if not _is_plain(rest):
                return False
            self.add()
            self._rest, self._full = rest, {**defaults, **rest}
        self._lines.append(line)
        time, read = (record.get(name, defaults.get(name)) for name in ("time", "read"))
        self._times.append((micros(time), micros(read)))
        return True

    def add(self) -> None:
        """Passes on what was consumed."""
        if self._lines:
            lines = list(map(text_of, self._lines))
            run, group = described(len(lines), lines, self._full, self._to)
            times = ((*moment, len(list(same))) for moment, same in groupby(self._times))
            runs = [run._replace(lines=count, time=time, read=read) for time, read, count in times]
            self._to.into.add(lines, *runs, **group)
        self._rest, self._lines, self._times = None, [], []


class AlikeColumns:
    """Like :class:`Alike`, for many records; ``fits``: which records of a body qualify."""

    def __init__(self, found: Objects) -> None:
        self._found = found
        attributes = found.tables.attributes
        other = [name != top or name in OURS - {"raw"} for name, top in zip(found.names, found.tops, strict=True)]
        is_rest = np.array(
            [not odd and name not in _OWN for odd, name in zip(other, found.names, strict=True)] or [False]
        )
        is_odd = np.array(other or [True])[attributes[:, KEY]]
        is_odd |= is_rest[attributes[:, KEY]] & (attributes[:, KIND] != TEXT)
        none = np.full(len(found), -1)
        self._own = found.slots(sorted(_OWN))
        self.fits = ~found.marked() & ~found.owners(is_odd) & (found.kinds(self._own.get("raw", none)) == TEXT)
        names = [name for name, is_wanted in zip(found.names, is_rest.tolist(), strict=False) if is_wanted]
        if len(names) > _MOST_NAMES:
            self.fits[:] = False
        self._rest = found.slots(names) if self.fits.any() else {}

    def add(self, rows: Array, defaults: dict[str, Any], to: To) -> None:
        """Passes on ``rows``, which have only foreign objects between them."""
        lines = self._found.texts(self._own["raw"][rows]).cast(pl.Binary).to_list()
        together = np.zeros(len(rows), np.int64)
        coded = {name: codes(self._found.texts(held[rows])) for name, held in self._rest.items()}
        for part in coded.values():
            together = numbered(together)[0].astype(np.int64) * (int(part.which.max()) + 1) + part.which
        words = {name: (part.which, part.names.to_list()) for name, part in coded.items()}
        which, firsts = numbered(together)
        ends = np.append(np.flatnonzero((np.diff(which) != 0) | (np.diff(rows) != 1)) + 1, len(rows))
        runs = []
        groups: dict[tuple[tuple[str, Any], ...], int] = {}
        for first in firsts.tolist():
            end = int(ends[np.searchsorted(ends, first, "right")])
            rest = {name: word for name, (held, known) in words.items() if (word := known[held[first]]) is not None}
            run, group = described(end - first, lines[first:end], {**defaults, **rest}, to)
            runs.append((*run, groups.setdefault(tuple(group.items()), len(groups))))
        table = pl.DataFrame(runs, schema=_SCHEMA, orient="row")[which]
        table = table.with_columns(self._moments(rows, name, defaults) for name in ("time", "read")).drop("lines")
        table = table.select(column for column in table if column.null_count() < len(table))  # the others take as much
        for group_of, at in zip(groups, parted(table["group"].to_numpy(), len(groups)), strict=True):
            to.into.add_table([lines[row] for row in at.tolist()], table[at].drop("group"), **dict(group_of))

    def _moments(self, rows: Array, name: str, defaults: dict[str, Any]) -> pl.Series:
        """Each record's own time if it has one, else the default."""
        general = pl.Series(name, [micros(defaults.get(name))], dtype=pl.Int64).new_from_index(0, len(rows))
        if name not in self._own:
            return general
        slots = self._own[name][rows]
        own = moments(self._found, slots, micros).alias(name)
        return own if (slots >= 0).all() else own.zip_with(pl.Series(slots >= 0), general)


def _is_plain(rest: dict[str, Any]) -> bool:
    """Whether the remaining fields of a record with ``raw`` are all strings (1 and true are equal but not the same) and
    none is content."""
    return (
        all(type(value) is str for value in rest.values())
        and CONTENT.keys().isdisjoint(rest)
        and "document" not in rest
    )
