"""The schema that tests copy into a new store is the one that the product creates."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.duckdb.batches import INSTANCE
from store.duckdb.schema import facts_of
from store.duckdb.store import DuckStore
from tests import copied_schema

#: What the engine says of its tables, views, columns and constraints, without the numbers that it gives them.
CATALOG = {
    "tables": "schema_name, table_name, sql, column_count, index_count, has_primary_key",
    "views": "schema_name, view_name, sql, column_count",
    "columns": "schema_name, table_name, column_name, column_index, data_type, is_nullable, column_default",
    "constraints": "schema_name, table_name, constraint_text",
    "indexes": "schema_name, table_name, index_name, sql",
}


def catalog(store: DuckStore) -> dict[str, list[dict[str, object]]]:
    return {
        name: store.rows(f"SELECT {columns} FROM duckdb_{name}() WHERE database_name = current_database() ORDER BY ALL")
        for name, columns in CATALOG.items()
    }


def stated(store: DuckStore) -> dict[str, str]:
    """What the store says of itself, without the random name of its instance."""
    return {name: text for name, text in facts_of(store.cursor()).items() if name != INSTANCE}


@pytest.mark.parametrize("in_file", [False, True], ids=["in memory", "in a file"])
def test_a_copied_schema_is_the_created_one(in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder(name: str) -> Path | None:
        return tmp_path / name if in_file else None

    with DuckStore(folder("copied")) as copied:
        found, facts = catalog(copied), stated(copied)
        assert copied.rows("SELECT count(*) AS n FROM duckdb_databases() WHERE database_name = 'made'") == [{"n": 0}]
    monkeypatch.setattr(DuckStore, "migrate", copied_schema.create)
    with DuckStore(folder("created")) as created:
        assert catalog(created) == found
        assert stated(created) == facts
    assert {("kql", "Logs"), ("kql", "Drains"), ("raw", "log_view")} <= {
        (row["schema_name"], row["view_name"]) for row in found["views"]
    }
