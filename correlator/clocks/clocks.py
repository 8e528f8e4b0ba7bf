"""Clocks that were off: by how much, from when to when, and what the evidence is.

Everyday differences (NTP keeps hosts within milliseconds, RFC 3164 writes whole seconds) are part of every event's
sigma. This module is about clocks that were seconds to hours off, where a cause would seem to follow its effect. An
offset is believed if the host's own time daemon reported it, or if two independent pairs of lines agree on it
(``pairs.py``). It is applied to events, never to the stored lines. Timestamps in another zone are corrected first
(``offsets.py``); what remains is the clock's offset.

This is the package's only entry point: ``accounting_time_in`` finds the zones of accounting, ``compared`` (all events)
or ``compared_further`` (those of a tick) finds which clocks and zones were off. ``Clocks.corrected`` moves events,
``AccountingTime.corrected`` (zones) and ``rows_in_true_time`` (slurmctld's clock) move rows about jobs, and ``moved_to``
moves outages. Times of other rows are corrected with ``clock_ahead`` (clocks), ``ahead`` and ``Zones.ahead_in_output``
(zones), and ``still_ahead`` (both). ``Event.written_at`` is the time before all that. ``collector.event_time`` and ``parsers.clock`` define the time of a
line on arrival.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import median

from correlator.clocks.accounting_zones import (
    ACCOUNTING_SOURCES,
    NO_BOOKS,
    SAME_S,
    TRUE_ACCOUNTING_TIME,
    AccountingTime,
    Books,
    node_failures,
)
from correlator.clocks.accounting_zones import accounting_time as accounting_time_in
from correlator.clocks.arrivals import arrived_early
from correlator.clocks.controller_clock import rows_in_true_time, shared_with_accounting
from correlator.clocks.offset import Offset, clock_ahead, still_ahead
from correlator.clocks.offsets import NO_ZONES, Zones, ahead, correct, without_stamp, zones_further, zones_in
from correlator.clocks.outages import CLOCK_OFF_S, moved_to, strays
from correlator.clocks.pairs import compared_by_kind, launches, signs
from correlator.clocks.signs import (
    AGREE_S,
    ENDS_S,
    HOLDS_S,
    NOTHING,
    NOTICEABLE_S,
    PAIR_ACCOUNTING,
    PAIR_LAUNCH,
    PAIR_NODES,
    ZONE_S,
    HostSign,
    Known,
    Sign,
)
from correlator.clocks.zone_votes import hours_off
from correlator.model.nouns import Event


@dataclass(frozen=True)
class Clocks:
    """Which clocks were off.

    ``signs`` holds, per round of comparison and host, all evidence about the clocks found to be off in it; evidence
    from later lines is judged together with it.
    """

    offsets: list[Offset] = field(default_factory=list)
    signs: list[Mapping[str, list[Sign]]] = field(default_factory=list)
    zones: Zones = field(default_factory=Zones)

    @staticmethod
    def of_zones(found: Zones) -> Clocks:
        """What is known from zones alone, before clocks are compared."""
        return Clocks(list(found.offsets), [], found)

    def corrected(self, events: Iterable[Event]) -> list[Event]:
        """Events in true time, in their total order; a moved event has its offset in ``clock_offset``."""
        return correct(events, self.offsets, self.zones)

    @property
    def furthest(self) -> float:
        """The largest known distance of a timestamp from true time, seconds."""
        return max((abs(o.seconds) for o in self.offsets), default=0.0)

    def evidence_from(self, earliest: float) -> float:
        """The earliest timestamp from which lines at or after ``earliest`` can be evidence about known clocks.

        The two lines of a pair may be ``ENDS_S`` apart.
        """
        return earliest - self.furthest - ENDS_S if self.offsets else earliest


def offsets(events: Sequence[Event], known: Known = NOTHING) -> list[Offset]:
    """All periods in which a host's clock was noticeably off; independent of the order of ``events``."""
    return compared(events, known).offsets


#: After this many rounds of comparison, the known clocks show nothing new.
ROUNDS = 3


