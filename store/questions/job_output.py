"""Job output: the pace of jobs, and the files that hooks fetched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import (
    ColumnElement,
    Double,
    FromClause,
    Select,
    and_,
    func,
    literal_column,
    not_,
    select,
    try_cast,
)

from parsers.record import JOB_OUTPUT
from store.functions import PLACE, among, const, epoch, group_of, matches, one_of, row_place, same
from store.questions.source import ALL, CLUSTER, Rows, Source
from store.tables import ARTIFACTS, JOBS, LINES


class Pace(NamedTuple):
    """How a trainer writes the time of a step: the first group of an RE2 ``pattern`` is a number; multiplied by
    ``factor`` it is seconds per step, or ``factor`` divided by it if it is steps per second (``inverse``)."""

    pattern: str
    factor: float
    inverse: bool


def _output(lines: FromClause) -> ColumnElement[bool]:
    """Lines in which a job may report its pace."""
    return and_(
        one_of(lines.c.source, JOB_OUTPUT), lines.c.job_id.is_not(None), lines.c.time.is_not(None),
        func.coalesce(lines.c.event, const("other")) == const("other"), same(lines.c.cluster, CLUSTER),
    )  # fmt: skip


def any_pace(cluster: str | None, forms: Sequence[Pace], words: str, source: Source = ALL) -> Select[Any]:
    """One row if a job of the cluster wrote a line from which ``progress`` may read a pace.

    One pattern for all ``forms``: extracting the numbers costs four times as much even if no line has any.
    """
    return source.asked(_any_pace, cluster, tuple(forms), words)


def _any_pace(rows: Rows, forms: Sequence[Pace], words: str) -> Select[Any]:
    of_any = "|".join(f"(?:{form.pattern})" for form in forms)
    message = rows.lines.c.message
    wanted = and_(_output(rows.lines), matches(message, words), matches(message, of_any))
    return select(const(1).label("found")).select_from(rows.lines).where(wanted).limit(1)


def may_show_pace() -> pl.Expr:
    """May ``any_pace`` find a row among lines on their way into the store? They are not searched for one."""
    unnamed = pl.col("event").fill_null("other") == "other"
    return (pl.col("source").is_in(JOB_OUTPUT) & unnamed).any()


def jobs_without_stamps(cluster: str | None) -> Select[Any]:
    """``job_id`` of each job that a line without a time names."""
    return select(LINES.c.job_id).distinct().where(
        LINES.c.time.is_(None), LINES.c.job_id.is_not(None), same(LINES.c.cluster, cluster)
    )  # fmt: skip


def progress(cluster: str | None, forms: Sequence[Pace], words: str, source: Source = ALL) -> Select[Any]:
    """The pace of jobs: ``job_id``, ``restarts``, ``t`` of a line (epoch seconds) and ``seconds`` per step, from the
    first of ``forms`` that matches. Lines without one of the ``words`` (an RE2 pattern) are not searched."""
    return source.asked(_progress, cluster, tuple(forms), words)


def _progress(rows: Rows, forms: Sequence[Pace], words: str) -> Select[Any]:
    lines = rows.lines
    pace = func.min(func.coalesce(*(seconds_a_step(lines.c.message, form) for form in forms)), type_=Double())
    files = select(ARTIFACTS.c.file, ARTIFACTS.c.restarts).distinct().subquery("files")
    restarts, moment = func.coalesce(files.c.restarts, const(0)), epoch(lines.c.time)
    return (
        select(lines.c.job_id, restarts.label("restarts"), moment.label("t"), pace.label("seconds"))
        .select_from(lines.outerjoin(files, files.c.file == lines.c.file))
        .where(_output(lines), matches(lines.c.message, words))
        .group_by(lines.c.job_id, restarts, moment)
        .having(pace > const(0))
        .order_by(lines.c.job_id, restarts, moment)
    )


def seconds_a_step(message: ColumnElement[Any], form: Pace) -> ColumnElement[Any]:
    """Seconds per step by one form; null where a line does not have it."""
    number: ColumnElement[float] = try_cast(func.nullif(group_of(message, form.pattern), const("")), Double())
    factor: ColumnElement[float] = literal_column(repr(form.factor), Double())
    return factor / func.nullif(number, const(0), type_=Double()) if form.inverse else number * factor


#: Lines that Slurm's own programs write into a job's output.
_BY_SLURM = r"^\s*(?:srun|salloc|slurmstepd[\w.-]*): "
_MINUTE_S = 60.0


def _own_lines(jobs: Collection[int], cluster: str | None) -> ColumnElement[bool]:
    """Lines that programs of some jobs wrote."""
    lines = LINES.c
    return and_(
        among(lines.job_id, jobs), one_of(lines.source, JOB_OUTPUT), same(lines.cluster, cluster),
        not_(matches(func.coalesce(lines.message, const("")), _BY_SLURM)),
    )  # fmt: skip


#: The latest moment at which a line can have been written: its own time, else when it was read or received.
_KNOWN = func.coalesce(LINES.c.time, LINES.c.sender_time, LINES.c.received_time)


def written(cluster: str | None, jobs: Collection[int]) -> Select[Any]:
    """When the programs of some jobs wrote to their output, by ``job_id`` and ``file``: whether the lines are ``stamped``,
    ``t`` (epoch seconds), the last of each minute, and the number of the last ``line``. Lines without a time of their
    own count when they had been read. ``t`` is null for those that nothing dates."""
    lines, moment = LINES.c, epoch(_KNOWN)
    stamped = and_(lines.time.is_not(None), lines.time_quality.is_distinct_from(const("received"))).label("stamped")
    minute = func.floor(moment / const(_MINUTE_S)).label("minute")
    return (
        select(
            lines.job_id, lines.file, stamped, minute, func.max(moment).label("t"), func.max(lines.line).label("line")
        )
        .where(_own_lines(jobs, cluster))
        .group_by(lines.job_id, lines.file, stamped, minute)
        .order_by(lines.job_id, minute, stamped, lines.file)
    )


def new_outputs(new: ColumnElement[bool], since: datetime) -> Select[Any]:
    """Outputs fetched by hooks that are ``new`` (a condition of the store's ``stored_since``), read since a time: all
    columns of artifacts and their ``place``, in that order. Of several of one run, kind and path, only the first
    stored.

    The run is identified by the last start of its job ID before the hook ran (a hook of slurmctld's may run a moment
    before the recorded start), by current knowledge: accounting may have given another time since the first output was
    stored."""
    of_output = one_of(ARTIFACTS.c.kind, ("stdout", "stderr"))
    place = row_place(ARTIFACTS).label(PLACE)
    fresh = select(place, *ARTIFACTS.c).where(new, ARTIFACTS.c.taken_at >= since, of_output).cte("fresh")
    jobs = select(fresh.c.job_id)
    blanks = const(" \t\r\n")
    row = ARTIFACTS.c
    outputs = (
        select(
            place,
            row.cluster,
            row.job_id,
            func.coalesce(row.restarts, const(0)).label("restarts"),
            row.kind,
            row.path,
            row.taken_at,
        )
        .where(of_output, row.job_id.in_(jobs), func.trim(row.content, blanks) != const(""))
        .cte("outputs")
    )
    begin = func.coalesce(JOBS.c.submit, JOBS.c.start)
    begins = (
        select(JOBS.c.cluster, JOBS.c.job_id, (begin - timedelta(seconds=60)).label("begin"))
        .where(begin.is_not(None), JOBS.c.source.is_distinct_from(const("task_hook")), JOBS.c.job_id.in_(jobs))
        .cte("begins")
    )
    before = and_(
        begins.c.job_id == outputs.c.job_id, same(begins.c.cluster, outputs.c.cluster), begins.c.begin <= outputs.c.taken_at
    )  # fmt: skip
    runs = (
        select(outputs.c.place, func.max(begins.c.begin).label("begin"))
        .select_from(outputs.outerjoin(begins, before))
        .group_by(outputs.c.place)
        .cte("runs")
    )
    of_run = (outputs.c.cluster, outputs.c.job_id, outputs.c.restarts, outputs.c.kind, outputs.c.path, runs.c.begin)
    first = select(outputs.c.place, func.min(outputs.c.place).over(partition_by=of_run).label("first")).join_from(
        outputs, runs, runs.c.place == outputs.c.place
    ).cte("first")  # fmt: skip
    return (
        select(fresh)
        .join_from(fresh, first, first.c.place == fresh.c.place)
        .where(first.c.first == fresh.c.place)
        .order_by(fresh.c.place)
    )
