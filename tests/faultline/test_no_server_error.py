"""Whatever the request, no answer is a 5xx: generated requests over every route, and schemathesis over the API's
description.

The routes are read from the application, so that a new one is included. The seed is fixed: a red test is a change.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from collector.ingest import Ingest
from correlator.engine import correlate
from faultline.config import validate
from faultline.demo import CAPTURE
from faultline.service import Service, build_app
from store import open_store
from tests.line_parser import line_parser
from tests.measured import Measured
from web.cursors import encode_cursor

#: The stream of lines has no end: its client disconnects once the answer has begun.
ENDLESS = "/api/v1/tail"
TIMES = (
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "0001-01-01",
    "9999-12-31", "2026-11-21T00:30:60Z", "2016-12-31T23:59:60Z", "2026-02-29", "now", "now-1h", "now-999999w", "-999999w", "-0s", "10000-01-01",
    "1969-12-31T23:59:59.999999Z", "1677-09-21T00:12:43Z", "2262-04-11T23:47:17Z", "2026-11-21T00:30:00", "2026-11-21T00:30:00+24:00",
    "2026-11-21 00:30:00 02:00", "2026-W47-6", "20261121", "290309-12-22", "-1", "1e9", "٢٠٢٦-11-21", "2026-11-21T00:30:00Z\x00",
)  # fmt: skip
TEXTS = (
    "", " ", "'", '"', "'; DROP TABLE raw.logs; --", "%", "%00", "\x00", "\x1b[31m", "\u202eabc\u202c", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "𝕏" * 50, "a" * 3000, "../../etc/passwd", "{{7*7}}", "<script>", "[", "(", "(?P<", "*", "\\", "\r\nX-Bad: 1", "null", "NaN", "-0", "1e400", "0x10",
    str(2**31), str(2**63), str(-(2**63) - 1), str(10**60), "0", "-1", "1.5", "true", "gpu[01-02]", "gpu[1-999999999]", "15", "14#1", "I1",
    "15#99999999999999999999", "syslog", "json", "html", "md", "xml", "Europe/Berlin", "../zone", "٣",
)  # fmt: skip
CURSORS = (
    encode_cursor(0), encode_cursor(-1), encode_cursor(2**63), encode_cursor(10**40), encode_cursor("9999-12-31T23:59:59", "x"),
    encode_cursor("0001-01-01T00:00:00+23:59", "I1"), encode_cursor("9999-12-31T23:59:59-23:59", "I1", 1), encode_cursor("x", "y", "z"),
    encode_cursor(None, None), encode_cursor("2026-11-21T00:00:00", 1), encode_cursor("2026-11-21T00:00:00", "a", 2**70),
    encode_cursor("2026-11-21T00:00:00", "\x00", "b", 1), encode_cursor("2026-11-21T00:00:00", "\ud800"), "AAAA", "!!!", "é", "W10", "e30",
    encode_cursor(1.5), encode_cursor("a", "b", "c", "d"), encode_cursor("2026-11-21T00:00:00", "a", "b", 3, "c"),
)  # fmt: skip
QUERIES = (
    "Logs | take 1", "", "|", "Logs | where Time > datetime(0001-01-01)", "Logs | where Time < datetime(9999-12-31T23:59:59.9999999)",
    "print datetime(9999-12-31) + 1d", "print datetime(0001-01-01) - 1d", "print 1/0", "print 1.0/0", "print tolong('9223372036854775807') + 1",
    "print bin(datetime(9999-12-31), 100000d)", "print repeat('a', -1)", "print substring('abc', -9223372036854775808)", "print todatetime('x')",
    "Logs | summarize count() by bin(Time, 0s)", "Logs | make-series count() on Time from datetime(0001-01-01) to datetime(9999-12-31) step 1d",
    "print parse_json('[')", "print strcat('\\u0000', '\\ud800')", "let x = 1; print x", "print " + "(" * 200 + "1" + ")" * 200, "Logs | take -1",
    "Logs | take 99999999999999999999", "range x from 1 to 0 step 1", "range x from 1 to 10 step 0", "print timespan(99999999999d)", "print 1d * 1e300",
    "print format_datetime(datetime(9999-12-31), '')", "print real(nan), real(+inf)", "Logs | where Message matches regex '('", "print make_datetime(0,0,0)",
    "\x00", "Logs | where Message has '\u202e'", "print dynamic({\"a\":1}).b.c[99]", "print exp10(400)", "print datetime_add('year', 100000, now())",
    "Jobs | sort by Start | take 2", "print totimespan('1.00:00:00')", "Nodes | join kind=inner (Nodes) on Node",
)  # fmt: skip
BODIES: tuple[Any, ...] = (
    None, "", "{", "[]", "null", "1", '"x"', "{}", b"\xff\xfe\x00", json.dumps({"query": 1}), json.dumps({"query": "logs", "limit": -1}), "[" * 5000,
    '{"query": "\\ud800"}', '{"a":' * 3000, json.dumps({"query": "logs", "max_rows": 10**30}), json.dumps({"query": "logs", "timeout_s": -5}),
    '{"query": "print 1", "timeout_s": NaN}', '{"query": "print 1", "parameters": {"a": [{}]}}', '{"answer": "wrong", "category": "\\u0000"}',
    json.dumps({"answer": "right", "by": "x" * 100_000}), json.dumps({"answer": "wrong", "cause": {"event": ["x"]}}), "answer=wrong&category=%00", "%%%=&&&==",
)  # fmt: skip
KINDS = (
    "application/json",
    "text/plain",
    "application/x-www-form-urlencoded",
    "",
    "multipart/form-data",
    "application/json; charset=utf-7",
    "\xe9",
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    data = tmp_path_factory.mktemp("asked")
    with open_store(data) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        correlate(store)
        yield build_app(Service(validate({"data": str(data)}, "test"), store))


@pytest.fixture(scope="module")
def client(app: FastAPI) -> TestClient:
    return TestClient(Leaving(app), follow_redirects=False, raise_server_exceptions=False)


class Leaving:
    """The application as seen by a client that disconnects from an endless stream after its headers."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begun = False

        async def hear() -> Any:
            return {"type": "http.disconnect"} if begun else await receive()

        async def say(message: Any) -> None:
            nonlocal begun
            begun = begun or (message["type"] == "http.response.start" and scope["path"] == ENDLESS)
            await send(message)

        await self.app(scope, hear, say)


