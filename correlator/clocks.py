"""Clocks that were off: by how much, from when to when, and how that is known.

Everyday differences (NTP keeps hosts within milliseconds, RFC 3164 writes whole seconds) are part of every event's
sigma. Here it is about clocks that were seconds to hours off: a cause would seem to follow its effect. An offset is
believed when the host's own time daemon told it, or when two independent pairs of lines agree on it
(``clock_pairs.py``); it is applied to events, never to the stored lines. Stamps in another zone are put right before
(``zones.py``): what is left then is a clock's.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import median

from correlator.clock_pairs import AGREE_S, ENDS_S, HOLDS_S, NOTHING, NOTICEABLE_S, Known, Sign, launches, signs
from correlator.events import UNSTAMPED_S
from correlator.model import Event
from correlator.zones import QUARTER_S, Vote, Zoned, scripts, votes, zones


@dataclass(frozen=True)
class Offset:
    """``host``'s clock minus true time was ``seconds`` while it showed ``start`` to ``end`` (its own, wrong time). Of a ``zone``
    it is that by which its stamps are in another one than slurmctld's; of all its stamps, or of those that name none (``inferred``)."""

    host: str
    start: float
    end: float
    seconds: float
    sigma: float
    why: str
    zone: bool = False
    inferred: bool = False


@dataclass(frozen=True)
class Zones:
    """Which stamps are in another zone. ``odd``: launches that tell of others, by host, job and quarters of an hour, and are not
    believed; ``hosts``: those of which it was judged, where there are such launches."""

    offsets: tuple[Offset, ...] = ()
    odd: frozenset[tuple[str, int, int]] = frozenset()
    hosts: frozenset[str] = frozenset()
    #: Of each job the host of its batch script, which stamps its output, and when it was allocated.
    scripts: Mapping[int, tuple[str, float]] = field(default_factory=dict)

    def ahead_in_output(self, job: int | None, time: float, host: str | None = None) -> float:
        """By so many seconds a stamp in the output of a job is ahead: as its ``host`` or that of its batch script is, where it would not
        lie before the job. A container may have a zone of its own."""
        script, allocated = self.scripts.get(job or -1, (None, float("-inf")))
        off = ahead((o for o in self.offsets if o.host == (host or script)), time, True)
        return off if time - off >= allocated - NOTICEABLE_S else 0.0


NO_ZONES = Zones()


@dataclass(frozen=True)
class Clocks:
    """Which clocks were off. ``signs``: by round of comparing and by host, all signs of the clocks that it found to be off: what
    later lines tell is judged together with them."""

    offsets: list[Offset] = field(default_factory=list)
    signs: list[Mapping[str, list[Sign]]] = field(default_factory=list)
    zones: Zones = field(default_factory=Zones)

    @staticmethod
    def of_zones(found: Zones) -> Clocks:
        """What is known before clocks are compared."""
        return Clocks(list(found.offsets), [], found)

    @property
    def furthest(self) -> float:
        """So many seconds a stamp lies from its true time at most, by what is known."""
        return max((abs(o.seconds) for o in self.offsets), default=0.0)

    def tells_from(self, earliest: float) -> float:
        """From which stamp on something is told of clocks that are known by lines stamped with ``earliest`` or later: the two
        lines of a pair lie so far apart."""
        return earliest - self.furthest - ENDS_S if self.offsets else earliest


def offsets(events: Sequence[Event], known: Known = NOTHING) -> list[Offset]:
    """All stretches in which a host's clock was noticeably off; independent of the order of ``events``."""
    return compared(events, known).offsets


#: After so many rounds nothing more is learned from those that are known.
ROUNDS = 3


def compared(events: Sequence[Event], known: Known = NOTHING) -> Clocks:
    """Clocks are compared with one another: once some are known to be wrong, the right ones may be the majority of a step."""
    known = _asked_once(known)
    found = Clocks.of_zones(_zones(events, known))
    while len(found.signs) < ROUNDS:
        told = _told(events, known, found)
        off = _off({host: told[host] for host in told.keys() - _hosts(found.signs)})
        if not off:
            break
        found = _with(found, {host: told[host] for host in off}, off)
    return found


def compared_further(before: Clocks, events: Sequence[Event], known: Known, since: float) -> Clocks | None:
    """What ``compared`` tells of all events by the latest of them: everything that tells of clocks from ``since`` on (as those
    showed it) is among ``events``. None where another clock is off, or what was stamped before ``since`` is to be moved
    otherwise than it was."""
    known = _asked_once(known)
    zoned = _zones_further(before.zones, events, known)
    if zoned is None:
        return None
    found = Clocks.of_zones(zoned)
    for former in [*before.signs, {}][:ROUNDS]:
        told = _told(events, known, found)
        if _off({host: told[host] for host in told.keys() - former.keys() - _hosts(found.signs)}):
            return None
        again: dict[str, list[Sign]] = {}
        for host, known_signs in former.items():
            further = _further(known_signs, told.get(host, []), since)
            if further is None:
                return None
            again[host] = further
        off = _off(again)
        if off.keys() != former.keys():
            return None
        found = _with(found, again, off) if off else found
    return found if _until(since, found.offsets) == _until(since, before.offsets) else None


