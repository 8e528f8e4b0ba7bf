"""Launches before their allocations: of one node its clock is behind, of all nodes that launch the controller's is ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from correlator.clocks.clocks import compared, compared_further, correct, offsets
from correlator.clocks.signs import NOTHING
from tests.correlator.making import T0, event

HOUR = 3600.0


def job(number: int, at: float, host: str, off: float = 0.0, *, delay: float = 0.2, ahead: float = 150.0) -> list[Any]:
    """A batch job that began at ``at``. The controller's clock is ``ahead``, the node's is ``off``; it launched ``delay``
    later."""
    words = f"Launching batch job {number} for UID 1"
    return [
        event("slurm.job_start", at + ahead, "ctl", f"sched: Allocate JobId={number}", source="slurmctld", job_id=number),
        event("slurm.step_start", at + delay + off, host, words, source="slurmd", job_id=number),
    ]  # fmt: skip


def right(number: int, at: float, host: str, off: float = 0.0) -> list[Any]:
    return job(number, at, host, off, ahead=0.0)


def step(number: int, at: float, host: str) -> list[Any]:
    words = f"launch task StepId={number}.0 request"
    return [event("slurm.step_start", at, host, words, source="slurmd", job_id=number, step_id="0")]


def late_lines(host: str, lag: float) -> list[Any]:
    return [event("sys.service_started", 200.0 * n, host, f"unit {n}", received=200.0 * n + lag) for n in range(5)]


BOTH = [*job(1, 0, "n1"), *job(2, 40, "n2")]
#: n1 and n2 are behind, and the controller is right by three others.
MOST_RIGHT = [e for n in range(3) for e in right(50 + n, -HOUR * (n + 1), f"n{3 + n}")]
BEHIND = [e for n in range(4) for e in right(10 + n, 100.0 * n, ("n1", "n2")[n % 2], -150.0)]


@dataclass(frozen=True)
class Case:
    """``off``: the clocks that are off, by how many seconds."""

    name: str
    events: list[Any]
    off: list[tuple[str, int]]


CASES = [
    Case("two nodes, by the same time", BOTH, [("ctl", 150)]),
    Case("two nodes, one of them by a step", [*job(1, 0, "n1"), *step(1, 0.4, "n2"), *job(2, 40, "n1")], [("ctl", 150)]),
    Case("one node", [*job(1, 0, "n1"), *job(2, 40, "n1")], [("n1", -150)]),
    Case("two nodes, by different times", [e for n in (0, 1) for e in (*right(1 + n, 50.0 * n, "n1", -150), *right(3 + n, 300 + 50.0 * n, "n2", -90))],
         [("n1", -150), ("n2", -90)]),
    Case("two nodes of five", [*MOST_RIGHT, *BEHIND], [("n1", -150), ("n2", -150)]),
    Case("two nodes of three", [*BOTH, *right(50, -HOUR, "n3")], [("ctl", 150)]),
    Case("one job on two nodes: its first allocation may be missing", [*job(1, 0, "n1"), *step(1, 0.4, "n2")], []),
    Case("allocations on both sides: the first run's is missing", [*BOTH, *right(1, 150, "n1")[1:], *right(2, 190, "n2")[1:]], []),
    Case("as far as zones are", [*job(1, 0, "n1", ahead=3600), *job(2, 40, "n2", ahead=3600)], []),
    Case("whoever loads a node delays launches there", [*BOTH, *job(3, 60, "n3", delay=44), *job(4, 61, "n1", delay=44), *job(5, 62, "n3", delay=49)], [("ctl", 150)]),
    Case("very many of one node", [*BOTH, *(e for n in range(30) for e in job(60 + n, 60 + n, "n3", delay=8.0))], [("ctl", 150)]),
    Case("the nodes' own lines come late by the same",
         [*BEHIND, *(e for host in ("n1", "n2") for e in late_lines(host, 150.2)), *(e for host in ("n3", "n4", "n5", "n6") for e in late_lines(host, 0.1))],
         [("n1", -150), ("n2", -150)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_whose_clock_launches_before_their_allocation_show(case: Case) -> None:
    found = offsets(sorted(case.events, key=lambda e: e.time))
    assert [(o.host, round(o.seconds)) for o in found if not o.zone] == case.off


def test_a_controllers_clock_was_right_when_nodes_launched_at_once() -> None:
    before = [e for n in range(2) for e in right(70 + n, -2 * HOUR + 60 * n, ("n1", "n2")[n])]
    after = [e for n in range(2) for e in right(80 + n, 2 * HOUR + 60 * n, ("n1", "n2")[n])]
    events = sorted([*before, *BOTH, *after], key=lambda e: e.time)
    (found,) = offsets(events)
    assert found.host == "ctl" and found.start > T0 - 2 * HOUR and found.end <= T0 + 2 * HOUR
    moved = {e.job_id: e.time - T0 for e in correct(events, [found]) if e.kind == "slurm.job_start"}
    assert {number: round(at) for number, at in moved.items()} == {
        70: -7200,
        71: -7140,
        1: 0,
        2: 40,
        80: 7200,
        81: 7260,
    }


def test_what_launches_show_of_a_controller_counts_only_where_nothing_else_does() -> None:
    """All nodes may be off by the same, if they ask one time server."""
    daemon = event("sys.clock", 100, "ctl", "System clock wrong by -600 seconds", source="syslog", offset_s=-600.0)
    assert [(o.host, o.seconds) for o in offsets([*BOTH, replace(daemon, authority="daemon")]) if o.host == "ctl"] == [
        ("ctl", 600.0)
    ]


@pytest.mark.parametrize("hours", [1, 5])
def test_later_launches_end_what_is_known_of_a_controllers_clock(hours: int) -> None:
    """As a tick finds it, and from scratch."""
    first = sorted(BOTH, key=lambda e: e.time)
    later = [e for n in range(2) for e in right(80 + n, hours * HOUR + 60 * n, ("n1", "n2")[n])]
    before = compared(first)
    further = compared_further(before, [*first, *later], NOTHING, T0 + 300)
    whole = compared([*first, *later])
    assert further is not None and further.offsets == whole.offsets != before.offsets
