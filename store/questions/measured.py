"""Measurements of one host, as the time axis draws them and as the page of a node lists them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, and_, case, cast, func, select

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
    """Per series (``metric``, ``device``, ``labels``) and bin of ``bin_s`` seconds: ``inside`` (is it in the range?), ``bin``, ``t`` (the bin's last
    sample, epoch seconds), the lowest and the highest value, and ``pci``, the address of the device's bus if its labels have one. Bins
    without a sample have no row.

    For so long ``around`` the range there are samples too, in at most ``BINS_AROUND`` bins on either side: what was measured
    every five minutes has none within a fault of ten seconds."""
    metrics = METRICS.c
    seconds, wide = epoch(metrics.time), max(bin_s, around.total_seconds() / BINS_AROUND)
    inside = and_(metrics.time >= start, metrics.time <= end)
    width = case((inside, cast(const(bin_s), Float)), else_=cast(const(wide), Float))
    number = func.floor(seconds / width).label("bin")
    within = (later(start, -around), later(end, around))
    pci = func.max(json_text(metrics.labels, "$.pci_bus_id")).label("pci")
    return in_order(
        select(
            *_series(), inside.label("inside"), number, func.max(seconds).label("t"), func.min(metrics.value).label("low"),
            func.max(metrics.value).label("high"), pci,
        )
        .where(*_within(cluster, host, names, *within)).group_by(*_series(), number, inside)
    )  # fmt: skip


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
