"""GPU samples: thermal throttling, Xids, job labels."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Over,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    not_,
    select,
    try_cast,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.functions import FunctionElement

from store.functions import among, const, epoch, first_by, in_order, json_text, last_by, one_of, same
from store.questions.source import ALL, CLUSTER, Rows, Source
from store.tables import METRICS, TEXT

_FALSE: ColumnElement[bool] = literal_column("false")


#: What nvidia-smi calls the number of a GPU's device file.
MINOR_METRICS = ("nvidia_smi_minor_number",)


def any_sample(cluster: str | None, source: Source = ALL, names: Collection[str] = ()) -> Select[Any]:
    """One row if the cluster has any sample; with ``names``, of these metrics."""
    return source.asked(_any_sample, cluster, tuple(names))


def _any_sample(rows: Rows, names: Collection[str]) -> Select[Any]:
    metrics = rows.metrics
    found = select(const(1).label("found")).select_from(metrics).where(same(metrics.c.cluster, CLUSTER)).limit(1)
    return found.where(one_of(metrics.c.metric, names)) if names else found


def jobs_of_gpus(cluster: str | None, source: Source = ALL) -> Select[Any]:
    """Samples that name the job of a GPU (dcgm-exporter's ``hpc_job``): ``t`` (epoch seconds), ``host``, ``pci`` and ``job``."""
    return source.asked(_jobs_of_gpus, cluster)


def _jobs_of_gpus(rows: Rows) -> Select[Any]:
    metrics = rows.metrics.c
    job = try_cast(json_text(metrics.labels, "$.hpc_job"), BigInteger)
    return in_order(
        select(epoch(metrics.time).label("t"), metrics.host, json_text(metrics.labels, "$.pci_bus_id").label("pci"), job.label("job"))
        .distinct()
        .where(same(metrics.cluster, CLUSTER), metrics.labels.like(const("%hpc_job%")), metrics.time.is_not(None))
    )  # fmt: skip


def gpu_minors(cluster: str | None, host: str) -> Select[Any]:
    """The numbers of the device files of a host's GPUs, as nvidia-smi listed them: ``t`` (epoch seconds), ``pci``, ``minor``,
    for the first sample of each GPU and those that differ from the one before."""
    return _gpu_minors().params(cluster=cluster, host=host)


@cache
def _gpu_minors() -> Select[Any]:
    metrics = METRICS.c
    pci = json_text(metrics.labels, "$.pci_bus_id")
    samples = (
        select(epoch(metrics.time).label("t"), pci.label("pci"), cast(metrics.value, Integer).label("minor"))
        .distinct()
        .where(
            one_of(metrics.metric, MINOR_METRICS), metrics.host == bindparam("host", type_=TEXT),
            same(metrics.cluster, CLUSTER), metrics.time.is_not(None), pci.is_not(None),
        )
    ).subquery()  # fmt: skip
    one = samples.c
    gpu = func.lower(func.right(one.pci, const(12)))  # "00000000:3A:00.0" and "0000:3a:00.0" are one
    before = func.lag(one.minor).over(partition_by=gpu, order_by=(one.t, one.minor)).label("before")
    found = select(one.t, one.pci, one.minor, before).subquery().c
    return in_order(select(found.t, found.pci, found.minor).where(found.minor.is_distinct_from(found.before)))


def _samples(rows: Rows, names: Collection[str], value: ColumnElement[Any], ever: ColumnElement[bool]) -> Select[Any]:
    """Samples of some gauges on hosts where one of them ever met the condition ``ever``: ``t``, ``host``, ``gpu`` and
    ``value``."""
    metrics = rows.metrics.c
    hosts = select(metrics.host).distinct().where(among(metrics.metric, names), ever)
    gpu = func.coalesce(json_text(metrics.labels, "$.pci_bus_id"), metrics.device)
    return (
        select(epoch(metrics.time).label("t"), metrics.host, gpu.label("gpu"), value)
        .distinct()
        .where(
            among(metrics.metric, names), same(metrics.cluster, CLUSTER), metrics.time.is_not(None), metrics.host.is_not(None),
            metrics.host.in_(hosts),
        )
    )  # fmt: skip


def _of_gpu(value: FunctionElement[Any], rows: ReadOnlyColumnCollection[str, Any]) -> Over[Any]:
    """A window function over the samples of a GPU in time order."""
    return value.over(partition_by=(rows.host, rows.gpu), order_by=rows.t)


def throttled(cluster: str | None, names: Collection[str], bits: int, source: Source = ALL) -> Select[Any]:
    """Runs of samples in which mask gauges have one of some ``bits`` set: ``host``, ``gpu``, the ``first`` and ``last``
    such sample and those ``before`` and ``after`` them (epoch seconds), and the number of ``samples``."""
    return source.asked(_throttled, cluster, tuple(names), bits)


def _throttled(read: Rows, names: Collection[str], bits: int) -> Select[Any]:
    hot = cast(read.metrics.c.value, BigInteger).op("&")(bits) != const(0)
    samples = _samples(read, names, hot.label("hot"), hot).cte("samples")
    of_gpu, t = samples.c, samples.c.t
    steps = select(
        *of_gpu, _of_gpu(func.lag(t), of_gpu).label("before"), _of_gpu(func.lead(t), of_gpu).label("after"),
        func.coalesce(_of_gpu(func.lag(of_gpu.hot), of_gpu), _FALSE).label("was"),
    ).cte("steps")  # fmt: skip
    begins = func.sum(case((and_(steps.c.hot, not_(steps.c.was)), const(1)), else_=const(0)))
    rows = select(*steps.c, _of_gpu(begins, steps.c).label("episode")).cte("numbered").c
    return (
        select(
            rows.host, rows.gpu, func.min(rows.t).label("first"), func.max(rows.t).label("last"), func.count().label("samples"),
            first_by(rows.before, rows.t).label("before"), last_by(rows.after, rows.t).label("after"),
        )
        .where(rows.hot)
        .group_by(rows.host, rows.gpu, rows.episode)
        .order_by(rows.host, rows.gpu, func.min(rows.t))
    )  # fmt: skip


def xids_seen(cluster: str | None, names: Collection[str], source: Source = ALL) -> Select[Any]:
    """Where the gauge of a GPU's last Xid changed: ``host``, ``gpu``, ``code``, the sample ``before`` and its own ``t``
    (epoch seconds)."""
    return source.asked(_xids_seen, cluster, tuple(names))


def gauges(cluster: str | None, host: str, names: Collection[str], since: datetime, until: datetime) -> Select[Any]:
    """The samples of some gauges of a host in a range of time: ``t`` (epoch seconds), ``gpu`` and ``code``, in time order."""
    metrics = METRICS.c
    gpu = func.coalesce(json_text(metrics.labels, "$.pci_bus_id"), metrics.device)
    return in_order(
        select(epoch(metrics.time).label("t"), gpu.label("gpu"), cast(metrics.value, Integer).label("code")).distinct().where(
            metrics.host == host, _in_time(cluster, names, since, until), gpu.is_not(None), metrics.value.is_not(None)
        )
    )  # fmt: skip


def any_above_zero(cluster: str | None, names: Collection[str], since: datetime, until: datetime) -> Select[Any]:
    """One row if a sample of some gauges in a range of time is above zero."""
    found = select(const(1).label("found")).select_from(METRICS)
    return found.where(_in_time(cluster, names, since, until), METRICS.c.value > const(0)).limit(1)


def _in_time(cluster: str | None, names: Collection[str], since: datetime, until: datetime) -> ColumnElement[bool]:
    metrics = METRICS.c
    return and_(
        same(metrics.cluster, cluster), one_of(metrics.metric, names), metrics.time >= since, metrics.time <= until
    )


def _xids_seen(read: Rows, names: Collection[str]) -> Select[Any]:
    value = read.metrics.c.value
    samples = _samples(read, names, cast(value, Integer).label("code"), value > const(0)).cte("samples")
    of_gpu = samples.c
    steps = select(
        *of_gpu, _of_gpu(func.lag(of_gpu.t), of_gpu).label("before"), _of_gpu(func.lag(of_gpu.code), of_gpu).label("was")
    ).cte("steps")  # fmt: skip
    rows = steps.c
    return in_order(
        select(rows.host, rows.gpu, rows.code, rows.before, rows.t)
        .where(rows.code > const(0), rows.before.is_not(None), rows.code != rows.was)
    )  # fmt: skip
