"""What the hurt share and the others do not: the routes, and the panel of an incident."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import polars as pl
import pytest
from fastapi.testclient import TestClient

from store import open_store
from store.door import Door
from store.tables import INCIDENTS, LINKS, RUNS
from web.app import create_app

T0 = datetime(2026, 11, 21, 12)
#: Eight jobs behind one switch end by it; twelve elsewhere run on, four begin only later behind the same switch.
HURT, OTHERS, LATER = range(1, 9), range(9, 21), range(21, 25)


def _runs() -> pl.DataFrame:
    rows = []
    for job in (*HURT, *OTHERS, *LATER):
        start = T0 - timedelta(hours=1) if job not in LATER else T0 + timedelta(minutes=5)
        behind = job in HURT or job in LATER
        rows.append({
            "run_key": str(job), "cluster": "c", "job_id": job, "attempt": 0, "user": f"u{job % 5}", "state": "NODE_FAIL" if job in HURT else "COMPLETED",
            "start": start, "end": T0 + timedelta(minutes=2 if job in HURT else 30), "nodes": [f"{'a' if behind else 'b'}{job}"],
            "category": "infra.network" if job in HURT else None,
        })  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"category": pl.String})


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with open_store(None) as store:
        fill(store)
        yield TestClient(create_app(store))


def fill(store: Door) -> None:
    hosts = [f"a{job}" for job in (*HURT, *LATER)] + [f"b{job}" for job in OTHERS]
    document = {"title": "Switch tor-1 failed.", "jobs": [{"job_id": str(job)} for job in HURT], "hosts": [f"a{job}" for job in HURT],
                "events": [{"id": "e1", "time": "2026-11-21T12:00:00Z", "role": "cause", "event": "switch.reboot", "host": "tor-1"}]}  # fmt: skip
    with store.write() as writer:
        writer.insert(RUNS, _runs())
        writer.insert(
            LINKS,
            pl.DataFrame(
                {
                    "cluster": "c",
                    "host": hosts,
                    "device": "eth0",
                    "switch": ["tor-1" if h[0] == "a" else "tor-2" for h in hosts],
                }
            ),
        )
        writer.insert(INCIDENTS, pl.DataFrame({
            "incident_id": ["I-1"], "cluster": ["c"], "start": [T0], "end": [T0 + timedelta(minutes=20)], "severity": ["impact"],
            "category": ["infra.network"], "root_event": ["switch.failure"], "root_host": ["tor-1"], "document": [json.dumps(document)],
        }))  # fmt: skip


def test_the_jobs_and_nodes_of_an_incident(client: TestClient) -> None:
    found = client.get("/api/v1/incidents/I-1/shared").json()
    (one,) = found["jobs"]["shared"]
    assert one["traits"] == [{"kind": "switch", "value": "tor-1"}] and (one["hurt"], one["others"]) == (8, 0)
    assert (found["jobs"]["hurt"], found["jobs"]["others"]) == (8, 12)  # who began later was not there
    assert one["chance"] < 0.001 and not found["truncated"]
    (node,) = found["nodes"]["shared"]
    assert node["traits"][0] == {"kind": "switch", "value": "tor-1"} and (node["hurt"], node["others"]) == (8, 4)


def test_the_failures_of_a_range(client: TestClient) -> None:
    found = client.get("/api/v1/shared", params={"category": "infra.network"}).json()["jobs"]
    assert [one["traits"][0]["value"] for one in found["shared"]] == ["tor-1"]
    assert (found["hurt"], found["others"], found["shared"][0]["others"]) == (8, 16, 4)
    nothing = client.get("/api/v1/shared", params={"from": "2026-11-22T00:00:00Z"}).json()["jobs"]
    assert (nothing["hurt"], nothing["why_not"]) == (0, "None was hurt.")


def test_the_panel_says_what_and_how_sure(client: TestClient) -> None:
    page = client.get("/incidents/I-1").text
    panel = page[page.index("What the hurt share") :]
    assert "8 of 8" in panel and "tor-1" in panel and "Chance below 0.001" in panel and "no verdict" in panel