def routes(items: list[Any]) -> Iterator[Any]:
    for route in items:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if inner is not None:
            yield from routes(list(inner.routes))
        elif getattr(route, "methods", None):
            yield route


def names_of(dependant: Any) -> set[str]:
    found = {parameter.alias for parameter in dependant.query_params}
    return found.union(*(names_of(inner) for inner in dependant.dependencies)) if dependant.dependencies else found


class Asking:
    """Requests of one seed: half of their values are plausible for the route, the others are not."""

    def __init__(self, app: FastAPI, seed: int) -> None:
        self.dice = random.Random(seed)
        self.known = [
            (method, route.path, sorted(names_of(route.dependant)) if hasattr(route, "dependant") else [])
            for route in routes(list(app.routes))
            for method in sorted(route.methods)
        ]

    def value(self, name: str) -> str:
        if name in ("from", "to", "since", "until", "at", "start", "end", "time") and self.dice.random() < 0.8:
            return self.dice.choice(TIMES)
        if name == "cursor" and self.dice.random() < 0.8:
            return self.dice.choice(CURSORS)
        return self.dice.choice(self.dice.choice((TEXTS, TEXTS, TIMES, QUERIES)))

    def request(self, place: int) -> tuple[str, str, Any, dict[str, str]]:
        method, template, names = self.known[place % len(self.known)]
        path = template
        while "{" in path:
            head, _, rest = path.partition("{")
            name, _, tail = rest.partition("}")
            real = {"key": "15", "name": "gpu02"}.get(name.split(":")[0], "15")
            path = head + quote(real if self.dice.random() < 0.5 else self.dice.choice(TEXTS) or "x", safe="") + tail
        pairs = [(n, self.value(n)) for n in (*names, "nobody_knows_this") if self.dice.random() < 0.5]
        pairs += [(self.dice.choice(names), self.value("from"))] if names and self.dice.random() < 0.1 else []
        headers = {"accept": self.dice.choice(("text/html", "application/json", "*/*", "", "a/b;q=x"))}
        if self.dice.random() < 0.2:
            headers |= {
                self.dice.choice(
                    ("cookie", "range", "if-none-match", "origin", "x-forwarded-for", "accept-language", "host")
                ): self.dice.choice(("x", "zone=../x", "bytes=9-1", "null", "\xe9", "," * 500))
            }
        body = None
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            body = self.dice.choice(BODIES)
            if self.dice.random() < 0.4:
                body = json.dumps({"query": self.dice.choice(QUERIES)})
            headers["content-type"] = self.dice.choice(KINDS) if self.dice.random() < 0.4 else "application/json"
        text = urlencode(pairs, errors="surrogatepass")
        return method, f"{path}?{text}" if text else path, body, headers


