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
            self._last = max(committed, self._last)
            known = since is not None and log.reaches(since, self._last)
            found: dict[str, Change] = {}
            ends: dict[str, int] = {}
            while True:  # while that is looked at more may be committed, to other tables too
                uncounted = {table for table in tables if table not in self._held}
                if found or uncounted:
                    ends = self._look(found, uncounted)
                if known and since is not None:
                    found = {t: c for t, c in log.between(since.batch, self._last, tables).items() if c != NOTHING}
                if all(table in ends for table, change in found.items() if written(change)):
                    break
            rows = {table: self._count(table) for table in tables}
            until = Mark(log.instance, self._last)
        if not known:
            return Changes(until, {table: Change(count) for table, count in rows.items()}, rows, too_old=True)
        starts = {table: ends[table] - written(change) for table, change in found.items() if written(change)}
        return Changes(until, dict.fromkeys(tables, NOTHING) | found, rows, places=starts)

    def _count(self, table: str) -> int:
        """How many rows a table has at the last batch, by how many it had before."""
        then, count = self._held[table]
        if then < self._last:
            count += growth(self._log.between(then, self._last, (table,))[table])
            self._held[table] = self._last, count
        return count

    def _look(self, found: Mapping[str, Change], counted: Collection[str]) -> dict[str, int]:
        """At one moment: the last batch, how many rows tables hold, and (the answer) behind which number the rows of those end of which
        any were written. That is sought behind where it was the last time, since seeking it among all rows takes long; all are looked
        at where it lies before."""
        hints = {table: self._ends.get(table, 0) for table, change in found.items() if written(change)}
        if not hints and not counted:
            return {}
        while True:
            parts = [f"(SELECT max(rowid) + 1 FROM raw.{t} WHERE rowid >= ?) AS end_{t}" for t in hints]
            parts += [f"({_COUNTS.get(t, _COUNT.format(t))}) AS count_{t}" for t in counted]
            (row,) = self._rows(f"SELECT ({COUNT}) AS batch, {', '.join(parts)}", list(hints.values()))
            ends = {table: row[f"end_{table}"] for table in hints}
            if all(end is not None or not hints[table] for table, end in ends.items()):
                break
            hints = {table: hints[table] if end is not None else 0 for table, end in ends.items()}
        self._last = max(int(row["batch"]), self._last)
        self._held |= {table: (self._last, int(row[f"count_{table}"])) for table in counted}
        self._ends |= {table: int(end or 0) for table, end in ends.items()}
        return {table: int(end or 0) for table, end in ends.items()}


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
