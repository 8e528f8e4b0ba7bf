"""Engines that closed stores in memory left, for the next such stores of the process.

Only one that is as it was started is kept: nobody else has a connection to it, nobody locked its settings (the first
query in KQL does), no database is attached, and its own has only the schemas of a store, which are dropped. Settings
are set again whenever a store is opened (``store.duckdb.opening.set_up``). ``store/test_idle_engines.py`` tests this.
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

_IS_AS_STARTED = f"""SELECT current_setting('lock_configuration') IS NOT DISTINCT FROM false
    AND (SELECT count FROM duckdb_connection_count()) = 1
    AND NOT EXISTS (FROM duckdb_databases() WHERE database_name NOT IN ('memory', 'system', 'temp'))
    AND NOT EXISTS (FROM duckdb_schemas() WHERE database_name = 'memory' AND NOT internal AND schema_name NOT IN {SCHEMAS})
    AND NOT EXISTS (FROM duckdb_tables() WHERE schema_name = 'main')
    AND NOT EXISTS (FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal)"""


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


def close(store: DuckStore) -> None:
    """As the product closes a store; afterwards its engine is idle, if the next store can use it."""
    engine = _engines.pop(store._connection, None)
    _close(store)
    if engine is not None and not _is_reset(engine):
        engine.close()


def _is_reset(engine: duckdb.DuckDBPyConnection) -> bool:
    """Whether the engine is empty now and was put aside."""
    try:
        if len(_idle) == MOST or engine.execute(_IS_AS_STARTED).fetchall() != [(True,)]:
            return False
        for name in SCHEMAS:
            engine.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    except duckdb.Error:
        return False
    _idle.append(engine)
    return True


def keep_engines() -> None:
    """From now on, stores in memory share engines, one after the other."""
    opening.connect = connect
    DuckStore.close = close  # type: ignore[method-assign]
