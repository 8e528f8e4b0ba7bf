"""Ticks have the result of a full pass, row for row; early results are marked provisional, and former ids lead on."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from correlator.conclusions import Conclusions
from correlator.engine import clusters_of, conclude_cluster, correlate, load_edges, result
from correlator.incidents.incident import Incident
from correlator.live import arrivals as new_rows
from correlator.live import ticker as ticker_module
from correlator.live.history import History, resolve
from correlator.live.state import LiveConclusions, TickChange, Touched
from correlator.live.ticker import Ticker
from correlator.model.append_only_list import AppendOnlyList
from parsers.record import frame
from store import open_store
from store.duckdb.store import DuckStore
from tests.correlator.rows import CAPTURES, rows_of, slices
from tests.examples import examples
from web.app import create_app

HOURS = 7


@cache
def benchmark() -> ModuleType:
    """The benchmark's generator of cluster days, over fewer nodes."""
    place = Path(__file__).resolve().parents[3] / "benchmarks" / "correlation.py"
    spec = importlib.util.spec_from_file_location("made_days", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["made_days"] = module
    spec.loader.exec_module(module)
    module.NODES[:] = module.NODES[:60]
    return module


def made_rows(seed: int, events: int) -> list[tuple[datetime, str, dict[str, Any]]]:
    """(time, table, row) of some hours of a simulated cluster: mostly well, some faults and what follows from them."""
    day = benchmark().Day(seed)
    day.fill(0, HOURS * 3600, events // 6, events)
    for row in day.logs:
        if row["source"] in ("kernel", "syslog"):  # timestamps without a year
            row["time_quality"] = "inferred"
    return [(r["time"], "logs", r) for r in day.logs] + [(r["end"], "jobs", r) for r in day.jobs]


def add(store: DuckStore, part: list[tuple[datetime, str, dict[str, Any]]]) -> None:
    store.add({t: frame(t, [r for _, name, r in part if name == t]) for t in ("logs", "jobs")})


def stored(store: DuckStore) -> dict[str, Any]:
    """Everything in ``model`` except when it was first published."""
    found = {t: store.rows(f"SELECT * FROM model.{t} ORDER BY ALL") for t in ("events", "runs", "concluded_facts")}
    reported = result(store)
    for incident in reported["incidents"]:
        incident["detected_at"] = None
    return {**found, "result": reported}


def with_settings(store: DuckStore, strangers: int = 0) -> None:
    """What a cluster that has been running for a while has logged: its configuration, and a line of nearly every node."""
    rows = [{"cluster": "made", "scope": "cluster", "name": "SlurmdTimeout", "value": "300", "source": "slurm.conf"}]
    store.add({"settings": frame("settings", rows)})
    with_voices(store, strangers)


def with_voices(store: DuckStore, strangers: int = 0) -> None:
    day = benchmark().Day(0)
    for node in benchmark().NODES[strangers:]:
        day.say(-60, node, "kernel", "sys.service_started", "Started Session 1 of User root.")
    store.add({"logs": frame("logs", day.logs)})


@settings(max_examples=examples(1), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10_000), late=st.sampled_from([0.0, 600.0, 3000.0]), again=st.booleans(), strangers=st.sampled_from([0, 30]),
    ticks=st.integers(5, 12),
)  # fmt: skip
@example(
    seed=9082, late=3000.0, again=True, strangers=30, ticks=6
)  # a GPU logs errors again, longer after than any causal window
@example(
    seed=53, late=0.0, again=False, strangers=0, ticks=5
)  # runs reach their time limits hours after storage was lost that they did not wait for
def test_any_split_of_any_order_of_arrival_ends_as_a_full_pass(seed: int, late: float, again: bool, strangers: int, ticks: int) -> None:  # fmt: skip
    rng = random.Random(seed)
    rows = made_rows(seed, 700)
    arrivals = [(t + timedelta(seconds=late * rng.random() * (rng.random() < 0.2)), n, r) for t, n, r in rows]
    arrivals.sort(key=lambda a: a[0])
    if again:  # a delivery that was repeated
        arrivals += [a for a in arrivals[-60:] if a[1] == "logs"]
    cuts = [0, *sorted(rng.sample(range(1, len(arrivals)), ticks - 1)), len(arrivals)]
    partly = 0
    with open_store(None) as store:
        with_settings(store, strangers)
        ticker = Ticker(store)
        for low, high in zip(cuts, cuts[1:], strict=False):  # noqa: RUF007
            add(store, arrivals[low:high])
            partly += not ticker.tick().full
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)
    assume(partly or strangers)  # an example without a partial tick tests nothing; late lines may cause that


