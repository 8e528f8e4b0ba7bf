"""Frames as tables that statements read.

To register a frame with DuckDB is to create a view, and to drop it afterwards: 0.9 ms, as long as half a thousand rows
take. So a connection keeps one view per schema, and only what it shows changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

#: Most views of a connection: few schemas occur, in some variants each (which columns have values).
_MOST = 200


class _Shown:
    """What a view shows: a frame while a statement runs, nothing otherwise.

    DuckDB plans for one row, since the number changes: a join builds its table of these rows, which are the fewer ones.
    """

    def __init__(self, schema: pa.Schema) -> None:
        #: DuckDB asks for it by this name, and opens no stream to learn it.
        self.schema = schema
        self.table: pa.Table | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        if self.table is None:
            raise RuntimeError("a view of an incoming frame is read outside of its statement")
        return self.table.__arrow_c_stream__(requested_schema)


_views: WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[pa.Schema, tuple[str, _Shown]]] = WeakKeyDictionary()


@contextmanager
def incoming(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> Iterator[str]:
    """The name under which statements of the body read a frame: one at a time. One thread at a time uses a connection."""
    views = _views.setdefault(connection, {})
    if any(shown.table is not None for _, shown in views.values()):
        raise RuntimeError("a frame is inserted while another one is")
    if len(views) >= _MOST:
        views.clear()
    name, shown = views.get(table.schema) or (f"incoming_{len(views)}", _Shown(table.schema))
    shown.table = table
    try:
        if table.schema not in views:
            connection.register(name, shown)
            views[table.schema] = name, shown
        yield name
    finally:
        shown.table = None


def forget(connection: duckdb.DuckDBPyConnection) -> None:
    """Views that a transaction created are gone once it is rolled back: call this then."""
    _views.pop(connection, None)
