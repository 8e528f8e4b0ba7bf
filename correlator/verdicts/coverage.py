"""Sources that would have reported a cause but were not collected, and claims that a witness denies.

Kinds of facts declare their witnesses (model/kinds.py). A verdict is less sure for each that was not collected
(evidence/calibration.py), and names it. A witness that was there and saw nothing denies the cause
(gather/silences.py): it is rejected, or less sure if the kernel's own ring holds it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from correlator.facts.gpus import XID
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.registry import kind_of
from correlator.facts.world import World, bus_of
from correlator.gather import silences
from correlator.gather.collected import ANY, FAMILIES, GPUS, SWITCH, place, shows_its_log
from correlator.model.attributes import CODE, ENDS, HOSTS
from correlator.model.attributes import SWITCH as BEHIND
from correlator.model.kinds import Source
from correlator.model.nouns import Event, Fact, Hop, Run
from correlator.site.site import JOB_SETTINGS
from correlator.verdicts.verdict import Missing
from parsers.hostlist import fold
from parsers.writers import NO_USERS

_NOT_KNOWN = re.compile(r"(\w+) not known \(")


@dataclass(frozen=True)
class Uncollected:
    """A verdict about an effect ``at`` that lacks some sources: if one turns out to be collected, it is judged again."""

    at: float
    unlogged: frozenset[str]

    def sees(self, run: Run | None) -> tuple[object, ...]:
        """Nothing of other runs."""
        return ()


def missing(world: World, hops: Sequence[Hop]) -> tuple[Missing, ...]:
    """The witnesses of a chain of causes and effects that were not collected, each once, those of the root first."""
    if world.collected is None or not hops:
        return ()
    found: dict[str, Missing] = {}
    for fact in (hops[0].cause, *(hop.effect for hop in hops)):
        for source in kind_of(fact.kind).witnesses:
            if (lacking := _lacking(world, fact, source)) is not None:
                found.setdefault(lacking.words, lacking)
    if any(_is_unsettled(hop.because) for hop in hops):
        found["settings"] = Missing("Slurm's configuration")
    return tuple(found.values())


def _is_unsettled(because: str) -> bool:
    """Does a window rest on a setting of Slurm that is not known? ``because``: as ``Site.describe`` writes it."""
    return any(name not in JOB_SETTINGS for name in _NOT_KNOWN.findall(because))


def _lacking(world: World, fact: Fact, source: Source) -> Missing | None:
    collected = world.collected
    assert collected is not None
    if source == "telemetry":
        return None if collected.telemetry else Missing("measurements of the GPUs", frozenset({GPUS}))
    if source == "slurmctld":
        named = any(event.source == source for event in fact.events)
        if named or any(collected.has((source,), host, fact.start) for host in world.controllers):
            return None
        return Missing("slurmctld's log", frozenset({place(source, ANY)}))
    if source == "switch":
        return _lacking_switch(world, fact)
    hosts = _nodes_of(world, fact)
    uncollected = [host for host in hosts if not collected.has((source,), host, fact.start)]
    if 2 * len(uncollected) <= len(hosts):
        return None
    of_host: defaultdict[str | None, list[Event]] = defaultdict(list)
    for event in fact.events:  # of one host or of hundreds
        of_host[event.host].append(event)
    mute = [host for host in uncollected if not _spoke(of_host.get(host, ()), host, source)]
    if 2 * len(mute) <= len(hosts):
        return None
    what = "the kernel or system log" if source == "kernel" else "slurmd's log"
    return Missing(f"{what} of {fold(mute)}", frozenset(place(source, host) for host in mute))


def _lacking_switch(world: World, fact: Fact) -> Missing | None:
    collected = world.collected
    assert collected is not None
    if "switch" in fact.attrs.get(ENDS, ()):
        return None
    if kind_of(fact.kind).layer == "switch":
        name, what = fact.host, "the switch that these nodes share"
    else:
        name = fact.attrs.get(BEHIND) or world.site.cable_at(fact.host, fact.device, fact.start).get("switch")
        what = f"the switch at the other end of {fact.device} of {fact.host}"
    if not name:
        return Missing(f"the log of {what}")
    if _spoke(fact.events, name, "switch") or collected.has(SWITCH, name, fact.start):
        return None
    return Missing(f"the log of switch {name}", frozenset(place(family, name) for family in SWITCH))


def _nodes_of(world: World, fact: Fact) -> list[str]:
    """The machines of a fact. What a file system or a switch is called is none."""
    if kind_of(fact.kind).layer != "switch" and fact.host in world.site.hosts:
        return [fact.host]
    return sorted(fact.attrs.get(HOSTS, ()))


def _spoke(events: Iterable[Event], host: str, source: Source) -> bool:
    """Is one of the lines from that source of the host itself?"""
    of_host = [event for event in events if event.host == host and event.source not in FAMILIES["slurmctld"]]
    if source == "slurmd":  # in a syslog file, anybody can give that name
        return any(e.source in FAMILIES["slurmd"] and e.authority in _PROVEN for e in of_host)
    return any(e.source not in FAMILIES["slurmd"] and _shows(e, host) for e in of_host)


#: Empty: events that were made without lines.
_PROVEN = NO_USERS | {""}


def _shows(event: Event, host: str) -> bool:
    files = (event.file, *(file for file, _ in event.also))
    return event.authority in _PROVEN or shows_its_log(event.authority, files, host)


def unbelieved(world: World, fact: Fact) -> str:
    """Why a cause is not believed: a witness denies it, and a user may have written its lines. Empty if it is."""
    return "" if _is_proven(world, fact) else denied(world, fact)


def denied(world: World, fact: Fact) -> str:
    """What denies a link loss or an Xid that only the node's own log reports; empty if nothing does."""
    if world.silences is None or fact.kind not in (LINK_OUTAGE.name, XID.name) or not fact.host or not fact.device:
        return ""
    if fact.key not in world.denials:
        ask = _denied_link if fact.kind == LINK_OUTAGE.name else _denied_xid
        world.denials[fact.key] = ask(world, world.silences, fact, fact.host, fact.device)
    return world.denials[fact.key]


def _denied_link(world: World, answers: silences.Answers, fact: Fact, host: str, device: str) -> str:
    cable = world.site.cable_at(host, device, fact.start)
    switch, port = cable.get("switch"), cable.get("switch_port")
    if fact.attrs.get(ENDS) != ["nic"] or not switch or not port:
        return ""
    if world.collected and not world.collected.has(SWITCH, switch, fact.start):
        return ""
    if not silences.denies_link(answers, silences.Link(host, device, switch, port), fact.start):
        return ""
    return (
        f"{switch} logs the loss of its ports, its log of that minute was collected, and it has no line about this one"
    )


def _denied_xid(world: World, answers: silences.Answers, fact: Fact, host: str, device: str) -> str:
    if world.collected and not world.collected.telemetry:
        return ""
    if not silences.denies_xid(answers, host, bus_of(device), fact.attrs.get(CODE), fact.start):
        return ""
    return f"telemetry of {device} of {host} shows the last Xid, was read before and after it, and did not change"


#: Daemons on other machines than the node.
_ELSEWHERE = ("slurmctld", "switch", "opensm")


def _is_proven(world: World, fact: Fact) -> bool:
    """Is one of the lines the kernel's own, from its ring or the journal's kernel transport, or another machine's? None
    of those of which others can have written the only copies (gather/shared_lines.py) counts."""
    return any(
        event.source in _ELSEWHERE or (event.source in ("kernel", "dmesg") and not event.known_by)
        for event in fact.events if event.id not in world.doubted
    )  # fmt: skip
