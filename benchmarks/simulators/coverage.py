"""Random situations with liars among them, each with all sources and with one, two or all of the optional ones away."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.simulators.situations import NODES, Chance, Site, Situation, made
from correlator.facts.world import World
from correlator.gather.collected import Collected, Spans
from correlator.model.measurements import XidSeen
from correlator.model.nouns import Event
from correlator.site.site import SETTINGS
from tests.correlator.making import T0, event

#: What sites often do not collect. ``kernel``: the kernel and system logs of all nodes.
OPTIONAL = ("switch", "kernel", "slurmd", "configuration", "telemetry")

#: How many of them are away.
AWAY = (0, 1, 2, len(OPTIONAL))

#: The share of runs that failed by themselves beside which somebody wrote lines about a fault that was none.
LIARS = 0.05

SWITCHES = ("tor", "leaf-p1")

#: Something that is no setting of Slurm.
NO_SETTINGS = {"": 0}
#: Everything was collected from a day before to a day after.
_FIRST, _LAST = T0 - 86_400.0, T0 + 86_400.0


@dataclass(frozen=True)
class Seen:
    """What the switches and the gauges of GPUs show: ``silences.Answers`` of a situation without lies."""

    events: Sequence[Event]
    seen: Sequence[XidSeen]

    def around(self, switch: str, since: float, until: float) -> list[Mapping[str, Any]]:
        quiet = [
            {"t": T0 + at, "event": None, "port": None, "message": None, "is_own": True}
            for at in range(-3600, 3601, 300)
        ]
        lines = [
            {"t": e.time, "event": e.kind, "port": e.entities.get("port"), "message": e.message, "is_own": True}
            for e in self.events if e.host == switch
        ]  # fmt: skip
        return [row for row in [*quiet, *lines] if since <= row["t"] <= until]

    def logs_ports(self, switch: str, since: float, until: float) -> bool:
        return True

    def gauges(self, host: str, since: float, until: float) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for gpu in ("00000000:3A:00.0", "00000000:5D:00.0"):
            shown = [s for s in self.seen if (s.host, s.gpu) == (host, gpu)]
            for at in range(-3600, 3601, 60):
                codes = [s.code for s in sorted(shown, key=lambda s: s.seen) if s.seen <= T0 + at]
                found.append({"t": T0 + at, "gpu": gpu, "code": codes[-1] if codes else 0})
        return [row for row in found if since <= row["t"] <= until]

    def shows_xids(self, since: float, until: float) -> bool:
        return True


def lie(r: Chance, situation: Situation, host: str) -> list[Event]:
    """What somebody writes on a node, to blame its link or its GPU for the end of the run.

    A program can claim the kernel's facility or only its name.
    """
    at, port, known_by = situation.end - r.uniform(5, 110), r.choice(("ib0", "eth0")), r.choice(("name", "facility"))
    lines = (
        [event("gpu.xid", at, host, "NVRM: Xid 79", pci="0000:3a:00", xid=79)] if r.random() < 0.4
        else [event("nic.link_down", at, host, f"{port}: Link down", port=port)]
    )  # fmt: skip
    return [replace(line, known_by=known_by) for line in lines]


@dataclass(frozen=True)
class Case:
    """A situation with some of its sources ``away``, and how it looks then."""

    situation: Situation
    away: frozenset[str]
    world: World


def cases(seed: int) -> Iterator[Case]:
    """One situation with no source away, with one, with two, and with all: each time fewer than before."""
    r = Chance(seed)
    r.complete = True
    site = made(r)
    seen = [
        XidSeen(str(e.host), f"0000{e.entities['pci']}.0".upper(), int(e.entities["xid"]), e.time - 30, e.time + 30)
        for e in site.events if e.kind == "gpu.xid"
    ]  # fmt: skip
    answers = Seen(tuple(site.events), seen)
    site.events.append(event("slurm.job_start", -1920, "ctl", "sched: Allocate JobId=1", source="slurmctld", job_id=1))
    if "SlurmdTimeout" in site.settings:  # a configuration is seen whole
        site.settings = {name: int(default) for name, (default, _) in SETTINGS.items()} | site.settings
    if site.situation.kind in ("own_error", "lost_peers") and r.random() < LIARS:
        site.events += lie(r, site.situation, site.runs[0].nodes[0])
    order = r.sample(OPTIONAL, len(OPTIONAL))
    for count in AWAY:
        away = frozenset(order[:count])
        yield Case(site.situation, away, without(site, answers, away))


def without(site: Site, answers: Seen, away: frozenset[str]) -> World:
    """The world of a situation of which the sources ``away`` were not collected."""
    gone = {source for name, sources in _SOURCES.items() if name in away for source in sources}
    mute = frozenset(NODES) if "kernel" in away else site.mute
    events = [e for e in site.events if e.source not in gone or e.host == "ctl"]
    settings = NO_SETTINGS if "configuration" in away else site.settings
    rest = replace(site, events=events, mute=mute, settings=settings)
    measured = "telemetry" not in away
    situation = site.situation
    return replace(rest, situation=situation if measured else replace(situation, hot=[])).world(
        asked=True, collected=Collected(_spans(mute, away), measured), xids_seen=list(answers.seen) if measured else [],
        silences=answers,
    )  # fmt: skip


#: The sources of events by what is away.
_SOURCES = {"switch": ("switch",), "kernel": ("kernel", "syslog"), "slurmd": ("slurmd",)}


def _spans(mute: frozenset[str], away: frozenset[str]) -> Spans:
    places = [("kernel", host) for host in NODES if host not in mute]
    places += [("slurmd", host) for host in NODES if "slurmd" not in away]
    places += [("switch", host) for host in SWITCHES if "switch" not in away]
    return dict.fromkeys([*places, ("slurmctld", "ctl")], (_FIRST, _LAST))
