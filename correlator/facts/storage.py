"""Shared file systems: a target that many clients lost is one outage."""

from __future__ import annotations

import re
from collections import defaultdict

from correlator.facts import World, bursts
from correlator.model import Event, Fact

#: Clients notice a dead target when they next talk to it: within a minute (correlation.md, E40), and reconnect later.
SAME_OUTAGE_S = 300.0

_TARGET = re.compile(r"\b([A-Za-z0-9_]+-(?:OST|MDT)[0-9a-fA-F]{4})")


def target_of(event: Event) -> str | None:
    told = event.entities.get("lustre_target") or event.entities.get("nfs_server")
    match = _TARGET.search(str(told or "")) or _TARGET.search(event.message)
    return match[1] if match else (str(told) if told else None)


def outages(world: World) -> list[Fact]:
    """``storage.outage`` per target; attrs hosts (clients that said so), evicted (hosts), server."""
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in world.kinds("storage.lustre_error", "storage.nfs_error"):
        target = target_of(event)
        if target:
            groups[target].append(event)
    return [
        _outage(world, target, burst)
        for target, events in sorted(groups.items())
        for burst in bursts(events, SAME_OUTAGE_S)
    ]


def _outage(world: World, target: str, events: list[Event]) -> Fact:
    hosts = sorted({e.host for e in events if e.host})
    evicted = {e.host: e.time for e in reversed(events) if e.host and "evict" in e.message.lower()}
    recovered = [e.time for e in world.kinds("storage.recovered") if target_of(e) == target and e.time > events[0].time]
    servers = [h for h in hosts if not world.runs_on.get(h) and re.match(r"(oss|mds|nfs|nas|fs)", h)]
    attrs = {"hosts": hosts, "evicted": evicted, "server": servers[0] if servers else None}
    return Fact("storage.outage", events[0].time, max(recovered, default=events[-1].time), events[0].sigma,
                servers[0] if servers else target.split("-")[0], target, attrs=attrs, events=tuple(events))  # fmt: skip


DETECTORS = [outages]
