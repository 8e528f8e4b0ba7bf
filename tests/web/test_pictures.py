"""A picture is a claim, and so is a command beside it: what the page of an incident shows is so."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.gather.telemetry import STEP_TIME
from correlator.model.gauges import GAUGES
from correlator.repairs.repairs import repairs
from correlator.site.senders import configured_nodes
from store import open_store
from store.duckdb.store import DuckStore
from tests.correlator.engine.test_liars import ALL, unpacked
from tests.line_parser import line_parser
from web.app import create_app
from web.axis import LEAST_SHOWN
from web.axis_ends import CLOCKS_S
from web.lags import EXACT_S

SOME = ("mgmt_flap_short", "switch_down", "slurmd_killed")
#: ``make test-long`` takes every second of the others.
PLACES = [
    place
    for kind in ("captures", "archived captures", "second party", "scenarios")
    for n, place in enumerate(ALL[kind])
    if place.name in SOME or n % 2
]


def backwards(axis: dict[str, Any]) -> list[dict[str, Any]]:
    """The arrows that go back in time, or to where they came from."""
    at = {mark["id"]: mark["t"] for mark in axis["marks"]}
    return [a for a in axis["arrows"] if a["from"] == a["to"] or at[a["from"]] > at[a["to"]] + CLOCKS_S]


def mistold(axis: dict[str, Any]) -> list[str]:
    """Arrows whose number is not what lies between their marks, or whose effect is drawn outside of what is allowed."""
    marks, wrong = {mark["id"]: mark for mark in axis["marks"]}, []
    for arrow in axis["arrows"]:
        cause, effect = marks[arrow["from"]], marks[arrow["to"]]
        ends = [mark.get("between") or (mark["t"], mark["t"]) for mark in (cause, effect)]
        low, high = ends[1][0] - ends[0][1] - EXACT_S, ends[1][1] - ends[0][0] + EXACT_S
        if not low <= arrow["lag"] <= high:
            wrong.append(f"{arrow['lag_text']} of {effect['t'] - cause['t']:.3f} s")
        if arrow["allowed"] and (
            ends[1][1] < arrow["allowed"][0] - EXACT_S or ends[1][0] > arrow["allowed"][1] + EXACT_S
        ):
            wrong.append(f"{effect['event']} at {effect['t']} is allowed in {arrow['allowed']}")
    return wrong


def untrue(axis: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """What the picture of an incident leaves out, or says twice in two ways."""
    wrong = [f"{len(axis['arrows'])} arrows for {len(document['chain'])} steps"] * (
        len(axis["arrows"]) != len(document["chain"])
    )
    marks, into = {mark["id"]: mark for mark in axis["marks"]}, {arrow["to"] for arrow in axis["arrows"]}
    lanes = {lane["id"]: lane for lane in axis["lanes"]}
    for key in (job["job_id"] for job in document["jobs"]):
        mark = marks.get(f"run:{key}")
        if mark is None or mark["id"] not in into:
            wrong.append(f"job {key} ended, and no arrow leads to it")
        elif lanes[mark["lane"]]["layer"] != "job" or lanes[mark["lane"]].get("part") != "ended":
            wrong.append(f"the end of job {key} is on the lane {mark['lane']}")
    apart = [{lanes[lane].get("part") for lane in fold["lanes"]} for fold in axis["folds"]]
    wrong += ["a job that ended by this is folded with others"] * any(len(parts) > 1 for parts in apart)
    both = set(document["slowed_jobs"]) & {job["job_id"] for job in document["unaffected_jobs"]}
    wrong += [f"job {key} is slowed and not hurt" for key in both]
    low, high = axis["focus"]
    if not axis["start"] - 1e-6 <= low < high <= axis["end"] + 1e-6:
        wrong.append("what opens is not in the picture")
    if high - low < 0.9 * LEAST_SHOWN * (axis["end"] - axis["start"]):
        wrong.append(f"opens with {high - low:.3f} of {axis['end'] - axis['start']:.1f} s")
    return wrong


def mispainted(store: DuckStore, axis: dict[str, Any]) -> list[str]:
    """Bands that differ from the rows of the store: states of nodes at the middle of their band, ends and states of runs."""
    t0 = datetime.fromisoformat(axis["t0"].removesuffix("Z"))
    wrong = []
    states = store.rows("SELECT host, time, state FROM model.node_states ORDER BY host, time")
    runs = {row["run_key"]: row for row in store.rows('SELECT run_key, state, "end" FROM model.runs')}
    host_of = {lane["id"]: lane["host"] for lane in axis["lanes"] if lane["layer"] == "node"}
    of_document = {"down", "silent", "late", "blind", "no_carrier", "disabled"}
    for band in axis["bands"]:
        if band["kind"] == "job":
            run = runs[band["job"]]
            late = abs((run["end"] - t0).total_seconds() - band["end"]) if run["end"] else 0.0
            if not run["state"].startswith(band["state"]) or late > 1.0 or (run["end"] is None) != band["open"]:
                wrong.append(f"bar of {band['job']}: {band} is {run}")
        elif band["lane"] in host_of and band["end"] > band["start"]:
            when = t0 + timedelta(seconds=(band["start"] + band["end"]) / 2)
            last = [s["state"] for s in states if s["host"] == host_of[band["lane"]] and s["time"] <= when]
            if last and not band["text"].startswith(last[-1]) and band["kind"] not in of_document:
                wrong.append(f"{band['lane']} at {when}: {band['text']}, and NodeStates says {last[-1]}")
    return wrong + [f"{point} is no row" for point in unmeasured(store, axis, t0)]


def printed(store: DuckStore, run: str) -> list[dict[str, Any]]:
    """When a run's output reported a pace, and the seconds per step, as Python reads them from the lines."""
    lines = store.rows(
        "SELECT epoch(time) AS t, message FROM raw.log_view WHERE source IN ('job_stdout', 'job_stderr') AND job_id ="
        " (SELECT job_id FROM model.runs WHERE run_key = ?)",
        [run],
    )
    found = []
    for line in lines:
        for form in STEP_TIME:
            if match := re.search(form.pattern, line["message"] or ""):
                number = float(match[1])
                found.append({"t": line["t"], "value": form.factor / number if form.inverse else form.factor * number})
                break
    return found


