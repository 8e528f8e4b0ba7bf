"""The objects of a payload around lines, many at once: the same result as :class:`Wrapped` for each.

Host, path, program and severity are resolved once for lines with the same values. Unusual objects are read one by one
and inserted at their places among the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from collector.columnar import otlp_tables as t
from collector.columnar.moments import moments
from collector.columnar.objects import Objects
from collector.columnar.otlp_fields import fields
from collector.columnar.otlp_tables import Array
from collector.receivers.base import micros
from collector.receivers.wrapped import (
    FACILITY,
    HOST,
    JOB,
    JOB_OUTPUT,
    PATH,
    SEVERITY,
    SOURCE,
    TEXT,
    TIME,
    UNIT,
    USED,
    Named,
    Read,
    Streams,
    Wrapped,
    program_of,
)
from parsers.lines import codes, numbered

_NAMED = frozenset((*HOST, *PATH, *SEVERITY, *FACILITY, *UNIT, *SOURCE, *JOB))
#: The columns of each line; ``group``: lines of one file, or of one program, have the same number.
_COLUMNS: dict[str, Any] = {
    "line": pl.Binary, "host": pl.String, "file": pl.String, "time": pl.Int64, "severity": pl.String, "unit": pl.String,
    "pid": pl.Int64, "facility": pl.String, "fields": pl.String, "group": pl.Int64,
}  # fmt: skip


def plain_wrappers(objects: Objects) -> Array:
    """Which objects are wrappers around a line that can be read in bulk."""
    attributes = objects.tables.attributes
    is_named = np.array([name in _NAMED for name in objects.names] or [False])[attributes[:, t.KEY]]
    # Whether "true" or a number of twenty digits is a host is decided elsewhere.
    odd = is_named & np.isin(attributes[:, t.KIND], (t.FALSE, t.TRUE, t.OTHER))
    none = {"": np.full(len(objects), -1)}
    texts = _first(objects, objects.slots(TEXT) or none, TEXT, (t.TEXT,))
    return ~objects.marked() & ~objects.owners(odd) & (texts >= 0)


class WrappedColumns(Wrapped):
    """Like :class:`Wrapped`. ``row``: the position of the next single object among those added in bulk."""

    row = 0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._alone: list[tuple[int, Read]] = []
        self._tables: list[pl.DataFrame] = []
        self._rows: list[Array] = []
        #: The key that separates lines: their group number, and its path and source.
        self._groups: dict[tuple[str | None, str | None, int | None], int] = {}
        self._of_group: list[tuple[str | None, str | None, int | None]] = []

    def take(self, read: Read) -> None:
        self._alone.append((self.row, read))

    def add_all(self, objects: Objects, rows: Array, streams: Sequence[str], which: Array, before: int = 0) -> None:
        """Adds the objects ``rows``, all of them regular; ``streams[which[i]]`` names the lines of ``rows[i]`` if it
        names no file. ``before``: the number of the payload's objects before these."""
        if not len(rows):
            return
        slots = {name: held[rows] for name, held in objects.slots((*TEXT, *TIME, *_NAMED)).items()}
        time = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(rows))
        for name in TIME:
            if name in slots and time.null_count():
                time = pl.select(pl.coalesce(time, moments(objects, slots[name], micros))).to_series()
        about, own = self._abouts_of(objects, slots, streams, which)
        self._rows.append(rows + before)
        table = about.with_columns(
            objects.texts(_first(objects, slots, TEXT, (t.TEXT,))).cast(pl.Binary).alias("line"),
            time.alias("time"),
            own.alias("pid"),
            _fields(objects, rows).alias("fields"),
        )
        self._tables.append(table.select(list(_COLUMNS)))

    def _abouts_of(
        self, objects: Objects, slots: dict[str, Array], streams: Sequence[str], which: Array
    ) -> tuple[pl.DataFrame, pl.Series]:
        """The origin of each line, and the process that wrote it."""
        asked = (HOST, PATH, SEVERITY, FACILITY, *((SOURCE, JOB) if self._says_source else ()))
        coded = [codes(objects.texts(_first_stated(objects, slots, names))) for names in asked]
        units = codes(objects.texts(_first_stated(objects, slots, UNIT)))
        programs = [program_of(unit or "") for unit in units.names.to_list()]
        numbers = {name: at for at, name in enumerate(dict.fromkeys(name for name, _ in programs))}
        of_unit = np.array([numbers[name] for name, _ in programs], np.int64)
        together = of_unit[units.which]
        for part in (which, *[column.which for column in coded]):
            together = numbered(together)[0].astype(np.int64) * (int(part.max()) + 1) + part
        combined, firsts = numbered(together)
        words = [column.names[column.which[firsts]].to_list() for column in coded]
        named = []
        for at, unit in enumerate(units.which[firsts].tolist()):
            host, path, severity, facility, *own = (word[at] for word in words)
            named.append(Named(host, path, severity, facility, programs[unit][0], *own))
        abouts = [self.worked_out(one, streams[at]) for one, at in zip(named, which[firsts].tolist(), strict=True)]
        rows = [
            (a.host, a.file, a.severity, a.unit, a.facility, self._group(a.path, a.file, a.source, a.job))
            for a in abouts
        ]
        schema = {name: _COLUMNS[name] for name in ("host", "file", "severity", "unit", "facility", "group")}
        pids = pl.Series([pid for _, pid in programs], dtype=pl.Int64)
        return pl.DataFrame(rows, schema=schema, orient="row")[combined], pids[units.which]

    def _group(self, path: str | None, file: str | None, source: str | None, job: int | None) -> int:
        number = self._groups.setdefault((path and file, source, job), len(self._groups))
        if number == len(self._of_group):
            self._of_group.append((path, source, job))
        return number

    def done(self) -> None:
        if not self._tables:
            for _, read in self._alone:
                super().take(read)
            super().done()
            return
        table, rows = pl.concat(self._tables), np.concatenate(self._rows)
        self._tables.clear()
        self._rows.clear()
        if self._alone:
            alone = [
                (read.line, run.host, run.file, run.time, run.severity, run.unit, run.pid, run.facility, run.fields,
                 self._group(read.path, run.file, read.source, read.job))
                for _, read in self._alone for run in [read.run]
            ]  # fmt: skip
            rows = np.concatenate((rows, [row for row, _ in self._alone]))
            table = pl.concat([table, pl.DataFrame(alone, schema=_COLUMNS, orient="row")])
            table = table[np.argsort(rows, kind="stable")]
        self._give_on(table)
        self._alone.clear()

    def _give_on(self, table: pl.DataFrame) -> None:
        """Passes on the lines file by file, each file's in order, parsed together with those of similar files."""
        group, firsts = numbered(table["group"].to_numpy())
        if (group[1:] < group[:-1]).any():
            order = np.argsort(group, kind="stable")
            table, group = table[order], group[order]
        begins = np.searchsorted(group, np.arange(len(firsts)))
        streams, keys = Streams(), []
        for begin, number in zip(begins.tolist(), table["group"][begins].to_list(), strict=True):
            path, source, job = self._of_group[number]
            if path:
                known = streams.of(path, _Head(table["line"], begin, group))
                source, job = source or known.source, known.job_id if job is None else job
            keys.append((source, job if source in JOB_OUTPUT else None))
        columns = {"received": pl.lit(self._payload.received, pl.Int64), "transport": pl.lit(self._transport)}
        numbers = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        of_line = np.array([numbers[key] for key in keys])[group]
        for (source, job), rows in zip(numbers, parted(of_line, len(numbers)), strict=True):
            part = table if len(numbers) == 1 else table[rows]
            self._into.add_table(part["line"].to_list(), part.drop("line", "group").with_columns(**columns), source=source,
                                 cluster=self._cluster, timezone=self._timezone, job_id=job)  # fmt: skip


