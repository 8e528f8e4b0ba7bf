"""DDL of the way in. Its tables lie in the same file as the rows, because they are changed in the same transaction."""

from __future__ import annotations

from store.duckdb.dialect import ddl
from store.tables import SOURCES, STORED

STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS intake",
    *(ddl(table) for table in STORED if table.schema == "intake"),
    # Lines whose stamps are held (parsers.future); stores that were made before have none.
    f"ALTER TABLE {SOURCES.schema}.{SOURCES.name} ADD COLUMN IF NOT EXISTS ahead BIGINT DEFAULT 0",
)
