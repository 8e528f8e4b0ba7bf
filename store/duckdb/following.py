"""Finds the new rows of ``raw``: DuckDB numbers the rows of a table in the order in which they are added.

Those numbers are no marks: they are reused after deletions, and a checkpoint renumbers all rows if many before them are
gone. But the rows added last always come last, whatever their numbers; so the change log (``store.changes``) gives
their count, and the highest number shows where they begin. One statement reads both, hence consistently.
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
    """Determines what changed in one open store. Any thread may call it."""

    def __init__(self, rows: Rows, log: ChangeLog) -> None:
        self._rows, self._log = rows, log
        self._lock = threading.Lock()
        #: For each queried table: a batch and the number of rows then; and the next row number at the last look.
        self._held: dict[str, tuple[int, int]] = {}
        self._ends: dict[str, int] = {}
        #: The last batch seen: the store counts a commit a moment after it becomes readable.
        self._last = 0

    def changes(self, committed: int, tables: Sequence[str], since: Mark | None) -> Changes:
        """The changes to some tables of ``raw`` after a mark, at least up to the batch ``committed``."""
        log = self._log
        with self._lock:
            self._last = max(committed, self._last)
            known = since is not None and log.reaches(since, self._last)
            found: dict[str, Change] = {}
            ends: dict[str, int] = {}
            while True:  # other commits may arrive during this look, to other tables too
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
        """The number of rows of a table at the last batch, computed from an earlier count."""
        then, count = self._held[table]
        if then < self._last:
            count += growth(self._log.between(then, self._last, (table,))[table])
            self._held[table] = self._last, count
        return count

    def _look(self, found: Mapping[str, Change], counted: Collection[str]) -> dict[str, int]:
        """In one snapshot: the last batch, the number of rows of tables, and (returned) the row number after the last
        row of each written table. The search starts from the previous result, since searching all rows takes long; if
        the number is lower now, all rows are searched."""
        hints = {table: self._ends.get(table, 0) for table, change in found.items() if written(change)}
        if not hints and not counted:
            return {}
        while True:
            parts = {"batch": COUNT}
            parts |= {f"end {t}": f"SELECT max(rowid) + 1 FROM raw.{t} WHERE rowid >= ?" for t in hints}
            parts |= {f"count {t}": _COUNTS.get(t, _COUNT.format(t)) for t in counted}
            # A row for each: as columns of one row, DuckDB takes six times as long to plan them.
            sql = " UNION ALL ".join(f"SELECT '{name}' AS name, ({text})::BIGINT AS n" for name, text in parts.items())
            row = {one["name"]: one["n"] for one in self._rows(sql, list(hints.values()))}
            ends = {table: row[f"end {table}"] for table in hints}
            if all(end is not None or not hints[table] for table, end in ends.items()):
                break
            hints = {table: hints[table] if end is not None else 0 for table, end in ends.items()}
        self._last = max(int(row["batch"]), self._last)
        self._held |= {table: (self._last, int(row[f"count {table}"])) for table in counted}
        self._ends |= {table: int(end or 0) for table, end in ends.items()}
        return {table: int(end or 0) for table, end in ends.items()}


_COUNT = "SELECT count(*) FROM raw.{}"
#: Lines of closed days are still lines of the table.
_COUNTS: Mapping[str, str] = {
    LOGS.name: "SELECT (SELECT count(*) FROM raw.logs) + (SELECT coalesce(sum(lines), 0)::BIGINT FROM raw.archive WHERE state = 'kept')"
}


def stored_since(rows: sa.FromClause, changes: Changes) -> sa.ColumnElement[bool]:
    """The added rows of a table of ``raw``, or of an alias of one, according to its changes."""
    table = rows.element if isinstance(rows, sa.Alias) else rows
    assert isinstance(table, sa.Table)
    if changes.too_old:
        return sa.true()
    if changes.tables[table.name] == NOTHING or table.name not in changes.places:
        return sa.false()
    return row_place(rows) >= sa.literal(changes.places[table.name], NUMBER)


__all__ = ["Follower", "stored_since"]
