"""Clocks that were off: by how much, from when to when, and how that is known.

Everyday differences (NTP keeps hosts within milliseconds, RFC 3164 writes whole seconds) are part of every event's
sigma. Here it is about clocks that were seconds to hours off: a cause would seem to follow its effect. An offset is
believed when the host's own time daemon told it, or when two independent pairs of lines agree on it
(``pairs.py``); it is applied to events, never to the stored lines. Stamps in another zone are put right before
(``offsets.py``): what is left then is a clock's.

This is the room's only door: ``accounting_time_in`` says in which zones accounting was written, ``compared`` (all events) or
``compared_further`` (a tick's) which clocks and zones were off, ``Clocks.corrected`` moves events and ``AccountingTime.corrected``
rows about jobs. What a line's time is when it comes in, ``collector.event_time`` and ``parsers.clock`` say.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import median

from correlator.clocks.accounting_zones import NO_BOOKS, TRUE_ACCOUNTING_TIME, AccountingTime, Books, node_failures
from correlator.clocks.accounting_zones import accounting_time as accounting_time_in
from correlator.clocks.offset import Offset
from correlator.clocks.offsets import NO_ZONES, Zones, ahead, correct, without_stamp, zones_further, zones_in
from correlator.clocks.pairs import AGREE_S, ENDS_S, HOLDS_S, NOTHING, NOTICEABLE_S, Known, Sign, signs
from correlator.clocks.zone_votes import hours_off
from correlator.model.nouns import Event


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

    def corrected(self, events: Iterable[Event]) -> list[Event]:
        """Events in true time, in their total order; what was moved says by how much in ``clock_offset``."""
        return correct(events, self.offsets, self.zones)

    @property
    def furthest(self) -> float:
        """So many seconds a stamp lies from its true time at most, by what is known."""
        return max((abs(o.seconds) for o in self.offsets), default=0.0)

    def evidence_from(self, earliest: float) -> float:
        """From which stamp on something is told of clocks that are known by lines stamped with ``earliest`` or later: the two
        lines of a pair lie so far apart."""
        return earliest - self.furthest - ENDS_S if self.offsets else earliest


def offsets(events: Sequence[Event], known: Known = NOTHING) -> list[Offset]:
    """All stretches in which a host's clock was noticeably off; independent of the order of ``events``."""
    return compared(events, known).offsets


#: After so many rounds nothing more is learned from those that are known.
ROUNDS = 3


def compared(events: Sequence[Event], known: Known = NOTHING, books: Books = NO_BOOKS) -> Clocks:
    """Clocks are compared with one another: once some are known to be wrong, the right ones may be the majority of a step."""
    known = _asked_once(known)
    zones = zones_in(events, known, books)
    known = _in_true_time(known, zones)
    found = Clocks.of_zones(zones)
    while len(found.signs) < ROUNDS:
        signs_by_host = _signs_by_host(events, known, found)
        off = _off({host: signs_by_host[host] for host in signs_by_host.keys() - _hosts(found.signs)})
        if not off:
            break
        found = _with(found, {host: signs_by_host[host] for host in off}, off)
    return found


def compared_further(
    before: Clocks, events: Sequence[Event], known: Known, since: float, books: Books = NO_BOOKS
) -> Clocks | None:
    """What ``compared`` tells of all events by the latest of them: everything that tells of clocks from ``since`` on (as those
    showed it) is among ``events``. None where another clock is off, or what was stamped before ``since`` is to be moved
    otherwise than it was."""
    known = _asked_once(known)
    zoned = zones_further(before.zones, events, known, books)
    if zoned is None:
        return None
    known = _in_true_time(known, zoned)
    found = Clocks.of_zones(zoned)
    for former in [*before.signs, {}][:ROUNDS]:
        signs_by_host = _signs_by_host(events, known, found)
        if _off({host: signs_by_host[host] for host in signs_by_host.keys() - former.keys() - _hosts(found.signs)}):
            return None
        again: dict[str, list[Sign]] = {}
        for host, known_signs in former.items():
            further = _further(known_signs, signs_by_host.get(host, []), since)
            if further is None:
                return None
            again[host] = further
        off = _off(again)
        if off.keys() != former.keys():
            return None
        found = _with(found, again, off) if off else found
    return found if _until(since, found.offsets) == _until(since, before.offsets) else None


def _further(before: Iterable[Sign], later: Sequence[Sign], since: float) -> list[Sign] | None:
    """All signs of a clock: those before ``since`` as they were known. None where later lines make signs of earlier ones."""
    then, now = ([s for s in some if s.time < since] for some in (before, later))
    # To the millisecond: what was moved and is moved back is not quite what it was.
    known = {(round(s.time, 3), s.pair) for s in then}
    if any((round(s.time, 3), s.pair) not in known for s in now):
        return None
    return [*then, *(s for s in later if s.time >= since)]


