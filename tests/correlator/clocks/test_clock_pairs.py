"""Pairs of lines about one moment by two clocks, each kind by itself, and what looks like one of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from correlator.clocks.clocks import offsets
from correlator.clocks.signs import HOLDS_S, Known
from correlator.incidents.incident import Incident
from correlator.incidents.incidents import incident_id
from correlator.incidents.sentences import doubts
from correlator.site.cabling import cabling
from correlator.site.senders import NOBODY, Senders
from tests.correlator.making import T0, event, facts, world
from tests.correlator.situations import down

HOSTS = ["n1", "n2", "n3", "n4"]
CABLES = [{"host": h, "device": "eth0", "switch": "tor", "switch_port": f"Ethernet{i}"} for i, h in enumerate(HOSTS)]
DAY = 86400.0


def ends(host: str, at: float, length: float, off: float = 0.0, far: float | None = None) -> list[Any]:
    """An outage as the host (whose clock is ``off``) and the switch log it."""
    port, far = f"Ethernet{HOSTS.index(host)}", length if far is None else far
    return [
        *down(at + off, host, "eth0", at + length + off),
        event("switch.port_down", at + 0.2, "tor", f"{port} down", source="switch", port=port),
        event("switch.port_up", at + far + 0.3, "tor", f"{port} up", source="switch", port=port),
    ]


def launch(job: int, at: float, host: str, off: float, *, reported: bool = False) -> list[Any]:
    allocated = [event("slurm.job_start", at, "ctl", "Allocate", source="slurmctld", job_id=job)] if reported else []
    return [*allocated, event("slurm.step_start", at + 0.6 + off, host, f"Launching batch job {job} for UID 1", source="slurmd", job_id=job)]  # fmt: skip


def accounting(begun: Mapping[int, float]) -> Known:
    def of(jobs: Collection[int]) -> dict[int, float]:
        return {job: T0 + begun[job] for job in jobs if job in begun}

    return Known(cabling(CABLES), of)


def live(host: str, lags: list[float], each: float = 200.0) -> list[Any]:
    """Lines that arrived ``lags`` seconds after their timestamps, written ``each`` seconds from one another."""
    return [event("sys.service_started", n * each, host, f"unit {n}", source="syslog", received=n * each + lag) for n, lag in enumerate(lags)]  # fmt: skip


def unzoned(events: list[Any]) -> list[Any]:
    """The same lines, with timestamps that name no zone."""
    return [replace(e, time_quality="inferred") for e in events]


def logged(job: int, at: float, log: float, node: float = 0.0) -> list[Any]:
    """A job that began at ``at``, as slurmctld's log and n1 show it; their clocks are off by ``log`` and ``node``."""
    allocated = event("slurm.job_start", at + log, "ctl", "Allocate", source="slurmctld", job_id=job)
    return [allocated, *launch(job, at, "n1", node)]


PROMPT = [e for h in HOSTS[1:] for e in live(h, [0.1, 0.2, 0.1, 0.3, 0.1])]
RIGHT = [e for h in HOSTS[1:] for e in ends(h, 0, 90)]
WRONG = [e for h in HOSTS for e in ends(h, 0, 90, 44.0)]
#: A site whose nodes' syslog no user can write.
CLOSED = Senders(users_write_syslog=False)
#: Jobs 10 to 19: accounting gives their starts, and slurmctld's log is missing.
BEGUN = accounting({job: 1000.0 * job for job in range(10, 20)})
OTHERS = [e for job in (10, 11, 12, 13) for e in launch(job, 1000.0 * job, HOSTS[1 + job % 3], 0.0)]

EARLY = [*OTHERS, *launch(14, 14000, "n1", -120), *launch(15, 15000, "n1", -120)]


@dataclass(frozen=True)
class Case:
    """``off``: the offset of the clock of ``host`` that must be concluded; None: none may be."""

    name: str
    events: list[Any]
    off: float | None
    known: Known = field(default_factory=lambda: accounting({}))
    host: str = "n1"


