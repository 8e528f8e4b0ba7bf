"""A known clock offset does not cause full passes.

Evidence from later lines is judged together with the earlier evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from correlator.clocks.clocks import Clocks, as_shown, compared, compared_further, correct
from correlator.clocks.signs import NOTHING
from correlator.engine import result
from correlator.gather.events import order
from correlator.model.nouns import Event
from store import open_store
from tests.correlator.clocks.test_clock_pairs import launch
from tests.correlator.live.test_streaming import benchmark
from tests.correlator.live.test_tick_reach import AT, as_told
from tests.correlator.making import event
from tests.examples import examples


def launches(first: int, at: float, host: str, off: float, count: int = 3) -> list[Any]:
    return [e for n in range(count) for e in launch(first + n, at + 400.0 * n, host, off, reported=True)]


def daemon(at: float, host: str, seconds: float) -> Any:
    return event("sys.clock", at, host, f"System clock wrong by {-seconds} seconds", offset_s=-seconds)


BEFORE = [*launches(1, 0.0, "n1", -90.0), *launches(11, 0.0, "n2", 0.0), *launches(21, 0.0, "n3", 0.0)]

#: A tick brings what follows from here on.
NEW = 2_000.0


@dataclass(frozen=True)
class Case:
    name: str
    more: list[Any]
    #: The known offsets then: (host, seconds) of each period; None: a full pass is needed.
    off: list[tuple[str, float]] | None


CASES = [
    Case("nothing of clocks", [event("gpu.xid", NEW, "n1", "NVRM: Xid", xid=79)], [("n1", -89)]),
    Case("the same once more", launches(31, NEW, "n1", -90.05), [("n1", -89)]),
    Case("set right", launches(31, NEW, "n1", 0.0), [("n1", -89)]),
    Case("set wrong otherwise", launches(31, NEW, "n1", -30.0), [("n1", -89), ("n1", -29)]),
    Case("it drifts: what was said of former lines is no longer right", launches(31, NEW, "n1", -91.8, count=12), None),
    Case("another one", launches(31, NEW, "n2", -50.0), None),
    Case("its time daemon tells it better", [daemon(NEW, "n1", -89.4)], None),
    Case("a right one", launches(31, NEW, "n2", 0.0), [("n1", -89)]),
]


def told(before: list[Event], more: list[Event]) -> tuple[Clocks, Clocks | None, Clocks]:
    """The clocks known before, those after the latest events, and those from all events together."""
    known = compared(sorted(before, key=order))
    since = min(e.time for e in more) - known.furthest
    events = sorted([*before, *more], key=order)
    return known, compared_further(known, events, NOTHING, since), compared(events)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_later_lines_report_a_clock_that_is_known_to_be_off(case: Case) -> None:
    known, found, whole = told(BEFORE, case.more)
    assert [(o.host, o.seconds) for o in known.offsets] == [("n1", -89.0)]
    assert (found and [(o.host, o.seconds) for o in found.offsets]) == case.off
    assert found is None or found.offsets == whole.offsets


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.sampled_from([0.0, -30.0, -89.5, -90.0, -90.6, 45.0]),
                          st.integers(0, 40)), max_size=12))  # fmt: skip
def test_what_is_reported_further_is_what_all_shows_or_asks_for_it(later: list[tuple[str, float, int]]) -> None:
    more = [
        e
        for n, (host, off, at) in enumerate(later)
        for e in launch(100 + n, NEW + 100.0 * at, host, off, reported=True)
    ]
    _, found, whole = told(BEFORE, [*more, event("gpu.xid", NEW, "n9", "NVRM: Xid", xid=79)])
    assert found is None or found.offsets == whole.offsets


#: All nodes launch early by the same time: the controller's clock is ahead.
ALL_EARLY = [e for n, host in enumerate(("n1", "n2", "n3")) for e in launches(1 + 10 * n, 50.0 * n, host, -90.0)]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3", "n4"]), st.sampled_from([0.0, -90.0, -91.0, -80.0, 45.0]),
                          st.integers(0, 40)), max_size=12))  # fmt: skip
def test_what_is_reported_further_of_a_controllers_clock_is_what_all_shows(later: list[tuple[str, float, int]]) -> None:
    more = [
        e
        for n, (host, off, at) in enumerate(later)
        for e in launch(100 + n, NEW + 100.0 * at, host, off, reported=True)
    ]
    known, found, whole = told(ALL_EARLY, [*more, event("gpu.xid", NEW, "n9", "NVRM: Xid", xid=79)])
    assert [(o.host, round(o.seconds)) for o in known.offsets] == [("ctl", 89)]
    assert found is None or found.offsets == whole.offsets


def test_a_controllers_clock_that_was_set_right_needs_no_full_pass() -> None:
    more = [e for n, host in enumerate(("n1", "n2")) for e in launches(31 + 10 * n, NEW + 50.0 * n, host, 0.0)]
    _, found, whole = told(ALL_EARLY, more)
    assert found is not None and found.offsets == whole.offsets and [o.host for o in found.offsets] == ["ctl"]


def test_a_tick_that_sees_a_part_of_the_early_launches_asks_for_all() -> None:
    """One node's alone would be that node's clock, or nobody's."""
    more = launch(31, NEW, "n1", -90.0, reported=True)
    known = compared(sorted(ALL_EARLY, key=order))
    assert compared_further(known, sorted(more, key=order), NOTHING, min(e.time for e in more)) is None