def _signs_by_host(events: Sequence[Event], known: Known, found: Clocks) -> dict[str, list[Sign]]:
    """All signs by host, where the clocks that are known to be off are corrected."""
    signs_by_host: dict[str, list[Sign]] = defaultdict(list)
    for host, sign in signs(correct(events, found.offsets) if found.offsets else events, known):
        signs_by_host[host].append(sign)
    return signs_by_host


def _off(signs_by_host: Mapping[str, list[Sign]]) -> dict[str, list[Offset]]:
    """The clocks that were off by their signs."""
    stretches = {
        host: _stretches(host, sorted(signs_by_host[host], key=lambda s: (s.time, s.seconds, s.pair)))
        for host in sorted(signs_by_host)
    }
    return {host: found for host, found in stretches.items() if found}


def _with(found: Clocks, signs_by_host: Mapping[str, list[Sign]], off: Mapping[str, list[Offset]]) -> Clocks:
    """What is found, and what one more round found."""
    some = sorted([*found.offsets, *chain.from_iterable(off.values())], key=lambda o: (o.host, o.start))
    return Clocks(some, [*found.signs, signs_by_host], found.zones)


def _in_true_time(known: Known, zones: Zones) -> Known:
    """The same, where slurmctld's log, with which what accounting tells was put right, is in another zone itself."""
    if not zones.log_ahead:
        return known
    return replace(known, begun=lambda jobs: {j: at - zones.log_ahead for j, at in known.begun(jobs).items()})


def _asked_once(known: Known) -> Known:
    """The same, where accounting is asked of a job once."""
    asked: dict[int, float | None] = {}

    def begun(jobs: Collection[int]) -> dict[int, float]:
        new = set(jobs).difference(asked)
        if new:
            asked.update(dict.fromkeys(new) | dict(known.begun(new)))
        return {job: at for job in jobs if (at := asked[job]) is not None}

    return replace(known, begun=begun)


def _hosts(rounds: Iterable[Mapping[str, object]]) -> set[str]:
    return set(chain.from_iterable(rounds))


def _until(moment: float, found: Iterable[Offset]) -> list[Offset]:
    return [replace(o, end=min(o.end, moment)) for o in found if o.start < moment]


def as_shown(event: Event) -> Event:
    """An event at the time that its host's clock showed."""
    off = event.clock_offset
    return replace(event, time=event.time + off, last=event.last + off, clock_offset=0.0) if off else event


def _stretches(host: str, host_signs: list[Sign]) -> list[Offset]:
    """Groups agreeing signs; a sign of a right clock between two of them ends a stretch, and so does long silence."""
    right = [s.time for s in host_signs if abs(s.seconds) < NOTICEABLE_S]
    off = [s for s in host_signs if abs(s.seconds) >= NOTICEABLE_S]
    found: list[tuple[list[Sign], Offset]] = []
    while off:
        group = _alike(off, right)
        off = [s for s in off if s not in group]
        if any(s.stated for s in group) or len({s.time for s in group}) > 1:
            found.append((group, _offset(host, group, right)))
    found.sort(key=lambda f: (f[0][0].time, f[1].seconds))
    stretches = [o for _, o in found]
    for place, ((group, one), (later, other)) in enumerate(pairwise(found)):
        # A clock that drifts, or that was set wrong once more: each stretch ends where the next one is told.
        last, first = max(s.time for s in group), min(s.time for s in later)
        if last < first and one.end >= other.start:
            stretches[place] = replace(stretches[place], end=min(one.end, first - 0.001))
            stretches[place + 1] = replace(other, start=first)
    return stretches


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
    is_stated = any(s.stated for s in group)
    # A step is told in true time already: the clock that was stepped no longer shows what it had shown.
    wrong = [s.time for s in group if not s.mended] or [s.time - s.seconds for s in group]
    mended = min((s.time for s in group if s.mended), default=None)
    place = bisect.bisect_left(right, min(wrong))
    start = max(right[place - 1] + 0.001 if place else float("-inf"), min(wrong) - HOLDS_S)
    ends = [t - 0.001 for t in right if t > max(wrong)][:1] + ([mended - 0.001] if mended is not None else [])
    # Whole seconds: it is known no better, and each further sign would move all events by a little.
    best = next((s.seconds for s in group if s.stated), float(round(median(s.seconds for s in group))))
    why = "its time daemon said so" if is_stated else " and ".join(sorted({s.pair for s in group}))
    agree = "" if is_stated else " agree on it"
    return Offset(host, start, min([*ends, max(wrong) + HOLDS_S]), best, 0.5 if is_stated else AGREE_S, why + agree)


def _between(times: list[float], low: float, high: float) -> bool:
    place = bisect.bisect_right(times, min(low, high))
    return place < len(times) and times[place] < max(low, high)


__all__ = [
    "NOTHING",
    "NO_BOOKS",
    "NO_ZONES",
    "TRUE_ACCOUNTING_TIME",
    "AccountingTime",
    "Books",
    "Clocks",
    "Known",
    "Offset",
    "Zones",
    "accounting_time_in",
    "ahead",
    "compared",
    "compared_further",
    "correct",
    "hours_off",
    "node_failures",
    "offsets",
    "without_stamp",
]
