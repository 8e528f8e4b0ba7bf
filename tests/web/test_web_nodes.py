"""States of nodes: from polls if there are any, else from slurmctld's log."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from web.access.own import OwnReader
from web.app import create_app
from web.reading import PAGE, Reader, joined_states

START = datetime.fromisoformat("2026-11-21T04:00:00")


def told(store: fixture.FakeStore, second: int, event: str, message: str, **entities: Any) -> None:
    row = {"event_id": f"n{second}-{event}", "time": START + timedelta(seconds=second), "time_quality": "line",
           "cluster": "mini", "host": "ctl", "source": "slurmctld", "layer": "slurmctld", "event": event,
           "severity": "info", "message": message, "entities": json.dumps(entities), "count": 1}  # fmt: skip
    fixture.insert(store.con, "model.events", row)


@pytest.fixture(scope="module")
def store() -> fixture.FakeStore:
    store = fixture.build()
    told(
        store,
        0,
        "slurm.node_reason",
        "update_node: node gpu07 reason set to: NHC: fan",
        nodes=["gpu07"],
        reason="NHC: fan",
    )
    told(
        store, 1, "slurm.node_drain", "update_node: node gpu07 state set to DRAINING", nodes=["gpu07"], state="DRAINING"
    )
    told(store, 60, "slurm.node_up", "update_node: node gpu07 state set to IDLE", nodes=["gpu07"], state="IDLE")
    told(store, 90, "slurm.node_down", "error: Nodes gpu[07-08] not responding, setting DOWN", nodes=["gpu07", "gpu08"])
    told(store, 99, "slurm.node_up", "Node gpu08 now responding", nodes=["gpu08"])
    told(store, 100, "slurm.node_up", "node_did_resp: node gpu08 returned to service", nodes="gpu08")
    told(store, 120, "slurm.node_invalid", "error: Setting node gpu09 state to INVAL with reason:Low TmpDisk",
         nodes=["gpu09"], reason="Low TmpDisk")  # fmt: skip
    told(store, 130, "slurm.node_down", "error: Nodes gpu02 not responding, setting DOWN", nodes=["gpu02"])
    return store


def states(store: fixture.FakeStore, *hosts: str) -> list[tuple[Any, ...]]:
    rows = Reader(store).node_states(hosts, None, None)
    return [(row["host"], int((row["time"] - START).total_seconds()), row["state"], row["reason"]) for row in rows]


def test_the_log_shows_states_where_slurm_was_not_asked(store: fixture.FakeStore) -> None:
    assert states(store, "gpu07", "gpu08", "gpu09") == [
        ("gpu07", 1, "DRAINING", "NHC: fan"), ("gpu07", 60, "IDLE", None), ("gpu07", 90, "DOWN", "Not responding"),
        ("gpu08", 90, "DOWN", "Not responding"), ("gpu08", 100, "UP", None), ("gpu09", 120, "INVAL", "Low TmpDisk"),
    ]  # fmt: skip


def test_a_state_lasts_until_the_next_one(store: fixture.FakeStore) -> None:
    rows = Reader(store).node_states(["gpu07"], START + timedelta(seconds=70), None)
    assert [row["state"] for row in rows] == ["IDLE", "DOWN"]
    assert rows[0]["until"] == rows[1]["time"] and rows[1]["until"] is None


def test_a_node_that_slurm_was_asked_about_keeps_to_the_answers(store: fixture.FakeStore) -> None:
    assert {row["source"] for row in Reader(store).node_states(["gpu02"], None, None)} == {"poll", "sacctmgr"}


def test_the_page_says_since_when_a_node_is_out_of_service_and_how_long_it_was(store: fixture.FakeStore) -> None:
    text = TestClient(create_app(store)).get("/nodes/gpu07").text
    panel = text[text.index("Out of service") :]
    assert panel.index("since then") < panel.index("59.0 s") < panel.index("NHC: fan"), "newest first"
    assert "Out of service" not in TestClient(create_app(store)).get("/nodes/gpu03").text


def test_owners_of_jobs_see_no_drain_of_any_node(store: fixture.FakeStore) -> None:
    node = Reader(store).node("gpu07")
    assert len(Reader(store).drains(node, None, None)) == 2
    assert OwnReader(Reader(store), "alice").drains(node, None, None) == []


def test_list_and_page_say_the_newest_state_and_where_it_is_from(store: fixture.FakeStore) -> None:
    listed = {row["name"]: row["state"] for row in Reader(store).nodes(limit=100)[0]}
    assert (listed["gpu07"], listed["gpu08"], listed["gpu09"], listed["gpu02"]) == ("DOWN", "UP", "INVAL", "idle")
    client = TestClient(create_app(store))
    text = client.get("/nodes/gpu07").text
    assert "Not responding" in text and ", from slurmctld&#39;s log" in text and "not reported" not in text
    assert "from slurmctld" not in client.get("/nodes/gpu02").text


SEEN = [("idle", None), ("IDLE", None), ("down*", None), ("down*", "Not responding"), ("down*", None), ("down*", "fan"),
        ("idle", None), ("drained", "fan"), ("idle", None)]  # fmt: skip


def test_a_state_that_is_reported_again_and_again_stands_once() -> None:
    rows = [
        {"host": "a", "time": n, "until": n + 1, "state": state, "reason": why} for n, (state, why) in enumerate(SEEN)
    ]
    rows.append({"host": "b", "time": 9, "until": None, "state": "idle", "reason": None})
    kept = [(row["host"], row["time"], row["until"], row["state"], row["reason"]) for row in joined_states(rows)]
    assert kept == [
        ("a", 0, 2, "idle", None), ("a", 2, 5, "down*", "Not responding"), ("a", 5, 6, "down*", "fan"),
        ("a", 6, 7, "idle", None), ("a", 7, 8, "drained", "fan"), ("a", 8, 9, "idle", None), ("b", 9, None, "idle", None),
    ]  # fmt: skip
    apart = [{"host": "a", "time": n, "until": n + 1, "state": "idle", "reason": None} for n in (0, 1, 5)]
    kept = [(row["host"], row["time"], row["until"], row["state"], row["reason"]) for row in joined_states(apart)]
    assert kept == [("a", 0, 2, "idle", None), ("a", 5, 6, "idle", None)], "between 2 and 5 nothing is known"
    assert rows[0]["until"] == 1, "the rows themselves stay as they were read"


def test_a_node_with_more_jobs_and_incidents_than_are_listed_says_so() -> None:
    """The page said "50 in range" of a node on which thousands of jobs ran."""
    store = fixture.build()
    rows = [
        {"run_key": str(n), "job_id": n, "cluster": "mini", "attempt": 0, "state": "COMPLETED", "start": START, "end": START, "nodes": ["gpu77"]}
        for n in range(1000, 1060)
    ]  # fmt: skip
    fixture.insert(store.con, "model.runs", *rows)
    fixture.insert(store.con, "model.incidents", *(
        {"incident_id": f"I-{n}", "cluster": "mini", "start": START, "end": START, "severity": "benign", "root_event": "x", "root_host": "gpu77",
         "document": "{}"} for n in range(PAGE)
    ))  # fmt: skip
    told(store, 1, "slurm.node_up", "node gpu77 is up", nodes=["gpu77"])
    client = TestClient(create_app(store))
    text = client.get("/nodes/gpu77").text
    assert f"newest {PAGE} of the range; narrow it to see the rest" in text and f"{PAGE} in range" in text
    assert client.get("/api/v1/nodes/gpu77").json()["cut"] == ["jobs"]
