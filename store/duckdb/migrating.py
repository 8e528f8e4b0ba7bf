"""Bringing a store of an older version to this one's, and what that added."""

from __future__ import annotations

from pathlib import Path

import duckdb

from store.door import Migrated
from store.duckdb import opening
from store.duckdb.open_store import DATABASE, Opener
from store.duckdb.querying import store_errors
from store.duckdb.schema import VERSION_FACT, facts_of


def migrate(folder: Path, opener: Opener) -> Migrated:
    """Creates what this version has and the store lacks: a whole store in an empty folder. Opening does it, in one
    transaction. Raises ``StoreError``; a store of a newer version is left as it is."""
    before, had = _schema(folder) if (folder / DATABASE).exists() else (None, set())
    opener(folder).close()
    after, has = _schema(folder)
    return Migrated(before, after or "", sorted(has - had))


def _schema(folder: Path) -> tuple[str | None, set[str]]:
    """The version, and everything that has a name: "table raw.logs", "column raw.logs.time", "view kql.Logs"."""
    connection = opening.connect(folder, str(folder / DATABASE), read_only=True)
    with connection, store_errors():
        version = facts_of(connection).get(VERSION_FACT)
        columns = _rows(
            connection,
            "SELECT t.schema_name, t.table_name, c.column_name FROM duckdb_tables() t JOIN duckdb_columns() c USING (table_oid)",
        )
        views = _rows(connection, "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal")
    tables = {(schema, table) for schema, table, _ in columns}
    named = {f"table {'.'.join(table)}" for table in tables} | {f"view {'.'.join(view)}" for view in views}
    return version, named | {f"column {'.'.join(column)}" for column in columns}


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, ...]]:
    return connection.execute(sql).fetchall()
