"""Whose stamps are right where zones differ: those that name their zone, if what they tell fits to what slurmctld says.

Launches tell by how much nodes are ahead of slurmctld, not which of both is right. slurmctld sets a node DOWN some minutes after its link
or its machine went, and finds it again soon after that is back: there the node's own system log tells something. By how much
slurmctld's stamps must be moved for that to be so, all its words on nodes agree on, and on nothing else: in an hour picked at random
a node tells nothing, as a rule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from correlator.clocks.zone_votes import MOST, QUARTER_S
from correlator.model.nouns import Event

#: What slurmctld says of a node lies at most so long behind, and before, what the node tells of it, seconds: SlurmdTimeout and pings
#: of all nodes; another clock.
BEHIND_S, BEFORE_S = 900.0, 30.0

#: In quarters of an hour: nearly all zones are half hours apart.
HALF_HOUR = 2

#: So many words must agree, of so many nodes, where nothing else tells of another zone; and so many times as many as on any other.
WORDS, NODES, TIMES = 4, 2, 2.5

#: Of what nodes did themselves at least so large a share fits.
SHARE = 0.4

#: Two are enough where launches or accounting tell of just that zone.
LEAST_WORDS = 2

#: Words beyond this are not looked at: many more tell nothing more.
MOST_WORDS = 2000

_OF_NODES = frozenset({"slurm.node_down", "slurm.node_not_responding", "slurm.node_up"})

#: What a node tells when it goes or is back.
_COMPARED_EVENTS = ("nic.link_", "kernel.boot", "kernel.panic", "kernel.lockup", "sys.service_", "slurm.daemon_")

#: Of these sources a node's lines are not its system's.
SLURM = frozenset({"slurmd", "slurmstepd", "slurmctld", "slurmdbd"})
_OTHERS = frozenset({"slurmctld", "slurmdbd", "slurmrestd", "opensm", "switch"})

Word = tuple[float, tuple[str, ...]]


def words(events: Iterable[Event]) -> list[Word]:
    """(time, nodes) of what slurmctld's log without a zone says of nodes."""
    found = [
        (e.time, tuple(map(str, nodes))) for e in events
        if e.kind in _OF_NODES and e.source == "slurmctld" and e.time_quality == "inferred" and isinstance(nodes := e.entities.get("nodes"), list)
    ]  # fmt: skip
    return sorted(set(found))


def system_lines(events: Iterable[Event], hosts: Collection[str], zoned: bool) -> dict[str, list[float]]:
    """When some hosts told that they went or are back, in order; by stamps that name a zone, or their systems by such as name none."""
    quality, others = ("line", _OTHERS) if zoned else ("inferred", _OTHERS | SLURM)
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if (
            event.host in hosts
            and event.time_quality == quality
            and event.kind.startswith(_COMPARED_EVENTS)
            and event.source not in others
        ):
            found[event.host or ""].append(event.time)
    return {host: sorted(times) for host, times in found.items()}


@dataclass(frozen=True)
class Fit:
    """How many words fit to what nodes tell, by how many quarters of an hour the nodes are ahead, and of which nodes."""

    words: int
    hits: Mapping[int, int]
    nodes: Mapping[int, int]

    def clear(self, excluded: Collection[int] = ()) -> int | None:
        """By how much nodes are ahead; None where it is not clear. ``excluded``: what something else tells may be so."""
        best = max(sorted(self.hits), key=lambda q: (self.hits[q], q == 0), default=None)
        if best is None:
            return None
        second = max((n for q, n in self.hits.items() if q != best), default=0)
        if best in excluded or best == 0:
            others = max((self.hits.get(q, 0) for q in {0, *excluded} - {best}), default=0)
            if self.hits[best] >= LEAST_WORDS and self.hits[best] >= TIMES * others:
                return best
        enough = self.hits[best] >= max(WORDS, SHARE * self.words) and self.nodes[best] >= NODES
        return best if enough and self.hits[best] >= TIMES * second else None


def fit(words: Sequence[Word], lines: Mapping[str, Sequence[float]], excluded: Iterable[int] = ()) -> Fit:
    """How the words fit if nodes are ahead by as many half hours as zones may be, or by what is ``excluded``."""
    pairs = [(at, host) for at, nodes in words for host in nodes if host in lines]
    pairs = pairs[:: len(pairs) // MOST_WORDS + 1]
    now = sum(_fits(lines[host], at) for at, host in pairs)
    if 2 * now >= len(pairs):  # as a rule
        return Fit(len(pairs), {0: now} if now else {}, {0: len({h for at, h in pairs if _fits(lines[h], at)})})
    hits: Counter[int] = Counter()
    nodes: dict[int, set[str]] = defaultdict(set)
    for quarters in {*range(-MOST, MOST + 1, HALF_HOUR), *excluded}:
        for at, host in pairs:
            if _fits(lines[host], at + quarters * QUARTER_S):
                hits[quarters] += 1
                nodes[quarters].add(host)
    return Fit(len(pairs), hits, {quarters: len(some) for quarters, some in nodes.items()})


def _fits(times: Sequence[float], at: float) -> bool:
    return bisect_left(times, at - BEHIND_S) < bisect_right(times, at + BEFORE_S)