@pytest.mark.parametrize(
    "ahead",
    [new_rows.AHEAD_LINES, pytest.param(0, marks=pytest.mark.long)],
    ids=["lines read ahead", "lines read when they are needed"],
)
def test_every_partial_tick_says_what_a_full_pass_would_say_then(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_rows, "AHEAD_LINES", ahead)
    rows = sorted(made_rows(5, 1200), key=lambda a: a[0])
    partly = 0
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        for place in range(0, len(rows), 150):
            add(store, rows[place : place + 150])
            report = ticker.tick()
            if report.full:
                continue
            partly += 1
            full = conclude_cluster(store, "made", ticker._rules)
            known = ticker._known["made"]
            now, whole = known.result, full.result
            assert now.verdicts == whole.verdicts
            for incident in whole.incidents:
                incident["detected_at"] = None
            assert [{**i, "detected_at": None} for i in now.incidents] == whole.incidents
            assert [e.id for e in now.events] == [e.id for e in whole.events]
            assert sorted(f.key for f in now.facts) == [f.key for f in whole.facts]
            assert known.memory.basis.seen == full.basis.seen
    assert partly >= 4


def test_a_host_never_seen_asks_for_a_full_pass_only_where_an_earlier_line_named_it() -> None:
    full = []
    with open_store(None) as store:
        with_settings(store)
        day = benchmark().Day(4)
        day.fill(0, HOURS * 3600, 100, 600)
        day.say(5_000, "leaf1", "switch", "switch.port_down", "port m-new-2 is down", port="m-new-2")
        day.say(5_060, "leaf1", "switch", "switch.port_up", "port m-new-2 is up", port="m-new-2")
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        for number, host in enumerate(("new-1", "new-2")):
            at = 40_000.0 + 9_000.0 * number
            day.link(host, "eth0", at, 600.0)
            day.say(at + 310, "ctl", "slurmctld", "slurm.node_down", f"error: Nodes {host} not responding, setting DOWN", nodes=[host])  # fmt: skip
            day._lifecycle(900 + number, [host], at - 500, at + 310, "NODE_FAIL")
            day.store(store)
            full.append(ticker.tick().full)
            ticked = stored(store)
            correlate(store)
            assert ticked == stored(store)
        whole = result(store)["incidents"]
    assert full == [False, True]
    assert any("new-2" in i["hosts"] and "leaf1" in json.dumps(i) for i in whole), (
        "the switch's port is that host's link"
    )


def test_accounting_that_shows_the_gpus_of_a_run_later_changes_what_a_lost_node_cost() -> None:
    with open_store(None) as store:
        with_settings(store)
        day = benchmark().Day(4)
        day.fill(0, HOURS * 3600, 100, 600)
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        host, at = benchmark().NODES[7], 40_000.0
        day._lifecycle(900, [host], at - 300, at + 40_000, "COMPLETED")
        accounting, day.jobs = day.jobs, []
        ended = day.logs.pop()
        day._lifecycle(901, [host], at - 400, at + 310, "NODE_FAIL")
        day.link(host, "eth0", at, 600.0)
        day.say(at + 310, "ctl", "slurmctld", "slurm.node_down", f"error: Nodes {host} not responding, setting DOWN", nodes=[host])  # fmt: skip
        day.say(at + 630, "ctl", "slurmctld", "slurm.node_up", f"Node {host} now responding", nodes=[host])
        day.store(store)
        ticker.tick()
        before = stored(store)["result"]["incidents"]
        day.logs, day.jobs = [ended], accounting
        day.store(store)
        assert not ticker.tick().full
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)
    lost = [{i["id"]: i["gpu_hours_lost"] for i in some} for some in (before, ticked["result"]["incidents"])]
    assert lost[0] != lost[1], "the node's GPUs were told by the second delivery only: this test says nothing"


