"""SQL as the engine parsed it. Parsing it again takes a fifth of a small query's time."""

from __future__ import annotations

import duckdb

from queries.kql.kept import Kept

#: Independent of a connection. Longer statements (lists of blocks, datatables) hardly ever repeat.
_PARSED: Kept[duckdb.Statement] = Kept()


def parsed(con: duckdb.DuckDBPyConnection, statement: str) -> duckdb.Statement:
    """The parsed form of a text that is one statement."""
    made = _PARSED.get(statement)
    if made is None:
        (made,) = con.extract_statements(statement)
        _PARSED.put(statement, made)
    return made