def checked(client: TestClient, method: str, address: str, body: Any, headers: dict[str, str]) -> int:
    answer = client.request(method, address, content=body, headers={n: v.encode("latin-1") for n, v in headers.items()})  # type: ignore[misc]
    reported = f"{method} {address} {body!r:.200} {headers}: {answer.status_code} {answer.text[:600]}"
    assert answer.status_code < 500, reported
    assert "Traceback (most recent" not in answer.text, reported
    kind = answer.headers.get("content-type", "")
    if answer.status_code not in (204, 303, 304, 307) and method != "HEAD":
        assert kind.startswith(("application/json", "application/problem+json", "text/", "application/x-ndjson")), (
            reported
        )
    if "json" in kind and "ndjson" not in kind and method != "HEAD":
        json.loads(answer.text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON: {reported}"))
    return answer.status_code


def fuzz(app: FastAPI, client: TestClient, count: int, seed: int) -> Counter[int]:
    asking = Asking(app, seed)
    statuses: Counter[int] = Counter()
    for place in range(count):
        method, address, body, headers = asking.request(place)
        statuses[checked(client, method, address, body, headers)] += 1
    return statuses


EDGES = [
    f"{path}?{name}={quote(time)}"
    for path, names in (
        ("/repairs", ("from", "to")), ("/api/v1/repairs", ("from", "to")), ("/", ("from", "to")), ("/jobs", ("from", "to")), ("/nodes", ("from", "to")),
        ("/nodes/gpu02", ("from", "to")), ("/search", ("from", "to")), ("/explore", ("from", "to")), ("/api/v1/logs", ("from", "to")),
        ("/api/v1/incidents", ("from", "to")), ("/api/v1/reports/failure-patterns", ("since", "until")), ("/api/v1/reports/repairs", ("since", "until")),
        ("/api/v1/reports/usage", ("since", "until")), ("/fleet", ("at",)), ("/api/v1/fleet", ("at",)),
    )
    for name in names
    for time in TIMES[:5]
]  # fmt: skip


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", pytest.param("Pacific/Pago_Pago", marks=pytest.mark.long)])
def test_times_at_the_edge_of_the_calendar_are_times(client: TestClient, zone: str) -> None:
    few = EDGES if zone == "Pacific/Pago_Pago" else EDGES[::3]  # five times in turn: each address has one or two
    for address in few:
        checked(client, "GET", f"{address}&zone={quote(zone)}", None, {"accept": "text/html"})


def test_both_ends_at_the_edges(client: TestClient) -> None:
    for path in ("/", "/jobs", "/nodes", "/repairs", "/nodes/gpu02"):
        address = f"{path}?from={quote(TIMES[3])}&to={quote(TIMES[2])}"
        assert checked(client, "GET", address, None, {"accept": "text/html"}) == 200


def test_a_stream_without_an_end_is_left(client: TestClient) -> None:
    answer = client.get(ENDLESS, params={"filter": 'Host == "gpu02"'})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert client.get(ENDLESS, params={"filter": "where ("}).status_code == 400


def test_some_generated_requests(app: FastAPI, client: TestClient) -> None:
    fuzz(app, client, 100, seed=22)


@pytest.mark.long
def test_generated_requests(app: FastAPI, client: TestClient, measured: Measured) -> None:
    statuses = fuzz(app, client, 2_500, seed=2_500)
    measured(f"{statuses.total()} generated requests: {dict(sorted(statuses.items()))}")
    assert statuses.total() == 2_500


@pytest.mark.long
def test_schemathesis_over_the_whole_description(app: FastAPI, measured: Measured) -> None:
    """Every operation of ``/api/v1/openapi.json`` except the endless one: no 5xx."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    described = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app).exclude(path=ENDLESS)
    asked: Counter[str] = Counter()
    wrong: list[str] = []
    for result in described.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=40, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: Any) -> None:
            answer = case.call()
            asked[operation.label] += 1  # noqa: B023
            if answer.status_code >= 500 and len(wrong) < 20:
                wrong.append(f"{case.as_curl_command()}: {answer.status_code} {answer.text[:300]}")

        ask()
    measured(
        f"schemathesis {schemathesis.__version__}: {asked.total()} requests of {len(asked)} operations, {len(wrong)} x 5xx"
    )
    assert wrong == []
    assert len(asked) > 15
