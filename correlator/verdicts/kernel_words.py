"""The confidence in a cause whose only lines others could have written: any user of the host, in the name of its kernel
(gather/kernel_lines.py) or of a daemon (gather/shared_lines.py). What anybody can have sent makes no event at all.

Evidence that no user can write removes the doubt: a line of slurmctld, of a switch or of another host, telemetry of the
same device. A run's own output does not: a forger of a kernel line may well own the run that it clears.

A line that is known by its name only counts where no user's job was on the host when it was written, or where others
confirm it (gather/uncounted.py). In a daemon's name, it then has no limit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from correlator.evidence.chains import Chain
from correlator.facts.gpus import XID
from correlator.facts.world import World
from correlator.gather.confirmed import SEEN_S
from correlator.gather.kernel_lines import BARE, LACKING, ODD, STAMPED, UNCONFIRMED
from correlator.gather.standing import OUTPUT
from correlator.gather.uncounted import explained
from correlator.model.attributes import BLAMED_CODE, MEMORY
from correlator.model.nouns import Event, Fact, Hop, Run
from correlator.model.time_texts import clock
from correlator.verdicts.verdict import Denied, Unproven

#: The highest confidence, by the evidence about the lines; the best line counts.
SURE = {STAMPED: 0.9, BARE: 0.7, ODD: 0.7, UNCONFIRMED: 0.5, LACKING: 0.5}
_WHY = {
    STAMPED: "their uptime fits, which every user of the node can read as well",
    BARE: "they carry no uptime that could be compared",
    UNCONFIRMED: "the kernel's own buffer of that time was collected and does not hold them",
    ODD: "their uptime fits no boot that earlier lines of this kernel show: a forger, or a clock that was set",
    LACKING: "the node's own syslog of that time was collected and holds neither them nor earlier lines of this kernel",
}


@dataclass(frozen=True)
class _Lines:
    """Lines of one host, none of them proven; ``host`` is None if they name none.

    ``how``: the objection to the best line.
    """

    host: str | None
    place: str
    how: str


class Claims(NamedTuple):
    """Explanations of the end of one run that rest on unproven lines only.

    ``of`` maps the id() of each such fact or event to its limit; ``events`` maps the ids of all their events to it.
    """

    of: Mapping[int, Unproven]
    events: Mapping[str, Unproven]


NO_CLAIMS = Claims({}, {})


class Limits:
    """The limits of unproven causes in one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._known: dict[int, tuple[Fact, _Lines | None]] = {}

    def of_cause(self, root: Fact, hops: Iterable[Hop]) -> Unproven | None:
        """The limit of a root cause with the steps from it; None if it is proven."""
        if not self.world.doubted:
            return None
        if id(root) not in self._known:
            self._known[id(root)] = root, self._unproven(root.events)
        lines = self._known[id(root)][1]
        if lines is None or _measured(self.world, root):
            return None
        if any(_confirms(self.world, event) for fact in _between(hops) for event in fact.events):
            return None
        return _limit(lines)

    def of_end(self, end: Fact, chains: Iterable[Chain]) -> Claims:
        """The unproven explanations of the end of a run.

        They are roots of ``chains`` with the facts below them, as far as all of these are unproven, kills for lack of
        memory, and Xids that are blamed on the program.
        """
        if not self.world.doubted:
            return NO_CLAIMS
        found: dict[int, Unproven] = {}
        events: dict[str, Unproven] = {}
        proven: set[int] = set()
        facts: dict[int, Fact] = {}
        for chain in chains:
            for place, hop in enumerate(chain.hops):
                if (wanting := self.of_cause(hop.cause, chain.hops[place:])) is None:
                    proven.add(id(hop.cause))
                    break
                found[id(hop.cause)], facts[id(hop.cause)] = wanting, hop.cause
        for fact in end.attrs[BLAMED_CODE]:
            if wanting := self.of_cause(fact, ()):
                found[id(fact)], facts[id(fact)] = wanting, fact
        memory = [what for what in end.attrs[MEMORY] if isinstance(what, Event)]
        lines = self._unproven(memory) if len(memory) == len(end.attrs[MEMORY]) else None
        if lines:
            wanting = _limit(lines)
            found |= {id(event): wanting for event in memory}
            events |= {event.id: wanting for event in memory}
        found = {name: wanting for name, wanting in found.items() if name not in proven}
        events |= {event.id: found[name] for name, fact in facts.items() if name in found for event in fact.events}
        return Claims(found, events)

    def _unproven(self, events: Collection[Event]) -> _Lines | None:
        """None if any of these events is proven, or if several hosts logged them."""
        standing = self.world.doubted
        if not events or any(e.id not in standing for e in events):
            return None
        hosts = {e.host for e in events}
        if len(hosts) > 1:
            return None
        places = sorted({e.file for e in events if e.file}) or ["a log"]
        return _Lines(
            hosts.pop(),
            places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more",
            max((standing[e.id] for e in events), key=lambda how: (SURE.get(how, 0.0), how)),
        )


