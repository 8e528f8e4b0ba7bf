"""The form that answers a verdict: kept as by the API, without JavaScript, and not from another site's page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from correlator.engine import result
from store.duckdb.store import DuckStore
from tests.correlator.rows import CAPTURES, concluded
from web.access.audit import Audit
from web.app import create_app
from web.origin import foreign

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGE = {**FORM, "accept": "text/html"}


@pytest.fixture
def store() -> Iterator[DuckStore]:
    with concluded(FLAP) as opened:
        yield opened


@pytest.fixture(scope="module")
def untouched() -> Iterator[tuple[TestClient, DuckStore]]:
    """For requests that are refused: they leave nothing in the store."""
    with concluded(FLAP) as opened:
        yield TestClient(create_app(opened)), opened


def incident_of(store: DuckStore) -> str:
    return str(store.rows("SELECT incident_id FROM model.runs WHERE run_key = '15'")[0]["incident_id"])


def post(client: TestClient, path: str, headers: dict[str, str] = PAGE, **fields: str) -> Any:
    return client.post(path, content=urlencode(fields), headers=headers, follow_redirects=False)


def kept(store: DuckStore) -> list[tuple[Any, ...]]:
    rows = store.rows("SELECT run_key, answer, category, event, note, author FROM kept.feedback ORDER BY given_at")
    return [tuple(row.values()) for row in rows]


def test_an_answer_is_kept_and_shown_and_the_verdict_stays(store: DuckStore) -> None:
    client = TestClient(create_app(store))
    before = result(store)
    assert "It is right" in client.get("/jobs/15").text and "None changes a verdict" in client.get("/jobs/15").text
    answer = post(client, "/jobs/15/feedback?theme=dark", answer="wrong", category="infra.gpu", event="gpu.xid",
                  note="<b>by eye</b>", author="Ada Ö")  # fmt: skip
    assert answer.status_code == 303 and answer.headers["location"] == "/jobs/15?theme=dark#answers"
    assert kept(store) == [("15", "wrong", "infra.gpu", "gpu.xid", "<b>by eye</b>", "Ada Ö")]
    for path in ("/jobs/15", f"/incidents/{incident_of(store)}"):
        text = re.sub(r"\s+", " ", client.get(path).text)
        assert "it was infra.gpu gpu.xid; the verdict was infra.network" in text and "&lt;b&gt;by eye" in text
        assert 'value="Ada Ö"' in text, "the browser remembers who answered"
    assert result(store) == before


def test_who_changed_their_mind_is_not_counted_twice(store: DuckStore) -> None:
    client = TestClient(create_app(store))
    post(client, "/jobs/15/feedback", answer="wrong", category="unknown", author="ada")
    # what had been typed for the other answer is sent as well
    post(client, "/jobs/15/feedback", answer="confirmed", category="infra.gpu", event="gpu.xid", author="ada")
    assert kept(store)[1] == ("15", "confirmed", "infra.network", None, "", "ada")
    text = client.get("/jobs/15").text
    assert text.count("answered again later") == 1 and text.index("answered again later") < text.index("confirmed</b>")


def test_an_incident_is_answered_for_all_its_runs_or_for_one(store: DuckStore) -> None:
    of_15 = "(SELECT {0} FROM model.runs WHERE run_key = '15')"
    with store.transaction() as connection:
        reported = ", ".join(f"{name} = {of_15.format(name)}" for name in ("incident_id", "document"))
        connection.execute(f"UPDATE model.runs SET {reported} WHERE run_key = '16'")
    client = TestClient(create_app(store))
    path = f"/incidents/{incident_of(store)}"
    assert "all 2 runs" in client.get(path).text
    assert post(client, path + "/feedback", answer="confirmed", run="16").headers["location"] == path + "#answers"
    assert [row[0] for row in kept(store)] == ["16"]
    post(client, path + "/feedback", answer="confirmed", run="")
    assert sorted(row[0] for row in kept(store)) == ["15", "16", "16"]
    assert post(client, path + "/feedback", answer="confirmed", run="99").status_code == 422


@pytest.mark.parametrize(
    ("path", "headers", "fields", "status", "words"),
    [
        ("/jobs/15/feedback", PAGE, {"answer": "wrong"}, 422, "needs the category"),
        ("/jobs/15/feedback", PAGE, {"answer": "wrong", "category": "gremlins"}, 422, "infra.gpu"),
        ("/jobs/15/feedback", PAGE, {"answer": "maybe"}, 422, "confirmed, wrong"),
        ("/jobs/15/feedback", PAGE, {}, 422, "answer"),
        ("/jobs/15/feedback", PAGE, {"answer": "confirmed", "note": "n" * 5000}, 422, "note"),
        ("/jobs/15/feedback", PAGE, {"answer": "confirmed", "note": "n" * 70_000}, 413, "larger than"),
        ("/jobs/99/feedback", PAGE, {"answer": "confirmed"}, 404, "no job run 99"),
        ("/incidents/I-0/feedback", PAGE, {"answer": "confirmed"}, 404, "no incident I-0"),
        ("/jobs/15/feedback", {"content-type": "text/plain"}, {"answer": "confirmed"}, 415, "/api/v1/jobs"),
        ("/jobs/15/feedback", {**PAGE, "sec-fetch-site": "cross-site"}, {"answer": "confirmed"}, 403, "another site"),
        ("/api/v1/jobs/15/feedback", {"origin": "https://evil.example"}, {"answer": "confirmed"}, 403, "another site"),
    ],
)
def test_what_is_refused_says_why_and_keeps_nothing(
    untouched: tuple[TestClient, DuckStore], path: str, headers: dict[str, str], fields: dict[str, str], status: int, words: str
) -> None:  # fmt: skip
    client, store = untouched
    answer = post(client, path, headers, **fields)
    assert answer.status_code == status and words in answer.text
    assert kept(store) == []


def test_a_proxy_that_knows_who_asks_is_believed_before_the_form(store: DuckStore) -> None:
    client = TestClient(create_app(store, settings={"user_header": "X-Remote-User"}))
    known = {"x-remote-user": "ada@example"}
    text = client.get("/jobs/15", headers=known).text
    assert "as ada@example" in text and "Your name" not in text
    post(client, "/jobs/15/feedback", {**PAGE, **known}, answer="confirmed", author="eve")
    client.post("/api/v1/jobs/15/feedback", json={"answer": "confirmed", "author": "eve"}, headers=known)
    assert [row[-1] for row in kept(store)] == ["ada@example", "ada@example"]


def test_a_store_open_for_reading_offers_no_form(store: DuckStore) -> None:
    store.read_only = True
    text = TestClient(create_app(store)).get("/jobs/15").text
    assert "open for reading only" in text and "It is right" not in text


HOST = {"host": "faultline:8514"}


@pytest.mark.parametrize(
    ("method", "headers", "refused"),
    [
        ("GET", {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, False),
        ("POST", {}, False),  # a program
        ("POST", {"sec-fetch-site": "same-origin", "origin": "https://renamed.example"}, False),  # behind a proxy
        ("POST", {"sec-fetch-site": "none"}, False),
        ("POST", {"sec-fetch-site": "same-site", "origin": "http://faultline:8514"}, True),
        ("POST", {"origin": "http://faultline:8514"}, False),
        ("POST", {"origin": "http://Faultline:8514"}, False),
        ("POST", {"origin": "http://faultline:9090"}, True),
        ("DELETE", {"origin": "null"}, True),
    ],
)
def test_what_comes_from_another_sites_page(method: str, headers: dict[str, str], refused: bool) -> None:
    assert foreign(method, {**HOST, **headers}) is refused


def test_an_answer_is_in_the_audit(store: DuckStore, tmp_path: Path) -> None:
    client = TestClient(create_app(store, audit=Audit(tmp_path / "audit.ndjson")))
    assert client.post("/api/v1/jobs/15/feedback", json={"answer": "confirmed", "author": "ada"}).status_code == 201
    assert post(client, "/jobs/15/feedback", answer="confirmed", author="bob").status_code == 303
    reported = [json.loads(line) for line in (tmp_path / "audit.ndjson").read_text().splitlines()]
    assert [(t["act"], t["who"], t["run"], t["answer"], t["signed"]) for t in reported] == [
        ("feedback", "ada", "15", "confirmed", False), ("feedback", "bob", "15", "confirmed", False),
    ]  # fmt: skip
