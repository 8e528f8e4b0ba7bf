"""Cables over time: which port a NIC was plugged into at a moment, by inventories and neighbour discovery.

A row of ``raw.links`` holds what was believed when it was written. It applies until a later one puts the NIC elsewhere,
and back to the beginning if no earlier one disagrees: cables are moved by hand, and most sites report theirs once. If
two sources disagree at one moment, both apply, because neither is known to be older.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from parsers.host_names import short_key

#: Sources of cables that list what answered, or one kind of fabric, not everything there is (parsers/documents).
NEIGHBOUR_SOURCES = re.compile(r"lldp|iblinkinfo|ibnetdiscover")

#: Before and after everything.
ALWAYS, NEVER = float("-inf"), float("inf")

#: A NIC by host and device, or a switch's port by switch and port.
Place = tuple[str, str]

_EPOCH = datetime(1970, 1, 1)
_COLUMNS = ("host", "device", "switch", "switch_port", "plane", "rail")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Cable:
    """One NIC in one port while ``since`` <= moment < ``until`` (epoch seconds). Unknown texts are empty."""

    host: str
    device: str
    switch: str
    switch_port: str
    plane: str = ""
    rail: str = ""
    family: str = ""
    since: float = ALWAYS
    until: float = NEVER

    def at(self, time: float) -> bool:
        return self.since <= time < self.until

    def same_port(self, other: Cable) -> bool:
        """Do both name one port? Sources write it differently: ``Et5``, ``Ethernet5`` and ``swp5``; or only the switch."""
        if short_key(self.switch) != short_key(other.switch):
            return False
        mine, its = self.switch_port, other.switch_port
        return not mine or not its or mine == its or _NUMBERS.findall(mine) == _NUMBERS.findall(its)

    def facts(self) -> dict[str, str]:
        return {"switch": self.switch, "switch_port": self.switch_port, "plane": self.plane, "rail": self.rail}


@dataclass
class Cabling:
    """All cables of a cluster. ``links`` (port -> NIC) and ``cables`` (NIC -> port) are today's.

    ``moved_ports`` and ``moved`` hold the few ends that changed, ``changed`` all cables of the switches concerned.
    """

    links: dict[Place, Place] = field(default_factory=dict)
    cables: dict[Place, dict[str, str]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    inventoried: frozenset[str] = frozenset()
    moved_ports: dict[Place, tuple[tuple[float, Cable], ...]] = field(default_factory=dict)
    moved: dict[Place, tuple[Cable, ...]] = field(default_factory=dict)
    changed: dict[str, tuple[Cable, ...]] = field(default_factory=dict)

    def far_end(self, switch: str, port: str, time: float) -> Place | None:
        """The NIC in a port at a moment: by the last row before it, else the first one after it; None once it is empty."""
        reports = self.moved_ports.get((switch, port))
        if reports is None:
            return self.links.get((switch, port))
        held = [(since, cable) for since, cable in reports if cable.at(time)]
        before = [cable for since, cable in held if since <= time]
        cable = before[-1] if before else held[0][1] if held else None
        return (cable.host, cable.device) if cable else None


def cabling(rows: Iterable[Mapping[str, Any]]) -> Cabling:
    """The cables in rows of ``raw.links``, independent of their order. Callers must not modify the result."""
    timed_cables = sorted({_timed_cable(row) for row in rows}, key=lambda t: (t[0], *_texts(t[1])))
    found = Cabling(
        inventoried=frozenset(
            c.host for _, c in timed_cables if c.host and c.device and not NEIGHBOUR_SOURCES.search(c.family)
        )
    )
    vocabulary: dict[str, set[str]] = defaultdict(set)
    of_nic: dict[Place, list[tuple[float, Cable]]] = defaultdict(list)
    for time, cable in timed_cables:
        vocabulary[cable.family].add(short_key(cable.switch))
        of_nic[cable.host, cable.device].append((time, cable))
    of_port: dict[Place, list[tuple[float, Cable]]] = defaultdict(list)
    everything: list[Cable] = []
    for place, reports in of_nic.items():
        spans = _spans(reports, vocabulary) if all(place) and len(reports) > 1 else [([t], c) for t, c in reports]
        for times, cable in spans:
            if cable.switch and cable.switch_port:
                of_port[cable.switch, cable.switch_port] += ((t, cable) for t in times)
        everything += (c for _, c in spans)
        _put_nic(found, place, [c for _, c in spans])
    for port, reports in of_port.items():
        _put_port(found, port, sorted(reports, key=lambda t: (t[0], *_texts(t[1]))))
    found.changed = _of_moved_switches(everything, found.moved.values())
    return found


def _timed_cable(row: Mapping[str, Any]) -> tuple[float, Cable]:
    time = row.get("time")
    seconds = (time - _EPOCH).total_seconds() if isinstance(time, datetime) else ALWAYS
    host, device, switch, port, plane, rail = (str(row.get(name) or "") for name in _COLUMNS)
    return seconds, Cable(host, device, switch, port, plane, rail, _family(str(row.get("source") or "")))


def _family(source: str) -> str:
    """The naming convention of a source: LLDP has each system's own, the fabric's description another, people a third."""
    return "lldp" if "lldp" in source else "iblinkinfo" if NEIGHBOUR_SOURCES.search(source) else "inventory"


def _texts(cable: Cable) -> tuple[str, ...]:
    return (cable.host, cable.device, cable.switch, cable.switch_port, cable.plane, cable.rail, cable.family)


def _spans(reports: list[tuple[float, Cable]], vocabulary: Mapping[str, set[str]]) -> list[tuple[list[float], Cable]]:
    """Where one NIC was plugged in, with the times at which that was reported; a later contradicting row ends a place."""
    spans: list[tuple[list[float], Cable]] = []
    for time, group in groupby(reports, key=lambda t: t[0]):
        cables = [cable for _, cable in group]
        denied = False
        for place, (times, cable) in enumerate(spans):
            if (
                cable.until == NEVER
                and not any(cable.same_port(s) for s in cables)
                and any(_denies(s, cable, vocabulary) for s in cables)
            ):
                spans[place] = (times, replace(cable, until=time))
                denied = True
        moved = denied or any(cable.until < NEVER for _, cable in spans)
        for cable in cables:
            again = [
                place
                for place, (_, known) in enumerate(spans)
                if known.until == NEVER and _texts(known) == _texts(cable)
            ]
            if again:
                spans[again[0]][0].append(time)
            else:
                like = next((k.since for _, k in spans if k.until == NEVER and k.same_port(cable)), None)
                since = like if like is not None else time if moved else ALWAYS
                spans.append(([time], replace(cable, since=since)))
    return spans


def _denies(stated: Cable, known: Cable, vocabulary: Mapping[str, set[str]]) -> bool:
    """Does one cable contradict another?

    Two sources may call one switch by two names: another source counts if it names a switch that the first one knows.
    """
    if not stated.switch or not known.switch:
        return False
    return stated.family == known.family or short_key(stated.switch) in vocabulary[known.family]


def _put_nic(found: Cabling, place: Place, spans: list[Cable]) -> None:
    today = [c for c in spans if c.until == NEVER]
    for cable in today:
        if cable.switch and cable.host:
            found.members[cable.switch].add(cable.host)
    if not all(place):
        return
    last = today[-1]
    # A plane belongs to the NIC: the next source that reports the cable may know of none.
    filled = {name: next((v for c in reversed(spans) if (v := getattr(c, name))), "") for name in ("plane", "rail")}
    port = last.switch_port or next((c.switch_port for c in reversed(today) if c.switch_port and c.same_port(last)), "")
    found.cables[place] = {**last.facts(), "switch_port": port, **filled}
    if len(today) < len(spans):
        found.moved[place] = tuple(
            replace(c, plane=c.plane or filled["plane"], rail=c.rail or filled["rail"]) for c in spans
        )


def _put_port(found: Cabling, port: Place, reports: list[tuple[float, Cable]]) -> None:
    today = [c for _, c in reports if c.until == NEVER]
    if today:
        found.links[port] = (today[-1].host, today[-1].device)
    several = len({c.host for _, c in reports}) > 1 and len({t for t, _ in reports}) > 1
    if several or any(c.until < NEVER or c.since > ALWAYS for _, c in reports):
        found.moved_ports[port] = tuple(reports)


def _of_moved_switches(cables: Iterable[Cable], moved: Iterable[tuple[Cable, ...]]) -> dict[str, tuple[Cable, ...]]:
    """All cables, of all times, of the switches that cables were moved away from or to."""
    touched = {c.switch for spans in moved for c in spans}
    found: dict[str, set[Cable]] = {switch: set() for switch in sorted(touched)}
    for cable in cables if touched else ():
        if cable.switch in touched:
            found[cable.switch].add(cable)
    return {switch: tuple(sorted(mine, key=lambda c: (c.since, *_texts(c)))) for switch, mine in found.items()}