def test_without_slurms_configuration_a_node_set_down_as_late_as_others_asks_for_no_full_pass() -> None:
    def lost(day: Any, node: int, at: float, lag: float) -> None:
        host = benchmark().NODES[node]
        day.link(host, "eth0", at, 600.0)
        day.say(at + lag, "ctl", "slurmctld", "slurm.node_down", f"error: Nodes {host} not responding, setting DOWN", nodes=[host])  # fmt: skip
        day.say(at + 630, "ctl", "slurmctld", "slurm.node_up", f"Node {host} now responding", nodes=[host])

    full = []
    with open_store(None) as store:
        with_voices(store)
        day = benchmark().Day(3)
        day.fill(0, HOURS * 3600, 100, 600)
        lost(day, 3, 20_000.0, 310.0)
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        for number, lag in enumerate((310.0, 310.0, 420.0)):
            lost(day, 10 + number, 40_000.0 + 9_000.0 * number, lag)
            day.store(store)
            full.append(ticker.tick().full)
            ticked = stored(store)
            correlate(store)
            assert ticked == stored(store)
    assert full == [False, False, True], "only a delay that narrows the estimate changes what was said of others"


def test_nothing_new_costs_no_conclusion() -> None:
    with open_store(None) as store:
        ticker = Ticker(store)
        assert ticker.tick().worked
        assert not ticker.tick().worked


def test_a_detection_has_the_time_of_the_tick_and_offline_work_has_none() -> None:
    folder = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
    moment = datetime(2026, 11, 21, 12, 0, 0)
    with open_store(None) as store:
        ticker = Ticker(store)
        ticker.tick()
        store.add(rows_of(folder))
        report = ticker.tick(moment)
        assert report.opened
        reported = {i["id"]: i["detected_at"] for i in result(store)["incidents"]}
        assert all(reported[i] == "2026-11-21T12:00:00.000000Z" for i in report.opened)
        correlate(store)
        assert {i["id"]: i["detected_at"] for i in result(store)["incidents"]} == reported, (
            "a full pass forgets no detection"
        )
    with open_store(None) as store:
        store.add(rows_of(folder))
        correlate(store)
        Ticker(store).tick(moment)  # the service starts on a store that was filled offline
        assert {i["detected_at"] for i in result(store)["incidents"]} == {None}


@pytest.mark.parametrize("long_ago", (True, False), ids=("read_long_after", "while_verdicts_are_provisional"))
def test_a_former_id_leads_to_the_incident_that_took_over(long_ago: bool) -> None:
    """The node's own lines come first with whole seconds, the kernel's record with microseconds later: another root id."""
    folder = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
    rows = rows_of(folder)
    fine = rows["logs"]["file"].str.contains("kmsg")
    stated = datetime(2026, 11, 21, 12, 0, 0) if long_ago else rows["logs"]["time"].max() + timedelta(seconds=2)
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add({**rows, "logs": rows["logs"].filter(~fine)})
        ticker.tick(stated)
        before = [i["id"] for i in result(store)["incidents"]]
        store.add({"logs": rows["logs"].filter(fine)})
        report = ticker.tick(stated + timedelta(seconds=20))
        after = [i["id"] for i in result(store)["incidents"]]
        dates = {i["detected_at"] for i in result(store)["incidents"] if i["id"] in set(after) - set(before)}
        assert dates == {stated.isoformat(timespec="microseconds") + "Z"}, "its story was told before"
        assert before != after and set(report.closed) == set(before) - set(after)
        assert {resolve(store, old) for old in report.closed} <= set(after)
        client = TestClient(create_app(store))
        for old in report.closed:
            assert client.get(f"/api/v1/incidents/{old}").json()["id"] in after
        assert client.get("/api/v1/incidents/I-000000").status_code == 404
        versions = store.rows("SELECT version, digest FROM kept.versions WHERE kind = 'incident' AND name = ? ORDER BY version", [before[0]])  # fmt: skip
        assert [v["version"] for v in versions] == [1, 2] and versions[-1]["digest"] is None


def _with(known: LiveConclusions, result: Conclusions, stories: list[Incident]) -> LiveConclusions:
    memory = known.memory
    return replace(known, result=result, memory=replace(memory, basis=replace(memory.basis, stories=stories)))


