"""Measurements of one host, as the time axis draws them and as the page of a node lists them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, cast, func, select

from store.functions import const, epoch, first_by, in_order, last_by, one_of, same
from store.tables import METRICS


def in_bins(
    cluster: str | None, host: str, names: Collection[str], start: datetime, end: datetime, bin_s: float
) -> Select[Any]:
    """Per device and bin of ``bin_s`` seconds: ``device``, ``bin``, ``t`` (the bin's last sample, epoch seconds), and the lowest
    and the highest value. Bins without a sample have no row."""
    metrics = METRICS.c
    number = func.floor(epoch(metrics.time) / cast(const(bin_s), Float)).label("bin")
    return in_order(
        select(
            metrics.device, number, func.max(epoch(metrics.time)).label("t"), func.min(metrics.value).label("low"),
            func.max(metrics.value).label("high"),
        )
        .where(
            same(metrics.cluster, cluster), metrics.host == host, one_of(metrics.metric, names), metrics.time >= start,
            metrics.time <= end, metrics.value.is_not(None),
        )
        .group_by(metrics.device, number)
    )  # fmt: skip


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
