"""An operator's answer is kept with the verdict that was shown, counted, and changes no verdict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from correlator.engine import correlate
from correlator.learning.feedback import Answer, FeedbackError, answers, give, lessons, standing
from correlator.live.ticker import Ticker
from store.door import Door
from tests.correlator.rows import CAPTURES, answer, concluded
from web.app import create_app

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
NOW = datetime(2026, 11, 21, 9, 0, 0)


@pytest.fixture
def store() -> Iterator[Door]:
    with concluded(FLAP) as opened:
        yield opened


def test_an_answer_is_kept_with_what_was_stated_and_survives_new_conclusions(store: Door) -> None:
    before = answer(store)
    kept = give(store, "15", Answer("wrong", "infra.node", "node.panic", "gpu02", note="BMC log", author="ada"), NOW)
    assert (kept["said_category"], kept["said_event"], kept["said_host"]) == ("infra.network", "nic.link_down", "gpu02")
    correlate(store)
    Ticker(store).tick()
    assert answers(store, run_key="15") == [kept] == answers(store, incident_id=kept["incident_id"])
    assert answer(store) == before, "feedback must never silently change a verdict"


@pytest.mark.parametrize(
    ("key", "given", "words"),
    [
        ("15", Answer("maybe"), "confirmed, wrong"),
        ("15", Answer("wrong"), "needs the category"),
        ("15", Answer("wrong", "infra.gremlins"), "infra.gpu"),
        ("999", Answer("confirmed"), "no verdict"),
    ],
)
def test_what_cannot_be_kept(store: Door, key: str, given: Answer, words: str) -> None:
    with pytest.raises(FeedbackError, match=words):
        give(store, key, given)
    assert answers(store) == []


def test_the_last_answer_of_a_person_counts(store: Door) -> None:
    give(store, "15", Answer("confirmed", author="ada"), NOW)
    give(store, "15", Answer("wrong", "unknown", author="ada"), NOW + timedelta(minutes=1))
    give(store, "15", Answer("confirmed", author="bob"), NOW + timedelta(minutes=2))
    assert [r["answer"] for r in standing(answers(store))] == ["wrong", "confirmed"]
    lesson = lessons(answers(store))
    assert lesson.causes == {"nic.link_down": (2, 1)}
    assert [b.count for b in lesson.diagram] == [2] and lesson.error is not None


def test_over_http(store: Door) -> None:
    client = TestClient(create_app(store))
    made = client.post("/api/v1/jobs/15/feedback", json={"answer": "confirmed", "author": "ada"})
    assert made.status_code == 201 and made.json()["said_category"] == "infra.network"
    wrong = client.post("/api/v1/jobs/15/feedback", json={"answer": "wrong"})
    assert wrong.status_code == 422 and wrong.headers["content-type"].startswith("application/problem+json")
    assert client.post("/api/v1/jobs/999/feedback", json={"answer": "confirmed"}).status_code == 404
    assert client.post("/api/v1/jobs/15/feedback", json={"answer": "confirmed", "verdict": "x"}).status_code == 422
    of_run: dict[str, Any] = client.get("/api/v1/jobs/15/feedback").json()
    assert [f["author"] for f in of_run["feedback"]] == ["ada"]
    incident = made.json()["incident_id"]
    assert client.get(f"/api/v1/incidents/{incident}/feedback").json()["feedback"] == of_run["feedback"]
    everything = client.get("/api/v1/feedback").json()
    assert everything["causes"] == [{"cause": "nic.link_down", "judged": 1, "confirmed": 1}]
    assert len(client.get("/api/v1/feedback", params={"format": "ndjson"}).text.splitlines()) == 1


def test_the_job_page_shows_answers_as_text(store: Door) -> None:
    give(store, "15", Answer("wrong", "infra.node", host="gpu02", note="<script>alert(1)</script>", author="ada"), NOW)
    page = TestClient(create_app(store)).get("/jobs/15", headers={"accept": "text/html"}).text
    assert "1 answer<" in page and "infra.node" in page and "&lt;script&gt;" in page and "<script>alert" not in page


def test_risk_of_a_node(store: Door) -> None:
    client = TestClient(create_app(store))
    reported = client.get("/api/v1/nodes/gpu02/risk").json()
    assert not reported["lemon"] and reported["families"][0]["family"] == "link"
    assert reported["incidents"][0]["event"] == "nic.link_down"
    assert client.get("/api/v1/nodes/nowhere/risk").status_code == 404
