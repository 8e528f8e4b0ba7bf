"""Classified log lines: the input of events."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import CTE, ColumnElement, Select, and_, func, or_, select

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

_OUTPUT = ("job_stdout", "job_stderr")
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
        one_of(lines.source, _OUTPUT), same(lines.cluster, cluster),
    )  # fmt: skip


def jobs_of_unstamped(cluster: str | None) -> Select[Any]:
    """``job_id`` of each job with an event line without a time."""
    return select(LINES.c.job_id).distinct().where(_without_time(cluster))


def unstamped(
    cluster: str | None, jobs: Collection[int], speakers: Speakers, times: WrittenTimes = AS_WRITTEN
) -> Select[Any]:
    """The event lines without a time of some jobs (``COLUMNS``), each with the time at which it was written, as far as
    known.

    A program wrote such a line between the stamped lines before and after it. In a file without timestamps it was near
    the end of the run, which is when programs write errors: the end from accounting, else from slurmctld, else the last
    line that names the job. ``speakers``: which of slurmctld's lines give ends; ``times``: how recorded ends map to
    true time."""
    wanted = (
        select(*(LINES.c[name] for name in COLUMNS))
        .where(_without_time(cluster), among(LINES.c.job_id, jobs))
        .cte("wanted")
    )
    ends = _ends(cluster, times)
    logged = _logged_ends(cluster, speakers, times, wanted, ends)
    placed = _between_stamps(wanted)
    last = select(func.max(LINES.c.time)).where(
        LINES.c.job_id == placed.c.job_id, among(LINES.c.job_id, jobs), same(LINES.c.cluster, cluster)
    )
    moment = func.coalesce(
        placed.c.behind, _end_of(placed, ends), _end_of(placed, logged), placed.c.before, last.scalar_subquery()
    )
    return select(*(moment.label("time") if name == "time" else placed.c[name] for name in COLUMNS))


def _ends(cluster: str | None, times: WrittenTimes) -> CTE:
    """When runs ended according to accounting: ``job_id``, ``restarts``, ``ended``."""
    restarts = func.coalesce(JOBS.c.restarts, const(0))
    return (
        select(JOBS.c.job_id, restarts.label("restarts"), func.max(times.of_job(JOBS, "end")).label("ended"))
        .where(JOBS.c.end.is_not(None), same(JOBS.c.cluster, cluster))
        .group_by(JOBS.c.job_id, restarts)
        .cte("ends")
    )


def _logged_ends(cluster: str | None, speakers: Speakers, times: WrittenTimes, wanted: CTE, ends: CTE) -> CTE:
    """The same from slurmctld's log, for jobs without an end in accounting."""
    unknown = select(wanted.c.job_id).where(wanted.c.job_id.not_in(select(ends.c.job_id)))
    lines = (
        select(LINES.c.job_id, times.of_line(LINES).label("time"), LINES.c.event)
        .distinct()
        .where(
            LINES.c.source == const("slurmctld"), LINES.c.time.is_not(None), speakers.count(LINES), same(LINES.c.cluster, cluster),
            LINES.c.job_id.in_(unknown), one_of(LINES.c.event, _OF_RUNS),
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
        .cte("logged")
    )


def _between_stamps(wanted: CTE) -> CTE:
    """Lines with the timestamps ``before`` and ``behind`` them in their file, and the run that the file belongs to."""
    stamped_lines = (
        select(LINES.c.file, LINES.c.line, LINES.c.time)
        .where(LINES.c.time.is_not(None), LINES.c.file.in_(select(wanted.c.file)))
        .cte("stamped")
    )
    near = stamped_lines.c
    before = select(func.max(near.time)).where(near.file == wanted.c.file, near.line < wanted.c.line)
    behind = select(func.min(near.time)).where(near.file == wanted.c.file, near.line > wanted.c.line)
    files = select(ARTIFACTS.c.file, ARTIFACTS.c.restarts).distinct().subquery("files")
    return (
        select(
            *(column for column in wanted.c if column.name != "time"), files.c.restarts,
            before.scalar_subquery().label("before"), behind.scalar_subquery().label("behind"),
        )
        .select_from(wanted.outerjoin(files, files.c.file == wanted.c.file))
        .cte("placed")
    )  # fmt: skip


def _end_of(placed: CTE, ends: CTE) -> ColumnElement[Any]:
    """The end of the run that wrote a line; of the job's last run if the run is unknown."""
    same_run = or_(placed.c.restarts.is_(None), ends.c.restarts == placed.c.restarts)
    return select(func.max(ends.c.ended)).where(ends.c.job_id == placed.c.job_id, same_run).scalar_subquery()
