"""Engines that closed stores in memory left, for the next such stores of the process.

Only one that is as it was started is kept: nobody else has a connection to it, nobody locked its settings (the first
query in KQL does), no database is attached, and its own has only the schemas of a store. If these are those of a new
store, only the tables that had rows are made anew. Otherwise, as when a test left an index, a sequence or a type, the
schemas are dropped. Settings are set again whenever a store is opened (``store.duckdb.opening.set_up``).
``store/duckdb/test_idle_engines.py`` tests this.

Macros are looked for at the end of a process only (``macros_left``): no other list is as long as that of all functions.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import duckdb

from store.duckdb import opening
from store.duckdb.store import DuckStore

_connect, _close = opening.connect, DuckStore.close

#: The schemas of a store in memory.
SCHEMAS = ("kept", "kql", "model", "raw")
#: Stores that are open beside each other in one test are few.
MOST = 4
#: Idle engines, and the process that they belong to: another one that was forked has none of their threads.
_idle: list[duckdb.DuckDBPyConnection] = []
_process = os.getpid()
#: The engine of each store's connection.
_engines: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection] = weakref.WeakKeyDictionary()

#: Those with the schemas of a new store: what these had when they were made (``_THERE`` without the rows).
_made: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[tuple[str, str], str]] = weakref.WeakKeyDictionary()

#: A row that an engine as it was started does not have.
_IS_CHANGED = """SELECT 'changed' AS schema, '' AS name, '' AS text, 0 AS rows WHERE current_setting('lock_configuration') IS DISTINCT FROM false
        OR (SELECT count FROM duckdb_connection_count()) <> 1
        OR EXISTS (FROM duckdb_databases() WHERE database_name NOT IN ('memory', 'system', 'temp'))"""
#: What the database in memory has: of a table its SQL, of a view its number, since nothing makes one anew. And how many
#: rows a table had since it was made, those that were deleted included. A new store has no index, sequence or type.
_THERE = f"""{_IS_CHANGED}
    UNION ALL SELECT schema_name, '', '', 0 FROM duckdb_schemas() WHERE database_name = 'memory' AND NOT internal
    UNION ALL SELECT schema_name, table_name, sql, estimated_size FROM duckdb_tables() WHERE database_name = 'memory'
    UNION ALL SELECT schema_name, view_name, view_oid::VARCHAR, 0 FROM duckdb_views()
        WHERE database_name = 'memory' AND NOT internal
    UNION ALL SELECT schema_name, index_name, 'an index', 0 FROM duckdb_indexes()
    UNION ALL SELECT schema_name, sequence_name, 'a sequence', 0 FROM duckdb_sequences()
    UNION ALL SELECT schema_name, type_name, 'a type', 0 FROM duckdb_types() WHERE NOT internal"""


def connect(folder: Path | None, target: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """As the product connects; to an idle engine if the database is one in memory."""
    if folder is not None or os.getpid() != _process:
        return _connect(folder, target, read_only=read_only)
    try:
        engine = _idle.pop()
    except IndexError:
        engine = _connect(folder, target, read_only=read_only)
    connection = engine.cursor()
    _engines[connection] = engine
    return connection


def has_schemas(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the engine of a store in memory has the schemas of a new store already."""
    return _engines.get(connection) in _made


def made_schemas(connection: duckdb.DuckDBPyConnection) -> None:
    """To be called once these were made in an engine that had none."""
    if (engine := _engines.get(connection)) is not None:
        there = engine.execute(_THERE).fetchall()  # changed: it has a connection now
        _made[engine] = {named: text for named, text in _named(there).items() if named != ("changed", "")}


def _named(there: list[tuple[str, str, str, int]]) -> dict[tuple[str, str], str]:
    return {(schema, name): text for schema, name, text, _ in there}


def close(store: DuckStore) -> None:
    """As the product closes a store; afterwards its engine is idle, if the next store can use it."""
    engine = _engines.pop(store._connection, None)
    _close(store)
    if engine is not None and not _is_reset(engine):
        engine.close()


def _is_reset(engine: duckdb.DuckDBPyConnection) -> bool:
    """Whether the engine is empty now and was put aside."""
    try:
        if len(_idle) == MOST:
            return False
        there = engine.execute(_THERE).fetchall()
        if not {schema for schema, *_ in there} <= set(SCHEMAS):
            return False
        if _named(there) == _made.get(engine):
            used = [f'DROP TABLE {schema}."{name}"; {sql}' for schema, name, sql, rows in there if rows]
            engine.execute("\n".join(used))
        else:
            _made.pop(engine, None)
            for name in SCHEMAS:
                engine.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    except duckdb.Error:
        return False
    _idle.append(engine)
    return True


def macros_left() -> list[str]:
    """The macros that tests left in idle engines, where tests of other files would find them."""
    macros = "SELECT schema_name || '.' || function_name FROM duckdb_functions() WHERE NOT internal ORDER BY ALL"
    return [name for engine in _idle for (name,) in engine.execute(macros).fetchall()]


def keep_engines() -> None:
    """From now on, stores in memory share engines, one after the other."""
    opening.connect = connect
    DuckStore.close = close  # type: ignore[method-assign]