def _limit(lines: _Lines) -> Unproven:
    return Unproven(SURE.get(lines.how, 0.0), lines.place, lines.host, _WHY.get(lines.how, lines.how))


#: A line that does not count is named in the verdicts on runs that ended within this after it, or just before.
DENIED_S, DENIED_AFTER_S = 900.0, 5.0


#: Lines of other layers and kinds accuse nothing that could have ended a run.
_ACCUSING = ("gpu", "link", "storage", "kernel")
_ACCUSING_KINDS = ("slurm.comm_error", "slurm.node_error", "slurm.daemon_fatal")
_GUARDS_KILL = "sys.guard_kill"
_HARMLESS = ("nic.link_up", "nic.link_init", "storage.recovered")


class Denials:
    """What lines that do not count claim about the nodes of runs, in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._accusing: dict[str, list[tuple[Event, str]]] = {}
        self._known: dict[str, Denied] = {}

    def before(self, run: Run, end: Fact) -> list[Denied]:
        """The claims about a run's nodes before its end, in order."""
        hosts = self._world.not_counted.keys() & run.nodes
        if not hosts:
            return []
        first, last = end.start - DENIED_S, end.start + DENIED_AFTER_S
        found: list[Denied] = []
        for host in hosts:
            lines = self._of(host)
            begun = bisect_left(lines, first, key=_time)
            within = lines[begun : bisect_right(lines, last, begun, key=_time)]
            found += [self._known.get(event.id) or self._denied(event, why) for event, why in within]
        return sorted(found, key=lambda one: (one.event.time, one.event.id)) if len(hosts) > 1 else found

    def _of(self, host: str) -> list[tuple[Event, str]]:
        """In their order: of a host, a user can make very many lines that accuse it."""
        if host not in self._accusing:
            accusing = [one for one in self._world.not_counted.get(host, ()) if _accuses(one[0])]
            self._accusing[host] = sorted(accusing, key=lambda one: (one[0].time, one[0].id))
        return self._accusing[host]

    def _denied(self, event: Event, why: str) -> Denied:
        self._known[event.id] = found = Denied(event, _claim(event), *explained(event, why, self._world))
        return found


def _time(line: tuple[Event, str]) -> float:
    return line[0].time


def _claim(event: Event) -> str:
    where = f"{event.device} of {event.host}" if event.device else event.host
    return f"{event.kind} ({where}, {clock(event.time)})"


def _accuses(event: Event) -> bool:
    if event.kind in _ACCUSING_KINDS:
        return event.source == "slurmd"
    if event.kind == _GUARDS_KILL:
        return True
    return event.layer in _ACCUSING and event.kind not in _HARMLESS


def _between(hops: Iterable[Hop]) -> list[Fact]:
    """What followed from a root, without ends of runs: slurmctld logs those whatever the cause."""
    return [hop.effect for hop in hops if not hop.effect.kind.startswith("run.")]


def _confirms(world: World, event: Event) -> bool:
    """Does a line of a consequence show that the cause is true?"""
    return event.source not in OUTPUT and event.id not in world.doubted


def _measured(world: World, root: Fact) -> bool:
    """Did telemetry see an Xid on this GPU appear at about that time?"""
    return root.kind == XID.name and any(
        seen.host == root.host and seen.before - SEEN_S <= root.start <= seen.seen + SEEN_S for seen in world.xids_seen
    )
