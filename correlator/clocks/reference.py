"""Finds whose timestamps are correct where zones differ: those that name their zone, if they agree with slurmctld's
log.

Launches show how far nodes are ahead of slurmctld, not which of the two is correct. slurmctld sets a node DOWN some
minutes after its link or its machine failed, and finds it again soon after it is back; at both times the node's own
system log has lines. The shift of slurmctld's timestamps that makes this true is the one on which all its lines about
nodes agree, and no other: in an hour picked at random a node usually logs nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from correlator.clocks.zone_votes import MOST, QUARTER_S
from correlator.model.nouns import Event
from correlator.site.open_lines import is_open
from correlator.site.senders import NOBODY, Senders

#: slurmctld's line about a node is at most this long after, and before, the node's own line, seconds: SlurmdTimeout and
#: pings of all nodes; another clock.
BEHIND_S, BEFORE_S = 900.0, 30.0

#: Nearly all zones are half hours from one another; in quarters of an hour.
HALF_HOUR = 2

#: Without other evidence of a zone, at least this many lines about this many nodes must agree, and this many times as
#: many as for any other shift.
WORDS, NODES, TIMES = 4, 2, 2.5

#: At least this share of what nodes did themselves must agree.
SHARE = 0.4

#: Two are enough if launches or accounting show just that zone.
LEAST_WORDS = 2

#: Lines beyond this number are sampled: more of them add nothing.
MOST_WORDS = 2000

_OF_NODES = frozenset({"slurm.node_down", "slurm.node_not_responding", "slurm.node_up"})

#: What a node logs when it goes down or comes back.
_COMPARED_EVENTS = ("nic.link_", "kernel.boot", "kernel.panic", "kernel.lockup", "sys.service_", "slurm.daemon_")

#: Sources whose lines on a node are not its system log.
SLURM = frozenset({"slurmd", "slurmstepd", "slurmctld", "slurmdbd"})
_OTHERS = frozenset({"slurmctld", "slurmdbd", "slurmrestd", "opensm", "switch"})

Word = tuple[float, tuple[str, ...]]


def words(events: Iterable[Event], senders: Senders = NOBODY) -> list[Word]:
    """(time, nodes) of the lines about nodes in slurmctld's log without a zone."""
    found = [
        (e.time, tuple(map(str, nodes))) for e in events
        if e.kind in _OF_NODES and e.source == "slurmctld" and e.time_quality == "inferred" and isinstance(nodes := e.entities.get("nodes"), list) and not is_open(e, senders)
    ]  # fmt: skip
    return sorted(set(found))


def system_lines(
    events: Iterable[Event], hosts: Collection[str], senders: Senders, *, zoned: bool
) -> dict[str, list[float]]:
    """When hosts logged that they went down or came back, sorted by host.

    ``zoned`` selects timestamps that name a zone; otherwise system logs without one.
    """
    quality, others = ("line", _OTHERS) if zoned else ("inferred", _OTHERS | SLURM)
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if (
            event.host in hosts
            and event.time_quality == quality
            and event.kind.startswith(_COMPARED_EVENTS)
            and event.source not in others
            and not is_open(event, senders)
        ):
            found[event.host or ""].append(event.time)
    return {host: sorted(times) for host, times in found.items()}


@dataclass(frozen=True)
class Fit:
    """How many lines agree with the nodes' own, by quarters of an hour that nodes are ahead, and of how many nodes."""

    words: int
    hits: Mapping[int, int]
    nodes: Mapping[int, int]

    def clear(self, excluded: Collection[int] = ()) -> int | None:
        """How far nodes are ahead; None if that is not clear. ``excluded``: shifts for which there is other evidence."""
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
    """Counts the lines that agree for each half hour that nodes may be ahead, and for the shifts in ``excluded``."""
    pairs = [(at, host) for at, nodes in words for host in nodes if host in lines]
    pairs = pairs[:: len(pairs) // MOST_WORDS + 1]
    now = sum(_fits(lines[host], at) for at, host in pairs)
    if 2 * now >= len(pairs):  # the common case
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
