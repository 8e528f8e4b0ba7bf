"""Compares clocks by outages that both ends of a cable log."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from correlator.clocks.signs import AGREE_S, AROUND_S, ENDS_S, NOTICEABLE_S, PAIR_CABLE, HostSign, Known, Sign
from correlator.model.nouns import Event
from correlator.site.cabling import Cabling, Place
from correlator.site.open_lines import is_open

LINKS = {"nic.link_down": False, "nic.link_up": True, "switch.port_down": False, "switch.port_up": True}

#: (down, up, uncertainty) as one end logs it.
_Span = tuple[float, float, float]


def of_cables(by_kind: Mapping[str, Sequence[Event]], cables: Cabling) -> Iterable[HostSign]:
    """Compares outages that both ends of a cable report with equal length, shifted by the same time at begin and end.

    A switch is correct if other hosts' clocks are correct by it. If it is off by the same time against all hosts, it is the
    switch that is wrong.
    """
    if not by_kind.get("switch.port_down") or not by_kind.get("nic.link_down"):
        return
    near = _spans(by_kind, "nic.")
    #: By switch: (time, host, off, length).
    differences: dict[str, set[tuple[float, str, float, float]]] = defaultdict(set)
    # A switch may log a loss more than once: an outage begins with its last line, or with its first.
    for far in (_spans(by_kind, "switch."), _spans(by_kind, "switch.", whole=True)):
        for (switch, port), spans in sorted(far.items()):
            for (host, device), its_spans in _by_far_end(cables, switch, port, spans) or _by_name([near], port, spans):
                for mine, its in _matched(near.get((host, device), ()), its_spans):
                    off = (mine[0] - its[0] + mine[1] - its[1]) / 2
                    differences[switch].add((mine[0], host, off, mine[1] - mine[0]))
    for switch in sorted(differences):
        pairs = sorted(differences[switch])
        times = [p[0] for p in pairs]
        for time, host, off, length in pairs:
            around = pairs[bisect_left(times, time - AROUND_S) : bisect_right(times, time + AROUND_S)]
            right = {other for _, other, by, _ in around if abs(by) <= AGREE_S and other != host}
            wrong = {other for _, other, by, _ in around if abs(by) > AGREE_S and other != host}
            if abs(off) <= AGREE_S:
                yield host, Sign(time, 0.0, PAIR_CABLE)
            elif abs(off) >= NOTICEABLE_S and len(right) > len(wrong):
                yield host, Sign(time, off, PAIR_CABLE)
                yield host, Sign(time + length, off, PAIR_CABLE)
    yield from _of_switches(by_kind, cables)


#: So many hosts must show the same offset of a switch. Of a link that was lost more often, it is not clear which outage of
#: one end is which of the other.
HOSTS, MOST_OUTAGES = 2, 20

#: (begin of the outage by the switch, its end, how far the switch is ahead of the host)
_Vote = tuple[float, float, float]


def _of_switches(by_kind: Mapping[str, Sequence[Event]], cables: Cabling) -> Iterable[HostSign]:
    """Switches that are off by the same time against several hosts, and right by none."""
    near, far = ([_spans(by_kind, family), _spans(by_kind, family, whole=True)] for family in ("nic.", "switch."))
    found: dict[str, list[tuple[_Vote, str]]] = defaultdict(list)
    for one in far:
        for (switch, port), port_spans in sorted(one.items()):
            if len(port_spans) > MOST_OUTAGES:
                continue
            for place, its_spans in _by_far_end(cables, switch, port, port_spans) or _by_name(near, port, port_spans):
                mine = sorted({span for spans in near for span in spans.get(place, ())})
                if len(mine) <= 2 * MOST_OUTAGES:
                    pairs = ((its[0], its[1], _ahead(its, span)) for its in its_spans for span in mine)
                    found[switch] += [((begin, end, by), place[0]) for begin, end, by in pairs if by is not None]
    for switch, votes in sorted(found.items()):
        for some in _by_time(sorted(votes)):
            yield from ((switch, sign) for sign in _agreed(some))


def _by_time(votes: Sequence[tuple[_Vote, str]]) -> Iterable[Sequence[tuple[_Vote, str]]]:
    """The votes without gaps of more than ``AROUND_S``."""
    begun = 0
    for place in range(1, len(votes) + 1):
        if place == len(votes) or votes[place][0][0] - votes[place - 1][0][0] > AROUND_S:
            yield votes[begun:place]
            begun = place


def _agreed(votes: Sequence[tuple[_Vote, str]]) -> Iterable[Sign]:
    """The signs of a switch's clock, if all hosts show the same offset."""
    ahead = median(by for (_, _, by), _ in votes)
    same = [(vote, host) for vote, host in votes if abs(vote[2] - ahead) <= AGREE_S]
    hosts = {host for _, host in same}
    right = any(abs(by) <= AGREE_S for (_, _, by), _ in votes)
    if abs(ahead) >= NOTICEABLE_S and len(hosts) >= HOSTS and hosts == {host for _, host in votes} and not right:
        for (begin, end, by), _ in same:
            yield Sign(begin, by, PAIR_CABLE)
            yield Sign(end, by, PAIR_CABLE)


