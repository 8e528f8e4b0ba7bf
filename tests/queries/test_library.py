"""Every saved query binds against the contract's tables, has its header, and runs on empty tables."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from queries.kql import run
from queries.kql.catalog import CATALOG

LIBRARY = sorted((Path(__file__).parents[2] / "queries" / "library").glob("*.kql"))
PHYSICAL = {"datetime": "TIMESTAMP", "string": "VARCHAR", "long": "BIGINT", "real": "DOUBLE", "dynamic": "VARCHAR"}


@pytest.fixture(scope="module")
def store() -> duckdb.DuckDBPyConnection:
    """An empty store with the contract's tables."""
    con = duckdb.connect()
    con.execute("CREATE SCHEMA kql")
    for table in CATALOG:
        columns = ", ".join(f'"{c.name}" {PHYSICAL[c.kql_type]}' for c in table.columns)
        con.execute(f"CREATE TABLE {table.relation} ({columns})")
    return con


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: p.stem)
def test_a_saved_query_runs(path: Path, store: duckdb.DuckDBPyConnection) -> None:
    text = path.read_text()
    for line in ("// title: ", "// description: ", "// parameters: ", "// example: "):
        assert line in text
    assert run(store, text).columns
