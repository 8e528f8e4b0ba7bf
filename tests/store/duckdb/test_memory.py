"""Memory that the engine keeps for later is returned, and nothing else changes."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from store import open_store
from store.duckdb import memory
from store.duckdb.store import DuckStore

LIMIT = "SELECT current_setting('memory_limit') AS value"
PAGES = "SELECT CAST(sum(memory_usage_bytes) AS BIGINT) AS n FROM duckdb_memory() WHERE tag IN ('BASE_TABLE', 'OVERFLOW_STRINGS')"


@pytest.fixture
def few_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a store of a few megabytes were one of gigabytes."""
    monkeypatch.setattr(memory, "KEPT", 1 << 20)
    monkeypatch.setattr(memory, "LEAST", 1 << 20)


@pytest.fixture
def store(tmp_path: Path, few_pages: None) -> Any:
    with open_store(tmp_path / "store") as made:
        texts = pl.Series("raw", range(200_000)).hash(1).cast(pl.String) + pl.Series(range(200_000)).hash(2).cast(
            pl.String
        )
        logs = pl.DataFrame({"raw": texts, "message": texts}).with_columns(time=datetime(2026, 2, 28))
        made.add({"logs": logs})
        made.checkpoint()
    with open_store(tmp_path / "store") as again:
        yield again


def read(store: DuckStore) -> object:
    return store.rows("SELECT count(*) AS n, max(raw) AS last, min(raw) AS first FROM raw.logs")


def pages(store: DuckStore) -> int:
    return int(store.rows(PAGES)[0]["n"])


def test_pages_are_returned_and_read_again(store: DuckStore) -> None:
    before, limit = read(store), store.rows(LIMIT)
    held = pages(store)
    assert held > 4 << 20  # otherwise nothing is shown here
    store.release_memory()
    assert pages(store) <= held // 2
    assert store.rows(LIMIT) == limit
    assert read(store) == before


def test_a_store_that_keeps_little_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path) as small:
        small.release_memory()  # the first time, what other code of this process took may be returned
        monkeypatch.setattr(memory, "_resident", lambda: small._memory._left + memory.LEAST - 1)
        assert small._memory.release(Refusing(small.cursor())) == 0  # type: ignore[arg-type]


class Refusing:
    """A cursor that asks and changes nothing. ``held``: what it says instead of the engine."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, held: dict[str, int] | None = None) -> None:
        self._cursor, self._held = cursor, held

    def execute(self, sql: str, *parameters: object) -> Any:
        assert not sql.startswith("SET"), sql
        if self._held is not None:
            rows = list(self._held.items())
            return type("Answer", (), {"fetchall": lambda _: rows})()
        return self._cursor.execute(sql, *parameters)


def test_a_statement_with_much_in_memory_is_waited_for(store: DuckStore) -> None:
    held = {"BASE_TABLE": 8 << 30, "HASH_TABLE": 33 << 20}
    assert store._memory.release(Refusing(store.cursor(), held)) == 0  # type: ignore[arg-type]


def test_the_limit_is_the_same_after_pages_that_cannot_be_returned(
    store: DuckStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = store.rows(LIMIT)
    monkeypatch.setattr(memory, "_held", lambda cursor: (4 << 20, 4 << 20, 0))  # far less than the engine has
    read(store)
    store._memory.release(store.cursor())
    assert store.rows(LIMIT) == limit


def test_writers_and_readers_go_on_meanwhile(store: DuckStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered each time as for a store of gigabytes, which keeps far more than these statements need."""
    ended, failed, held = threading.Event(), [], memory._held

    def of_gigabytes(cursor: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
        used, pages, _ = held(cursor)
        return used + (4 << 30), pages + (4 << 30), 0

    monkeypatch.setattr(memory, "KEPT", 128 << 20)
    monkeypatch.setattr(memory, "_held", of_gigabytes)

    def work(what: Any) -> None:
        try:
            while not ended.is_set():
                what()
        except Exception as error:
            failed.append(error)

    line = pl.DataFrame({"raw": ["new"], "message": ["new"]}).with_columns(time=datetime(2026, 3, 1))
    threads = [
        threading.Thread(target=work, args=(what,)) for what in (lambda: read(store), lambda: store.add({"logs": line}))
    ]
    for thread in threads:
        thread.start()
    for _ in range(20):
        store.release_memory()
    ended.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.rows("SELECT count(*) AS n FROM raw.logs WHERE raw <> 'new'") == [{"n": 200_000}]


def test_a_store_in_memory_has_nothing_to_return() -> None:
    with open_store(None) as store:
        store._memory = None  # type: ignore[assignment]  # it is not asked
        store.release_memory()
        assert store.folder is None
