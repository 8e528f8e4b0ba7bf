"""A picture is a claim, and so is a command beside it: what the page of an incident shows is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from told_numbers import misnumbered

from collector.ingest import Ingest
from correlator.edges.load import entries, rules
from correlator.engine import correlate, result
from correlator.gather.telemetry import STEP_TIME
from correlator.model.gauges import GAUGES
from correlator.repairs.repairs import repairs
from correlator.selftest import situations as made
from correlator.selftest.run import gather
from correlator.site.senders import configured_nodes
from parsers.hostlist import expand
from parsers.node_states import kind_of_state
from store import open_store
from store.duckdb.store import DuckStore
from store.tables import STATES
from tests.correlator import field
from tests.correlator.engine.test_liars import ALL, unpacked
from tests.line_parser import line_parser
from tests.measured import Measured
from web.access.own import OwnReader
from web.app import create_app
from web.axis import LEAST_SHOWN
from web.axis_ends import CLOCKS_S
from web.lags import EXACT_S
from web.reading import Reader

SOME = ("mgmt_flap_short", "switch_down", "slurmd_killed")
#: ``make test-long`` takes all of them: 88 captures of one party, those of another, every way in which Slurm ends jobs, simulated clusters.
PLACES = [place for kind in ALL for place in ALL[kind]]


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
    # A part of a heterogeneous job that Slurm ended with another is no step, and has an arrow.
    steps = len(document["chain"]) + sum("ended_with" in job for job in document["jobs"])
    wrong = [f"{len(axis['arrows'])} arrows for {steps} steps"] * (len(axis["arrows"]) != steps)
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
    states = states_of_nodes(store)
    runs = {row["run_key"]: row for row in store.rows('SELECT run_key, state, "end" FROM model.runs')}
    host_of = {lane["id"]: lane["host"] for lane in axis["lanes"] if lane["layer"] == "node"}
    of_document = {"silent", "late", "blind", "no_carrier", "disabled"}
    for band in axis["bands"]:
        if band["kind"] == "job":
            run = runs[band["job"]]
            late = abs((run["end"] - t0).total_seconds() - band["end"]) if run["end"] else 0.0
            if not run["state"].startswith(band["state"]) or late > 1.0 or (run["end"] is None) != band["open"]:
                wrong.append(f"bar of {band['job']}: {band} is {run}")
        elif band["lane"] in host_of and band["end"] > band["start"]:
            when = t0 + timedelta(seconds=(band["start"] + band["end"]) / 2)
            last = [s for s in states if s["host"] == host_of[band["lane"]] and s["time"] <= when][-1:]
            known = [s["state"] for s in last if s["until"] is None or s["until"] >= when]
            says_so = any(band["text"].startswith(state) for state in known)
            if band["kind"] == "down":  # a fact of the document may know it from another source, and earlier
                says_so = not any(kind_of_state(state) in ("idle", "busy", "up") for state in known)
            elif band["kind"] in of_document:
                continue
            if not says_so:
                wrong.append(f"{band['lane']} at {when}: {band['text']}, and NodeStates says {known}")
    return wrong + [f"{point} is no row" for point in unmeasured(store, axis, t0)]


def states_of_nodes(store: DuckStore) -> list[dict[str, Any]]:
    """The rows of NodeStates with when each state was over: those that Slurm's tools reported, and else those of slurmctld's log."""
    return store.ask(sa.select(STATES).order_by(STATES.c.host, STATES.c.time, STATES.c.state))


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


def grown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What counters can have grown by up to each sample: since any sample before it. One that fell began again at 0."""
    last: dict[str, float] = {}
    sums: dict[str, list[float]] = {}
    found = []
    for row in rows:
        name, value = row["series"], row["value"]
        before = sums.setdefault(name, [])
        grew = value - last.get(name, value) if value >= last.get(name, value) else value
        before.append((before[-1] if before else 0.0) + grew)
        found += [{"t": row["t"], "value": before[-1] - one} for one in before]
        last[name] = value
    return found


