"""Whether the GPUs of runs worked, and whether their nodes moved data: asked about runs that reached their time limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Subquery, and_, case, distinct, func, or_, select

from store.functions import const, epoch, in_order, one_of, same, unnested
from store.tables import METRICS, NUMBER, TEXT, TIME


class Span(NamedTuple):
    """A host during one run, which has a ``number``."""

    number: int
    host: str
    since: datetime
    until: datetime


#: The share of time in which a GPU worked: in percent, and from 0 to 1 (NVIDIA's DCGM, our readers of nvidia-smi, the
#: exporters of NVIDIA's and AMD's GPUs).
PERCENT = ("DCGM_FI_DEV_GPU_UTIL", "nvidia_gpu_duty_cycle", "rocm_utilization_gpu", "gpu_gfx_activity")
RATIO = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "nvidia_smi_utilization_gpu_ratio")
GPU_WORK = (*PERCENT, *RATIO)
#: Counters of data that a node reads from and writes to file systems and fabrics that jobs use. Local disks are none of
#: them: the system writes its logs there.
DATA = (
    "infiniband_port_rcv_data_total", "infiniband_port_xmit_data_total", "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total", "node_mountstats_nfs_total_read_bytes_total",
    "node_mountstats_nfs_total_write_bytes_total", "lustre_read_bytes_total", "lustre_write_bytes_total",
)  # fmt: skip
#: Up to this a GPU does nothing (percent): the driver's own work is measured as well.
IDLE = 1
#: Fewer units a second are no data of jobs: subnet managers and clients that keep a connection (bytes, or words of four).
STILL = 1000
_MINUTE_S = 60


def _samples(
    cluster: str | None, spans: Sequence[Span], names: Collection[str], *columns: ColumnElement[Any]
) -> Subquery:
    """The samples of some metrics in each span: ``n``, ``host``, ``t`` (epoch seconds) and ``columns``."""
    parts = (("n", NUMBER), ("host", TEXT), ("since", TIME), ("until", TIME))
    asked = select(
        *(unnested([span[place] for span in spans], kind).label(name) for place, (name, kind) in enumerate(parts))
    ).subquery("asked")
    metrics, span = METRICS.c, asked.c
    within = and_(metrics.host == span.host, metrics.time >= span.since, metrics.time <= span.until)
    return (
        select(span.n, metrics.host, epoch(metrics.time).label("t"), *columns)
        .select_from(METRICS.join(asked, within))
        .where(one_of(metrics.metric, names), same(metrics.cluster, cluster), metrics.value.is_not(None))
        .subquery("samples")
    )


def gpu_work(cluster: str | None, spans: Sequence[Span]) -> Select[Any]:
    """Of each run whose GPUs were measured: ``n``, the number of ``hosts`` with samples, the ``last`` sample, the first and
    the last minute in which a GPU worked (``worked_from``, ``worked_to``; null if none did), and the longest ``pause``
    between two such minutes. All are epoch seconds, a minute counts as its first second."""
    metrics = METRICS.c
    works = or_(
        and_(one_of(metrics.metric, PERCENT), metrics.value > const(IDLE)),
        and_(one_of(metrics.metric, RATIO), metrics.value * const(100) > const(IDLE)),
    )
    some = _samples(cluster, spans, GPU_WORK, case((works, const(1)), else_=const(0)).label("works")).c
    measured = (
        select(some.n, func.count(distinct(some.host)).label("hosts"), func.max(some.t).label("last"))
        .group_by(some.n).subquery("measured")
    )  # fmt: skip
    minute = (func.floor(some.t / const(_MINUTE_S)) * const(_MINUTE_S)).label("minute")
    minutes = select(some.n, minute).distinct().where(some.works == const(1)).subquery("minutes").c
    before = func.lag(minutes.minute).over(partition_by=minutes.n, order_by=minutes.minute)
    steps = select(minutes.n, minutes.minute, (minutes.minute - before).label("pause")).subquery("steps").c
    worked = (
        select(steps.n, func.min(steps.minute).label("worked_from"), func.max(steps.minute).label("worked_to"),
               func.max(steps.pause).label("pause"))
        .group_by(steps.n).subquery("worked")
    )  # fmt: skip
    both = measured.outerjoin(worked, worked.c.n == measured.c.n)
    return in_order(
        select(measured.c.n, measured.c.hosts, measured.c.last, worked.c.worked_from, worked.c.worked_to, worked.c.pause)
        .select_from(both)
    )  # fmt: skip


def moved_data(cluster: str | None, spans: Sequence[Span]) -> Select[Any]:
    """The last moment at which a node of a run had moved data since its sample before: ``n`` and ``t`` (epoch seconds)."""
    metrics = METRICS.c
    some = _samples(cluster, spans, DATA, metrics.metric, metrics.device, metrics.labels, metrics.value).c
    series = (some.n, some.host, some.metric, some.device, some.labels)
    amount = (some.value - func.lag(some.value).over(partition_by=series, order_by=some.t)).label("amount")
    seconds = (some.t - func.lag(some.t).over(partition_by=series, order_by=some.t)).label("seconds")
    steps = select(some.n, some.t, amount, seconds).subquery("steps").c
    moved = and_(steps.seconds > const(0), steps.amount >= const(STILL) * steps.seconds)
    return in_order(select(steps.n, func.max(steps.t).label("t")).where(moved).group_by(steps.n))
