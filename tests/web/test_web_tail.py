"""New lines as server-sent events: each once, filtered by KQL, an invalid filter refused before the stream begins."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from parsers.record import frame
from store import open_store
from web import tail as tailing
from web.access.authentication import Authentication, Guard
from web.access.ended import ENDED_FILE, Ended
from web.access.people import Role, Roles
from web.access.scopes import ALL
from web.access.sessions import COOKIE, Sessions
from web.access.users import Users, fresh_token, hashed_password
from web.tail import Tail, steps_of
from web.turns import Turns


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", ""),
        ("Logs", ""),
        ('Host == "gpu07"', '| where Host == "gpu07"'),
        ('where Host == "gpu07" | project Message', '| where Host == "gpu07" | project Message'),
        ("| where Severity == 'error'", "| where Severity == 'error'"),
        ("Logs | take 5", "| take 5"),
    ],
)
def test_what_a_filter_may_look_like(text: str, steps: str) -> None:
    assert steps_of(text) == steps


def _add(store: Any, *messages: str, received: datetime | None = None) -> None:
    now = received or datetime.now(UTC).replace(tzinfo=None)
    rows = [
        {
            "time": now,
            "received_time": now,
            "host": "n1",
            "message": m,
            "raw": m,
            "file": "f",
            "line": abs(hash(m)) % 10**6,
        }
        for m in messages
    ]
    store.add({"logs": frame("logs", rows)})


@pytest.fixture
def store() -> Any:
    return open_store(None)


def test_each_new_line_is_reported_once(store: Any) -> None:
    begun = datetime.now(UTC).replace(tzinfo=None)
    _add(store, "before", received=begun - timedelta(seconds=60))
    tail = Tail(store, "", begun)
    _add(store, "one", "two")
    assert sorted(r["Message"] for r in tail.look()[0]) == ["one", "two"]
    _add(store, "three")
    assert [r["Message"] for r in tail.look()[0]] == ["three"]
    assert tail.look() == ([], False)


def test_the_filter_is_kql(store: Any) -> None:
    tail = Tail(store, steps_of('Message has "link"'), datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1))
    _add(store, "link down", "nothing else")
    assert [r["Message"] for r in tail.look()[0]] == ["link down"]


def test_too_many_lines_are_stated(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "MOST", 2)
    tail = Tail(store, "", datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1))
    _add(store, "a", "b", "c")
    rows, truncated = tail.look()
    assert len(rows) == 2 and truncated


class _Listener:
    """A request whose client disconnects when it is told to, or after this many questions whether it still is there.

    A query that waits asks again and again, so on a busy machine the number says nothing about how many queries there were.
    """

    def __init__(self, store: Any, asked: float = math.inf) -> None:
        self.left = asked
        self.scope: dict[str, Any] = {"type": "http"}
        self.client = SimpleNamespace(host="127.0.0.1")
        self.app = SimpleNamespace(state=SimpleNamespace(turns=Turns(), reader=SimpleNamespace(store=store)))

    async def is_disconnected(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_the_stream_ends_when_the_client_goes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "EVERY_S", 0.0)
    tail = Tail(store, "", datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1))
    _add(store, "hello <b>")

    listener = _Listener(store)

    async def read() -> list[str]:
        parts = []
        async for part in tailing._stream(listener, tail):  # type: ignore[arg-type]
            parts.append(part)
            if "hello" in part:
                listener.left = 0
        return parts

    parts = asyncio.run(read())
    assert parts[0] == ": tailing\n\n" and len(parts) == 2
    assert re.match(r"id: \d{4}-\S+Z\nevent: line\ndata: \{", parts[1]) and "hello <b>" in parts[1]


def test_a_line_that_is_stored_long_after_its_receipt_comes_all_the_same(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the service knows that something waits, the tail looks back to where that began."""
    now = datetime.now(UTC).replace(tzinfo=None)
    tail = Tail(store, "", now - timedelta(seconds=60))
    assert tail.look(until=now - timedelta(seconds=50)) == ([], False)
    _add(store, "late", received=now - timedelta(seconds=40))
    assert [row["Message"] for row in tail.look(until=now - timedelta(seconds=50))[0]] == ["late"]
    assert tail.look(until=datetime.min) == ([], False)
    # What waits must not hide what comes: beyond a number of lines the rest is said to be missing.
    monkeypatch.setattr(tailing, "MOST", 2)
    monkeypatch.setattr(tailing, "MOST_RESUMED", 3)
    _add(store, "a", "b", "c", received=now - timedelta(seconds=39))
    assert [tail.look(until=now - timedelta(seconds=50))[1] for _ in range(2)] == [False, True]
    _add(store, "now")
    assert [row["Message"] for row in tail.look()[0]] == ["now"]


