"""Measurements of one host, as the time axis draws them and as the page of a node lists them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, and_, case, cast, func, select, union_all

from parsers.moments import later
from store.functions import const, epoch, first_by, in_order, json_text, last_by, one_of, same
from store.tables import METRICS


def in_bins(
    cluster: str | None,
    host: str,
    names: Collection[str],
    start: datetime,
    end: datetime,
    bin_s: float,
    around: timedelta,
) -> Select[Any]:
    """Per series (``metric``, ``device``, ``labels``) and bin of ``bin_s`` seconds: ``side`` (-1: before the range, 0: in it, 1: after it),
    ``bin``, ``t`` (the bin's last sample, epoch seconds), the lowest and the highest value, and ``pci``, the address of the device's bus if
    its labels have one. Bins without a sample have no row.

    For so long ``around`` the range there are samples too, in at most ``BINS_AROUND`` bins on either side: what was measured
    every five minutes has none within a fault of ten seconds."""
    metrics = METRICS.c
    within = (later(start, -around), later(end, around))
    samples = select(*_series(), metrics.time, metrics.value).where(*_within(cluster, host, names, *within))
    of = samples.subquery("samples").c
    low, high = func.min(of.value).label("low"), func.max(of.value).label("high")
    return _binned(of, (start, end), bin_s, around, low, high)


def growth_in_bins(
    cluster: str | None,
    host: str,
    names: Collection[str],
    start: datetime,
    end: datetime,
    bin_s: float,
    around: timedelta,
    reach: timedelta,
) -> Select[Any]:
    """As ``in_bins`` for counters: ``low`` and ``high`` are what each grew by in a bin since its sample before (null: there is none), and
    ``since`` is that sample's time (epoch seconds). One that fell began again at 0 and grew by its value.

    What is sent only when it changes may have its sample before the range, and the one after it, up to ``reach`` away: of each
    series the last that is earlier than ``around`` counts, and the first that is later has a row of ``side`` 2."""
    metrics, first, last = METRICS.c, later(start, -around), later(end, around)
    near = select(*_series(), metrics.time, metrics.value).where(*_within(cluster, host, names, first, last))
    before = select(
        *_series(), func.max(metrics.time).label("time"), last_by(metrics.value, metrics.time).label("value")
    ).where(*_within(cluster, host, names, later(start, -reach), first))
    after = select(
        *_series(), func.min(metrics.time).label("time"), first_by(metrics.value, metrics.time).label("value")
    ).where(*_within(cluster, host, names, last, later(end, reach)))
    samples = union_all(near, before.group_by(*_series()), after.group_by(*_series())).subquery("samples").c
    track: dict[str, Any] = {
        "partition_by": (samples.metric, samples.device, samples.labels), "order_by": samples.time,
    }  # fmt: skip
    value, earlier = samples.value, func.lag(samples.value).over(**track)
    grew = case((value >= earlier, value - earlier), (earlier.is_not(None), value)).label("grew")
    since = func.lag(samples.time).over(**track).label("since")
    of = select(samples.metric, samples.device, samples.labels, samples.time, grew, since).subquery("grown").c
    growth = func.sum(of.grew)
    asked = _binned(of, (start, end), bin_s, around, growth.label("low"), growth.label("high"), func.min(epoch(of.since)).label("since"))  # fmt: skip
    return asked.where(of.time > first)


def _binned(
    samples: Any, within: tuple[datetime, datetime], bin_s: float, around: timedelta, *values: Any
) -> Select[Any]:
    """Samples by series, side of a range and bin. Two of one bin on different sides of the range stay two: the value before is not the
    one after."""
    start, end = within
    seconds, wide = epoch(samples.time), max(bin_s, around.total_seconds() / BINS_AROUND)
    side = case(
        (samples.time < start, const(-1)), (samples.time > later(end, around), const(2)), (samples.time > end, const(1)), else_=const(0)
    ).label("side")  # fmt: skip
    inside = and_(samples.time >= start, samples.time <= end)
    width = case((inside, cast(const(bin_s), Float)), else_=cast(const(wide), Float))
    number = func.floor(seconds / width).label("bin")
    series = (samples.metric, samples.device, samples.labels)
    pci = func.max(json_text(samples.labels, "$.pci_bus_id")).label("pci")
    asked = select(*series, side, number, func.max(seconds).label("t"), *values, pci)
    return in_order(asked.group_by(*series, number, side))


#: So many bins on either side of a range.
BINS_AROUND = 60


def latest(cluster: str | None, host: str, names: Collection[str], start: datetime, end: datetime) -> Select[Any]:
    """Per series of a host in a range: ``metric``, ``device`` and ``labels``, the ``first`` and ``last`` value, the lowest, the
    highest, and the times of the first (``since``) and the last (``at``)."""
    metrics = METRICS.c
    return in_order(
        select(
            *_series(), first_by(metrics.value, metrics.time).label("first"), last_by(metrics.value, metrics.time).label("last"),
            func.min(metrics.value).label("low"), func.max(metrics.value).label("high"), func.min(metrics.time).label("since"),
            func.max(metrics.time).label("at"),
        )
        .where(*_within(cluster, host, names, start, end)).group_by(*_series())
    )  # fmt: skip


def fallen(cluster: str | None, host: str, names: Collection[str], start: datetime, end: datetime) -> Select[Any]:
    """The series of a host in which a value in a range is lower than the one before it: counters that began again."""
    metrics = METRICS.c
    before = func.lag(metrics.value).over(partition_by=_series(), order_by=metrics.time).label("before")
    asked = (
        select(*_series(), metrics.value, before).where(*_within(cluster, host, names, start, end)).subquery("pairs").c
    )
    return in_order(select(asked.metric, asked.device, asked.labels).where(asked.value < asked.before).distinct())


def _series() -> tuple[Any, ...]:
    """A device can have several series of one metric: each port of an adapter counts for itself."""
    return METRICS.c.metric, METRICS.c.device, METRICS.c.labels


def _within(
    cluster: str | None, host: str, names: Collection[str], start: datetime, end: datetime
) -> tuple[ColumnElement[bool], ...]:
    metrics = METRICS.c
    return (
        same(metrics.cluster, cluster), metrics.host == host, one_of(metrics.metric, names), metrics.time > start, metrics.time <= end,
        metrics.value.is_not(None),
    )  # fmt: skip
