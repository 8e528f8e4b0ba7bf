"""The repair list as a page and as JSON: the same rows, filters, pages, and honest texts if it is empty."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from around import insert
from fastapi.testclient import TestClient

from web.app import create_app
from web.repairs import KEPT, Memory

BEGAN = datetime(2026, 11, 21, 1)
HTML = {"accept": "text/html"}
EVIL = "<script>alert(1)</script>"


def flaps(con: Any, host: str, device: str, times: int, **more: Any) -> None:
    for number in range(times):
        for kind, second in (("nic.link_down", 0), ("nic.link_up", 2)):
            time = BEGAN + timedelta(minutes=7 * number, seconds=second)
            insert(con, "model.events", {
                "event_id": f"{host}{device}{kind}{number}", "time": time, "resolution_us": 1000, "cluster": "mini", "host": host,
                "event": kind, "device": device, "severity": "warning", "message": "", "entities": "{}", "count": 1, **more,
            })  # fmt: skip


@pytest.fixture(scope="module")
def client() -> TestClient:
    """One port that hurt a job, one that flaps far too much, and 60 that flap as ports do; two cables are known."""
    made = fixture.build()
    for table in ("model.events", "model.incidents"):
        made.con.execute(f"DELETE FROM {table}")
    document = {"jobs": [{"job_id": "15"}], "slowed_jobs": []}
    insert(made.con, "model.incidents", {"incident_id": "I7", "cluster": "mini", "start": BEGAN, "severity": "impact",
                                         "root_event": "nic.link_flap", "document": json.dumps(document)})  # fmt: skip
    flaps(made.con, "gpu02", "eth0", 2, incident_id="I7")
    flaps(made.con, "n7", "rdma1", 30)
    for number in range(60):
        flaps(made.con, f"m{number:02d}", "rdma0", 1)
    flaps(made.con, EVIL, "rdma0", 1)
    for plane in range(4):
        insert(made.con, "raw.links", {"cluster": "mini", "host": "n7", "device": f"rdma{plane}", "switch": f"leaf-p{plane}",
                                       "switch_port": "Ethernet7", "plane": str(plane)})  # fmt: skip
    return TestClient(create_app(made), raise_server_exceptions=False)


def listed(client: TestClient, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/v1/repairs", params={"limit": 200, **asked}).json()["repairs"]
    return found


def test_the_urgent_come_first_with_both_ends_and_the_next_step(client: TestClient) -> None:
    first, second, *rest = listed(client)
    assert (first["host"], first["device"], first["switch"], first["urgency"], first["ended"]) == (
        "gpu02",
        "eth0",
        "leaf01",
        "now",
        ["15"],
    )
    assert (second["host"], second["flaps"], second["outlier"], second["plane"], second["planes"]) == (
        "n7",
        30,
        True,
        "1",
        4,
    )
    assert len(rest) == 61 and {one["urgency"] for one in rest} == {"watch"}
    assert second["last"] == "2026-11-21T04:23:00Z"


@pytest.mark.parametrize(("asked", "hosts"), [
    ({"urgency": "now"}, ["gpu02"]), ({"q": "LEAF-P1"}, ["n7"]), ({"q": "m07 rdma"}, ["m07"]), ({"urgency": "soon", "q": "gpu02"}, []),
    ({"from": "2026-11-21T04:20:00Z"}, ["n7"]), ({"to": "2026-11-21T00:59:00Z"}, []),
])  # fmt: skip
def test_filters_and_the_range(client: TestClient, asked: dict[str, str], hosts: list[str]) -> None:
    assert [one["host"] for one in listed(client, **asked)] == hosts


def test_the_list_pages_by_cursor(client: TestClient) -> None:
    seen, cursor = [], None
    while True:
        answer = client.get("/api/v1/repairs", params={"limit": 25, **({"cursor": cursor} if cursor else {})}).json()
        seen += [one["host"] for one in answer["repairs"]]
        cursor = answer["next"]
        if cursor is None:
            break
    assert seen == [one["host"] for one in listed(client)] and len(seen) == 63
    assert client.get("/api/v1/repairs", params={"cursor": "abc"}).status_code == 400


def test_the_page_shows_the_same(client: TestClient) -> None:
    text = client.get("/repairs", headers=HTML).text
    for words in (
        "leaf-p1 Ethernet7",
        "plane 1, 1 of 4",
        "more than chance",
        "Drain gpu02 when it is idle",
        'href="/jobs/15"',
        "Now 1",
        "Soon 1",
        "Watch 61",
        "Next",
    ):
        assert words in text, words
    assert "<script>alert" not in text
    assert 'href="/repairs" aria-current="page"' in client.get("/repairs").text


def test_nothing_to_repair_says_so(client: TestClient) -> None:
    assert "Nothing to repair" in client.get("/repairs", params={"to": "2026-11-21T00:59:00Z"}, headers=HTML).text
    assert "Remove the filter" in client.get("/repairs", params={"q": "nowhere"}, headers=HTML).text


def test_few_lists_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("web.repairs.repairs", lambda read, start, end: made.append((start, end)) or len(made))
    memory = Memory()

    class Within:
        def __init__(self, start: int) -> None:
            self.start, self.end = start, None

    asked = [memory.of(None, Within(n)) for n in (1, 1, *range(2, 2 + KEPT), 1)]  # type: ignore[arg-type, func-returns-value]
    assert asked[0] == asked[1] and len(made) == KEPT + 2 and asked[-1] == KEPT + 2
