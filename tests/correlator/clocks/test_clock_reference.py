"""Whose timestamps are correct: slurmctld's log, nodes' zone-less ones, a log host's or a switch's in another zone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from correlator.clocks.accounting_zones import AccountingTime, Books
from correlator.clocks.clocks import Clocks, compared, correct
from correlator.clocks.reference import fit
from correlator.clocks.signs import Known
from correlator.clocks.zone_votes import Stay, hours_off
from correlator.gather.events import order
from correlator.site.cabling import cabling
from tests.correlator.making import T0, event

HOUR = 3600.0
NODES = [f"n{i}" for i in range(1, 7)]
LINKS = cabling([
    {"host": host, "device": "eth0", "switch": "tor-a", "switch_port": f"Ethernet{n}", "plane": "", "rail": ""} for n, host in enumerate(NODES)
])  # fmt: skip


def stamped(zoned: bool, event: Any) -> Any:
    event.time_quality = "line" if zoned else "inferred"
    return event


@dataclass(frozen=True)
class Site:
    """By how many hours each kind of timestamp is ahead: slurmctld's log, slurmds' logs, system logs, switches'.

    ``zoned``: nodes whose system logs name their zone.
    """

    log: float = 0.0
    slurmd: float = 0.0
    system: float = 0.0
    switch: float = 0.0
    zoned: frozenset[str] = frozenset(NODES)

    def events(self, losses: Iterable[tuple[float, str]]) -> list[Any]:
        return sorted([*self._jobs(), *(e for at, host in losses for e in self._loss(at, host))], key=order)

    def _jobs(self) -> list[Any]:
        found = []
        for n, host in enumerate([*NODES, *NODES]):
            at, off = 50.0 * n + 7.0 * n * n, self.slurmd * HOUR
            reported = event(
                "slurm.job_start", at + self.log * HOUR, "ctl", "Allocate", source="slurmctld", job_id=n + 1
            )
            done = event("slurm.step_start", at + 0.6 + off, host, f"Launching batch job {n + 1} for UID 1", source="slurmd", job_id=n + 1)  # fmt: skip
            found += [stamped(False, reported), stamped(False, done)]
        return found

    def _loss(self, at: float, host: str) -> list[Any]:
        """A link that goes down and up, on both ends of its cable, and slurmctld's reaction."""
        port, length = f"Ethernet{NODES.index(host)}", 200.0 + at % 90
        system, switch, log = self.system * HOUR, self.switch * HOUR, self.log * HOUR
        reported = [
            stamped(
                host in self.zoned, event("nic.link_down", at + system, host, f"down{at}", port="eth0", source="kernel")
            ),
            stamped(
                host in self.zoned,
                event("nic.link_up", at + length + system, host, f"up{at}", port="eth0", source="kernel"),
            ),
            event("switch.port_down", at + 0.2 + switch, "tor-a", f"down{at}", port=port, source="switch"),
            event("switch.port_up", at + 0.3 + length + switch, "tor-a", f"up{at}", port=port, source="switch"),
            stamped(
                False, event("slurm.node_down", at + 150 + log, "ctl", f"down{at}", source="slurmctld", nodes=[host])
            ),
            stamped(
                False,
                event("slurm.node_up", at + length + 30 + log, "ctl", f"up{at}", source="slurmctld", nodes=[host]),
            ),
        ]
        return reported


LOSSES = [(4000.0, "n1"), (9000.0, "n2"), (15000.0, "n3"), (22000.0, "n5"), (31000.0, "n6")]
HALF = frozenset(NODES[:3])


@dataclass(frozen=True)
class Case:
    """``off``: hours by which lines of (who, whose lines) are moved: "ctl", "slurmd", "zoned", "system", "switch"."""

    name: str
    site: Site
    off: Mapping[str, float] = field(default_factory=dict)
    losses: tuple[tuple[float, str], ...] = tuple(LOSSES)


CASES = [
    Case("all in one zone", Site()),
    Case("slurmctld's log", Site(log=2), {"ctl": 2.0}),
    Case("everything that names no zone", Site(log=-5, slurmd=-5, zoned=HALF), {"ctl": -5.0, "slurmd": -5.0}),
    Case("slurmds' logs", Site(slurmd=2), {"slurmd": 2.0}),
    Case("a log host's stamps without a zone", Site(system=5.5, zoned=frozenset()), {"system": 5.5}),
    Case("nodes, stamps that name a zone as well", Site(slurmd=2, system=2), {"ctl": -2.0, "switch": -2.0}),
    Case("switches", Site(switch=-7), {"switch": -7.0}),
    Case("slurmctld's log, and one word only", Site(log=2), {"slurmd": -2.0}, ((4000.0, "n1"),)[:0]),
    Case("nothing told of zones, and two words that fit elsewhere", Site(log=1, slurmd=1), {}, tuple(LOSSES[:1])),
]


def moved(found: Clocks, site: Site) -> dict[str, float]:
    """Hours by which lines of each kind are moved."""
    probes = {
        "ctl": stamped(False, event("slurm.node_down", 9.0, "ctl", source="slurmctld")),
        "slurmd": stamped(False, event("slurm.daemon_start", 9.0, "n1", source="slurmd")),
        "zoned": stamped(True, event("gpu.xid", 9.0, "n1", "z", xid=79)),
        "switch": event("switch.alarm", 9.0, "tor-a", source="switch"),
    }
    if not site.zoned:
        probes["system"] = stamped(False, event("gpu.xid", 9.0, "n1", "s", xid=79))
    shown = {
        kind: correct([probe], found.offsets, found.zones)[0].clock_offset / HOUR for kind, probe in probes.items()
    }
    return {kind: hours for kind, hours in shown.items() if hours}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_is_in_another_zone_is_moved_and_nothing_else(case: Case) -> None:
    events = case.site.events(case.losses)
    assert moved(compared(events, Known(LINKS)), case.site) == case.off
    shuffled = events[:]
    random.Random(5).shuffle(shuffled)
    assert compared(shuffled, Known(LINKS)).offsets == compared(events, Known(LINKS)).offsets


def test_nodes_and_accounting_that_agree_outvote_the_log() -> None:
    events = Site(log=2).events(())
    stays = {"sacct.txt": (Stay(float("-inf"), float("inf"), -8),)}
    found = compared(events, Known(LINKS), Books(AccountingTime(stays)))
    assert found.zones.log_ahead == 2 * HOUR and moved(found, Site()) == {"ctl": 2.0}
    assert found.zones.accounting_time.ahead("sacct.txt", "sacct", T0) == 0.0


def test_one_fit_in_many_words_is_chance() -> None:
    rng = random.Random(1)
    lines = {host: sorted(rng.uniform(0, 20 * HOUR) for _ in range(4)) for host in NODES}
    words = [(rng.uniform(0, 20 * HOUR), (host,)) for host in NODES for _ in range(4)]
    assert fit(words, lines).clear() in (None, 0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7200.0, "2 h ahead"), (-19800.0, "5.5 h behind"), (7290.0, "2 h ahead"), (240.0, ""), (900.0, ""), (2200.0, "")],
)
def test_a_zone_in_words(seconds: float, words: str) -> None:
    assert hours_off(seconds) == words
