"""Which rows of ``raw`` are new: DuckDB numbers the rows of a table in the order in which they are added.

Those numbers are no marks: they are given again after deletions, and a checkpoint gives all rows lower ones where many before them are
gone. But rows that were added last lie last, whatever their numbers are; so the change log (``store.changes``) says how many they
are, and the highest number says where they begin. Both are read in one statement, hence of one moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from store.changes import NOTHING, Change, ChangeLog, Changes, Mark, growth, written
from store.duckdb.batches import COUNT
from store.functions import row_place
from store.tables import LOGS, NUMBER

Rows = Callable[[str, Sequence[Any]], list[dict[str, Any]]]


class Follower:
    """Answers what changed in one open store. Any thread may ask."""

    def __init__(self, rows: Rows, log: ChangeLog) -> None:
        self._rows, self._log = rows, log
        self._lock = threading.Lock()
        #: Of each table that was asked for: at which batch how many rows it had, and where the next row was to lie.
        self._held: dict[str, tuple[int, int]] = {}
        self._ends: dict[str, int] = {}
        #: The last batch that was seen: the store counts a commit a moment after it can be read.
        self._last = 0

    def changes(self, committed: int, tables: Sequence[str], since: Mark | None) -> Changes:
        """What changed in some tables of ``raw`` after a mark, at least up to the batch ``committed``."""
        log = self._log
        with self._lock:
            committed = max(committed, self._last)
            too_old = since is None or not log.reaches(since, committed)
            found = {} if too_old or since is None else log.between(since.batch, committed, tables)
            changed = {table for table, change in found.items() if written(change)}
            uncounted = {table for table in tables if table not in self._held}
            batch, counts, ends = self._look(changed, uncounted) if changed or uncounted else (committed, {}, {})
            self._last = max(batch, self._last)
            for table, count in counts.items():
                self._held[table] = batch, count
            rows = {table: self._count(table, batch) for table in tables}
            if too_old or since is None:
                return Changes(Mark(log.instance, batch), {t: Change(n) for t, n in rows.items()}, rows, too_old=True)
            found = log.between(since.batch, batch, tables)
            self._ends |= ends
            starts = {table: ends[table] - written(found[table]) for table in changed}
        return Changes(Mark(log.instance, batch), found, rows, places=starts)

    def _count(self, table: str, batch: int) -> int:
        """How many rows a table has at a batch, by how many it had before."""
        then, count = self._held[table]
        if then < batch:
            count += growth(self._log.between(then, batch, (table,))[table])
            self._held[table] = batch, count
        return count

    def _look(self, ended: Collection[str], counted: Collection[str]) -> tuple[int, dict[str, int], dict[str, int]]:
        """At one moment: the last batch, how many rows tables hold, and behind which number the rows of others end. That is sought
        behind where it was the last time, since seeking it among all rows takes long; all are looked at where it lies before."""
        hints = {table: self._ends.get(table, 0) for table in ended}
        while True:
            ends = [f"(SELECT max(rowid) + 1 FROM raw.{t} WHERE rowid >= ?) AS end_{t}" for t in hints]
            counts = [f"({_COUNTS.get(t, _COUNT.format(t))}) AS count_{t}" for t in counted]
            (row,) = self._rows(f"SELECT {', '.join([f'({COUNT}) AS batch', *ends, *counts])}", list(hints.values()))
            found = {table: row[f"end_{table}"] for table in hints}
            if all(end is not None or not hints[table] for table, end in found.items()):
                break
            hints = {table: hints[table] if end is not None else 0 for table, end in found.items()}
        return (
            int(row["batch"]),
            {t: int(row[f"count_{t}"]) for t in counted},
            {t: int(e or 0) for t, e in found.items()},
        )


_COUNT = "SELECT count(*) FROM raw.{}"
#: Lines of closed days are lines of the table still.
_COUNTS: Mapping[str, str] = {
    LOGS.name: "SELECT (SELECT count(*) FROM raw.logs) + (SELECT coalesce(sum(lines), 0)::BIGINT FROM raw.archive WHERE state = 'kept')"
}


def stored_since(rows: sa.FromClause, changes: Changes) -> sa.ColumnElement[bool]:
    """Rows of a table of ``raw``, or of an alias of one, that were added, by what changed in it."""
    table = rows.element if isinstance(rows, sa.Alias) else rows
    assert isinstance(table, sa.Table)
    if changes.too_old:
        return sa.true()
    if changes.tables[table.name] == NOTHING or table.name not in changes.places:
        return sa.false()
    return row_place(rows) >= sa.literal(changes.places[table.name], NUMBER)


__all__ = ["Follower", "stored_since"]