def _further(before: Iterable[Sign], told: Sequence[Sign], since: float) -> list[Sign] | None:
    """All signs of a clock: those before ``since`` as they were known. None where later lines make signs of earlier ones."""
    then, now = ([s for s in some if s.time < since] for some in (before, told))
    # To the millisecond: what was moved and is moved back is not quite what it was.
    known = {(round(s.time, 3), s.pair) for s in then}
    if any((round(s.time, 3), s.pair) not in known for s in now):
        return None
    return [*then, *(s for s in told if s.time >= since)]


def _told(events: Sequence[Event], known: Known, found: Clocks) -> dict[str, list[Sign]]:
    """All signs by host, where the clocks that are known to be off are corrected."""
    told: dict[str, list[Sign]] = defaultdict(list)
    for host, sign in signs(correct(events, found.offsets) if found.offsets else events, known):
        told[host].append(sign)
    return told


def _off(told: Mapping[str, list[Sign]]) -> dict[str, list[Offset]]:
    """The clocks that were off by their signs."""
    stretches = {
        host: _stretches(host, sorted(told[host], key=lambda s: (s.time, s.seconds, s.pair))) for host in sorted(told)
    }
    return {host: found for host, found in stretches.items() if found}


def _with(found: Clocks, told: Mapping[str, list[Sign]], off: Mapping[str, list[Offset]]) -> Clocks:
    """What is found, and what one more round found."""
    some = sorted([*found.offsets, *chain.from_iterable(off.values())], key=lambda o: (o.host, o.start))
    return Clocks(some, [*found.signs, told], found.zones)


def _asked_once(known: Known) -> Known:
    """The same, where accounting is asked of a job once."""
    asked: dict[int, float | None] = {}

    def begun(jobs: Collection[int]) -> dict[int, float]:
        new = set(jobs).difference(asked)
        if new:
            asked.update(dict.fromkeys(new) | dict(known.begun(new)))
        return {job: at for job in jobs if (at := asked[job]) is not None}

    return replace(known, begun=begun)


def _zones(events: Sequence[Event], known: Known) -> Zones:
    """Which stamps are in another zone than slurmctld's."""
    launched = launches(events, known)
    told = votes(launched)
    if not any(vote.quarters for some in told.values() for vote in some):
        return Zones()
    hosts = frozenset(e.host for e in events if e.host)
    found = zones(told, hosts, events)
    found_offsets = tuple(o for host in sorted(found) for o in _of_zone(host, found[host]))
    known_zones = Zones(found_offsets, frozenset(), hosts, scripts(launched) if found_offsets else {})
    return replace(known_zones, odd=frozenset(_odd(told, known_zones)))


def _odd(told: Mapping[str, Sequence[Vote]], known: Zones) -> Iterable[tuple[str, int, int]]:
    """Launches that tell of another zone than is known."""
    by_host: dict[str, list[Offset]] = defaultdict(list)
    for offset in known.offsets:
        by_host[offset.host].append(offset)
    for host, some in told.items():
        for vote in some:
            off = vote.quarters * QUARTER_S
            there = [o for o in by_host[host] if o.start <= vote.time + off <= o.end]
            if any(o.sigma for o in there) or off not in ({o.seconds for o in there} or {0.0}):
                yield host, vote.job, vote.quarters


def _of_zone(host: str, found: Zoned) -> Iterable[Offset]:
    if found.doubt:
        why = "others of its kind write in different zones, and nothing tells in which it does"
        yield Offset(host, float("-inf"), float("inf"), 0.0, found.doubt, why, True, found.inferred)
    for stay in found.stays:
        off = stay.quarters * QUARTER_S
        if off:
            why = "its jobs' launches, or those on hosts of its kind, tell that it writes in another zone"
            yield Offset(host, stay.start + off, stay.end + off, off, 0.0, why, True, found.inferred)


def _zones_further(before: Zones, events: Sequence[Event], known: Known) -> Zones | None:
    """The same zones, with what ``events`` tell of further jobs; None where launches tell of another zone than is known, or a host is
    new where zones differ."""
    launched = launches(events, known)
    if not before.odd.issuperset(_odd(votes(launched), before)):
        return None
    if not before.offsets:
        return before
    if not before.hosts.issuperset(e.host for e in events if e.host):
        return None
    return replace(before, scripts={**before.scripts, **scripts(launched)})


def _hosts(rounds: Iterable[Mapping[str, object]]) -> set[str]:
    return set(chain.from_iterable(rounds))


def _until(moment: float, found: Iterable[Offset]) -> list[Offset]:
    return [replace(o, end=min(o.end, moment)) for o in found if o.start < moment]


def as_shown(event: Event) -> Event:
    """An event at the time that its host's clock showed."""
    off = event.clock_offset
    return replace(event, time=event.time + off, last=event.last + off, clock_offset=0.0) if off else event


_OUTPUT = ("job_stdout", "job_stderr")


def without_stamp(event: Event) -> bool:
    """Is it output without a stamp of its host's clock? It was put near the end of its run."""
    return event.sigma >= UNSTAMPED_S and event.source in _OUTPUT


