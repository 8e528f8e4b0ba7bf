"""Measurements on the time axis: for each fact of a chain whose kind names gauges, their values on its host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from correlator.facts.registry import kind_of
from correlator.model.gauges import GAUGES, Gauge
from store.questions import measured
from web.axis_ends import End, Hop
from web.reading import Reader

Row = dict[str, Any]
#: A moment, and the lowest and highest value.
Point = tuple[datetime, float, float]

#: A lane has at most this many points; of more the highest and lowest of each bin are drawn.
MOST_POINTS = 400
#: Gauges are drawn for at most this many hosts: a switch has hundreds.
MOST_HOSTS = 3
#: Two points further apart than this many typical distances have nothing between them.
GAP = 2.5
_EPOCH = datetime(1970, 1, 1)


def measures(read: Reader, hops: Iterable[Hop], cluster: str | None, start: datetime, end: datetime) -> list[Row]:
    """The series: ``host``, ``layer``, ``name``, ``unit``, ``devices``, and ``pieces`` of points (datetime, lowest and highest over
    the devices), each without a gap."""
    asked: dict[tuple[str, str], str] = {}
    for host, kind in _places(hops):
        if len({h for h, _ in asked} | {host}) <= MOST_HOSTS:
            asked |= dict.fromkeys(((host, gauge) for gauge in kind_of(kind).gauges), kind_of(kind).layer)
    bin_s = max(1.0, (end - start).total_seconds() / MOST_POINTS)
    found = []
    for (host, name), layer in asked.items():
        gauge = GAUGES[name]
        rows = read.ask(measured.in_bins(cluster, host, gauge.metrics, start, end, bin_s))
        found.append({
            "host": host, "layer": layer, "name": gauge.name, "unit": gauge.unit, "devices": len({row["device"] for row in rows}),
            "pieces": pieces(rows, gauge),
        })  # fmt: skip
    return [one for one in found if one["pieces"]]


def _places(hops: Iterable[Hop]) -> list[tuple[str, str]]:
    """Host and kind of the facts of a chain, causes first."""
    ends: list[End] = [end for hop in hops for end in (hop.cause, hop.effect)]
    return list(dict.fromkeys((end.host, end.kind) for end in ends if end.host and kind_of(end.kind).gauges))


def pieces(rows: Iterable[Row], gauge: Gauge) -> list[list[Point]]:
    """Rows of ``measured.in_bins`` as points in time order, split where samples are missing; of a counter what it grew by."""
    by_device: dict[Any, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["t"]):
        by_device[row["device"]].append(row)
    bins: dict[float, list[tuple[float, float, float]]] = defaultdict(list)
    for samples in by_device.values():
        for number, row in enumerate(samples):
            if not gauge.counter:
                bins[row["bin"]].append((row["t"], row["low"], row["high"]))
            elif number:  # one that was reset begins again
                growth = max(0.0, row["high"] - samples[number - 1]["high"])
                bins[row["bin"]].append((row["t"], growth, growth))
    points = [
        (_EPOCH + timedelta(seconds=max(t)), min(low), max(high))
        for t, low, high in (zip(*bins[n], strict=True) for n in sorted(bins))
    ]
    return without_gaps(points)


def without_gaps(points: list[Point]) -> list[list[Point]]:
    """Points in time order, split where some are missing; none of a single one."""
    if len(points) < 2:
        return []
    typical = median((b[0] - a[0]).total_seconds() for a, b in pairwise(points))
    found = [[points[0]]]
    for last, point in pairwise(points):
        if (point[0] - last[0]).total_seconds() > GAP * typical:
            found.append([])
        found[-1].append(point)
    return found
