"""A verdict is final when nothing that could change it can still arrive in time, and says until when it waits."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from correlator.edges.load import load
from correlator.engine import correlate, result
from correlator.facts.registry import kinds
from correlator.live.finality import LATENESS_S
from correlator.live.reach import MARGIN_S
from correlator.live.ticker import Ticker
from correlator.selftest import situations
from parsers.record import frame
from store import open_store
from tests.correlator.field import ALIVE, BOOT, KEY_ERROR, KILLED, LEAF, SET_DOWN, XID48, Situation, _case, down, ended
from tests.correlator.live.test_streaming import made_rows
from tests.correlator.replay import replay, spread
from tests.correlator.rows import CAPTURES, rows_of
from tests.line_parser import line_parser
from tests.measured import Measured

END = situations.BEGINNING
#: By the rule of before: ten minutes and the longest causal window, of an hour, after every end.
BEFORE_MIN = 70.0


def tables(lines: tuple[str, ...], job: dict[str, Any], timeout: float = 300.0) -> dict[str, Any]:
    made = Situation("", lines, (job,), (None,), links=LEAF, settings={"SlurmdTimeout": timeout})
    return situations.tables_of([_case(made, 0)], line_parser())


def verdict_of(store: Any) -> dict[str, Any]:
    (verdict,) = result(store)["verdicts"].values()
    return dict(verdict)


def minutes(verdict: dict[str, Any]) -> float:
    """How long after its end a provisional verdict becomes final, by its own words."""
    at, end = (datetime.fromisoformat(verdict[name]) for name in ("final_at", "end"))
    return (at - end).total_seconds() / 60.0


XID = f"-1s gpu01 kernel: {XID48}"
RESULTS: dict[str, tuple[tuple[str, ...], dict[str, Any], tuple[float, float], str]] = {
    "cancelled": (ALIVE, ended("CANCELLED", cancelled_by="1000"), (12, 13), "causes of a cancellation"),
    "cancelled by nobody": (ALIVE, ended("CANCELLED"), (25, 26), "causes of a cancellation"),
    "preempted": (ALIVE, ended("PREEMPTED"), (12, 13), "the last lines of a job"),
    "out of memory": (ALIVE, ended("OUT_OF_MEMORY"), (12, 13), "the last lines of a job"),
    "time limit": (ALIVE, ended("TIMEOUT"), (12, 26), "causes of a missed time limit"),
    "own error": ((*ALIVE, KEY_ERROR), ended(), (25, 26), "causes of a failure"),
    "GPU": ((*ALIVE, XID), ended(), (25, 26), "causes of a failure"),
    "link that is back": ((*ALIVE, *down("-250s", "gpu01", "eth0", "-2s"), SET_DOWN, KILLED), ended("NODE_FAIL"), (25, 71), "this lasts"),
    "link that is down": ((*ALIVE, *down("-250s", "gpu01", "eth0"), SET_DOWN, KILLED), ended("NODE_FAIL"), (70, 71), "lines of gpu01"),
}  # fmt: skip


@pytest.mark.one_of_each(kind=lambda name: (RESULTS[name][1]["state"], RESULTS[name][-1]))
@pytest.mark.parametrize("name", RESULTS)
def test_a_verdict_waits_for_what_can_still_change_it(name: str) -> None:
    lines, job, (low, high), words = RESULTS[name]
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(tables(lines, job))
        ticker.tick(END + timedelta(seconds=1))
        early = verdict_of(store)
        assert not early["final"] and low <= minutes(early) <= high, early["final_at"]
        assert any(words in reason for reason in early["waits_for"]), early["waits_for"]
        assert all(reason.startswith("until ") and " UTC" in reason for reason in early["waits_for"])
        at = datetime.fromisoformat(early["final_at"]).replace(tzinfo=None)
        ticker.tick(at - timedelta(seconds=1))
        assert verdict_of(store) == early, "what it says does not change while nothing arrives"
        assert ticker.tick(at + timedelta(seconds=1)).final
        late = verdict_of(store)
        assert late["final"] and late["final_at"] is None and late["waits_for"] == []
        ticker.tick(at + timedelta(days=1))
        reported = result(store)
        assert all(
            i["status"] == "final" and i["final_at"] is None and not i["waits_for"] for i in reported["incidents"]
        )
        correlate(store)
        again = result(store)
        for incident in (*reported["incidents"], *again["incidents"]):
            incident["detected_at"] = None
        assert reported == again


def test_an_incident_waits_for_its_verdicts_and_for_further_jobs() -> None:
    lines, job, *_ = RESULTS["GPU"]
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(tables(lines, job))
        ticker.tick(END + timedelta(seconds=1))
        (incident,), early = result(store)["incidents"], verdict_of(store)
        assert incident["status"] == "provisional" and incident["final_at"] > early["final_at"]
        assert incident["waits_for"][0] == early["waits_for"][0] and "further jobs" in incident["waits_for"][-1]
        ticker.tick(datetime.fromisoformat(early["final_at"]) + timedelta(seconds=1))
        (later,) = result(store)["incidents"]
        assert verdict_of(store)["final"] and later["status"] == "provisional"
        assert later["waits_for"] == incident["waits_for"][-1:] and later["final_at"] == incident["final_at"]


def test_a_requeued_run_waits_for_the_reason_until_it_begins_again() -> None:
    rows = tables((*ALIVE, "30s gpu01 kernel: goes on", "30s gpu02 kernel: goes on"), ended("REQUEUED"))
    speaks = rows["logs"]["time"] > END
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add({**rows, "logs": rows["logs"].filter(~speaks)})
        ticker.tick(END + timedelta(seconds=1))
        early = verdict_of(store)
        assert minutes(early) == pytest.approx(70.0) and "for lines of gpu[01-02]" in early["waits_for"][0]
        store.add({"logs": rows["logs"].filter(speaks)})
        ticker.tick(END + timedelta(seconds=31))
        assert minutes(verdict_of(store)) == pytest.approx(40.0), "its nodes live: Slurm may still say why"


def test_what_arrives_too_late_reopens_a_final_verdict() -> None:
    lines, job, *_ = RESULTS["GPU"]
    rows = tables((*ALIVE, *lines), job)
    xid = rows["logs"]["message"].str.contains("Xid")
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add({**rows, "logs": rows["logs"].filter(~xid)})
        ticker.tick(END + timedelta(seconds=1))
        ticker.tick(END + timedelta(hours=2))
        said = verdict_of(store)
        assert said["final"] and said["category"] != "infra.gpu"
        store.add({"logs": rows["logs"].filter(xid)})
        ticker.tick(END + timedelta(hours=2, seconds=5))
        assert verdict_of(store)["category"] == "infra.gpu"
        (key,) = result(store)["verdicts"]
        versions = store.rows(f"SELECT category FROM kept.versions WHERE name = '{key}' ORDER BY version")
        assert [v["category"] for v in versions][-2:] == [said["category"], "infra.gpu"]


NODE_BOOTS = (
    f"1200s gpu01 kernel: {BOOT}", "1230s ctl slurmctld: error: Node gpu01 unexpectedly rebooted boot_time=1772533200 last response=1772531750",
)  # fmt: skip
#: What happens after the end of a run and gives its verdict another root.
LATER: dict[str, tuple[str, ...]] = {
    "the link is lost again": (*ALIVE, *down("-250s", "gpu01", "eth0", "-1s"), SET_DOWN, KILLED, "10s ctl slurmctld: Node gpu01 now responding", *down("30s", "gpu01", "eth0", "45s")),
    "the node boots": (*ALIVE, "-250s tor1 switchd: swp1: link state changed to down", SET_DOWN, KILLED, *NODE_BOOTS),
}  # fmt: skip


@pytest.mark.parametrize(
    "name, step_s",
    [
        ("the node boots", 120.0),
        # Its second loss is 20 s after the node responds: longer ticks see both at once, and nothing changes.
        pytest.param("the link is lost again", 30.0, marks=pytest.mark.long),
    ],
)
def test_a_verdict_is_not_final_before_what_comes_after_its_end_and_arrives_late(name: str, step_s: float) -> None:
    found = replay(tables(LATER[name], ended("NODE_FAIL")), LATENESS_S, step_s, share=1.0)
    (said,) = found.said.values()
    assert len(said) > 1, "nothing that came later changed it: this tests nothing"
    assert found.changed == [] and found.final


def test_no_kind_is_told_later_than_a_tick_looks_back() -> None:
    assert all(0.0 <= kind.reported_within_s <= MARGIN_S for kind in kinds().values())
    quick = {name for name, kind in kinds().items() if kind.reported_within_s < MARGIN_S}
    assert quick and {cause for edge in load()[0] for cause in edge.cause} - quick, "both kinds of kinds are in use"


#: The quickest is enough for `make test`.
_EACH = [pytest.param(c, id=c.name, marks=() if c.name == "mgmt_flap_requeue" else pytest.mark.long) for c in CAPTURES]


@pytest.mark.long
@pytest.mark.parametrize("folder", _EACH)
def test_no_final_verdict_of_a_capture_changes(folder: Path, measured: Measured) -> None:
    found = replay(rows_of(folder), LATENESS_S, 120.0)
    assert found.changed == [] and found.opened == []
    assert found.final.keys() == {k for k, v in found.verdicts.items() if v["end"] is not None}, "all become final"
    assert max(found.final.values()) <= BEFORE_MIN + 10.0
    measured(
        f"{folder.name}: minutes from end to final: {spread(list(found.final.values()))} (before: {BEFORE_MIN:.0f})"
    )


@pytest.mark.long
@pytest.mark.parametrize(("seed", "step_s"), [(1, 240.0), (2, 240.0), (3, 120.0)], ids=lambda given: f"{given:g}")
def test_no_final_verdict_of_a_made_cluster_changes(seed: int, step_s: float, measured: Measured) -> None:
    parts = made_rows(seed, 900)
    rows = {table: frame(table, [row for _, name, row in parts if name == table]) for table in ("logs", "jobs")}
    conf = {"cluster": "made", "scope": "cluster", "name": "SlurmdTimeout", "value": "300", "source": "slurm.conf"}
    found = replay({**rows, "settings": frame("settings", [conf])}, LATENESS_S, step_s, seed)
    assert found.changed == [] and found.opened == []
    assert len(found.final) > 10 and max(found.final.values()) <= BEFORE_MIN + 10.0
    measured(f"made cluster {seed}: minutes from end to final: {spread(list(found.final.values()))}")
