"""Queries take turns, end in time, and end with their client."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from store import open_store
from store.errors import StoreError
from web.app import create_app
from web.turns import ClientGoneError, TooManyWaitingError, Turns

#: Days of work for any engine.
ENDLESS = (
    "range A from 1 to 30000 step 1 | extend K = 1 | join kind=inner (range B from 1 to 30000 step 1 | extend K = 1) on K"
    " | join kind=inner (range C from 1 to 30000 step 1 | extend K = 1) on K | summarize sum(A * B * C)"
)


async def never() -> bool:
    return False


def test_clients_take_turns_however_much_one_asks() -> None:
    order: list[str] = []

    async def one(turns: Turns, client: str, number: int) -> None:
        async with turns.turn(client, 5):
            order.append(f"{client}{number}")
            await asyncio.sleep(0)

    async def all_of_them() -> Turns:
        turns = Turns(at_once=1)
        async with turns.turn("first", 5):
            asked = [one(turns, "greedy", n) for n in range(4)] + [one(turns, "modest", 0), one(turns, "third", 0)]
            waiting = [asyncio.create_task(work) for work in asked]
            await asyncio.sleep(0)
            assert turns.waiting == 6
        await asyncio.gather(*waiting)
        return turns

    turns = asyncio.run(all_of_them())
    assert order == ["greedy0", "modest0", "third0", "greedy1", "greedy2", "greedy3"]
    assert (turns.running, turns.waiting) == (0, 0)


def test_who_goes_away_leaves_the_queue() -> None:
    async def ask() -> None:
        turns = Turns(at_once=1)

        async def gone() -> bool:
            return True

        async with turns.turn("a", 5):
            with pytest.raises(ClientGoneError):
                await turns.turn("b", 60, gone).__aenter__()
            assert turns.waiting == 0
        assert turns.running == 0

    asyncio.run(ask())


def test_one_client_never_holds_all_places() -> None:
    async def ask() -> None:
        turns = Turns(at_once=3)
        async with turns.turn("greedy", 5), turns.turn("greedy", 5):
            third = asyncio.create_task(turns.turn("greedy", 60).__aenter__())
            await asyncio.sleep(0)
            assert not third.done() and turns.running == 2
            async with turns.turn("modest", 0.01):
                assert turns.running == 3
            third.cancel()
            with pytest.raises(asyncio.CancelledError):
                await third
        assert (turns.running, turns.waiting) == (0, 0)

    asyncio.run(ask())


def test_one_client_waits_in_a_share_of_the_queue_only() -> None:
    async def ask() -> None:
        turns = Turns(at_once=1, most_waiting=8)
        async with turns.turn("greedy", 5):
            waiting = [asyncio.create_task(turns.turn("greedy", 60).__aenter__()) for _ in range(turns.each_waiting)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyWaitingError):
                await turns.turn("greedy", 5).__aenter__()
            modest = asyncio.create_task(turns.turn("modest", 60).__aenter__())
            await asyncio.sleep(0)
            assert turns.waiting == len(waiting) + 1
            for task in [*waiting, modest]:
                task.cancel()
            await asyncio.gather(*waiting, modest, return_exceptions=True)
        assert (turns.running, turns.waiting) == (0, 0)

    asyncio.run(ask())


def test_a_full_queue_says_so_and_a_late_turn_is_given_up() -> None:
    async def ask() -> None:
        turns = Turns(at_once=1, most_waiting=1)
        async with turns.turn("a", 5):
            late = asyncio.create_task(turns.turn("b", 0.01).__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(TooManyWaitingError):
                await turns.turn("c", 5).__aenter__()
            with pytest.raises(TimeoutError):
                await late
            assert turns.waiting == 0
        assert turns.running == 0

    asyncio.run(ask())


def test_one_who_leaves_the_queue_keeps_no_place() -> None:
    async def ask() -> None:
        turns = Turns(at_once=1)
        async with turns.turn("a", 5):
            waiting = asyncio.create_task(turns.turn("b", 5).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert (turns.running, turns.waiting) == (0, 0)

    asyncio.run(ask())


def test_work_is_stopped_when_its_client_goes() -> None:
    stopped = threading.Event()

    async def gone() -> bool:
        return True

    async def ask() -> None:
        with pytest.raises(ClientGoneError):
            await Turns().run(lambda: stopped.wait(120), stopped.set, gone)

    asyncio.run(ask())
    assert stopped.is_set()


def question(**body: Any) -> bytes:
    return json.dumps(body).encode()


async def asked_and_left(app: Any, body: bytes, after_s: float) -> None:
    """A client that sends its query and disconnects."""
    sent, left = False, asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/api/v1/query", "raw_path": b"/api/v1/query", "query_string": b"",
             "headers": [(b"content-type", b"application/json")], "client": ("test", 1), "server": ("test", 80),
             "scheme": "http", "root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"}}  # fmt: skip
    asyncio.get_running_loop().call_later(after_s, left.set)
    await app(scope, receive, send)


def test_a_query_ends_with_its_client() -> None:
    with open_store(None) as store:
        app = create_app(store)
        began = time.monotonic()
        asyncio.run(asked_and_left(app, question(query=ENDLESS, timeout_s=600), 0.3))
        assert time.monotonic() - began < 300, "it ran on until its own limit"
        assert 'faultline_queries_total{outcome="cancelled"} 1.0' in app.state.metrics.text()
        answer = TestClient(app).post("/api/v1/query", json={"query": "print 1"})
        assert answer.json()["rows"] == [[1]]


def test_a_query_ends_in_time_and_says_so() -> None:
    with open_store(None) as store:
        answer = TestClient(create_app(store)).post("/api/v1/query", json={"query": ENDLESS, "timeout_s": 0.3})
        assert answer.status_code == 504 and "0.3 s" in answer.json()["detail"]


def test_heavy_queries_leave_room_for_writing_and_for_pages() -> None:
    """With every place taken by an endless query, lines are stored and the service answers."""
    from parsers.record import frame

    with open_store(None) as store:
        client = TestClient(create_app(store))
        asking = [threading.Thread(target=client.post, args=("/api/v1/query",), kwargs={"json": {"query": ENDLESS, "timeout_s": 3}})
                  for _ in range(6)]  # fmt: skip
        for thread in asking:
            thread.start()
        time.sleep(0.2)
        for n in range(5):
            store.add({"logs": frame("logs", [{"raw": f"line {n}", "file": "f", "line": n}])})
        assert client.get("/healthz").status_code == 200
        still = sum(thread.is_alive() for thread in asking)
        for thread in asking:
            thread.join()
        assert still and store.info()["lines"] == 5


def test_memory_has_a_limit_and_the_service_outlives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_MEMORY", "100MB")
    with open_store(None) as store:
        client = TestClient(create_app(store))
        hungry = "range x from 1 to 30000000 step 1 | summarize l = make_list(tostring(x)) | project array_length(l)"
        answer = client.post("/api/v1/query", json={"query": hungry})
        assert answer.status_code == 400 and "memory" in answer.json()["message"]
        assert client.post("/api/v1/query", json={"query": "print 1"}).json()["rows"] == [[1]]


def test_a_memory_limit_that_is_none_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_MEMORY", "lots")
    with pytest.raises(StoreError, match="FAULTLINE_MEMORY=lots"):
        open_store(None)


def test_rows_end_at_the_limit_and_that_is_stated() -> None:
    with open_store(None) as store:
        client = TestClient(create_app(store))
        answer = client.post("/api/v1/query", json={"query": "range N from 1 to 1000 step 1", "max_rows": 10}).json()
        assert len(answer["rows"]) == 10 and answer["truncated"] is True


def test_several_statements_and_the_plan() -> None:
    with open_store(None) as store:
        client = TestClient(create_app(store))
        answer = client.post("/api/v1/query", json={"query": "print a = 1; print b = 2"}).json()
        assert (answer["rows"], [o["rows"] for o in answer["others"]]) == ([[2]], [[[1]]])
        plan = client.post("/api/v1/query", json={"query": 'Logs | where Message has "x"', "explain": True}).json()[
            "plan"
        ]
        assert "SELECT" in plan and "plan:" in plan
