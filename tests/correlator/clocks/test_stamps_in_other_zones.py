"""Timestamps in another zone: nodes that write local time beside a slurmctld that writes UTC.

All of them do, or some, or from some day on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from correlator.clocks.clocks import Zones, compared, compared_further, correct
from correlator.clocks.offset import Offset
from correlator.clocks.signs import NOTHING
from correlator.gather.events import order
from tests.correlator.making import T0, event

HOUR = 3600.0
HOSTS = [f"n{i}" for i in range(1, 7)]
#: Seconds after T0 of the third whole hour after the next.
CHANGE = 3 * HOUR


def unzoned(events: list[Any]) -> list[Any]:
    for one in events:
        one.time_quality = "inferred"
    return events


def launch(job: int, at: float, *hosts: str, off: float | Mapping[str, float] = 0.0, delay: float = 0.6) -> list[Any]:
    """A job on ``hosts``, each of which is ``off`` seconds ahead of slurmctld."""
    ahead = off if isinstance(off, Mapping) else dict.fromkeys(hosts, off)
    batch = f"Launching batch job {job} for UID 1"
    return unzoned([
        event("slurm.job_start", at, "ctl", "Allocate", source="slurmctld", job_id=job),
        event("slurm.step_start", at + delay + ahead.get(hosts[0], 0.0), hosts[0], batch, source="slurmd", job_id=job),
        *(event("slurm.step_start", at + delay + 1 + ahead.get(h, 0.0), h, f"launch task StepId={job}.0 request", source="slurmd",
                job_id=job, step_id="0") for h in hosts),
    ])  # fmt: skip


def heard(*hosts: str, at: float = 500.0) -> list[Any]:
    return unzoned([event("gpu.xid", at, host, "NVRM: Xid", xid=79) for host in hosts])


def half(first: float, second: float) -> dict[str, float]:
    return {h: (first if h in HOSTS[:3] else second) for h in HOSTS}


TWO_H = launch(1, 0, "n1", "n2", off=2 * HOUR) + launch(2, 900, "n3", off=2 * HOUR)


@dataclass(frozen=True)
class Case:
    """``ahead``: seconds by host; ``doubt``: the hosts for which it is unknown."""

    name: str
    events: list[Any]
    ahead: dict[str, float] = field(default_factory=dict)
    doubt: frozenset[str] = frozenset()


CASES = [
    Case("all alike", TWO_H, dict.fromkeys(HOSTS[:3], 2 * HOUR)),
    Case("those that launched nothing are set up alike", TWO_H + heard("n4", "n5"), dict.fromkeys(HOSTS[:5], 2 * HOUR)),
    Case("other kinds of hosts are not", TWO_H + heard("login1", "oss-1"), dict.fromkeys(HOSTS[:3], 2 * HOUR)),
    Case("west, half an hour", launch(1, 0, "n1", off=-4.5 * HOUR) + launch(2, 9, "n2", off=-4.5 * HOUR), {"n1": -4.5 * HOUR, "n2": -4.5 * HOUR}),
    Case("one rack of two", launch(1, 0, *HOSTS, off=half(HOUR, 0)) + launch(2, 900, *HOSTS, off=half(HOUR, 0)), dict.fromkeys(HOSTS[:3], HOUR)),
    Case("one rack of two, and one of which nothing tells",
         launch(1, 0, *HOSTS, off=half(HOUR, 0)) + launch(2, 900, *HOSTS, off=half(HOUR, 0)) + heard("n9"), dict.fromkeys(HOSTS[:3], HOUR), frozenset({"n9"})),
    Case("one launch of one node among prompt ones", launch(1, 0, "n1", off=HOUR) + launch(2, 9, "n2") + launch(3, 9, "n3"), {}, frozenset({"n1"})),
    Case("the only launch there is", launch(1, 0, "n1", off=HOUR), {"n1": HOUR}),
    Case("the only launch there is, and to no quarter of an hour", launch(1, 0, "n1", off=HOUR + 100), {}, frozenset({"n1"})),
    Case("prompt", launch(1, 0, "n1") + launch(2, 9, "n2") + heard("n3"), {}),
    Case("a slow resume is no zone", launch(1, 0, "n1", delay=900) + launch(2, 50, "n2", delay=901), {}),
    Case("late for other reasons", launch(1, 0, "n1", delay=4000) + launch(2, 50, "n1", delay=5100) + launch(3, 60, "n1"), {}),
    Case("a slow prolog", launch(1, 0, "n1", off=HOUR, delay=15) + launch(2, 90, "n1", off=HOUR, delay=2), {"n1": HOUR}),
]  # fmt: skip


def told(events: list[Any]) -> tuple[dict[str, float], frozenset[str]]:
    found = [o for o in compared(sorted(events, key=order)).offsets if o.zone]
    return {o.host: o.seconds for o in found if o.seconds}, frozenset(o.host for o in found if o.sigma)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_launches_show_the_zone_of_stamps(case: Case) -> None:
    assert told(case.events) == (case.ahead, case.doubt)
    shuffled = case.events[:]
    random.Random(5).shuffle(shuffled)
    assert compared(shuffled).zones.offsets == compared(sorted(case.events, key=order)).zones.offsets


def test_two_copies_in_other_zones_stand_for_a_second_job() -> None:
    one = launch(1, 0, "n1", off=2 * HOUR) + launch(2, 0, "m1")
    copies = [event(kind, at, "n1", port="eth0") for kind, at in (("nic.link_down", 50.0), ("nic.link_up", 90.0))]
    again = unzoned(
        [event(kind, at + 2 * HOUR, "n1", port="eth0") for kind, at in (("nic.link_down", 50.2), ("nic.link_up", 90.4))]
    )
    assert told(one) == ({}, {"n1"})
    assert told([*one, *copies, *again]) == ({"n1": 2 * HOUR}, frozenset())


def test_summer_time_begins_on_all_nodes_in_one_whole_hour() -> None:
    before = launch(1, 100, "n1", off=HOUR) + launch(2, 200, "n2", off=HOUR)
    later = (
        launch(3, CHANGE + 1500, "n1", off=2 * HOUR)
        + launch(4, CHANGE + 1700, "n1", off=2 * HOUR)
        + launch(5, CHANGE + 1800, "n3", off=2 * HOUR)
    )
    narrow = (
        launch(6, CHANGE - 1500, "n3", off=HOUR)
        + launch(7, CHANGE - 1400, "n3", off=HOUR)
        + launch(8, CHANGE + 1900, "n3", off=2 * HOUR)
    )
    found = compared(sorted(before + later + narrow, key=order)).offsets
    assert {o.host: [p.seconds / HOUR for p in found if p.host == o.host] for o in found} == {
        h: [1.0, 2.0] for h in HOSTS[:3]
    }
    assert {o.end - o.seconds for o in found if o.seconds == HOUR} == {T0 + CHANGE}


def test_only_stamps_without_a_zone_are_moved_and_what_is_left_is_the_clocks() -> None:
    off = 2 * HOUR - 90.0
    mine = [*launch(3, 1800, "n1", off=off), *launch(4, 2700, "n1", off=off)]
    found = compared(sorted([*launch(1, 0, "n2", off=2 * HOUR), *launch(2, 0, "n3", off=2 * HOUR), *mine], key=order))
    zoned = event("gpu.xid", 2000.0, "n2", "NVRM: Xid", xid=79)
    (local,) = heard("n1", at=2000.0 + off)
    at = {e.host: e.time - T0 for e in correct([zoned, local], found.offsets, found.zones)}
    assert at == {"n2": 2000.0, "n1": pytest.approx(2000.0, abs=1.0)}


def test_output_is_stamped_as_its_batch_host_does_where_it_would_not_lie_before_its_job() -> None:
    known = compared(sorted(TWO_H, key=order))
    (late,) = unzoned([event("job.comm_error", 2 * HOUR + 60, None, "timed out", source="job_stdout", job_id=1)])
    early = replace(late, id="early", time=T0 + 60, last=T0 + 60)
    assert [e.time - T0 for e in correct([early, late], known.offsets, known.zones)] == [60.0, 60.0]


@pytest.mark.parametrize(
    ("name", "more", "asks"),
    [
        ("the same zone", launch(31, 9000, "n1", off=2 * HOUR), False),
        ("another one", launch(31, 9000, "n1", off=HOUR), True),
        ("none any more", launch(31, 9000, "n1"), True),
        ("a host that was not known", heard("n6", at=9000), True),
        ("nothing of zones", heard("n2", at=9000), False),
    ],
)
def test_a_tick_asks_for_everything_where_zones_are_others(name: str, more: list[Any], asks: bool) -> None:
    known = compared(sorted(TWO_H, key=order))
    events = sorted([*TWO_H, *more], key=order)
    found = compared_further(known, events, NOTHING, T0 + 8000)
    assert (found is None) == asks, name
    if found is not None:
        whole = compared(events)
        assert (found.offsets, found.zones) == (whole.offsets, whole.zones)


def test_an_odd_launch_that_was_judged_is_not_judged_again() -> None:
    events = sorted([*launch(1, 0, "n1", off=HOUR), *launch(2, 9, "n2"), *launch(3, 9, "n3")], key=order)
    known = compared(events)
    assert known.zones.odd == {("n1", 1, 4)}
    assert compared_further(known, events, NOTHING, T0) is not None
    assert isinstance(known.zones, Zones) and all(isinstance(o, Offset) for o in known.offsets)


#: One launch an hour and a half late: a zone only if something else shows the same.
ALONE = launch(1, 0, "n1", off=1.5 * HOUR) + launch(2, 900, "n2")


def copies(**writer: Any) -> list[Any]:
    """Two lines that a host logs twice, once without a zone."""
    lines = [event("gpu.xid", at, "n1", f"NVRM: Xid {at}", xid=79) for at in (100.0, 2000.0)]
    both = [*lines, *unzoned([replace(e, time=e.time + 1.5 * HOUR, id=f"{e.id}b") for e in lines])]
    return [replace(e, **writer) for e in both]


@pytest.mark.parametrize(
    ("writer", "counts"),
    [({}, True), ({"authority": "local"}, False), ({"authority": "network"}, False), ({"authority": "job", "source": "job_stdout"}, False)],
    ids=["nobody else", "any user of the host", "anybody", "a job"],
)  # fmt: skip
def test_lines_that_a_user_can_write_show_no_zone(writer: dict[str, Any], counts: bool) -> None:
    found = compared(sorted([*ALONE, *copies(**writer)], key=order))
    assert [(o.host, o.seconds) for o in found.offsets if o.seconds and not o.sigma] == (
        [("n1", 1.5 * HOUR)] if counts else []
    )


def test_no_user_takes_a_hosts_zone_from_it_by_writing_as_slurmctld() -> None:
    lie = replace(
        event("sys.service_started", 500, "n7", "x", source="slurmctld"), authority="local", time_quality="inferred"
    )
    before, after = (compared(sorted([*TWO_H, *heard("n7"), *more], key=order)) for more in ([], [lie]))
    assert before.offsets and after.offsets == before.offsets