def compared(events: Sequence[Event], known: Known = NOTHING, books: Books = NO_BOOKS) -> Clocks:
    """Compares clocks with one another, in rounds.

    Once some clocks are known to be wrong, the correct ones may be the majority of a step.
    """
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
    """Applies the latest events to what ``compared`` found before.

    ``events`` must contain all evidence about clocks from ``since`` on (local time of the host). Returns None if
    another clock is off, or if timestamps before ``since`` would have to be moved differently.
    """
    known = _asked_once(known)
    by_kind = compared_by_kind(events, known.senders)
    launched = launches(by_kind, known.begun)
    zoned = zones_further(before.zones, events, launched, books)
    if zoned is None:
        return None
    known = _in_true_time(known, zoned)
    found = Clocks.of_zones(zoned)
    for former in [*before.signs, {}][:ROUNDS]:
        by_nodes = _is_by_nodes(former)
        if found.offsets or zoned.log_ahead:
            signs_by_host = _signs_by_host(events, known, found, is_known_by_nodes=by_nodes)
        else:  # the common case, on every tick
            signs_by_host = _by_host(signs(events, by_kind, launched, known, is_known_by_nodes=by_nodes))
        if _off({host: signs_by_host[host] for host in signs_by_host.keys() - former.keys() - _hosts(found.signs)}):
            return None
        if by_nodes and _is_any_launch_odd(signs_by_host, since):
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


def _is_by_nodes(former: Mapping[str, Sequence[Sign]]) -> bool:
    """Do only its nodes' launches show that a controller's clock is off? Which of them belong together is seen only from all."""
    off = ({s.pair for s in some if abs(s.seconds) >= NOTICEABLE_S} for some in former.values())
    return any(pairs == {PAIR_NODES} for pairs in off)


def _is_any_launch_odd(signs_by_host: Mapping[str, Sequence[Sign]], since: float) -> bool:
    """Does any launch from ``since`` on show that two clocks differ?"""
    some = (s for s in chain.from_iterable(signs_by_host.values()) if s.time >= since)
    return any(abs(s.seconds) >= NOTICEABLE_S and s.pair in (PAIR_LAUNCH, PAIR_NODES) for s in some)


def _further(before: Iterable[Sign], later: Sequence[Sign], since: float) -> list[Sign] | None:
    """All evidence about a clock, unchanged before ``since``; None if later lines make evidence out of earlier ones."""
    then, now = ([s for s in some if s.time < since] for some in (before, later))
    # Rounded to milliseconds: moving a time and moving it back does not restore it exactly.
    known = {(round(s.time, 3), s.pair) for s in then}
    if any((round(s.time, 3), s.pair) not in known for s in now):
        return None
    return [*then, *(s for s in later if s.time >= since)]


def _signs_by_host(
    events: Sequence[Event], known: Known, found: Clocks, *, is_known_by_nodes: bool = False
) -> dict[str, list[Sign]]:
    """All evidence by host, after correcting the clocks known to be off."""
    if found.offsets:
        events = correct(events, found.offsets)
    by_kind = compared_by_kind(events, known.senders)
    launched = launches(by_kind, known.begun)
    return _by_host(signs(events, by_kind, launched, known, is_known_by_nodes=is_known_by_nodes))


def _by_host(found: Iterable[HostSign]) -> dict[str, list[Sign]]:
    signs_by_host: dict[str, list[Sign]] = defaultdict(list)
    for host, sign in found:
        signs_by_host[host].append(sign)
    return signs_by_host


def _off(signs_by_host: Mapping[str, list[Sign]]) -> dict[str, list[Offset]]:
    """The offsets that follow from the evidence."""
    stretches = {
        host: _stretches(host, sorted(signs_by_host[host], key=lambda s: (s.time, s.seconds, s.pair, s.by or "")))
        for host in sorted(signs_by_host)
    }
    return {host: found for host, found in stretches.items() if found}


def _with(found: Clocks, signs_by_host: Mapping[str, list[Sign]], off: Mapping[str, list[Offset]]) -> Clocks:
    """``found`` with the results of one more round."""
    some = sorted([*found.offsets, *chain.from_iterable(off.values())], key=lambda o: (o.host, o.start))
    return Clocks(some, [*found.signs, signs_by_host], found.zones)


