"""Advice in shadow: what the repair list would have drained at the time, and what became of those nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

from correlator.repairs.drain_advice import Advice, shadow
from parsers.record import frame
from queries import reports
from store import open_store
from store.door import Door
from tests.replaced_model import replace_model

DAY = datetime(2026, 3, 1)


def at(minutes: float) -> datetime:
    return DAY + timedelta(minutes=minutes)


def link(host: str, device: str, minutes: float, lasts_s: float | None = None, side: str = "nic.link", **more: Any) -> list[dict[str, Any]]:  # fmt: skip
    ends = [("_down", minutes), *([] if lasts_s is None else [("_up", minutes + lasts_s / 60)])]
    return [
        {"event_id": f"{host}{device}{when}", "time": at(when), "resolution_us": 1000, "cluster": "c", "host": host, "event": side + end,
         "device": device, "severity": "warning", "message": "", "entities": "{}", "count": 1, "incident_id": None, "authority": "kernel", **more}
        for end, when in ends
    ]  # fmt: skip


def drained(host: str, minutes: float, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "host": host,
        "time": at(minutes),
        "state": "drained",
        "reason": reason,
        "source": "poll",
        **more,
    }


def incident(name: str, host: str, job: str) -> dict[str, Any]:
    document = {"jobs": [{"job_id": job}], "slowed_jobs": []}
    return {"incident_id": name, "cluster": "c", "root_event": "nic.link_down", "root_host": host, "root_device": "rdma0",
            "start": at(0), "document": json.dumps(document)}  # fmt: skip


def run(number: int, host: str, end: float, incident: str) -> dict[str, Any]:
    return {"run_key": str(number), "cluster": "c", "job_id": number, "nodes": [host], "state": "NODE_FAIL", "start": at(-60), "end": at(end),
            "category": "infra.network", "incident_id": incident}  # fmt: skip


def cables(hosts: Iterable[str]) -> pl.DataFrame:
    """Each host's rdma0 on a port of its own of leaf1."""
    return frame("links", [
        {"cluster": "c", "host": h, "device": "rdma0", "switch": "leaf1", "switch_port": f"Ethernet{h[1:]}", "plane": "0"} for h in hosts
    ])  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    """Links that stay down, of nodes that people, a health check or nobody drained."""
    hosts = [f"n{n}" for n in range(20)]
    events = [
        *link("n1", "rdma0", 0, incident_id="I1"), *link("n2", "rdma0", 0), *link("n3", "rdma0", 0), *link("n4", "rdma0", 0),
        *link("n5", "rdma0", 0), *link("leaf9", "Ethernet9", 0, side="switch.port"),
        # n6 comes back each time; from its second flap on it has hurt a job, which accounting knows at minute 120
        *link("n6", "rdma0", 1, 2.0, incident_id="I6"), *link("n6", "rdma0", 30, 2.0, incident_id="I6"), *link("n6", "rdma0", 150, 2.0),
        *link("n7", "rdma0", 0, incident_id="I7"), *link("n19", "rdma0", 700, 1.0),
    ]  # fmt: skip
    states = [{"cluster": "c", "host": h, "time": at(-600), "state": "idle", "source": "poll"} for h in hosts]
    states += [
        drained("n1", 120, "bad cable", actor="dora(1207)"), drained("n2", 30, "NHC: check_hw_ib: rdma0 down"),
        drained("n4", 7 * 60, "bad cable"), drained("n5", -60, "for dora"), drained("n7", 60, "DOWN by hand", actor="root(0)"),
    ]  # fmt: skip
    with open_store(None) as made:
        replace_model(made, {
            "events": pl.DataFrame(events, infer_schema_length=None), "node_states": pl.DataFrame(states, infer_schema_length=None),
            "incidents": pl.DataFrame([incident("I1", "n1", "1"), incident("I6", "n6", "6"), incident("I7", "n7", "7")]),
            "runs": pl.DataFrame([run(1, "n1", 60, "I1"), run(6, "n6", 120, "I6"), run(7, "n7", 60, "I7")]),
        })  # fmt: skip
        made.append({"links": cables(hosts)})
        yield made


@pytest.fixture(scope="module")
def advice(store: Door) -> dict[str, Advice]:
    found = shadow(store).advice
    assert len({one.host for one in found}) == len(found), "once while it lasts"
    return {one.host: one for one in found}


def test_advice_that_people_took_in_time_and_a_job_that_died_first(advice: dict[str, Advice]) -> None:
    one = advice["n1"]
    assert (one.device, one.at, one.drained) == ("rdma0", at(10), at(120))
    assert (one.by, one.actor, one.reason, one.killed) == ("people", "dora(1207)", "bad cable", ("1",))


def test_a_health_check_is_not_people_and_after_six_hours_is_too_late(advice: dict[str, Advice]) -> None:
    assert (advice["n2"].by, advice["n2"].drained) == ("nhc", at(30))
    assert (advice["n3"].drained, advice["n3"].by, advice["n4"].drained) == (None, None, None)


def test_none_about_a_node_that_is_drained_or_that_slurm_does_not_know(advice: dict[str, Advice]) -> None:
    assert advice.keys() == {"n1", "n2", "n3", "n4", "n6", "n7"}


def test_nothing_is_advised_by_what_happened_later(advice: dict[str, Advice]) -> None:
    """Job 6 had not ended at n6's second flap: only the third one is reason enough."""
    assert advice["n6"].at == at(155) and advice["n6"].killed == ()


def test_a_job_that_ended_with_the_drain_was_not_killed_first(advice: dict[str, Advice]) -> None:
    assert (advice["n7"].drained, advice["n7"].killed) == (at(60), ())


def test_the_report_counts_and_lists_them(store: Door) -> None:
    document = reports.run(store, "drain-advice")
    section = document.section("advice")
    assert section.lead.startswith("Of 6 nodes that we would have drained")
    assert "2 were drained by people within 6 h and 1 by others; 1 killed another job first." in section.lead
    assert [f.value for f in section.figures] == [6, 2, 1, 3, 1, 2 / 6]
    assert [r["node"] for r in section.tables[0].rows if r["by"] == "people"] == ["n7", "n1"]
    ledger = document.section("ledger").tables[0]
    assert {r["host"]: (r["owner"], r["end"]) for r in ledger.rows}["n2"] == ("nhc", None)
    later = reports.run(store, "drain-advice", since=at(600)).section("advice")
    assert later.tables[0].rows == [], "what stood when the period began is no advice of it"


def test_long_periods_are_looked_at_in_longer_steps(store: Door) -> None:
    assert shadow(store).step_min == 5
    assert shadow(store, at(100), at(100)).advice == []