def _by_name(
    near: Iterable[Mapping[tuple[str, str], object]], port: str, spans: Sequence[_Span]
) -> list[tuple[Place, list[_Span]]]:
    """Outages of a port that is named after a host (``m-gpu01``) with one link that was lost."""
    words = set(_WORDS.split(port))
    found = {place for some in near for place in some if place[0] in words}
    return [(place, list(spans)) for place in found] if len(found) == 1 else []


_WORDS = re.compile(r"[^A-Za-z0-9]+")


def _ahead(its: _Span, mine: _Span) -> float | None:
    """How far a switch is ahead of a host by an outage of equal length; None if it cannot be the same one."""
    doubt = AGREE_S / 2 + mine[2] + its[2]
    if abs(its[0] - mine[0]) > ENDS_S or abs((mine[1] - mine[0]) - (its[1] - its[0])) > doubt:
        return None
    return (its[0] - mine[0] + its[1] - mine[1]) / 2


def link_end_differences(events: Iterable[Event], known: Known) -> Iterable[tuple[str, float]]:
    """(switch, seconds it is ahead) for outages of equal length at both ends of a cable, however far from each other."""
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in LINKS and event.host and not is_open(event, known.senders):
            by_kind[event.kind].append(event)
    near, far = _spans(by_kind, "nic."), _spans(by_kind, "switch.")
    for (switch, port), port_spans in sorted(far.items()):
        for place, spans in _by_far_end(known.cables, switch, port, port_spans):
            for its in spans:
                for mine in near.get(place, ()):
                    doubt = AGREE_S / 2 + mine[2] + its[2]
                    if abs((mine[1] - mine[0]) - (its[1] - its[0])) <= doubt:
                        yield switch, (its[0] - mine[0] + its[1] - mine[1]) / 2


def _by_far_end(cables: Cabling, switch: str, port: str, spans: Sequence[_Span]) -> list[tuple[Place, list[_Span]]]:
    """Outages of a switch's port, by the NIC connected to it at the time."""
    found: dict[Place, list[_Span]] = defaultdict(list)
    for span in spans:
        place = cables.far_end(switch, port, span[0])
        if place is not None:
            found[place].append(span)
    return sorted(found.items())


def _spans(
    by_kind: Mapping[str, Sequence[Event]], family: str, *, whole: bool = False
) -> dict[tuple[str, str], list[_Span]]:
    """(host, device) -> outages, each from the last line about the loss to the first about the return; ``whole``: from the
    first line about the loss."""
    by_port: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for kind in LINKS:
        if kind.startswith(family):
            for event in by_kind.get(kind, ()):
                if event.device:
                    by_port[event.host or "", event.device].append(event)
    found: dict[tuple[str, str], list[_Span]] = {}
    for place, events in by_port.items():
        events.sort(key=lambda e: (e.time, e.kind))
        if whole:
            events = [
                e
                for before, e in zip([None, *events], events, strict=False)
                if before is None or LINKS[before.kind] != LINKS[e.kind]
            ]
        spans = [
            (one.time, other.time, max(one.sigma, other.sigma)) for one, other in pairwise(events)
            if not LINKS[one.kind] and LINKS[other.kind]
        ]  # fmt: skip
        if spans:
            found[place] = spans
    return found


def _matched(near: Sequence[_Span], far: Sequence[_Span]) -> Iterable[tuple[_Span, _Span]]:
    """Outages of both ends that can only be the same: equally long, with no other outage of either end nearby."""
    for mine in near:
        theirs = [f for f in far if abs(f[0] - mine[0]) <= ENDS_S]
        others = [n for n in near if abs(n[0] - mine[0]) <= 2 * ENDS_S]
        if len(theirs) == len(others) == 1:
            doubt = AGREE_S / 2 + mine[2] + theirs[0][2]
            if abs((mine[1] - mine[0]) - (theirs[0][1] - theirs[0][0])) <= doubt:
                yield mine, theirs[0]