def _in_true_time(known: Known, zones: Zones) -> Known:
    """Corrects the starts that accounting gives, which are aligned to slurmctld's log, if that log is in another zone."""
    if not zones.log_ahead:
        return known
    return replace(known, begun=lambda jobs: {j: at - zones.log_ahead for j, at in known.begun(jobs).items()})


def _asked_once(known: Known) -> Known:
    """Caches ``begun``, so that accounting is queried once per job."""
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
    """The event at the time that its host's clock showed."""
    if not event.clock_offset:
        return event
    return replace(event, time=event.written_at, last=event.last_written_at, clock_offset=0.0)


def _stretches(host: str, host_signs: list[Sign]) -> list[Offset]:
    """Groups evidence that agrees. Evidence of a correct clock ends a period, and so does a long silence."""
    if any(s.pair != PAIR_NODES and abs(s.seconds) >= NOTICEABLE_S for s in host_signs):
        host_signs = [s for s in host_signs if s.pair != PAIR_NODES]
    right = [s.time for s in host_signs if abs(s.seconds) < NOTICEABLE_S]
    off = [s for s in host_signs if abs(s.seconds) >= NOTICEABLE_S]
    found: list[tuple[list[Sign], Offset]] = []
    while off:
        group = _alike(off, right)
        off = [s for s in off if s not in group]
        if any(s.stated for s in group) or len({(s.time, s.pair, s.by) for s in group}) > 1:
            found.append((group, _offset(host, group, right)))
    found.sort(key=lambda f: (f[0][0].time, f[1].seconds))
    stretches = [o for _, o in found]
    for place, ((group, one), (later, other)) in enumerate(pairwise(found)):
        # A clock that drifts, or that was set wrong again: each period ends where the evidence of the next begins.
        last, first = max(s.time for s in group), min(s.time for s in later)
        if last < first and one.end >= other.start:
            stretches[place] = replace(stretches[place], end=min(one.end, first - 0.001))
            stretches[place + 1] = replace(other, start=first)
    return stretches


def _alike(off: list[Sign], right: list[float]) -> list[Sign]:
    """The first sign and those that agree with it without a correct clock in between.

    They are compared with the group's median, because the first one may be the oddest.
    """
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
    # A step is logged in true time already: the clock no longer shows the time it had shown.
    wrong = [s.time for s in group if not s.mended] or [s.time - s.seconds for s in group]
    mended = min((s.time for s in group if s.mended), default=None)
    place = bisect.bisect_left(right, min(wrong))
    start = max(right[place - 1] + 0.001 if place else float("-inf"), min(wrong) - HOLDS_S)
    ends = [t - 0.001 for t in right if t > max(wrong)][:1] + ([mended - 0.001] if mended is not None else [])
    # Whole seconds: it is not known more precisely, and each further sign would move all events slightly.
    best = next((s.seconds for s in group if s.stated), float(round(median(s.seconds for s in group))))
    why = "its time daemon said so" if is_stated else " and ".join(sorted({s.pair for s in group}))
    agree = "" if is_stated else " agree on it"
    return Offset(host, start, min([*ends, max(wrong) + HOLDS_S]), best, 0.5 if is_stated else AGREE_S, why + agree)


def _between(times: list[float], low: float, high: float) -> bool:
    place = bisect.bisect_right(times, min(low, high))
    return place < len(times) and times[place] < max(low, high)


__all__ = [
    "ACCOUNTING_SOURCES",
    "CLOCK_OFF_S",
    "ENDS_S",
    "NOTHING",
    "NOTICEABLE_S",
    "NO_BOOKS",
    "NO_ZONES",
    "PAIR_ACCOUNTING",
    "SAME_S",
    "TRUE_ACCOUNTING_TIME",
    "ZONE_S",
    "AccountingTime",
    "Books",
    "Clocks",
    "Known",
    "Offset",
    "Zones",
    "accounting_time_in",
    "ahead",
    "arrived_early",
    "clock_ahead",
    "compared",
    "compared_further",
    "correct",
    "hours_off",
    "moved_to",
    "node_failures",
    "offsets",
    "rows_in_true_time",
    "shared_with_accounting",
    "still_ahead",
    "strays",
    "without_stamp",
]