CASES = [
    Case("both ends of its cable, others' are right", [*RIGHT, *ends("n1", 0, 90, 44.0)], 44),
    Case("behind", [*RIGHT, *ends("n1", 0, 90, -200.0)], -200),
    Case("seconds only", [*RIGHT, *ends("n1", 0, 90, 11.4)], 11),
    Case("no inventory", [*RIGHT, *ends("n1", 0, 90, 44.0)], None, Known()),
    Case("the ends' outages are not equally long", [*RIGHT, *ends("n1", 0, 90, 44.0, far=70)], None),
    Case("nobody tells whether the switch is right", ends("n1", 0, 90, 44.0), None),
    Case("the switch is wrong for all", WRONG, -44, host="tor"),
    Case("the switch is wrong for all but one", [e for h in HOSTS for e in ends(h, 0, 90, 44.0 if h != "n1" else 20.0)], None),
    Case("the switch's losses are logged twice",
         [*WRONG, *(replace(e, time=e.time + 89.9) for e in WRONG if e.kind == "switch.port_down")], -44, host="tor"),
    Case("two outages near each other", [*RIGHT, *ends("n1", 0, 90, 44.0), *ends("n1", 250, 90, 44.0)], None),
    Case("the others were right a month ago", [e for h in HOSTS[1:] for e in ends(h, -30 * DAY, 90)] + ends("n1", 0, 90, 44.0), None),
    Case("accounting tells when its jobs began", [*OTHERS, *launch(14, 14000, "n1", -120), *launch(15, 15000, "n1", -120)], -120, BEGUN),
    Case("ahead of accounting, each time by the same", [*OTHERS, *(e for j in (14, 15, 16) for e in launch(j, 1000.0 * j, "n1", 240))], 240, BEGUN),
    Case("accounting's zone is wrong", [e for j in range(10, 16) for e in launch(j, 1000.0 * j, HOSTS[j % 4], -3600)], None, BEGUN),
    Case("whole seconds of accounting", [*OTHERS, *launch(14, 14000, "n1", -5.8), *launch(15, 15000, "n1", -5.9)], None, BEGUN),
    Case("all its lines come late by the same", [*PROMPT, *live("n1", [240.1, 240.4, 240.2, 241.0, 240.3])], -240),
    Case("its lines come before they are written", live("n1", [-600.0] * 2), 600),
    Case("without a zone", unzoned(live("n1", [-600.0] * 2)), 600),
    Case("as far ahead as zones are", unzoned(live("n1", [-1800.0, -1799.0, -1801.0])), None),
    Case("late, without a zone", [*PROMPT, *unzoned(live("n1", [240.1, 240.4, 240.2, 241.0, 240.3]))], None),
    Case("a queue that empties", [*PROMPT, *live("n1", [800.1, 600.4, 400.2, 200.0, 0.3])], None),
    Case("held back for a while", [*PROMPT, *live("n1", [0.1, 60.4, 59.2, 58.0, 0.3], 1.0)], None),
    Case("a slow pipeline", [e for h in HOSTS for e in live(h, [60.1, 60.4, 60.2, 60.0, 60.3])], None),
    Case("collected later", [e for n in range(6) for e in live("n1", [90000.0 - 200 * n] * 1, 1.0)], None),
    Case("launches late by the same, and lines that come at once",
         [*OTHERS, *live("n1", [0.1] * 5), *(e for j in (14, 15, 16) for e in launch(j, 1000.0 * j, "n1", 90))], None, BEGUN),
    Case("launches early, lines that come late by the same, and some at once, which anybody can send", [*EARLY, *live("n1", [120.2, 120.3] + [0.1] * 5)], -120, BEGUN),
    Case("launches early, and all lines come at once", [*EARLY, *live("n1", [0.1] * 5)], None, BEGUN),
    Case("launches early, and lines that users can write come at once",
         [*EARLY, *(replace(e, authority="local") for e in live("n1", [0.1] * 5))], -120, BEGUN),
    Case("launches early, and lines that users can write come late by another amount",
         [*EARLY, *live("n1", [120.2, 120.3] + [0.1] * 5), *(replace(e, authority="local") for e in live("n1", [60.1] * 9))], -120, BEGUN),
    Case("launches early, and lines of a syslog that users cannot write come at once",
         [*EARLY, *(replace(e, authority="local") for e in live("n1", [0.1] * 5))], None, replace(BEGUN, senders=CLOSED)),
    Case("late by the same, by lines that users can write",
         [*PROMPT, *(replace(e, authority="local") for e in live("n1", [240.1, 240.4, 240.2, 241.0, 240.3]))], None),
    Case("launches early, and lines that come late by another amount", [*EARLY, *live("n1", [60.2, 60.3] + [0.1] * 5)], None, BEGUN),
    Case("launches early, and a queue empties that was held back",
         [*EARLY, *live("n1", [0.1] * 5), *live("n1", [float(n) for n in range(300, 0, -2)], 1.0)], None, BEGUN),
    Case("launches early, and a queue of few lines empties", [*EARLY, *live("n1", [0.1] * 5), *live("n1", [121.0, 120.0, 119.0], 1.0)], None, BEGUN),
    Case("launches late, and lines that come late, which anybody can send",
         [*OTHERS, *live("n1", [90.1, 90.1] + [0.1] * 5), *(e for j in (14, 15, 16) for e in launch(j, 1000.0 * j, "n1", 90))], None, BEGUN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_pair_of_lines_shows_a_clock(case: Case) -> None:
    found = offsets(sorted(case.events, key=lambda e: e.time), case.known)
    assert [o.host for o in found] == ([case.host] if case.off is not None else [])
    assert all(o.seconds == pytest.approx(case.off, abs=1.0) for o in found)


#: Stamps 600 s ahead, by who can have written them.
AHEAD = live("n1", [-600.0] * 2)
PACKETS = [replace(e, authority="network", entities={**e.entities, "sender": "10.9.9.9"}) for e in AHEAD]


@pytest.mark.parametrize(
    ("events", "counts", "counts_there"),
    [
        ([replace(e, authority="job", source="job_stdout") for e in AHEAD], False, False),
        ([replace(e, authority="unverified") for e in AHEAD], False, False),
        (PACKETS, False, False),
        ([replace(e, authority="local") for e in unzoned(AHEAD)], False, False),
        ([replace(e, authority="local") for e in AHEAD], False, True),
        ([replace(e, authority="daemon") for e in unzoned(AHEAD)], True, True),
    ],
    ids=["a job's output", "a shipper without a file", "packets", "syslog without a zone", "syslog", "a daemon's file"],
)
def test_whoever_can_choose_a_stamp_sets_no_hosts_clock(events: list[Any], counts: bool, counts_there: bool) -> None:
    """By default, and where no user can write to the nodes' syslog."""
    assert [bool(offsets(events, Known(senders=one))) for one in (NOBODY, CLOSED)] == [counts, counts_there]


#: Lines by slurmctld's log and by n1, and whose clock was how far off. Accounting knows the jobs 10 to 19.
LOGS = {
    "accounting and the launch agree: the log is ahead": (logged(10, 10000.0, 41.0), [("ctl", 41)]),
    "accounting and the log agree: the node is behind": (
        [*logged(10, 10000.0, 0.0, -41.0), *logged(11, 11000.0, 0.0, -41.0)],
        [("n1", -40)],
    ),
    "accounting does not know the jobs: the node is taken to be behind": (
        [*logged(30, 30000.0, 41.0), *logged(31, 31000.0, 41.0)],
        [("n1", -40)],
    ),
    "the log and the node are off": (logged(10, 10000.0, 60.0, 20.0), []),
    "a node had to boot: the log is early": (logged(10, 10000.0, -178.0), []),
    "as far as zones are": (logged(10, 10000.0, 1800.0), []),
    "launched for two allocations, of which one is logged": (
        [*logged(10, 10000.0, 100.0), *launch(10, 10100.0, "n1", 0.0)],
        [],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_accounting_decides_between_the_log_and_a_node(name: str) -> None:
    events, expected = LOGS[name]
    found = offsets(sorted(events, key=lambda e: e.time), BEGUN)
    assert [(o.host, round(o.seconds)) for o in found if o.seconds] == expected  # of a zone there may be doubt


def _behind(days: float, job: int = 1) -> list[Any]:
    return [e for n in range(2) for e in launch(job + n, days * DAY + 1000.0 * n, "n1", -90.0, reported=True)]


def test_a_trouble_of_long_ago_says_nothing_of_today() -> None:
    (one,) = offsets(_behind(0))
    assert one.end - T0 < HOLDS_S + DAY and T0 - one.start < HOLDS_S + DAY
    assert [round((o.start - T0) / DAY) for o in offsets(_behind(0) + _behind(100, 7))] == [-14, 86]
    alone = [e for n, day in enumerate((0, 40)) for e in launch(1 + n, day * DAY, "n1", -90.0, reported=True)]
    assert offsets(alone) == [], "two signs a month apart are no two signs"


def test_launches_that_are_late_now_on_a_node_that_was_prompt_before() -> None:
    others = [e for n in range(6) for e in launch(50 + n, 100.0 * n, HOSTS[1 + n % 3], 0.0, reported=True)]
    before = [e for n in range(3) for e in launch(10 + n, -5 * DAY + 100.0 * n, "n1", 0.0, reported=True)]
    now = [e for n in range(3) for e in launch(20 + n, 1000.0 * n, "n1", 120.0, reported=True)]
    found = offsets(sorted([*others, *before, *now], key=lambda e: e.time))
    assert [(o.host, round(o.seconds)) for o in found] == [("n1", 121)]
    assert found[0].start > T0 - 5 * DAY + 200, "before, it was right"


def test_a_clock_that_was_set_wrong_twice_is_reported_as_it_was_each_time() -> None:
    events = _behind(0) + [e for n in range(2) for e in launch(5 + n, 2 * DAY + 1000.0 * n, "n1", -30.0, reported=True)]
    first, second = offsets(sorted(events, key=lambda e: e.time))
    assert (round(first.seconds), round(second.seconds)) == (-89, -29) and first.end < second.start


def test_the_page_says_how_exactly_a_clock_is_known() -> None:
    lost = down(0, "n1", "eth0", 60)
    for one in lost:
        one.clock_offset, one.sigma = -240.0, 3.0
    where = world(lost)
    (root,) = facts(where, "link.outage")
    reported = doubts(Incident(incident_id("c", root), root, "benign", "infra.network"))
    assert "The clock of n1 was 240.0 s behind, give or take 3.0 s; its lines are shown where they belong" in reported
