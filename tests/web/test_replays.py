"""The replay of an incident on its page and in the API: made beside the requests, one at a time, and kept."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from serving import LOOKS, serve
from triaged import FLAP, hit

from correlator.replay.process import ReplayFailedError
from store.duckdb.store import DuckStore
from tests.correlator.rows import concluded
from web import replaying
from web.access.own_documents import OwnDocuments
from web.app import create_app
from web.problems import ProblemError


@pytest.fixture(scope="module")
def store() -> Iterator[DuckStore]:
    with concluded(FLAP) as made:
        yield made


def course(key: str, verdict: dict[str, Any]) -> dict[str, Any]:
    """A replay of three moments as the process answers it."""
    said = [
        None,
        {**verdict, "confidence": 0.5, "final": False, "final_at": None, "waits_for": ["until 09:00 UTC"]},
        verdict,
    ]
    moments = [
        {"time": f"2026-11-21T00:5{n}:00.000000Z", "lines": 9, "arrived": [{"id": f"e{n}", "host": "gpu04", "event": "nic.link_down", "message": "<b>down</b>", "role": "cause"}],
         "more": n, "incident": None, "verdicts": {key: one}}
        for n, one in enumerate(said)
    ]  # fmt: skip
    return {
        "moments": moments,
        "lines": 27,
        "assumed": 27,
        "since": "2026-11-20T00:51:00",
        "until": "2026-11-22T00:51:00",
        "left_out": ["So much."],
    }


Makes = Callable[..., dict[str, Any]]


def app_of(store: DuckStore, monkeypatch: pytest.MonkeyPatch, makes: Makes) -> tuple[FastAPI, TestClient, str]:
    monkeypatch.setattr("web.replaying.process.replayed", makes)
    app = create_app(store)
    return app, TestClient(app), hit(store)


def answered(client: TestClient, name: str) -> Any:
    """The first answer that is not that it is being made."""
    while (answer := client.get(f"/api/v1/incidents/{name}/replay")).status_code == 202:
        pass
    return answer


def test_it_is_made_beside_the_requests_and_kept(store: DuckStore, monkeypatch: pytest.MonkeyPatch) -> None:
    go, asked = threading.Event(), []

    def makes(near: Any, subject: Any, *_: Any) -> dict[str, Any]:
        asked.append(subject)
        go.wait(120)
        return course(next(iter(subject.jobs)), client.get(f"/api/v1/jobs/{next(iter(subject.jobs))}/verdict").json())

    _, client, name = app_of(store, monkeypatch, makes)
    assert "Replay it" in client.get(f"/incidents/{name}").text and asked == []
    first = client.get(f"/api/v1/incidents/{name}/replay")
    assert first.status_code == 202 and first.json() == {"status": "making", "incident_id": name} and first.headers["retry-after"]  # fmt: skip
    assert "It is being made" in client.get(f"/incidents/{name}?replay=yes").text
    go.set()
    found = answered(client, name).json()
    (key,) = asked[0].jobs
    assert found["status"] == "ready" and len(asked) == 1
    assert [one["verdicts"][key]["verdict"] for one in found["moments"]] == ["none", "provisional", "final"]
    assert found["differs"] == []
    assert "No line has a time of receipt" in found["assumes"][0] and "So much." in found["assumes"]
    page = client.get(f"/incidents/{name}").text
    assert (
        page.count('class="moment"') == 3
        and 'max="2"' in page
        and f"Job {key}: nothing, provisional 0.50, final" in page
    )
    assert "&lt;b&gt;down&lt;/b&gt;" in page and "<b>down</b>" not in page and len(asked) == 1


def test_why_there_is_none(store: DuckStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def makes(*_: Any) -> dict[str, Any]:
        raise ReplayFailedError("it did not end within 300 s")

    _, client, name = app_of(store, monkeypatch, makes)
    answer = answered(client, name)
    assert answer.status_code == 503 and "it did not end within 300 s" in answer.json()["detail"]
    assert "could not be replayed: it did not end within 300 s" in client.get(f"/incidents/{name}").text


def test_few_wait_for_their_turn(store: DuckStore, monkeypatch: pytest.MonkeyPatch) -> None:
    go, began = threading.Event(), threading.Event()

    def makes(*_: Any) -> dict[str, Any]:
        began.set()
        go.wait(120)
        raise ReplayFailedError("enough")

    monkeypatch.setattr(replaying, "MOST_WAITING", 1)
    app, client, name = app_of(store, monkeypatch, makes)
    row = app.state.reader.incident(name)
    app.state.replays.of(row)
    assert began.wait(120)
    app.state.replays.of({**row, "incident_id": "another"})
    with pytest.raises(ProblemError, match="Too many replays wait") as refused:
        app.state.replays.of({**row, "incident_id": "a third"})
    assert refused.value.status == 429
    app.state.replays._made.clear()
    page = client.get(f"/incidents/{name}?replay=yes", headers={"accept": "text/html", "sec-fetch-mode": "navigate"})
    assert page.status_code == 429 and page.headers["retry-after"] == "60", "before the first part of the page is sent"
    go.set()
    assert client.get("/api/v1/incidents/none/replay").status_code == 404


def test_a_last_moment_that_differs_from_what_is_stored_says_so() -> None:
    stored = {"category": "infra.network", "confidence": 0.97, "root_cause": {"event": "nic.link_down"}}
    runs = [{"run_key": "15@east", "own_key": "15", "document": stored}, {"run_key": "16", "own_key": "16", "document": stored}]  # fmt: skip
    last = {"verdicts": {"15": stored | {"confidence": 0.9}, "16": dict(stored)}}
    found = replaying._differences(last, runs)
    stated = ("infra.network, confidence 0.97", "infra.network, confidence 0.90")
    assert found == ["Job 15@east: stored is {}; the last moment here is {}.".format(*stated)]


# -- another SlurmdTimeout ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(store: DuckStore) -> TestClient:
    correlating = {"settings": {"SlurmdTimeout": 24, "MessageTimeout": 10}, "edges": ()}
    return TestClient(create_app(store, settings={"correlating": correlating}))


def test_which_jobs_would_have_lived(store: DuckStore, timed: TestClient) -> None:
    path = f"/api/v1/incidents/{hit(store)}/what-if"
    found = {s: timed.get(path, params={"slurmd_timeout": s}).json() for s in (24, 90, 91)}
    (node,) = found[24]["nodes"]
    assert (node["host"], node["lost_by"]) == ("gpu02", "link.outage") and node["away_s"] == pytest.approx(
        60.0, abs=0.1
    )
    jobs = {s: [(one["job_id"], one["outcome"]) for one in answer["jobs"]] for s, answer in found.items()}
    assert jobs == {24: [("15", "lost")], 90: [("15", "may live")], 91: [("15", "lives")]}, "with 24 s it was lost"
    assert found[24]["least_s"] == 91 and found[24]["slurmd_timeout"]["low"] == 24
    assert "own_key" not in found[24]["jobs"][0] and any("60 to 160 s" in text for text in found[90]["assumes"])
    assert timed.get(path).json()["asked"] == 48
    assert [timed.get(path, params={"slurmd_timeout": s}).status_code for s in (0, 65534)] == [422, 422]


def test_the_form_works_without_javascript(store: DuckStore, timed: TestClient) -> None:
    page = timed.get(f"/incidents/{hit(store)}?slurmd_timeout=91&theme=dark").text
    part = page[page.index('id="what-if"') :].partition("</section>")[0]
    assert 'name="slurmd_timeout"' in part and 'value="91"' in part
    assert "Lives" in part and "From SlurmdTimeout=91 on" in part
    assert re.search(r'data-seconds="91"[^>]* data-given-up="\[60\.\d*, 16\d', part), (
        "what the axis draws is what is answered"
    )
    assert 'data-host="gpu02" data-lost="20' in part
    assert 'name="theme" value="dark"' in part


def test_nothing_is_shown_where_no_timeout_took_a_node(store: DuckStore, timed: TestClient) -> None:
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO model.incidents BY NAME SELECT * REPLACE ('I-other' AS incident_id, replace(document, '\"E03\"', '\"E31\"') AS document)"
            " FROM model.incidents WHERE incident_id = ?",
            [hit(store)],
        )
    answer = timed.get("/api/v1/incidents/I-other/what-if", params={"slurmd_timeout": 91})
    assert answer.status_code == 404 and "SlurmdTimeout" in answer.json()["detail"]
    page = timed.get("/incidents/I-other").text
    assert 'id="replay"' in page and 'id="what-if"' not in page


class Alice:
    """What ``OwnDocuments`` asks about a user with run 15 of one cluster, and 16 of another."""

    user = "alice"

    def named_runs(self) -> list[dict[str, Any]]:
        return [{"own_key": "15", "run_key": "15@east", "cluster": "east"}, {"own_key": "16", "run_key": "16", "cluster": "west"}]  # fmt: skip


def test_a_user_sees_their_own_jobs_and_the_nodes_of_these() -> None:
    jobs = [{"job_id": key, "own_key": key, "nodes": [node]} for key, node in (("15", "n1"), ("16", "n2"))]
    whole = {"jobs": jobs, "nodes": [{"host": "n1"}, {"host": "n2"}], "asked": 91}
    found = OwnDocuments(Alice()).what_if({"cluster": "east"}, whole)  # type: ignore[arg-type]
    assert [one["job_id"] for one in found["jobs"]] == ["15@east"] and found["nodes"] == [{"host": "n1"}]


@pytest.mark.long
@pytest.mark.browser
def test_dragging_asks_again(look: Any, store: DuckStore) -> None:
    served = serve(store)
    page = look(1440, next(served)).open(f"/incidents/{hit(store)}?slurmd_timeout=24")
    page.wait_for_selector("#what-if input[type=range]:not([hidden])")
    assert page.query_selector("#what-if .chip.ok") is None
    page.fill("#what-if input[type=number]", "300")
    page.keyboard.press("Tab")
    page.wait_for_selector("#what-if .chip.ok")
    page.wait_for_url("**slurmd_timeout=300*")
    page.focus("#what-if input[type=range]")
    page.keyboard.press("Home")
    page.wait_for_selector("#what-if .chip.warn")
    page.wait_for_url("**slurmd_timeout=5")
    handle = "document.getElementById('axis').axis.hits.timeouts[0]"
    place = f"(() => {{ const a = document.getElementById('axis').axis, h = {handle}, x = s => a.scale.x(h.t + s); return [h.x + h.w / 2, h.y + h.h / 2, x(15)]; }})()"
    page.evaluate("scrollTo(0, 0)")
    at, y, to = page.evaluate(place)
    box = page.locator("#axis canvas").bounding_box()
    page.mouse.move(box["x"] + at, box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + to, box["y"] + y, steps=4)
    page.wait_for_url("**slurmd_timeout=15")
    page.mouse.up()
    drawn = page.evaluate("document.getElementById('axis').axis.other")
    assert (drawn["seconds"], drawn["givenUp"][0]) == (15, 10) and page.input_value("#wi-s") == "15"
    served.close()


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_the_scrubber_shows_one_moment_and_moves_the_axis(look: Any, store: DuckStore, theme: str, width: int) -> None:
    served = serve(store)
    site, name = next(served), hit(store)
    eyes = look(width, site)
    page = eyes.open(f"/incidents/{name}?theme={theme}")
    page.wait_for_selector("#axis[data-ready=yes]")
    page.click("#replay form button")
    page.wait_for_selector("#replay .scrub:not([hidden])", timeout=200_000)
    shown = "[...document.querySelectorAll('.moment')].filter(one => !one.hidden).map(one => one.id)"
    last = page.evaluate(shown)
    assert len(last) == 1 and "replay=yes" in page.url
    page.focus("#replay input[type=range]")
    page.keyboard.press("Home")
    assert page.evaluate(shown) == ["m0"]
    cursor = page.evaluate("document.getElementById('axis').axis.state.cursor")
    page.click("#replay [data-step='1']")
    assert page.evaluate(shown) == ["m1"]
    assert page.evaluate("document.getElementById('axis').axis.state.cursor") > cursor
    page.click("#replay [data-every]")
    assert page.evaluate(shown)[-1] == last[0]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    eyes.shoot(f"replay-{width}-{theme}")
    served.close()
