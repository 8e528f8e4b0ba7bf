"""The rows of a statement's near steps, read at once if they are few.

Streaming them has the engine plan each step twice, and a process for the rest costs more than most statements. If the
near steps have few rows, each is planned once; the rest runs beside the store if its cost is bounded by their number
and bytes (``judging.cheap_on_few_rows``), and otherwise in its own process.

Whether rows are few is known only after they were read, and a step of few rows may join or sort many. So it may take
only a small share of the query's memory until then, because it is run again if the rows turn out to be many.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from queries.kql.functions.python import give
from queries.kql.parsed import parsed
from queries.kql.wall.batches import batches
from queries.kql.wall.cutting import Cut, Stream
from queries.kql.wall.guarding import Guarded
from queries.kql.wall.memory import memory_budget
from queries.kql.wall.tables import Rows

#: The bounds of all near steps together, if the rest may run beside the store. For these it takes less than a second,
#: and not much more memory than a hundred times the bytes.
MOST_ROWS, MOST_BYTES = 5_000, 2**19
#: The bounds if the rest runs in its own process: up to them, planning a step twice costs more than copying its rows.
MOST_SENT_ROWS, MOST_SENT_BYTES = 20_000, 2**21
#: The share of a query's memory that the near steps may take until their rows are known to be few, and the share for
#: the rest if it runs beside the store. Both ends of the engine's work are checked only now and then: a list of numbers
#: that doubles may pass its share threefold.
NEAR_SHARE, REST_SHARE = 1 / 16, 1 / 4
#: Rows that are taken out of the engine together: their bytes are counted after each batch.
ROWS_AT_ONCE = 512


def read(con: duckdb.DuckDBPyConnection, cut: Cut) -> list[Rows] | None:
    """The rows of all near steps; None if they are not few. Raises ``duckdb.Error``."""
    if not cut.near or cut.many.is_set():
        return None
    found: list[Rows] = []
    left, size = (MOST_ROWS, MOST_BYTES) if cut.is_far_small else (MOST_SENT_ROWS, MOST_SENT_BYTES)
    with Guarded(con, int(NEAR_SHARE * memory_budget())) as guarded:
        try:
            for stream in cut.near:
                rows = _rows(con, stream, left, size)
                if rows is None:
                    cut.many.set()  # the next query with this text does not try
                    return None
                found.append(rows)
                left, size = left - rows.table.num_rows, size - rows.table.nbytes
        except duckdb.Error:
            if guarded.struck:
                cut.many.set()
                return None
            raise
    return found


def _rows(con: duckdb.DuckDBPyConnection, stream: Stream, most_rows: int, most_bytes: int) -> Rows | None:
    """The rows of one step; None if there are more, or more bytes, than these."""
    sql, values = stream.statement.sql, stream.statement.parameters
    give(con, sql)
    con.execute(parsed(con, f"{sql} LIMIT ${len(values) + 1}"), [*values, most_rows + 1])
    types = [(column[0], str(column[1])) for column in con.description or ()]
    kept, rows, size = [], 0, 0
    found: Any = con.to_arrow_reader(ROWS_AT_ONCE)
    with found as reader:
        for batch in batches(reader):
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > most_rows or size > most_bytes:
                return None
            kept.append(batch)
        return Rows(stream.name, types, pa.Table.from_batches(kept, reader.schema))
