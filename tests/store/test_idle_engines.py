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


LEFT: dict[str, Callable[[DuckStore], object]] = {
    "locked by a query": lambda store: harden(store.cursor()),
    "a table": lambda store: store.cursor().execute("CREATE TABLE left_over (n INTEGER)"),
    "a view": lambda store: store.cursor().execute("CREATE VIEW left_over AS SELECT 1"),
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


def test_each_of_two_open_stores_has_its_own_engine(_idle: list[Any]) -> None:
    with DuckStore(None):
        pass
    with DuckStore(None) as one, DuckStore(None) as other:
        one.add({"jobs": jobs()})
        assert other.rows("SELECT count(*) AS n FROM raw.jobs") == [{"n": 0}]
    assert len(_idle) == 2