def unmeasured(store: DuckStore, axis: dict[str, Any], t0: datetime) -> list[Any]:
    """Points of gauges that are not among the measured values of their host at their time."""
    lanes, wrong = {lane["id"]: lane for lane in axis["lanes"]}, []
    for one in axis["series"]:
        if one["name"] == "step time":
            rows = printed(store, lanes[one["lane"]]["host"])
        else:
            gauge = next(gauge for gauge in GAUGES.values() if gauge.name == one["name"])
            rows = store.rows(
                "SELECT epoch(time) AS t, value, concat_ws(' ', metric, device, labels) AS series FROM raw.metrics"
                " WHERE host = ? AND list_contains(?, metric) ORDER BY time",
                [lanes[one["lane"]]["host"], list(gauge.metrics)],
            )
            rows = grown(rows) if gauge.counter else rows
        times, values = {round(row["t"], 3) for row in rows}, {row["value"] for row in rows}
        began = (t0 - datetime(1970, 1, 1)).total_seconds()
        for t, *shown in (point for piece in one["pieces"] for point in piece):
            if round(began + t, 3) not in times or not {value for value in shown if value is not None} <= values:
                wrong.append((one["lane"], t, *shown))
    return wrong


def disagreeing(store: DuckStore, incidents: list[dict[str, Any]]) -> list[str]:
    """Commands that name no node of Slurm's or put one back that is in service, and advice about a link or device of which the repair
    list says to do nothing."""
    nodes = {node for row in store.rows("SELECT nodes FROM raw.jobs") for node in row["nodes"] or ()}
    configured = configured_nodes(store.rows("SELECT * FROM raw.settings"))
    if not configured:  # slurm.conf was not collected: whoever wrote a line, unless it is a switch
        hosts = (
            "SELECT host FROM model.events UNION SELECT host FROM raw.links UNION "
            "SELECT unnest(json_extract_string(entities, '$.nodes[*]')) FROM model.events"
        )
        switches = {row["switch"] for row in store.rows("SELECT switch FROM raw.links")}
        nodes |= {row["host"] for row in store.rows(hosts)} - switches
    nodes |= configured
    idle = {(r.host, r.device) for r in repairs(store).repairs if r.action.startswith("Nothing")}
    back, wrong = in_service(store), list[str]()
    for incident in incidents:
        root = incident["root_cause"]
        # The list waits a while before it says that a link is down.
        lost = {(span["host"], span["device"]) for span in incident["spans"] if span["end"] is None}
        for command in (row["command"] or "" for row in incident["advice"]):
            named = command.partition("nodename=")[2].split(" ")[0]
            if named and nodes and not set(expand(named)) <= nodes:
                wrong.append(f"{command}: no node of Slurm's")
            if "state=drain" in command and (root["host"], root["device"]) in idle - lost:
                wrong.append(f"{command}: the repair list says to do nothing")
            if command.endswith("state=resume") and back.get(named, datetime.min) > ended(incident):
                wrong.append(f"{command}: it is in service")
        about = [row["text"] for row in incident["advice"][:1] if (root["host"], root["device"]) in idle - lost]
        wrong += [f"{text}: the repair list says to do nothing" for text in about if not text.startswith("Nothing")]
    return wrong


def ended(incident: dict[str, Any]) -> datetime:
    return datetime.fromisoformat((incident["end"] or incident["start"]).removesuffix("Z"))


def in_service(store: DuckStore) -> dict[str, datetime]:
    """Since when nodes are in service, of those whose newest state says so."""
    newest = {row["host"]: row for row in states_of_nodes(store)}
    return {
        host: row["time"]
        for host, row in newest.items()
        if row["until"] is None and kind_of_state(row["state"]) in ("idle", "busy", "up")
    }


def misadvised(store: DuckStore, incidents: list[dict[str, Any]]) -> list[str]:
    """What owners of hurt jobs are told that is for administrators, or to inform themselves."""
    read, wrong = Reader(store), []
    for incident in incidents:
        for user in {job["user"] for job in incident["jobs"]} - {None}:
            for item in OwnReader(read, user).incident(incident["id"])["document"]["advice"]:
                if item["command"] or not item["text"].startswith(("Submit again", "You need not submit")):
                    wrong.append(f"{user} reads {item}")
    return wrong


def resubmitted(store: DuckStore, incidents: list[dict[str, Any]]) -> list[str]:
    """Users who are asked to submit again though each job of theirs that was hurt has completed since."""
    runs = {
        run["run_key"]: run
        for run in store.rows("SELECT run_key, cluster, job_id, attempt, user, state FROM model.runs")
    }
    done: dict[tuple[Any, Any], int] = {}
    for run in runs.values():
        if run["state"] == "COMPLETED":
            job = (run["cluster"], run["job_id"])
            done[job] = max(done.get(job, -1), run["attempt"] or 0)
    wrong = []
    for incident in incidents:
        hurt = [runs[job["job_id"]] for job in incident["jobs"]]
        for user in {user for item in incident["advice"] for user in item.get("users") or ()}:
            own = [run for run in hurt if run["user"] == user]
            if all(done.get((run["cluster"], run["job_id"]), -1) > (run["attempt"] or 0) for run in own):
                wrong.append(f"{incident['id']}: {user} is asked to submit again")
    return wrong