def test_an_incident_that_stood_beside_another_and_takes_over_its_story_has_the_earlier_date() -> None:
    folder = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
    with open_store(None) as store:
        store.add(rows_of(folder))
        (found,) = (LiveConclusions.of(conclude_cluster(store, c, load_edges(), None)) for c in clusters_of(store))
        first = datetime(2026, 11, 21, 12, 0, 0)
        history = History(store)
        result, stories = found.result, found.memory.basis.stories
        heir, gone = result.incidents[0], {**result.incidents[0], "id": "I-0000000000"}
        both = _with(found, replace(result, incidents=[*result.incidents, gone]), [*stories, stories[0]])
        older = _with(found, replace(result, incidents=[gone], verdicts={}), stories[:1])
        for moment, now, last in ((first, older, None), (first + timedelta(seconds=5), both, older)):
            reported = history.note([now], moment, {now.cluster: last} if last else {})
            history.remember(reported)
        assert history.detected[heir["id"]] == first + timedelta(seconds=5)
        touched = Touched([], {gone["id"]: (gone, stories[0])}, set())
        later = replace(found, change=TickChange(touched=touched))
        reported = history.note([later], first + timedelta(seconds=9), {found.cluster: both})
        history.remember(reported)
        assert reported.report["aliases"] == {gone["id"]: heir["id"]}
        assert history.detected[heir["id"]] == first, "the story was told at noon"
        assert touched.incidents == [0] and heir["id"] in touched.gone, "and what is stored is dated anew"


def test_a_verdict_is_provisional_until_the_longest_window_is_over() -> None:
    folder = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(rows_of(folder))
        end = max(r["end"] for r in rows_of(folder)["jobs"].to_dicts() if r["end"])
        report = ticker.tick(end + timedelta(seconds=1))
        assert "15" in report.provisional and not result(store)["verdicts"]["15"]["final"]
        assert {i["status"] for i in result(store)["incidents"]} == {"provisional"}
        assert not ticker.tick(end + timedelta(seconds=5)).worked
        report = ticker.tick(end + timedelta(hours=3))  # nothing arrived: time alone makes it final
        assert "15" in report.final and result(store)["verdicts"]["15"]["final"]
        assert {i["status"] for i in result(store)["incidents"]} == {"final"}
        ticked = stored(store)
        correlate(store)
        assert stored(store) == ticked


class Watched(AppendOnlyList[Any]):
    """Counts the items of the slices that were read."""

    read = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(place, slice) else 0
        return found


def test_a_verdict_becomes_final_without_a_look_at_all_events() -> None:
    folder = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(rows_of(folder))
        end = max(r["end"] for r in rows_of(folder)["jobs"].to_dicts() if r["end"])
        ticker.tick(end + timedelta(seconds=1))
        (known,) = ticker._known.values()
        known.result.events = events = Watched(known.result.events)
        assert ticker.tick(end + timedelta(hours=3)).final
        assert len(events) > 30 and events.read == 0
        ticked = stored(store)
        correlate(store)
        assert stored(store) == ticked


def test_a_full_pass_that_could_not_be_stored_was_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(rows_of(next(c for c in CAPTURES if c.name == "mgmt_flap_long")))
        with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
            patched.setattr("store.questions.changes.all_rows", lambda _: 1 / 0)
            ticker.tick()
        assert not store.rows("SELECT * FROM kept.versions") + store.rows("SELECT * FROM kept.detections")
        assert ticker.tick().opened
        versions = store.rows("SELECT version FROM kept.versions")
        assert versions and {v["version"] for v in versions} == {1}


def test_versions_of_a_verdict_are_kept() -> None:
    folder = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in slices(rows_of(folder), 6):
            store.add(part)
            ticker.tick()
        versions = store.rows("SELECT * FROM kept.versions WHERE kind = 'verdict' AND name = '15' ORDER BY version")
        assert [v["version"] for v in versions] == list(range(1, len(versions) + 1))
        assert versions[-1]["category"] == result(store)["verdicts"]["15"]["category"]
        assert json.loads(json.dumps(versions[-1]["confidence"])) == result(store)["verdicts"]["15"]["confidence"]


def test_a_full_pass_runs_hourly_and_less_often_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slow = [1e6], [0.0]

    def clock() -> float:
        now[0] += slow[0]
        return now[0]

    monkeypatch.setattr(ticker_module.time, "perf_counter", clock)
    full = []
    with open_store(None) as store:
        with_settings(store)
        day = benchmark().Day(4)
        day.fill(0, HOURS * 3600, 30, 200)
        ticker = Ticker(store)
        for number, later in enumerate((0.0, 10.0, 3601.0, 10.0, 3601.0, 12_000.0)):
            day.say(30_000.0 + number, "gpu-0001", "kernel", "pcie.aer", "AER: Corrected error", severity="Corrected")
            day.store(store)
            now[0] += later
            slow[0] = 100.0 if number == 2 else 0.0  # this one takes minutes
            full.append(ticker.tick().full)
    assert full == [True, False, True, False, False, True]