class _Head(Sequence[bytes]):
    """The lines of one group, split only on demand."""

    def __init__(self, lines: pl.Series, begin: int, group: Array) -> None:
        self._lines, self._begin, self._group = lines, begin, group

    def __len__(self) -> int:
        return int(np.searchsorted(self._group, self._group[self._begin], "right")) - self._begin

    def __getitem__(self, wanted: Any) -> Any:
        return self._lines[self._begin : self._begin + len(self)].to_list()[wanted]


def parted(numbers: Array, count: int) -> list[Array]:
    """For each number below ``count``: its positions, in order."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, count)))


def _first(objects: Objects, slots: dict[str, Array], names: Sequence[str], kinds: Sequence[int]) -> Array:
    """Per object: the member with the first of ``names`` whose kind is one of ``kinds``, -1: none."""
    found = np.full(len(next(iter(slots.values()))), -1, np.int64)
    for name in names:
        if name in slots:
            fits = (found < 0) & np.isin(objects.kinds(slots[name]), kinds) & (slots[name] >= 0)
            found = np.where(fits, slots[name], found)
    return found


def _first_stated(objects: Objects, slots: dict[str, Array], names: Sequence[str]) -> Array:
    """Like :func:`_first`: the first that is a number or a non-empty string."""
    attributes = objects.tables.attributes
    found_at = {}
    for name in names:
        if name in slots:
            empty = (attributes[slots[name], t.KIND] == t.TEXT) & (attributes[slots[name], t.VALUE_SIZE] == 0)
            found_at[name] = np.where(empty, -1, slots[name])
    none = {"": np.full(len(next(iter(slots.values()))), -1, np.int64)}
    return _first(objects, found_at or none, names, (t.TEXT, t.INTEGER))


def _fields(objects: Objects, rows: Array) -> pl.Series:
    """Everything without a column of its own."""
    names = [None if name in USED else name for name in objects.names]
    named = objects.tables.attributes[:, t.KEY]
    members = np.array([name is not None for name in names])[named]
    return fields(objects.tables, rows, names, named, [{}], objects.written(members))
