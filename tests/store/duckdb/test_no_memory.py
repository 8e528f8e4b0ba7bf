"""A transaction that found no memory: what it left in the tables in memory is neither kept nor written."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import duckdb
import polars as pl
import pytest

from store import open_store
from store.duckdb.store import DuckStore
from store.errors import EngineError, StoreError


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


@pytest.mark.one_of_each(kind=lambda then: then)
@pytest.mark.parametrize(
    ("then", "statement"),
    [
        (then, statement)
        for n, then in enumerate(("another transaction", "the next look", "a checkpoint", "closing"))
        for statement in ("INSERT INTO raw.logs", "COMMIT")[:: 1 - n % 2 * 2]  # `make test` takes each twice
    ],
)
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


@pytest.mark.parametrize("is_writable", [True, False], ids=["a disk without room", "a read-only disk"])
def test_a_store_that_cannot_be_opened_anew_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_writable: bool
) -> None:
    """A commit failed because of the disk, and the store can only be opened again once that is repaired."""
    store = open_store(tmp_path)
    store.add(lines(0))
    store._connection = NoMemory(store._connection, "COMMIT")  # type: ignore[assignment]
    with pytest.raises(EngineError):
        store.add(lines(10))
    connect = duckdb.connect

    def refused(path: str, read_only: bool = False) -> duckdb.DuckDBPyConnection:
        if not read_only:
            raise duckdb.IOException(f'IO Error: Cannot open file "{path}": No space left on device')
        return connect(path, read_only=True)

    with monkeypatch.context() as patch:
        patch.setattr(duckdb, "connect", refused)
        if not is_writable:
            patch.setattr("os.access", lambda path, mode: False)
        for _ in range(2):
            with pytest.raises(StoreError):
                store.add(lines(20))
            with pytest.raises(StoreError):
                store.reopen_if_broken()
            if is_writable:
                assert texts(store) == sorted(f"line {n}" for n in range(10))
            else:
                assert len(store.rows("SELECT count(*) AS n FROM raw.logs")) == 1
    store.add(lines(20))
    assert texts(store) == sorted(f"line {n}" for n in (*range(10), *range(20, 30)))
    store.close()
