"""Classified log lines: the input of events."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from parsers.record import JOB_OUTPUT
from store.functions import among, const, one_of, same
from store.questions.authority import Speakers
from store.questions.source import ALL, CLUSTER, Rows, Source
from store.questions.times import AS_WRITTEN, WrittenTimes
from store.tables import ARTIFACTS, JOBS, LINES

#: The columns of a line that an event needs.
COLUMNS = (
    "format", "time", "time_quality", "resolution_us", "received_time", "cluster", "host", "source", "severity", "event",
    "job_id", "message", "entities", "file", "line", "facility",
)  # fmt: skip

#: slurmctld's messages when a job's run begins or ends.
_OF_RUNS = (
    "slurm.job_start", "slurm.job_end", "slurm.job_failed", "slurm.job_node_fail", "slurm.job_cancelled", "slurm.job_timeout",
    "slurm.job_preempted", "slurm.job_oom", "slurm.job_requeue",
)  # fmt: skip


def stamped(cluster: str | None, source: Source = ALL) -> Select[Any]:
    """The event lines of a cluster with a time: ``COLUMNS``."""
    return source.asked(_stamped, cluster)


def _stamped(rows: Rows) -> Select[Any]:
    lines = rows.lines.c
    return select(*(lines[name] for name in COLUMNS)).where(
        lines.event.is_not(None), lines.event != const("other"), lines.time.is_not(None), same(lines.cluster, CLUSTER)
    )  # fmt: skip


def _without_time(cluster: str | None) -> ColumnElement[bool]:
    lines = LINES.c
    return and_(
        lines.event.is_not(None), lines.event != const("other"), lines.time.is_(None), lines.job_id.is_not(None),
        one_of(lines.source, JOB_OUTPUT), same(lines.cluster, cluster),
    )  # fmt: skip


def jobs_of_unstamped(cluster: str | None) -> Select[Any]:
    """``job_id`` of each job with an event line without a time."""
    return select(LINES.c.job_id).distinct().where(_without_time(cluster))


def unstamped(cluster: str | None, jobs: Collection[int]) -> Select[Any]:
    """The event lines without a time of some jobs: ``COLUMNS`` except the time."""
    wanted = (LINES.c[name] for name in COLUMNS if name != "time")
    return select(*wanted).where(_without_time(cluster), among(LINES.c.job_id, jobs))


def stamps_around(files: Collection[str]) -> Select[Any]:
    """For the event lines without a time in some files: ``file``, ``line``, the latest of the times ``before`` it and
    the earliest of those ``behind`` it in its file; null if there is none."""
    lines = LINES.c
    is_event = and_(lines.event.is_not(None), lines.event != const("other"))
    near = (
        select(
            lines.file, lines.line, lines.time,
            func.max(lines.time).over(partition_by=lines.file, order_by=lines.line, range_=(None, -1)).label("before"),
            func.min(lines.time).over(partition_by=lines.file, order_by=lines.line, range_=(1, None)).label("behind"),
        )
        .where(among(lines.file, files), lines.line.is_not(None), or_(lines.time.is_not(None), is_event))
        .subquery("near")
    )  # fmt: skip
    found = near.c
    return select(found.file, found.line, found.before, found.behind).distinct().where(found.time.is_(None))


def runs_of_files(files: Collection[str]) -> Select[Any]:
    """``restarts`` of the run that some output files belong to, by ``file``."""
    return select(ARTIFACTS.c.file, ARTIFACTS.c.restarts).distinct().where(among(ARTIFACTS.c.file, files))


def ends(cluster: str | None, jobs: Collection[int], times: WrittenTimes = AS_WRITTEN) -> Select[Any]:
    """When runs of some jobs ended according to accounting: ``job_id``, ``restarts``, ``ended``. ``times``: how recorded
    times map to true time."""
    restarts = func.coalesce(JOBS.c.restarts, const(0))
    return (
        select(JOBS.c.job_id, restarts.label("restarts"), func.max(times.of_job(JOBS, "end")).label("ended"))
        .where(JOBS.c.end.is_not(None), same(JOBS.c.cluster, cluster), among(JOBS.c.job_id, jobs))
        .group_by(JOBS.c.job_id, restarts)
    )


def logged_ends(
    cluster: str | None, jobs: Collection[int], speakers: Speakers, times: WrittenTimes = AS_WRITTEN
) -> Select[Any]:
    """The same from slurmctld's log. ``speakers``: which of its lines count."""
    lines = (
        select(LINES.c.job_id, times.of_line(LINES).label("time"), LINES.c.event)
        .distinct()
        .where(
            LINES.c.source == const("slurmctld"), LINES.c.time.is_not(None), speakers.count(LINES), same(LINES.c.cluster, cluster),
            among(LINES.c.job_id, jobs), one_of(LINES.c.event, _OF_RUNS),
        )
        .subquery()
    )  # fmt: skip
    begins = func.count().filter(lines.c.event == const("slurm.job_start"))
    numbered = select(lines, begins.over(partition_by=lines.c.job_id, order_by=lines.c.time).label("started")).cte(
        "told"
    )
    restarts = func.greatest(numbered.c.started - const(1), const(0))
    return (
        select(numbered.c.job_id, restarts.label("restarts"), func.max(numbered.c.time).label("ended"))
        .where(numbered.c.event != const("slurm.job_start"))
        .group_by(numbered.c.job_id, restarts)
    )


def last_lines(cluster: str | None, jobs: Collection[int]) -> Select[Any]:
    """The time of the last line that names each of some jobs: ``job_id``, ``last``."""
    return (
        select(LINES.c.job_id, func.max(LINES.c.time).label("last"))
        .where(among(LINES.c.job_id, jobs), same(LINES.c.cluster, cluster))
        .group_by(LINES.c.job_id)
    )