def _events(store: Any, tail: Tail, last: str) -> list[tuple[str, str, dict[str, Any]]]:
    """ID, name and data of the events up to the first whose text contains ``last``."""
    listener, found = _Listener(store), []

    async def read() -> None:
        async for part in tailing._stream(listener, tail):  # type: ignore[arg-type]
            named = re.match(r"(?:id: (\S+)\n)?event: (\w+)\ndata: (.*)\n\n", part)
            if named:
                found.append((named[1] or "", named[2], json.loads(named[3])))
            if last in part:
                listener.left = 0

    asyncio.run(read())
    return found


def test_a_broken_stream_continues_where_its_last_event_was(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was received since then comes, before the stream's own beginning too; the client knows what it has."""
    monkeypatch.setattr(tailing, "EVERY_S", 0.0)
    now = datetime.now(UTC).replace(tzinfo=None)
    for n in range(3):
        _add(store, f"line {n}", received=now - timedelta(seconds=40 - 10 * n))
    first = _events(store, Tail(store, "", now - timedelta(seconds=45)), "line 2")
    assert [data["Message"] for *_, data in first] == ["line 0", "line 1", "line 2"]
    # Until a look is complete, an interrupted one is asked for whole.
    assert first[0][0] == first[1][0] == (now - timedelta(seconds=45)).isoformat() + "Z" and first[2][0] > first[1][0]
    for identity, missed in ((first[1][0], ["line 0", "line 1", "line 2"]), (first[2][0], [])):
        _add(store, "more")
        resumed = Tail(store, "", datetime.now(UTC).replace(tzinfo=None), datetime.fromisoformat(identity[:-1]))
        again = [data["Message"] for *_, data in _events(store, resumed, "more")]
        assert resumed.gap is None and [text for text in again if text != "more"] == missed


def test_what_is_too_old_to_be_repeated_is_named(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "EVERY_S", 0.0)
    now = datetime.now(UTC).replace(tzinfo=None)
    _add(store, "now")
    tail = Tail(store, "", now, now - timedelta(hours=2))
    (_, name, data), *_ = _events(store, tail, "now")
    assert name == "gap" and data["from"] == (now - timedelta(hours=2)).isoformat() + "Z"
    assert data["to"] == (now - tailing.RESUMED).isoformat() + "Z"
    assert Tail(store, "", now, now + timedelta(hours=1)).since == now, "a client's clock does not skip lines"


def test_a_store_that_is_behind_is_said_to_be(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "EVERY_S", 0.0)
    listener, behind, parts = _Listener(store), [True, True, False], []
    listener.app.state.is_behind = lambda: behind.pop(0) if len(behind) > 1 else behind[0]

    async def read() -> None:
        async for part in tailing._stream(listener, Tail(store, "", datetime.now(UTC).replace(tzinfo=None))):  # type: ignore[arg-type]
            parts.append(part)
            if "false" in part:
                listener.left = 0

    asyncio.run(read())
    assert [part.split("data: ")[1].strip() for part in parts[1:]] == ['{"behind": true}', '{"behind": false}']


def test_lines_of_one_look_come_by_time_unless_the_filter_arranges_them(store: Any) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [
        {"time": now - timedelta(seconds=s), "received_time": now, "host": host, "message": host, "raw": host}
        for s, host in ((2, "b"), (1, "c"), (3, "a"))
    ]
    store.add({"logs": frame("logs", rows)})
    since = now - timedelta(seconds=1)
    assert [row["Host"] for row in Tail(store, "", since).look()[0]] == ["a", "b", "c"]
    assert [row["Host"] for row in Tail(store, "| sort by Host desc", since).look()[0]] == ["c", "b", "a"]


PASSWORD = hashed_password("correct horse")


def _removed(authentication: Authentication) -> None:
    _rewritten(authentication, tokens={})


def _over(authentication: Authentication) -> None:
    _rewritten(
        authentication,
        tokens={"ada": replace(authentication.users.tokens["ada"], expires=datetime.now(UTC) - timedelta(days=1))},
    )


def _narrowed(authentication: Authentication) -> None:
    _rewritten(authentication, tokens={"ada": replace(authentication.users.tokens["ada"], scope="jobs")})


def _new_password(authentication: Authentication) -> None:
    _rewritten(authentication, people={"ada": hashed_password("another horse")})


def _unchanged(authentication: Authentication) -> None:
    _rewritten(authentication)


def _rewritten(authentication: Authentication, **changed: Any) -> None:
    """Another process writes the users file."""
    kept: dict[str, Any] = {
        "people": dict(authentication.users.people),
        "tokens": dict(authentication.users.tokens),
    } | changed
    Users(authentication.users.path, kept["people"], kept["tokens"]).save()


#: What is changed while a tail is open, by whether it was opened with a token, and whether the tail ends.
CHANGES = {
    "the token is removed": (_removed, True, True),
    "the token is over": (_over, True, True),
    "the token has a smaller scope": (_narrowed, True, True),
    "the password is another": (_new_password, False, True),
    "the token is the same": (_unchanged, True, False),
    "the password is the same": (_unchanged, False, False),
}


@pytest.mark.parametrize(("change", "by_token", "ends"), CHANGES.values(), ids=CHANGES)
def test_a_stream_ends_with_the_right_to_it(
    change: Callable[[Authentication], None],
    by_token: bool,
    ends: bool,
    store: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line that is stored after the change is not sent any more."""
    monkeypatch.setattr(tailing, "EVERY_S", 0.0)
    token, kept = fresh_token(None, ALL)
    Users(tmp_path / "users.toml", {"ada": PASSWORD}, {"ada": kept}).save()
    users, sessions = Users.load(tmp_path / "users.toml"), Sessions(b"k" * 32, 3600, Ended(tmp_path / ENDED_FILE))
    authentication = Authentication(users=users, roles=Roles({Role.READ: frozenset({"ada"})}), sessions=sessions)
    cookie = f"{COOKIE}={sessions.write('ada', (), users.mark('ada'))}"
    header = (b"authorization", f"Bearer {token}".encode()) if by_token else (b"cookie", cookie.encode())
    listener, tail = _Listener(store), Tail(store, "", datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1))
    listener.scope = {"type": "http", "scheme": "http", "path": "/api/v1/tail", "method": "GET", "headers": [header], "client": ("10.0.0.1", 1)}  # fmt: skip
    _add(store, "before")

    async def read() -> list[str]:
        parts = []

        async def stream(scope: Any, receive: Any, send: Any) -> None:
            async for part in tailing._stream(listener, tail):  # type: ignore[arg-type]
                parts.append(part)
                if "before" in part:
                    change(authentication)
                    _add(store, "after")
                elif "after" in part:
                    listener.left = 0

        await Guard(stream, authentication)(listener.scope, None, None)  # type: ignore[arg-type]
        return parts

    parts = asyncio.run(read())
    assert "before" in parts[1], parts
    assert any("after" in part for part in parts) != ends
    assert parts[-1].startswith("event: error") == ends


def test_no_look_passes_by_the_queue(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others hold all places the store is not queried, and the stream waits."""
    monkeypatch.setattr(tailing, "EVERY_S", 0.0)
    monkeypatch.setattr(tailing, "LOOK_S", 0.01)
    asked: list[str] = []
    listener, tail = _Listener(store, 8), Tail(store, "", datetime.now(UTC).replace(tzinfo=None))
    monkeypatch.setattr(tail, "look", lambda *_, **__: asked.append("look") or ([], False))
    turns = listener.app.state.turns

    async def read() -> list[str]:
        turns.running = turns.at_once
        return [part async for part in tailing._stream(listener, tail)]  # type: ignore[arg-type]

    assert asyncio.run(read()) == [": tailing\n\n"] and asked == []
    assert turns.waiting == 0, "who waited has left the queue"


def test_a_stream_is_opened_in_its_turn(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its filter is parsed in the queue as well, and one client has four streams at most."""
    monkeypatch.setattr(tailing, "LOOK_S", 0.01)
    asked: list[str] = []
    monkeypatch.setattr(tailing.kql.Query, "columns", lambda _: asked.append("columns"))
    state = client.app.state  # type: ignore[attr-defined]
    monkeypatch.setattr(state.turns, "running", state.turns.at_once)
    answer = client.get("/api/v1/tail", params={"filter": "Host == 'x'"})
    assert (answer.status_code, asked) == (429, []) and "wait" in answer.json()["detail"]
    monkeypatch.setattr(tailing.Open, "full", lambda self, who: "4 streams of yours are open already.")
    answer = client.get("/api/v1/tail")
    assert answer.status_code == 429 and "open already" in answer.json()["detail"]


def test_binding_a_filter_ends_when_its_client_leaves(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    begun, bound = threading.Event(), tailing.kql.Query.columns

    def columns(query: tailing.kql.Query) -> list[tuple[str, str]]:
        """The client leaves meanwhile."""
        begun.set()
        assert query._stopped.wait(120)
        try:
            return bound(query)
        except tailing.kql.KqlRuntimeError as problem:
            ended.append(str(problem))
            raise

    async def left(_: Request) -> bool:
        return begun.is_set()

    monkeypatch.setattr(tailing.kql.Query, "columns", columns)
    monkeypatch.setattr(Request, "is_disconnected", left)
    answer = client.get("/api/v1/tail", params={"filter": "Host == 'x'"})
    assert (answer.status_code, ended) == (499, ["the query was cancelled"])


def test_one_client_opens_four_streams_and_all_together_forty() -> None:
    opened = tailing.Open()
    for _ in range(tailing.MOST_EACH):
        assert opened.full("mallory") is None
        opened.of["mallory"] += 1
    assert opened.full("mallory") is not None and opened.full("bob") is None
    opened.of.update({f"person {n}": 1 for n in range(tailing.MOST_OPEN)})
    assert opened.full("bob") is not None


def test_a_wrong_filter_is_refused(client: TestClient) -> None:
    answer = client.get("/api/v1/tail", params={"filter": "Hst == 'x'"})
    assert answer.status_code == 400 and "Hst" in answer.json()["detail"]


@pytest.mark.parametrize(("filter", "place"), [
    ("Hots == 'a'", (1, 1)), ("  Host == 'a' and\n  Hots == 'b'", (2, 3)), ("| where Host == 'a' | where Hots == 'b'", (1, 29)),
    ("Logs | where Hots == 'b'", (1, 14)), ("Host ==", (1, 7)),
])  # fmt: skip
def test_an_error_has_its_place_in_the_filter_itself(client: TestClient, filter: str, place: tuple[int, int]) -> None:
    answer = client.get("/api/v1/tail", params={"filter": filter})
    assert (answer.status_code, answer.json()["line"], answer.json()["column"]) == (400, *place)


def test_a_stream_cannot_be_continued_from_what_is_no_time(client: TestClient) -> None:
    answer = client.get("/api/v1/tail", params={"since": "yesterday"})
    assert answer.status_code == 400 and "yesterday" in answer.json()["detail"]
