"""DDL of the intake tables. They are in the same file as the rows, because they are changed in the same transaction."""

from __future__ import annotations

from store.duckdb.dialect import ddl
from store.tables import SOURCES, STORED

STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS intake",
    *(ddl(table) for table in STORED if table.schema == "intake"),
    # Lines whose timestamps are held back (parsers.future), and the longest gap; older stores lack these columns.
    f"ALTER TABLE {SOURCES.schema}.{SOURCES.name} ADD COLUMN IF NOT EXISTS ahead BIGINT DEFAULT 0",
    f"ALTER TABLE {SOURCES.schema}.{SOURCES.name} ADD COLUMN IF NOT EXISTS longest_s DOUBLE",
)