def correct(events: Iterable[Event], found: Sequence[Offset], zones: Zones = NO_ZONES) -> list[Event]:
    """Events in true time, in their total order; what was moved says by how much in ``clock_offset``."""
    by_host: dict[str, list[Offset]] = defaultdict(list)
    for offset in found:
        by_host[offset.host].append(offset)
    if not by_host:
        return list(events)
    moved = [
        _moved(e, by_host[e.host], zones) if e.host in by_host else _moved(e, (), zones) if e.source in _OUTPUT else e
        for e in events
    ]
    moved.sort(key=lambda e: (e.time, e.kind, e.host or "", e.device or "", e.id))
    return moved


def _moved(event: Event, found: Sequence[Offset], zones: Zones) -> Event:
    if without_stamp(event):
        return event
    if event.source in _OUTPUT:
        if event.time_quality == "inferred":
            event = _earlier(event, zones.ahead_in_output(event.job_id, event.time, event.host), 0.0)
    else:
        zone = next((o for o in found if o.zone and _is_about(o, event)), None)
        event = _earlier(event, zone.seconds, zone.sigma) if zone else event
    # What is left in the right zone is the clock's.
    clock = next((o for o in found if not o.zone and _is_about(o, event)), None)
    return _earlier(event, clock.seconds, clock.sigma) if clock else event


def _earlier(event: Event, seconds: float, sigma: float) -> Event:
    if not seconds and sigma <= event.sigma:
        return event
    return replace(
        event, time=event.time - seconds, last=event.last - seconds, sigma=max(event.sigma, sigma),
        clock_offset=event.clock_offset + seconds,
    )  # fmt: skip


def _is_about(offset: Offset, event: Event) -> bool:
    return offset.start <= event.time <= offset.end and (event.time_quality == "inferred" or not offset.inferred)


def ahead(zoned: Iterable[Offset], time: float, inferred: bool) -> float:
    """By so many seconds a stamp of a host is ahead by the zones that it was in. ``inferred``: it names none."""
    return next((o.seconds for o in zoned if o.start <= time <= o.end and (inferred or not o.inferred)), 0.0)


def _stretches(host: str, told: list[Sign]) -> list[Offset]:
    """Groups agreeing signs; a sign of a right clock between two of them ends a stretch, and so does long silence."""
    right = [s.time for s in told if abs(s.seconds) < NOTICEABLE_S]
    off = [s for s in told if abs(s.seconds) >= NOTICEABLE_S]
    found: list[tuple[list[Sign], Offset]] = []
    while off:
        group = _alike(off, right)
        off = [s for s in off if s not in group]
        if any(s.told for s in group) or len({s.time for s in group}) > 1:
            found.append((group, _offset(host, group, right)))
    found.sort(key=lambda f: (f[0][0].time, f[1].seconds))
    apart = [o for _, o in found]
    for place, ((group, one), (later, other)) in enumerate(pairwise(found)):
        # A clock that drifts, or that was set wrong once more: each stretch ends where the next one is told.
        last, first = max(s.time for s in group), min(s.time for s in later)
        if last < first and one.end >= other.start:
            apart[place] = replace(apart[place], end=min(one.end, first - 0.001))
            apart[place + 1] = replace(other, start=first)
    return apart


def _alike(off: list[Sign], right: list[float]) -> list[Sign]:
    """The first sign and those that tell the same without a right clock in between: as their middle has it, for the first one
    may be the oddest."""
    level = off[0].seconds
    for _ in range(2):
        group = [off[0]]
        for sign in off[1:]:
            if sign.time - group[-1].time > HOLDS_S or _between(right, group[-1].time, sign.time):
                break
            if abs(sign.seconds - level) <= AGREE_S:
                group.append(sign)
        level = median(s.seconds for s in group)
    return group


def _offset(host: str, group: Sequence[Sign], right: Sequence[float]) -> Offset:
    told = any(s.told for s in group)
    # A step is told in true time already: the clock that was stepped no longer shows what it had shown.
    wrong = [s.time for s in group if not s.mended] or [s.time - s.seconds for s in group]
    mended = min((s.time for s in group if s.mended), default=None)
    place = bisect.bisect_left(right, min(wrong))
    start = max(right[place - 1] + 0.001 if place else float("-inf"), min(wrong) - HOLDS_S)
    ends = [t - 0.001 for t in right if t > max(wrong)][:1] + ([mended - 0.001] if mended is not None else [])
    # Whole seconds: it is known no better, and each further sign would move all events by a little.
    best = next((s.seconds for s in group if s.told), float(round(median(s.seconds for s in group))))
    why = "its time daemon said so" if told else " and ".join(sorted({s.pair for s in group}))
    agree = "" if told else " agree on it"
    return Offset(host, start, min([*ends, max(wrong) + HOLDS_S]), best, 0.5 if told else AGREE_S, why + agree)


def _between(times: list[float], low: float, high: float) -> bool:
    place = bisect.bisect_right(times, min(low, high))
    return place < len(times) and times[place] < max(low, high)
