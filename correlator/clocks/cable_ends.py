"""Compares clocks by outages that both ends of a cable log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from correlator.clocks.signs import AGREE_S, AROUND_S, ENDS_S, NOTICEABLE_S, PAIR_CABLE, HostSign, Known, Sign
from correlator.model.nouns import Event
from correlator.site.cabling import Cabling, Place
from correlator.site.open_lines import is_open

LINKS = {"nic.link_down": False, "nic.link_up": True, "switch.port_down": False, "switch.port_up": True}

#: (down, up, uncertainty) as one end logs it.
_Span = tuple[float, float, float]


def of_cables(by_kind: Mapping[str, Sequence[Event]], cables: Cabling) -> Iterable[HostSign]:
    """Compares outages that both ends of a cable report with equal length, shifted by the same time at begin and end.

    A switch is correct if other hosts' clocks are correct by it.
    """
    if not by_kind.get("switch.port_down") or not by_kind.get("nic.link_down"):
        return
    near, far = _spans(by_kind, "nic."), _spans(by_kind, "switch.")
    differences: dict[str, list[tuple[float, str, float, float]]] = defaultdict(
        list
    )  # by switch: (time, host, off, length)
    for (switch, port), spans in sorted(far.items()):
        for (host, device), its_spans in _by_far_end(cables, switch, port, spans):
            for mine, its in _matched(near.get((host, device), ()), its_spans):
                off = (mine[0] - its[0] + mine[1] - its[1]) / 2
                differences[switch].append((mine[0], host, off, mine[1] - mine[0]))
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


def _by_far_end(cables: Cabling, switch: str, port: str, spans: Sequence[_Span]) -> Iterable[tuple[Place, list[_Span]]]:
    """Outages of a switch's port, by the NIC connected to it at the time."""
    found: dict[Place, list[_Span]] = defaultdict(list)
    for span in spans:
        place = cables.far_end(switch, port, span[0])
        if place is not None:
            found[place].append(span)
    return sorted(found.items())


def _spans(by_kind: Mapping[str, Sequence[Event]], family: str) -> dict[tuple[str, str], list[_Span]]:
    """(host, device) -> outages, each from the last line about the loss to the first about the return."""
    by_port: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for kind in LINKS:
        if kind.startswith(family):
            for event in by_kind.get(kind, ()):
                if event.device:
                    by_port[event.host or "", event.device].append(event)
    found: dict[tuple[str, str], list[_Span]] = {}
    for place, events in by_port.items():
        events.sort(key=lambda e: (e.time, e.kind))
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
