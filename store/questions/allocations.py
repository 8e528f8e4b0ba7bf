"""When jobs began according to slurmctld's log and to accounting: the difference reveals time zones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import CTE, ColumnElement, Double, Integer, Select, and_, cast, func, literal_column, or_, select

from store.functions import const, epoch, in_order, one_of, same
from store.questions.authority import Speakers
from store.tables import JOBS, LINES

#: Zones differ by whole quarters of an hour: seconds.
_QUARTER: ColumnElement[float] = literal_column("900", Double())


def _allocated(cluster: str | None) -> Select[Any]:
    return select(LINES.c.job_id, epoch(LINES.c.time).label("t")).where(
        LINES.c.source == const("slurmctld"), LINES.c.event == const("slurm.job_start"), LINES.c.time.is_not(None),
        LINES.c.job_id.is_not(None), same(LINES.c.cluster, cluster),
    )  # fmt: skip


def _begun(cluster: str | None, sources: Collection[str]) -> Select[Any]:
    file = func.coalesce(JOBS.c.file, JOBS.c.source)
    return select(file.label("file"), JOBS.c.source, JOBS.c.job_id, epoch(JOBS.c.start).label("start")).where(
        JOBS.c.start.is_not(None), one_of(JOBS.c.source, sources), same(JOBS.c.cluster, cluster)
    )


def _differences(
    allocations: Select[Any], starts: Select[Any], near: float, least: int, most: int
) -> tuple[CTE, ColumnElement[bool]]:
    """Every start with every allocation of its job, and the condition that they are as far apart as zones may be."""
    allocated, begun = allocations.cte("allocated"), starts.cte("begun")
    off = begun.c.start - func.floor(allocated.c.t)
    difference = (
        select(begun, allocated.c.t, off.label("off"), func.round(off / _QUARTER, type_=Double()).label("quarters"))
        .join_from(begun, allocated, begun.c.job_id == allocated.c.job_id)
        .cte("apart")
    )
    quarters = difference.c.quarters
    zones = or_(quarters == const(0), func.abs(quarters).between(least, most))
    return difference, and_(func.abs(difference.c.off - quarters * _QUARTER) <= near, zones)


def any_in_another_zone(
    cluster: str | None, sources: Collection[str], near: float, least: int, most: int
) -> Select[Any]:
    """One row if a start and an allocation of its job differ by a nonzero number of quarters of an hour, whoever wrote the
    allocation.

    Without one, none of the ``pairs`` does. They cost several times as much: each start must be compared with all
    allocations, and planning which of slurmctld's lines count takes 9 ms.
    """
    # Distinct: one of a job's processes could write as many lines as it likes, and a poll repeats its rows.
    allocated, begun = _allocated(cluster).distinct(), _begun(cluster, sources).distinct()
    difference, is_near = _differences(allocated, begun, near, least, most)
    return select(const(1).label("found")).where(is_near, difference.c.quarters != const(0)).limit(1)


def pairs(
    cluster: str | None, speakers: Speakers, sources: Collection[str], near: float, least: int, most: int
) -> Select[Any]:
    """For each start in rows about jobs (of these ``sources``), the allocation in slurmctld's log that is fewest
    quarters of an hour away: ``file``, ``source``, ``job_id``, ``t`` of the allocation (epoch seconds), the row's delay
    in seconds (``off``) and ``quarters``. Only pairs within ``near`` seconds of a whole number of quarters, none or
    ``least`` to ``most`` of them. ``speakers``: which of slurmctld's lines count."""
    allocated = _allocated(cluster).where(speakers.count(LINES)).distinct()
    difference, is_near = _differences(allocated, _begun(cluster, sources).distinct(), near, least, most)
    quarters = difference.c.quarters
    place = func.row_number().over(
        partition_by=(difference.c.file, difference.c.source, difference.c.job_id, difference.c.start), order_by=(func.abs(quarters), difference.c.t)
    )  # fmt: skip
    found = (
        select(difference.c.file, difference.c.source, difference.c.job_id, difference.c.t, difference.c.off, cast(quarters, Integer).label("quarters"), place.label("place"))
        .where(is_near)
        .subquery("numbered")
    )  # fmt: skip
    return in_order(select(*(column for column in found.c if column.name != "place")).where(found.c.place == const(1)))