def unmeasured(store: DuckStore, axis: dict[str, Any], t0: datetime) -> list[Any]:
    """Points of gauges that are not among the measured values of their host at their time."""
    lanes, wrong = {lane["id"]: lane for lane in axis["lanes"]}, []
    for one in axis["series"]:
        if one["name"] == "step time":
            rows = printed(store, lanes[one["lane"]]["host"])
        else:
            gauge = next(gauge for gauge in GAUGES.values() if gauge.name == one["name"])
            if gauge.counter:
                continue
            rows = store.rows(
                "SELECT epoch(time) AS t, value FROM raw.metrics WHERE host = ? AND list_contains(?, metric)",
                [lanes[one["lane"]]["host"], list(gauge.metrics)],
            )
        times, values = {round(row["t"], 3) for row in rows}, {row["value"] for row in rows}
        began = (t0 - datetime(1970, 1, 1)).total_seconds()
        for t, low, high in (point for piece in one["pieces"] for point in piece):
            if round(began + t, 3) not in times or not {low, high} <= values:
                wrong.append((one["lane"], t, low, high))
    return wrong


def disagreeing(store: DuckStore, incidents: list[dict[str, Any]]) -> list[str]:
    """Commands that name no node of Slurm's, or drain it for a link of which the repair list says to do nothing."""
    nodes = {node for row in store.rows("SELECT nodes FROM raw.jobs") for node in row["nodes"] or ()}
    nodes |= configured_nodes(store.rows("SELECT * FROM raw.settings"))
    idle = {(r.host, r.device) for r in repairs(store).repairs if r.action.startswith("Nothing")}
    wrong = []
    for incident in incidents:
        root = incident["root_cause"]
        # The list waits a while before it says that a link is down.
        lost = {(span["host"], span["device"]) for span in incident["spans"] if span["end"] is None}
        for command in (row["command"] or "" for row in incident["advice"]):
            named = command.partition("nodename=")[2].split(" ")[0]
            if named and nodes and named not in nodes:
                wrong.append(f"{command}: no node of Slurm's")
            if "state=drain" in command and (root["host"], root["device"]) in idle - lost:
                wrong.append(f"{command}: the repair list says to do nothing")
    return wrong


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(p, marks=[] if p.name in SOME else [pytest.mark.long], id=f"{p.parent.name}-{p.name}")
        for p in PLACES
    ],
)
def test_pictures_and_commands(place: Path) -> None:
    with open_store(None) as store, unpacked(place) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        client, incidents = TestClient(create_app(store)), result(store)["incidents"]
        for incident in incidents:
            axis = client.get(f"/api/v1/axis/{incident['id']}").json()
            assert not backwards(axis), incident["id"]
            assert not mistold(axis), incident["id"]
            assert not untrue(axis, incident), incident["id"]
            assert not mispainted(store, axis), incident["id"]
        assert not disagreeing(store, incidents)