def test_an_event_is_shown_as_its_clock_had_it() -> None:
    known = compared(BEFORE)
    xid = event("gpu.xid", 500.0, "n1", "NVRM: Xid", xid=79)
    (moved,) = correct([xid], known.offsets)
    assert moved.time == xid.time + 89.0 and as_shown(moved).time == xid.time and as_shown(xid) is xid


#: One node of the simulated day has a clock that is four minutes behind.
BEHIND_S, HOST, OTHER = -240.0, 7, 8


def wrong_clock(day: Any) -> None:
    """Runs are launched on a node with a wrong clock all the time; its link flaps; another of its links ends a run."""
    host, other = benchmark().NODES[HOST], benchmark().NODES[OTHER]
    low = len(day.logs)
    for number, at in enumerate(range(-3_000, 9_000, 600)):
        job = 900 + number
        day._lifecycle(job, [host, other], AT + at, AT + at + 500, "COMPLETED" if at != 3_000 else "FAILED")
        for node in (host, other):
            day.say(
                AT + at + 0.6, node, "slurmd", "slurm.step_start", f"Launching batch job {job} for UID 1000", job=job
            )
    day.link(host, "ib0", AT + 1_200, 8.0)
    day.say(AT + 3_490, host, "kernel", "gpu.xid", "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.", xid=79, pci="0000:3a:00")  # fmt: skip
    day.logs[low:] = [row for row in day.logs[low:] if row["event"] != "job.exit_error"]
    for row in day.logs[low:]:
        if row["host"] == host:
            row["time"] += benchmark().timedelta(seconds=BEHIND_S)


def set_right(day: Any) -> None:
    """The same, but an hour and a half after the beginning its clock is correct again."""
    wrong_clock(day)
    host = benchmark().NODES[HOST]
    for row in day.logs:
        true = row["time"] - benchmark().timedelta(seconds=BEHIND_S)
        if row["host"] == host and true >= benchmark().START + benchmark().timedelta(seconds=AT + 5_000):
            row["time"] = true


#: slurmctld's clock is five minutes ahead, and accounting has its times.
AHEAD_S = 300.0


def controllers_clock(day: Any) -> None:
    """The same runs where the controller's clock is wrong, which the times of arrival show."""
    low = len(day.logs), len(day.jobs)
    wrong_clock(day)
    host, seconds = benchmark().NODES[HOST], benchmark().timedelta
    for row in day.logs[low[0] :]:
        if row["host"] == host:
            row["time"] -= seconds(seconds=BEHIND_S)
        row["received_time"] = row["time"] + seconds(seconds=0.3)
        if row["source"] == "slurmctld":
            row["time"] += seconds(seconds=AHEAD_S)
    for row in day.jobs[low[1] :]:
        for name in ("submit", "start", "end"):
            row[name] += seconds(seconds=AHEAD_S)


@pytest.mark.long
@pytest.mark.parametrize(
    "break_it", [*(pytest.param(way, marks=pytest.mark.long) for way in (wrong_clock, set_right)), controllers_clock]
)
def test_ticks_with_a_wrong_clock_say_what_a_full_pass_says_and_look_at_a_part(break_it: Callable[[Any], None]) -> None:
    with open_store(None) as store:
        partly = list(as_told(store, break_it, -AT, range(1_500, 9_300, 900)))
        verdict = result(store)["verdicts"]["910"]
    assert verdict["category"] == "infra.gpu" and verdict["root_cause"]["host"] == benchmark().NODES[HOST]
    assert sum(partly) >= len(partly) - 3, "only what tells a clock anew asks for a look at everything"
