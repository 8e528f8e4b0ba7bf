"""What a query does not ask of the engine again: it is the store's own connection, of a database that is known."""

from __future__ import annotations

import importlib
from pathlib import Path

import duckdb
import pytest

from parsers.record import frame
from queries.kql import Query, run
from queries.kql.parsed import parsed
from store import open_store
from store.duckdb import segments
from store.duckdb.store import DuckStore

engine = importlib.import_module("queries.kql.run")
index = importlib.import_module("queries.kql.textindex")
RARE = 'Logs | where Message has "capacitor" | count'
TEXTS = ["a capacitor" if number == 7 else "words" for number in range(600)]
LINES = [{"raw": text, "message": text, "host": "n0", "file": "f", "line": n} for n, text in enumerate(TEXTS)]


def _is_locked(connection: duckdb.DuckDBPyConnection) -> bool:
    ((locked,),) = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
    return bool(locked)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that queries ask the engine, in order."""
    found: list[str] = []

    def noted(connection: duckdb.DuckDBPyConnection, statement: str) -> duckdb.Statement:
        found.append(statement)
        return parsed(connection, statement)

    monkeypatch.setattr(engine, "parsed", noted)
    monkeypatch.setattr(index, "parsed", noted)
    return found


def _with_lines(store: DuckStore) -> None:
    store.add({"logs": frame("logs", LINES)})
    segments.seal(store, least=1)


def _asks_of(statements: list[str]) -> list[str]:
    return [text for text in statements if "current_setting" in text or "txid_current" in text]


def test_a_store_is_asked_once_whether_it_is_locked_and_never_for_a_transaction(asked: list[str]) -> None:
    with open_store(None) as store:
        _with_lines(store)
        first = store.run_kql(Query(RARE)).rows
        assert len(_asks_of(asked)) == 1
        asked.clear()
        assert store.run_kql(Query(RARE)).rows == first == [[1]]
        assert asked and not _asks_of(asked)
        assert _is_locked(store.cursor())


def test_a_connection_of_a_caller_is_asked_each_time(asked: list[str]) -> None:
    """It may hold a transaction, whose lines only it sees."""
    with open_store(None) as store:
        _with_lines(store)
        store.run_kql(Query(RARE))
        asked.clear()
        with store.transaction() as connection:
            connection.execute("UPDATE raw.logs SET message = 'one more capacitor', block = 0 WHERE line = 8")
            assert run(connection, RARE).rows == [[2]]
        assert len(_asks_of(asked)) == 2


def test_a_database_that_is_opened_anew_is_locked_anew(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.run_kql(Query("print 1"))
        before = store.cursor()
        assert _is_locked(before)
        before.close()
        store._in_doubt = True
        store.reopen_if_broken()
        assert not _is_locked(store.cursor())
        store.run_kql(Query("print 1"))
        assert _is_locked(store.cursor())


def test_the_pair_of_a_cursor_and_its_database_is_of_one_opening(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _, first = store.opened()
        assert store.opened()[1] is first
        store._in_doubt = True
        store.reopen_if_broken()
        assert store.opened()[1] is not first


def test_a_persons_view_names_no_database_and_is_asked(asked: list[str]) -> None:
    with open_store(None) as store:
        store.run_kql(Query("print 1"))
        asked.clear()
        store.seen_by("ada").run_kql(Query("print 1"))
        assert len(_asks_of(asked)) == 1
