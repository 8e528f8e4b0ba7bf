"""Messages to the users whose jobs an incident ended: each about the user's own jobs, and what is to be done."""

from __future__ import annotations

import html
import json
import re
from datetime import datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from triaged import FLAP, four_more, hit

from tests.correlator.rows import concluded
from web.app import create_app
from web.user_messages import messages


def run(key: str, user: str | None, **more: Any) -> dict[str, Any]:
    return {
        "run_key": key, "name": "train", "user": user, "state": "NODE_FAIL", "end": datetime(2026, 11, 21, 0, 30), "category": "infra.node", "confidence": 0.97,
        "headline": "Your job died because a node crashed.", "summary": f"n1 panicked; job {key} ended.", "final": "true",
    } | more  # fmt: skip


def test_each_user_reads_of_their_own_jobs_and_what_is_left_to_do() -> None:
    runs = [
        run("1", "ada"),
        run("2", "ben"),
        run("3#1", "ada", final="false"),
        run("4", None),
        run("5", "eve", headline=None),
    ]
    told = {one["user"]: one for one in messages(runs, {"ada"}, "https://f")}
    assert set(told) == {"ada", "ben"} and told["ada"]["keys"] == ["1", "3#1"]
    ada, ben = told["ada"]["text"], told["ben"]["text"]
    assert "Your job 2" not in ada and "Your job 1 " not in ben and "ada" not in ben
    assert "https://f/jobs/3%231" in ada and ada.count("may still change") == 1
    assert ada.endswith("Please submit again what squeue does not show.") and "need not submit" in ben
    assert messages([run("1", "ada")], {"ada"}, "")[0]["text"].endswith("Please submit it again.")
    assert "Your job 1 (train) ended NODE_FAIL at 2026-11-21 00:30:00 UTC." in ada


@pytest.fixture(scope="module")
def client() -> Any:
    with concluded(FLAP) as store:
        four_more(store)
        yield TestClient(create_app(store), headers={"accept": "text/html"}), hit(store), store


def test_the_page_has_the_message_ready_unless_its_headline_is_wrong(client: Any) -> None:
    asks, name, store = client
    verdict = json.loads(store.rows("SELECT document FROM model.runs WHERE run_key = '15'")[0]["document"])
    text = html.unescape(asks.get(f"/incidents/{name}").text)
    (message,) = re.findall(r'data-copy="(Your job 15[^"]*)"', text)
    assert verdict["headline"] in message and verdict["summary"] in message and "http://testserver/jobs/15" in message
    assert '<details class="message" open>' in text, "one message is not folded away"
    asks.post(f"/api/v1/incidents/{name}/state", json={"state": "wrong", "category": "unknown"})
    assert "Your job 15" not in asks.get(f"/incidents/{name}").text


def test_the_costliest_incidents_can_be_listed_first(client: Any) -> None:
    asks, _, store = client
    for n, hours in ((1, 3.5), (3, 40.25), (4, 0.5)):
        with store.transaction() as connection:
            connection.execute(
                "UPDATE model.incidents SET document = json_merge_patch(document, ?) WHERE incident_id = ?",
                [json.dumps({"gpu_hours_lost": hours}), f"I-{n}"],
            )
    listed = re.findall(r'class="inc \w*"\s+href="/incidents/([^?"]+)', asks.get("/incidents?sort=cost").text)
    assert listed[:3] == ["I-3", "I-1", "I-4"] and len(listed) == 5
    newest = re.findall(r'class="inc \w*"\s+href="/incidents/([^?"]+)', asks.get("/incidents").text)
    assert newest != listed and sorted(newest) == sorted(listed)
    chip = re.search(
        r'<a class="chip" href="([^"]+)"[^>]*>Costliest first', asks.get("/incidents?severity=impact").text
    )
    assert chip and html.unescape(chip[1]) == "/incidents?severity=impact&sort=cost"
