"""The rows of a statement's near steps, read at once if they are few.

Streaming them has the engine plan each step twice, and a process for the rest costs more than most statements. If the
near steps have few rows, each is planned once; the rest runs beside the store if its cost is bounded by their number
and bytes (``judging.cheap_on_few_rows``), and otherwise in its own process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from queries.kql.functions.python import give
from queries.kql.parsed import parsed
from queries.kql.wall.cutting import Cut, Stream
from queries.kql.wall.forking import casts, quoted
from queries.kql.wall.guarding import Guarded

#: The bounds of all near steps together. For these, what may run on few rows takes less than a second, and not much more
#: memory than a hundred times the bytes.
MOST_ROWS, MOST_BYTES = 20_000, 3 * 2**19
#: Types that Arrow hands back as they were.
_SAME = frozenset(("VARCHAR", "BIGINT", "INTEGER", "DOUBLE", "BOOLEAN", "TIMESTAMP"))


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a near step, and the engine's types of its columns."""

    name: str
    types: list[tuple[str, str]]
    table: pa.Table


def read(con: duckdb.DuckDBPyConnection, cut: Cut) -> list[Rows] | None:
    """The rows of all near steps; None if they are not few. Raises ``duckdb.Error``."""
    if not cut.near or cut.many.is_set():
        return None
    found: list[Rows] = []
    with Guarded(con) as guarded:
        try:
            for stream in cut.near:
                found.append(_rows(con, stream))
                if _are_many(found):
                    cut.many.set()  # the next query with this text does not try
                    return None
        except duckdb.Error:
            if guarded.struck:
                cut.many.set()
                return None
            raise
    return found


def _are_many(found: Sequence[Rows]) -> bool:
    rows: int = sum(one.table.num_rows for one in found)
    size: int = sum(one.table.nbytes for one in found)
    return rows > MOST_ROWS or size > MOST_BYTES


def _rows(con: duckdb.DuckDBPyConnection, stream: Stream) -> Rows:
    """At most one row more than few."""
    sql, values = stream.statement.sql, stream.statement.parameters
    give(con, sql)
    con.execute(parsed(con, f"{sql} LIMIT ${len(values) + 1}"), [*values, MOST_ROWS + 1])
    types = [(column[0], str(column[1])) for column in con.description or ()]
    return Rows(stream.name, types, con.to_arrow_table())


@contextmanager
def registered(con: duckdb.DuckDBPyConnection, rows: Sequence[Rows], sql: str) -> Iterator[str]:
    """The statement for which the rows are tables of this connection."""
    for one in rows:
        con.register(_registered_as(one), one.table)
    casts = ", ".join(_cast(one) for one in rows if not _is_same(one))
    try:
        yield sql if not casts else f"WITH {casts}, {sql[5:]}" if sql.startswith("WITH ") else f"WITH {casts} {sql}"
    finally:
        for one in rows:
            with suppress(duckdb.Error):  # an answer that was not read to its end holds it; the next query replaces it
                con.unregister(_registered_as(one))


def _is_same(one: Rows) -> bool:
    return all(kind in _SAME for _, kind in one.types)


def _registered_as(one: Rows) -> str:
    return one.name if _is_same(one) else f"in {one.name}"


def _cast(one: Rows) -> str:
    return f'{quoted(one.name)} AS (SELECT {casts(one.types)} FROM "in {one.name}")'