def untruths(store: DuckStore) -> tuple[int, list[str]]:
    """How many incidents a store has, and what their pictures, numbers and advice say that is not so."""
    client, incidents, wrong = TestClient(create_app(store)), result(store)["incidents"], []
    for incident in incidents:
        name = incident["id"]
        axis = client.get(f"/api/v1/axis/{name}").json()
        found = [*backwards(axis), *mistold(axis), *untrue(axis, incident), *mispainted(store, axis)]
        runs = {
            key: client.get(f"/api/v1/jobs/{quote(key, safe='')}").json()
            for key in (job["job_id"] for job in incident["jobs"])
        }
        page = client.get(f"/incidents/{name}", headers={"accept": "text/html"}).text
        wrong += [f"{name}: {one}" for one in [*found, *misnumbered(page, axis, incident, runs)]]
    for incident in incidents:  # what pages advise is what the API has, as things stand now
        incident["advice"] = client.get(f"/api/v1/incidents/{incident['id']}").json()["advice"]
    names = [incident["id"] for incident in incidents]
    wrong += [f"two incidents are {name}" for name in set(names) if names.count(name) > 1]
    return len(incidents), wrong + disagreeing(store, incidents) + misadvised(store, incidents) + resubmitted(
        store, incidents
    )


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(
            p,
            marks=[] if p.name in SOME and p in ALL["captures"] else [pytest.mark.long],
            id=f"{p.parent.name}-{p.name}",
        )
        for p in PLACES
    ],
)
def test_pictures_and_commands(place: Path) -> None:
    with open_store(None) as store, unpacked(place) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        assert untruths(store)[1] == []


#: Files whose ``SITUATIONS`` are written as lines, with the truth.
WRITTEN = (
    "engine.test_decoys", "engine.test_bystanders", "engine.test_unlogged_causes", "engine.test_administrators", "engine.test_lived_through",
    "engine.test_field_situations", "facts.test_standstills", "facts.launches.test_launches",
)  # fmt: skip


def situations() -> dict[str, Callable[[], dict[str, pl.DataFrame]]]:
    """The rows of made situations by name: those that edges declare with lines and jobs, and those of tests of verdicts."""
    tests, _ = gather(entries(()), {edge.id: edge for edge in rules(())[0].edges})
    of_edges = {case.situation: case for case in tests if case.lines and case.jobs}.values()
    found = {f"{c.edge.id} {c}": partial(made.tables_of, [c], line_parser()) for c in of_edges}
    for name in WRITTEN:
        for one in import_module(f"tests.correlator.{name}").SITUATIONS:
            if isinstance(one, field.Situation):
                found[f"{name}: {one.name}"] = partial(field.tables_of, [one])
    return found


def test_every_part_of_a_heterogeneous_job_has_an_arrow() -> None:
    """The other part ended with the first that failed, and nothing in the picture led to it."""
    name = "engine.test_unlogged_causes: a part of a heterogeneous job fails by a GPU"
    with open_store(None) as store:
        store.add(situations()[name]())
        correlate(store)
        assert untruths(store) == (1, [])
        client = TestClient(create_app(store))
        found = client.get("/api/v1/incidents").json()["incidents"][0]
        axis = client.get(f"/api/v1/axis/{found['id']}").json()
        page = client.get(f"/incidents/{found['id']}", headers={"accept": "text/html"}).text
    (arrow,) = [arrow for arrow in axis["arrows"] if arrow["to"] == "run:7000"]
    assert arrow["from"] == "run:7001" and "heterogeneous" in arrow["text"]
    assert "Ended with job 7001, another part of it." in page


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 60])
def test_pictures_of_made_situations(every: int, measured: Measured) -> None:
    found, wrong = 0, []
    some = list(situations().items())[::every]
    for name, tables in some:
        with open_store(None) as store:
            store.add(tables())
            correlate(store, settings={"SlurmdTimeout": "300"})
            count, untrue_here = untruths(store)
            found += count
            wrong += [f"{name}: {one}" for one in untrue_here]
    measured(f"{len(some)} situations, {found} incidents")
    assert len(some) * every >= 200 and found > 5 and wrong == []
