"""What a page advises is due: no command puts back a node that somebody put back since."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from around import insert
from fastapi.testclient import TestClient

from web.app import create_app

AT = datetime(2026, 11, 21, 4)
RESUME = {"text": "When it is mended, put the node back into service.", "command": "scontrol update nodename=m1 state=resume"}  # fmt: skip
OTHER = {"text": "Save the crash dump.", "command": None}


def advised(*states: dict[str, Any], cluster: str = "mini") -> list[list[str | None]]:
    """The commands beside an incident that ended at ``AT`` and the run that it ended: of the API, and of the lists and pages."""
    store = fixture.build()
    document = json.dumps(
        {"title": "m1 panicked", "events": [], "chain": [], "advice": [OTHER, RESUME], "confidence": 0.9}
    )
    insert(store.con, "model.incidents", {
        "incident_id": "I8", "cluster": cluster, "start": AT - timedelta(seconds=60), "end": AT, "severity": "impact",
        "category": "infra.node", "root_event": "node.panic", "root_host": "m1", "document": document,
    })  # fmt: skip
    insert(store.con, "model.runs", {
        "run_key": "81", "cluster": cluster, "job_id": 81, "attempt": 0, "state": "NODE_FAIL", "nodes": ["m1"], "user": "alice",
        "start": AT - timedelta(seconds=600), "end": AT, "category": "infra.node", "document": document,
    })  # fmt: skip
    for state in states:
        insert(
            store.con,
            "model.node_states",
            {"cluster": cluster, "host": "m1", "source": "slurmctld", "until": None, **state},
        )
    client = TestClient(create_app(store))
    listed = client.get("/api/v1/incidents", params={"limit": 100}).json()["incidents"]
    documents = [
        client.get("/api/v1/incidents/I8").json(), client.get("/api/v1/jobs/81").json(),
        next(one for one in listed if one["id"] == "I8"),
    ]  # fmt: skip
    told = [[item["command"] for item in found.get("advice") or found["verdict"]["advice"]] for found in documents]
    pages = [client.get(path, headers={"accept": "text/html"}).text for path in ("/incidents/I8", "/jobs/81")]
    assert all(("state=resume" in page) == any(commands) for page, commands in zip(pages, told, strict=False))
    assert all("Save the crash dump" in page for page in pages)
    return told


@pytest.mark.parametrize(
    ("states", "due"),
    [
        pytest.param([], True, id="no state is known"),
        pytest.param([{"time": AT - timedelta(hours=1), "state": "IDLE"}], True, id="in service before the fault only"),
        pytest.param([{"time": AT + timedelta(hours=1), "state": "IDLE"}], False, id="somebody put it back"),
        pytest.param([{"time": AT + timedelta(hours=1), "state": "mixed"}], False, id="it runs jobs"),
        pytest.param(
            [{"time": AT + timedelta(hours=1), "state": "IDLE"}, {"time": AT + timedelta(hours=2), "state": "DOWN"}], True, id="down again",
        ),
        pytest.param([{"time": AT + timedelta(hours=1), "state": "IDLE+DRAIN"}], True, id="drained"),
        pytest.param(
            [{"time": AT + timedelta(hours=1), "state": "IDLE", "until": AT + timedelta(hours=2)}], True, id="its state is over",
        ),
        pytest.param([{"time": AT + timedelta(hours=1), "state": "IDLE", "cluster": "else"}], True, id="a node of another cluster"),
    ],
)  # fmt: skip
def test_a_node_that_was_put_back_is_not_to_be_put_back(states: list[dict[str, Any]], due: bool) -> None:
    """Five of seven pages of medium-12 and -13 with `state=resume` were about nodes that an administrator had put back."""
    expected = [None, RESUME["command"]] if due else [None]
    assert advised(*states) == [expected] * 3
