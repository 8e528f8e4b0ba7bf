"""A transaction that found no memory: what it left in the tables in memory is neither kept nor written."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import duckdb
import polars as pl
import pytest

from store import open_store
from store.duckdb.store import DuckStore
from store.errors import EngineError


def lines(first: int, count: int = 10) -> dict[str, pl.DataFrame]:
    texts = [f"line {first + at}" for at in range(count)]
    return {"logs": pl.DataFrame({"time": [datetime(2026, 2, 28)] * count, "raw": texts, "message": texts})}


def texts(store: DuckStore) -> list[str]:
    return [str(row["message"]) for row in store.rows("SELECT message FROM raw.log_view ORDER BY message")]


class NoMemory:
    """The engine's connection, which finds no memory for one statement."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement: str) -> None:
        self._connection, self._statement = connection, statement

    def execute(self, sql: str, *parameters: object) -> object:
        if sql.startswith(self._statement):
            raise duckdb.OutOfMemoryException("Failed to allocate block of 262144 bytes (bad allocation)")
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.mark.parametrize("statement", ["INSERT INTO raw.logs", "COMMIT"])
@pytest.mark.parametrize("then", ["another transaction", "the next look", "a checkpoint", "closing"])
def test_the_store_is_opened_anew_before_anything_else_is_written(tmp_path: Path, statement: str, then: str) -> None:
    store = open_store(tmp_path)
    store.add(lines(0))
    before = store._connection
    store._connection = NoMemory(before, statement)  # type: ignore[assignment]
    with pytest.raises(EngineError, match="allocate"):
        store.add(lines(10))
    match then:
        case "another transaction":
            store.add(lines(20))
        case "the next look":
            store.reopen_if_broken()
        case "a checkpoint":
            store.checkpoint()
    assert (store._connection is before or isinstance(store._connection, NoMemory)) == (then == "closing")
    wanted = sorted(f"line {n}" for n in (*range(10), *(range(20, 30) if then == "another transaction" else ())))
    if then != "closing":
        assert texts(store) == wanted
    store.close()
    with open_store(tmp_path) as again:
        assert texts(again) == wanted
