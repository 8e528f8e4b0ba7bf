"""Clocks that were off: found only if two signs agree or the time daemon reports it, and only for as long as they were."""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from pathlib import Path

import pytest

from correlator.clocks.clocks import Known, as_shown, correct, offsets
from correlator.site.senders import Senders
from parsers.writers import DAEMON, LOCAL, NETWORK, UNVERIFIED
from tests.correlator.making import T0, event
from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[3]
HOSTS = [f"n{i}" for i in range(4)]


def _step(job, at, off):
    return [
        event("slurm.step_start", at + off.get(h, 0.0) + i * 0.01, h, f"launch task StepId={job}.0 request", source="slurmd", job_id=job, step_id="0")
        for i, h in enumerate(HOSTS)
    ]  # fmt: skip


def test_a_clock_that_two_launches_agree_on_is_corrected():
    events = _step(1, 0, {}) + _step(2, 100, {"n2": -240.0}) + _step(3, 200, {"n2": -240.4}) + _step(4, 900, {})
    found = offsets(events)
    assert [(o.host, round(o.seconds)) for o in found] == [("n2", -240)]
    xid = event("gpu.xid", 150 - 240, "n2", "NVRM: Xid", xid=79)
    moved = next(e for e in correct([*events, xid], found) if e.kind == "gpu.xid")
    assert abs(moved.time - (T0 + 150)) < 1.0 and abs(moved.clock_offset + 240) < 1.0
    assert (
        (moved.written_at, moved.last_written_at)
        == (xid.time, xid.last)
        == (as_shown(moved).time, as_shown(moved).last)
    )


def test_nothing_else_reckons_with_the_offset_of_an_event():
    """Only the room of clocks moves times; others read ``Event.written_at``."""
    homes = {ROOT / "correlator" / "model" / "nouns.py", *(ROOT / "correlator" / "clocks").glob("*.py")}
    sources = [path for room in ("correlator", "queries", "web", "faultline") for path in (ROOT / room).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources
        if path not in homes and "clock_offset" in path.read_text("utf-8")
        for node in nodes_of(path)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
        and any(isinstance(side, ast.Attribute) and side.attr == "clock_offset" for side in (node.left, node.right))
    ]  # fmt: skip
    assert len(sources) > 400 and not found


def test_one_odd_launch_is_no_clock():
    assert offsets(_step(1, 0, {}) + _step(2, 100, {"n2": 40.0}) + _step(3, 200, {})) == []


def test_two_nodes_that_disagree_do_not_show_which_is_wrong():
    pair = [e for e in _step(1, 0, {"n1": 60.0}) + _step(2, 100, {"n1": 60.0}) if e.host in ("n0", "n1")]
    assert offsets(pair) == []


def test_a_launch_before_its_allocation_is_a_clock_behind():
    events = []
    for job, at in ((7, 0.0), (8, 500.0)):
        events.append(
            event("slurm.job_start", at, "ctl", f"sched: Allocate JobId={job}", source="slurmctld", job_id=job)
        )
        events.append(
            event(
                "slurm.step_start", at - 90.0, "n1", f"Launching batch job {job} for UID 1", source="slurmd", job_id=job
            )
        )
    assert [(o.host, round(o.seconds)) for o in offsets(events)] == [("n1", -90)]


def test_a_slow_prolog_is_no_clock():
    events = []
    for job, at in ((7, 0.0), (8, 500.0)):
        events.append(
            event("slurm.job_start", at, "ctl", f"sched: Allocate JobId={job}", source="slurmctld", job_id=job)
        )
        events.append(
            event(
                "slurm.step_start", at + 90.0, "n1", f"Launching batch job {job} for UID 1", source="slurmd", job_id=job
            )
        )
    assert offsets(events) == []


def test_the_time_daemon_is_believed_until_it_steps_the_clock():
    wrong = event("sys.clock", 100.0, "n1", "System clock wrong by 228.5 seconds", source="syslog", offset_s=228.5)
    stepped = event(
        "sys.clock", 4000.0, "n1", "System clock was stepped by 228.5 seconds", source="syslog", offset_s=228.5
    )
    found = offsets([wrong, stepped])
    assert [(o.host, o.seconds, o.end < T0 + 4000.0) for o in found] == [("n1", -228.5, True)]
    inside, behind = event("nic.link_down", 200.0, "n1", port="eth0"), event("nic.link_down", 4100.0, "n1", port="eth0")
    assert sorted(round(e.time - T0, 1) for e in correct([inside, behind], found)) == [428.5, 4100.0]


#: Who can have written a line, and whether it shows a clock: by default, and where no user can write to syslog.
WRITERS = {
    "a daemon's own log": ({"authority": DAEMON}, True, True),
    "a syslog daemon's file": ({"authority": LOCAL}, False, True),
    "its own address": ({"authority": LOCAL, "entities": {"sender": "10.0.0.2"}, "file": "syslog:n1"}, False, False),
    "a log host's file": ({"authority": NETWORK}, False, False),
    "an unknown address": ({"authority": NETWORK, "entities": {"sender": "10.9.9.9"}}, False, False),
    "a file in a format of its own": ({"authority": UNVERIFIED}, True, True),
    "a shipper that names no file": ({"authority": UNVERIFIED, "file": "loki:10.0.0.2"}, False, False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_users_can_write_shows_no_clock(name):
    changed, counts, counts_there = WRITERS[name]

    def by(some):
        more = changed.get("entities", {})
        return [replace(e, **changed | {"entities": {**e.entities, **more}}) for e in some]

    wrong = event("sys.clock", 100.0, "n1", "System clock wrong by 228.5 seconds", source="syslog", offset_s=228.5)
    launched = _step(2, 100, {"n2": -240.0}) + _step(3, 200, {"n2": -240.4})
    for some in ([wrong], launched):
        assert bool(offsets(by(some))) == counts
        assert bool(offsets(by(some), Known(senders=Senders(users_write_syslog=False)))) == counts_there


def test_what_slurm_says_of_a_file_is_no_clock():
    """Its state file may have been put back."""
    text = "error: The modification time of /var/spool/slurmctld/job_state moved backwards by 41 seconds"
    assert offsets([event("sys.clock", 100.0, "ctl", text, source="slurmctld", offset_s=41)]) == []


def test_lines_that_arrive_before_they_were_written():
    events = [event("nic.link_down", 300.0 + i, "n1", port="eth0", received=i + 0.2) for i in (0.0, 50.0)]
    assert [(o.host, round(o.seconds)) for o in offsets(events)] == [("n1", 300)]


def test_the_order_of_events_does_not_matter():
    events = _step(1, 0, {}) + _step(2, 100, {"n2": -240.0}) + _step(3, 200, {"n2": -240.4})
    expected = offsets(sorted(events, key=lambda e: e.time))
    shuffled = events[:]
    random.Random(4).shuffle(shuffled)
    assert offsets(shuffled) == expected
