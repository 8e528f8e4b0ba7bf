"""KQL as every engine runs it behind the protocol (``store.door``): on a connection that only the store holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queries import kql
from store.door import Door
from store.errors import EngineError
from store.line_frames import logs_for_storage
from store.line_order import in_order
from tests.store.test_door import ENGINES, KEEPING, each, logs


@pytest.fixture(params=each(ENGINES))
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = ENGINES[request.param](tmp_path)
    yield store
    store.close()


@pytest.fixture(params=KEEPING)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = ENGINES[request.param](tmp_path)
    yield store
    store.close()


def test_kql_is_run_explained_and_checked_by_the_door(door: Door) -> None:
    door.append({"logs": logs("a", "b")})
    query = kql.Query("Logs | where Message == M | project Line", {"M": "b"})
    assert door.run_kql(query).rows == [[2]]
    assert "columns: Line:long" in door.explain_kql(query) and "plan:" in door.explain_kql(query)
    assert door.kql_columns(query) == [("Line", "long")]
    unpacked = kql.Query('Logs | project D = dynamic({"a": 1}) | evaluate bag_unpack(D)')
    assert door.kql_columns(unpacked) == [("a", "long")], "columns that depend on the rows need the store"


def test_the_engines_own_errors_never_leave_a_kql_query(kept: Door) -> None:
    query = kql.Query("Logs | count")
    kept.close()
    for asked in (kept.run_kql, kept.explain_kql, kept.kql_columns):
        with pytest.raises(EngineError):
            asked(query)


def test_lines_stored_in_a_hurry_are_found_before_and_after_their_filters_are_made(door: Door) -> None:
    sealed = in_order(logs_for_storage(logs(*(f"word{n}" for n in range(600)))))
    door.append({}, sealed=[sealed])
    for _ in range(2):
        assert door.run_kql(kql.Query("Logs | where Message has 'word599' | project Line")).rows == [[600]]
        door.add_filters()


#: More rows than any engine counts within this test's time.
ENDLESS = "range x from 1 to 100000000000 step 1 | summarize sum(x % 7)"


def test_a_query_is_cancelled_from_another_thread(door: Door) -> None:
    """By a caller that has no connection: a page whose reader left."""
    query, over = kql.Query(ENDLESS, timeout_s=600), threading.Event()

    def leave() -> None:
        while not over.wait(0.05):
            query.cancel()

    leaving = threading.Thread(target=leave)
    begun = time.monotonic()
    leaving.start()
    try:
        with pytest.raises(kql.KqlRuntimeError, match="cancelled"):
            door.run_kql(query)
    finally:
        over.set()
        leaving.join()
    assert time.monotonic() - begun < 120
    with pytest.raises(kql.KqlRuntimeError, match="cancelled"):
        door.run_kql(query)
    assert door.run_kql(kql.Query("print 1")).rows == [[1]], "other queries go on"


def test_a_query_that_was_cancelled_is_neither_explained_nor_bound(door: Door) -> None:
    query = kql.Query("print 1")
    assert query.columns() == [("print_0", "long")]
    query.cancel()
    for asked in (door.explain_kql, door.kql_columns, lambda query: query.columns()):
        with pytest.raises(kql.KqlRuntimeError, match="cancelled"):
            asked(query)
