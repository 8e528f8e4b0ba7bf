"""Up to where rows of ``raw`` were read: DuckDB numbers the rows of a table as they are added.

Numbers are given again where rows were deleted at the end of a table, and lines that are put into closed segments get others:
``Held`` tells how many rows there are and how many were added, and who follows compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from store.door import Held, Mark
from store.functions import row_place
from store.tables import NUMBER

Rows = Callable[[str, Sequence[int]], list[dict[str, Any]]]

_NOTHING = Held(0, 0)


def mark(rows: Rows, batch: int, tables: Sequence[str], since: Mark | None) -> Mark:
    """How tables of ``raw`` stand. After an earlier mark only rows behind it are looked at: the highest number of all would be
    sought among all lines."""
    seen = {table: since.tables.get(table, _NOTHING) if since else _NOTHING for table in tables}
    counted = _counts(rows, tables, {table for table in tables if seen[table].added}, seen)
    if any(row["n"] and not seen[row["t"]].added for row in counted):  # in one more question: rows come in meanwhile
        counted = _counts(rows, tables, set(tables), seen)
    found = {}
    for row in counted:
        table, count = row["t"], row["n"]
        then = seen[table]
        added = then.added if row["top"] is None else row["top"] + 1
        if count - then.rows != added - then.added:  # rows are gone: the highest that is left may lie before
            added = rows(f"SELECT coalesce(max(rowid), -1) + 1 AS added FROM raw.{table}", [])[0]["added"]
        found[table] = Held(count, added)
    return Mark(found, batch)


def _counts(rows: Rows, tables: Sequence[str], held: Collection[str], seen: Mapping[str, Held]) -> list[dict[str, Any]]:
    """Row counts, and of tables that ``held`` rows the highest number behind the last look: seeking it costs more than all
    counts."""
    parts, lasts = [], []
    for table in tables:
        top = "NULL"
        if table in held:
            top = f"(SELECT max(rowid) FROM raw.{table} WHERE rowid > ?)"
            lasts.append(seen[table].added - 1)
        parts.append(f"SELECT '{table}' AS t, count(*) AS n, {top} AS top FROM raw.{table}")
    return rows(" UNION ALL ".join(parts), lasts)


def stored_since(rows: sa.FromClause, since: Mark) -> sa.ColumnElement[bool]:
    """Rows of a table of ``raw``, or of an alias of one, that were added after a mark of it."""
    table = rows.element if isinstance(rows, sa.Alias) else rows
    assert isinstance(table, sa.Table)
    return row_place(rows) > sa.literal(since.tables[table.name].added - 1, NUMBER)
