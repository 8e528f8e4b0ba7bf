"""Measurements on the time axis: for each fact of a chain, and the root cause, whose kind names gauges, their values on its host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from correlator.facts.gpus import bus
from correlator.facts.registry import kind_of, kinds_of_event
from correlator.model.gauges import GAUGES, Gauge
from store.questions import measured
from web.axis_ends import Hop
from web.reading import Reader

Row = dict[str, Any]
#: A moment, and the lowest and highest value.
Point = tuple[datetime, float, float]
#: With the value of the device that the fact is about, if one is.
OwnPoint = tuple[datetime, float, float, float | None]
P = TypeVar("P", bound=tuple[Any, ...])

#: A lane has at most this many points; of more the highest and lowest of each bin are drawn.
MOST_POINTS = 400
#: Gauges are drawn for at most this many hosts: a switch has hundreds.
MOST_HOSTS = 3
#: Two points further apart than this many typical distances have nothing between them.
GAP = 2.5
#: Samples so long around the range are read too: a fault of ten seconds lies between two of them.
AROUND = timedelta(minutes=15)
#: What is sent only when it changes is sent once an hour all the same (collector.agent.source.Changes), at its next poll.
REACH = timedelta(minutes=65)
#: Devices of one host are sampled at most so many typical distances apart.
MISSED = 1.5
#: The ``side`` of samples further from the range than ``AROUND``.
FAR = 2
_EPOCH = datetime(1970, 1, 1)


@dataclass
class Asked:
    """What is drawn of one host: the layer of each gauge, and the devices that facts are about."""

    layers: dict[str, str] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    #: Those of them that the gauges measure, whatever was collected.
    measured: set[str] = field(default_factory=set)


def measures(
    read: Reader, hops: Iterable[Hop], root: Mapping[str, Any], cluster: str | None, start: datetime, end: datetime
) -> tuple[list[Row], list[str]]:
    """The series: ``host``, ``layer``, ``name``, ``unit``, ``devices``, ``own`` (the device that it is about, None: all alike), ``lost`` (was
    that one not sampled any more while others were?) and ``pieces`` of points (datetime, lowest and highest over the devices, and the own
    one's), each without a gap and with the points next to the range. And sentences about what there is not: no telemetry of a host,
    counters that did not grow."""
    found, notes = list[Row](), list[str]()
    for host, asked in _places(hops, root).items():
        by_metric = _read(read, cluster, host, [GAUGES[name] for name in asked.layers], start, end)
        lost = _lost(host, asked, (row for rows in by_metric.values() for row in rows if row["side"] < FAR))
        drawn, still, seen = list[Row](), list[str](), set[str]()
        for name, layer in asked.layers.items():
            gauge = GAUGES[name]
            rows = [row for metric in gauge.metrics for row in by_metric[metric]]
            known = {row["pci"]: bus(row["pci"]) for row in rows if row["pci"]}
            own = [pci for pci, address in known.items() if address in asked.devices]
            one = {known[pci] for pci in own}
            about = one.pop() if len(one) == 1 else None
            near_ = [row for row in rows if row["side"] < FAR]
            shown = near(pieces(near_, own if about else (), (start, end)), start, end)
            grew = not gauge.counter or any(point[2] for piece in shown for point in piece)
            is_still = not grew and _did_not_grow(rows, start, end)
            if shown or is_still or any(not row["side"] for row in rows):
                seen.add(gauge.of)
            if is_still:
                still.append(gauge.name)
            if shown and grew:
                drawn.append({
                    "host": host, "layer": layer, "name": gauge.name, "unit": gauge.unit, "devices": len({row["device"] for row in rows}),
                    "own": about, "lost": about in lost, "pieces": shown,
                })  # fmt: skip
        found += drawn
        lacks = {GAUGES[name].of: None for name in asked.layers if GAUGES[name].of not in seen}
        notes += [f"No {what} were collected for {host} in this range." for what in lacks]
        notes += lost.values()
        notes += [f"{_listed(still)} of {host} did not grow."] if still else []
    return found, notes


def _read(
    read: Reader, cluster: str | None, host: str, gauges: Iterable[Gauge], start: datetime, end: datetime
) -> dict[str, list[Row]]:
    """By metric the rows of ``measured.in_bins``, of counters those of ``measured.growth_in_bins``."""
    bin_s = max(1.0, (end - start).total_seconds() / MOST_POINTS)
    names: dict[bool, list[str]] = {True: [], False: []}
    for gauge in gauges:
        names[gauge.counter] += gauge.metrics
    asked = [measured.in_bins(cluster, host, names[False], start, end, bin_s, AROUND)] if names[False] else []
    if counters := names[True]:
        asked.append(measured.growth_in_bins(cluster, host, counters, start, end, bin_s, AROUND, REACH))
    found: dict[str, list[Row]] = defaultdict(list)
    for question in asked:
        for row in read.ask(question):
            found[row["metric"]].append(row)
    return found


def _did_not_grow(rows: Iterable[Row], start: datetime, end: datetime) -> bool:
    """Of a counter: are there two samples of a series with some of the range between them, and did none grow between such?"""
    low, high = ((moment - _EPOCH).total_seconds() for moment in (start, end))
    met = [row["high"] for row in rows if row["since"] is not None and row["since"] <= high and row["t"] >= low]
    return bool(met) and not any(met)


def _lost(host: str, asked: Asked, rows: Iterable[Row]) -> dict[str, str]:
    """Devices that stopped to be sampled while others of their host went on, as a GPU does that fell off its bus, each with the sentence
    about it.

    Devices are sampled one after the other: how far one's samples are apart is a matter of that one's alone.
    """
    times: dict[str, set[float]] = defaultdict(set)
    for row in rows:
        if row["pci"] and (address := bus(row["pci"])):
            times[address].add(row["t"])
    apart = {
        address: median(b - a for a, b in pairwise(sorted(at))) for address, at in times.items() if len(at) > 1
    }  # fmt: skip
    found = {}
    for device in sorted(asked.devices):
        own = max(times.get(device, ()), default=None)
        others = [max(at) for address, at in times.items() if address != device]
        if own is None:
            if others and device in asked.measured:
                found[device] = f"{device} of {host} was not sampled; other devices there were."
        elif others and apart:
            distance = max(median(apart.values()), apart.get(device, 0.0))
            if median(others) > own + MISSED * distance:
                when = f"{_EPOCH + timedelta(seconds=own):%H:%M:%S} UTC"
                found[device] = (
                    f"{device} of {host} was last sampled at {when}; other devices there were sampled later."
                )
    return found


def _listed(names: list[str]) -> str:
    text = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return text[:1].upper() + text[1:]


def _places(hops: Iterable[Hop], root: Mapping[str, Any]) -> dict[str, Asked]:
    """The hosts of facts with gauges, causes first, then that of the root cause: of an incident that hurt nobody there is no chain."""
    facts = [(end.host, end.kind, end.device) for hop in hops for end in (hop.cause, hop.effect)]
    facts += [(root.get("host"), kind, root.get("device")) for kind in kinds_of_event(str(root.get("event")))]
    found: dict[str, Asked] = {}
    for host, name, device in facts:
        kind = kind_of(name)
        if not host or not kind.gauges or (host not in found and len(found) == MOST_HOSTS):
            continue
        asked = found.setdefault(host, Asked())
        asked.layers |= {gauge: kind.layer for gauge in kind.gauges if gauge not in asked.layers}
        addresses = {address for one in (device or "").split(",") if (address := bus(one))}
        asked.devices |= addresses
        asked.measured |= set() if kind.any_device else addresses
    return found


def pieces(
    rows: Iterable[Row], own: Iterable[str] = (), within: tuple[datetime, datetime] | None = None
) -> list[list[Point | OwnPoint]]:
    """Rows of ``measured.in_bins`` or ``measured.growth_in_bins`` as points in time order, split where samples are missing. ``own``: the
    addresses of the devices whose value each point has beside those of all. ``within``: as ``without_gaps`` has it."""
    bins: dict[tuple[float, int], list[tuple[float, float, float, float | None]]] = defaultdict(list)
    addresses = set(own)
    for row in rows:
        if row["high"] is not None:
            mine = row["high"] if row.get("pci") in addresses else None
            bins[row["bin"], row.get("side", 0)].append((row["t"], row["low"], row["high"], mine))
    points: list[Point | OwnPoint] = []
    for together in bins.values():
        t, low_, high_, owns = zip(*together, strict=True)
        at, values = _EPOCH + timedelta(seconds=max(t)), [value for value in owns if value is not None]
        ends = (at, min(low_), max(high_))
        points.append((*ends, max(values, default=None)) if addresses else ends)
    return without_gaps(sorted(points, key=lambda point: point[0]), within) if len(points) != 1 else [points]


def without_gaps(
    points: Sequence[P], within: tuple[datetime, datetime] | None = None
) -> list[list[P]]:  # fmt: skip
    """Points in time order, split where some are missing; none of a single one. ``within``: a range around which bins are wider, so that
    points there are typically further apart."""
    if len(points) < 2:
        return []
    pairs = list(pairwise(points))
    apart = [(b[0] - a[0]).total_seconds() for a, b in pairs]
    inside = [within is None or within[0] <= a[0] <= b[0] <= within[1] for a, b in pairs]
    typical = {
        part: median(own if len(own := [t for t, is_in in zip(apart, inside, strict=True) if is_in == part]) > 1 else apart)
        for part in (True, False)
    }  # fmt: skip
    found = [[points[0]]]
    for point, distance, is_in in zip(points[1:], apart, inside, strict=True):
        if distance > GAP * typical[is_in]:
            found.append([])
        found[-1].append(point)
    return found


def near(found: Iterable[list[P]], start: datetime, end: datetime) -> list[list[P]]:
    """What of pieces lies in a range, each with the point before and the one after it."""
    kept = []
    for piece in found:
        first = next((n for n, point in enumerate(piece) if point[0] >= start), len(piece))
        last = next((n for n, point in enumerate(piece) if point[0] > end), len(piece))
        if first < len(piece) and last > 0:
            kept.append(piece[max(0, first - 1) : last + 1])
    return kept
