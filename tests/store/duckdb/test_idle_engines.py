"""A store in memory that takes the engine of a closed one is empty, and takes none that is not as it was started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pytest

from parsers.record import frame
from queries.kql.run import harden
from store.duckdb.store import DuckStore
from tests import idle_engines


@pytest.fixture(autouse=True)
def _idle(monkeypatch: pytest.MonkeyPatch) -> list[duckdb.DuckDBPyConnection]:
    idle: list[duckdb.DuckDBPyConnection] = []
    monkeypatch.setattr(idle_engines, "_idle", idle)
    with DuckStore(None):  # the first one of a process makes the schema in another
        pass
    idle.clear()
    return idle


def jobs() -> pl.DataFrame:
    return frame("jobs", [{"job_id": 1, "source": "sacct", "state": "FAILED"}])


def test_the_next_store_is_empty_and_has_its_own_instance(_idle: list[Any]) -> None:
    with DuckStore(None) as store:
        new = store.rows("FROM model.facts ORDER BY ALL")
        store.add({"jobs": jobs()})
        store.set_fact("x", "y")
    (engine,) = _idle
    with DuckStore(None) as store:
        assert _idle == []
        assert store.rows("SELECT count(*) AS n FROM raw.jobs UNION ALL SELECT count(*) FROM raw.batches") == [{"n": 0}, {"n": 0}]  # fmt: skip
        again = store.rows("FROM model.facts ORDER BY ALL")
        assert [row["name"] for row in again] == [row["name"] for row in new] and again != new, "the instance differs"
    assert _idle == [engine]


def test_numbers_of_rows_start_again(_idle: list[Any]) -> None:
    with DuckStore(None) as store:
        store.add({"jobs": jobs()})
        with store.transaction() as writing:
            writing.execute("DELETE FROM raw.jobs")
    with DuckStore(None) as store:
        store.add({"jobs": jobs()})
        assert store.rows("SELECT rowid AS row FROM raw.jobs") == [{"row": 0}]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE raw.jobs ADD COLUMN left_over INTEGER", "CREATE TABLE raw.left_over (n INTEGER)", "DROP TABLE raw.links",
        'CREATE OR REPLACE VIEW kql."Jobs" AS SELECT 1 AS n', 'DROP VIEW kql."Jobs"', "CREATE VIEW kql.left_over AS SELECT 1 AS n",
    ],
)  # fmt: skip
def test_a_schema_that_was_changed_is_made_anew(change: str, _idle: list[Any]) -> None:
    columns = (
        "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
    )
    with DuckStore(None) as store:
        new = store.rows(columns)
        store.cursor().execute(change)
        assert store.rows(columns) != new
    (engine,) = _idle
    with DuckStore(None) as store:
        assert _idle == [] and store.rows(columns) == new
    assert _idle == [engine]


#: What a new store has none of, and how each is listed.
OTHERS = {
    "CREATE SEQUENCE {}left_over": "duckdb_sequences()",
    "CREATE TYPE {}left_over AS ENUM ('x')": "duckdb_types() WHERE NOT internal",
    "CREATE INDEX left_over ON {}jobs (job_id)": "duckdb_indexes()",
}


@pytest.mark.parametrize("change", OTHERS)
def test_what_a_test_left_beside_tables_and_views_is_dropped(change: str, _idle: list[Any]) -> None:
    listed = f"FROM {OTHERS[change]}"
    with DuckStore(None) as store:
        store.cursor().execute(change.format("raw."))
        assert store.rows(listed)
    (engine,) = _idle
    with DuckStore(None) as store:
        assert _idle == [] and not store.rows(listed)
    assert _idle == [engine]


LEFT: dict[str, Callable[[DuckStore], object]] = {
    "locked by a query": lambda store: harden(store.cursor()),
    "a table": lambda store: store.cursor().execute("CREATE TABLE left_over (n INTEGER)"),
    "a view": lambda store: store.cursor().execute("CREATE VIEW left_over AS SELECT 1"),
    "a sequence": lambda store: store.cursor().execute("CREATE SEQUENCE left_over"),
    "a type": lambda store: store.cursor().execute("CREATE TYPE left_over AS ENUM ('x')"),
    "a schema": lambda store: store.cursor().execute("CREATE SCHEMA left_over"),
    "a database": lambda store: store.cursor().execute("ATTACH ':memory:' AS left_over"),
}


@pytest.mark.parametrize("change", LEFT.values(), ids=LEFT)
def test_an_engine_with_something_left_in_it_is_not_used_again(
    change: Callable[[DuckStore], object], _idle: list[Any]
) -> None:
    with DuckStore(None) as store:
        kept = change(store)
    assert _idle == []
    del kept


@pytest.mark.parametrize("macro", ["main.left_over() AS 1", "raw.left_over() AS TABLE SELECT 1"])
def test_a_macro_that_a_test_left_is_named_at_the_end(macro: str, _idle: list[Any]) -> None:
    with DuckStore(None):
        pass
    assert _idle and idle_engines.macros_left() == []
    with DuckStore(None) as store:
        store.cursor().execute(f"CREATE MACRO {macro}")
    assert idle_engines.macros_left() == [macro.partition("(")[0]]


def test_each_of_two_open_stores_has_its_own_engine(_idle: list[Any]) -> None:
    with DuckStore(None):
        pass
    with DuckStore(None) as one, DuckStore(None) as other:
        one.add({"jobs": jobs()})
        assert other.rows("SELECT count(*) AS n FROM raw.jobs") == [{"n": 0}]
    assert len(_idle) == 2
