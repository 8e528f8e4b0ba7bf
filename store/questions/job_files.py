"""Queries about the files of a run: artifacts, environment, output."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.record import JOB_OUTPUT
from store.functions import const, counted, epoch, group_of, listed, matches, one_of, same
from store.questions.conditions import of_cluster
from store.questions.job_output import Pace, seconds_a_step
from store.questions.lines import SHOWN
from store.tables import ARTIFACTS, ENVIRONMENTS, LINES, REAL, RUNS, SETTINGS

A, E, L, R, S = ARTIFACTS.c, ENVIRONMENTS.c, LINES.c, RUNS.c, SETTINGS.c


def artifacts(
    job: int, cluster: str | None, restarts: int, begin: datetime | None = None, until: datetime | None = None
) -> sa.Select[Any]:
    """Files of a restart of a job, each once: if several hooks fetched one, the longest. ``begin`` and ``until``: when
    they were taken; a file without a time may belong to any restart."""
    longest = func.row_number().over(partition_by=(A.kind, A.path), order_by=(func.length(A.content).desc(), A.host))
    columns = (A.job_id, A.restarts, A.kind, A.path, A.host, A.content, A.truncated)
    conditions = [A.job_id == job, of_cluster(A.cluster, cluster), func.coalesce(A.restarts, const(0)) == restarts]
    conditions += [sa.or_(A.taken_at.is_(None), A.taken_at >= begin)] if begin else []
    conditions += [sa.or_(A.taken_at.is_(None), A.taken_at < until)] if until else []
    files = sa.select(*columns, longest.label("place")).where(*conditions).subquery("files")
    of = files.c
    asked = sa.select(of.job_id, of.restarts, of.kind, of.path, of.host, of.content, of.truncated)
    return asked.where(of.place == const(1)).order_by(of.kind, of.path)


def settings(scope: str, cluster: str | None) -> sa.Select[Any]:
    """Names and values of a scope, such as a job's environment."""
    asked = sa.select(S.name, S.value).where(S.scope == scope, of_cluster(S.cluster, cluster))
    return asked.distinct().order_by(S.name)


def environments(
    job: int, cluster: str | None, restarts: int, begin: datetime | None = None, until: datetime | None = None
) -> sa.Select[Any]:
    """The variables of each step of a restart of a job; ``begin`` and ``until`` as for ``artifacts``."""
    conditions = [E.job_id == job, of_cluster(E.cluster, cluster), func.coalesce(E.restarts, const(0)) == restarts]
    conditions += [E.seen_at >= begin] if begin else []
    conditions += [E.seen_at < until] if until else []
    return sa.select(E.step, E.name, E.value).distinct().where(*conditions).order_by(E.step, E.name, E.value)


def last_good(user: str, name: str, cluster: str | None, before: datetime, *, kept: bool = True) -> sa.Select[Any]:
    """The newest run of a user's job of that name that ended well ``before``; ``kept``: of which an environment was kept."""
    environment = sa.exists().where(
        E.job_id == R.job_id, same(E.cluster, R.cluster), func.coalesce(E.restarts, const(0)) == func.coalesce(R.attempt, const(0))
    )  # fmt: skip
    asked = sa.select(R.run_key, R.job_id, R.attempt, R.cluster, R.submit, R.start, R.end, R.nodes).where(
        R.user == user, R.name == name, R.state == const("COMPLETED"), R.end <= before, of_cluster(R.cluster, cluster),
        *([environment] if kept else []),
    )  # fmt: skip
    return asked.order_by(R.end.desc(), R.job_id.desc()).limit(1)


def _output(
    job: int, cluster: str | None, restarts: int, begin: datetime | None, until: datetime | None
) -> list[sa.ColumnElement[bool]]:
    """Lines that one run wrote. A file of another run is excluded; lines without a time may belong to any."""

    def names(of_this: bool) -> sa.Select[Any]:
        whose = A.restarts == restarts if of_this else A.restarts != restarts
        both = func.unnest(func.list_value(A.path, A.file)).label("name")
        kept = sa.select(both).where(A.job_id == job, of_cluster(A.cluster, cluster), whose).subquery("kept")
        return sa.select(kept.c.name).where(kept.c.name.is_not(None))

    return [
        L.job_id == job, of_cluster(L.cluster, cluster), one_of(L.source, JOB_OUTPUT),
        sa.or_(L.file.not_in(names(False)), L.file.in_(names(True))),
        *([sa.or_(L.time.is_(None), L.time < until)] if until else []),
        *([sa.or_(L.time.is_(None), L.time >= begin)] if begin else []),
    ]  # fmt: skip


def output_files(
    job: int, cluster: str | None, restarts: int, begin: datetime | None, until: datetime | None
) -> sa.Select[Any]:
    """Files that a run wrote to, with the number of its lines (``total``). ``begin``, ``until``: in a file that several
    runs share, the lines between belong to this run."""
    asked = sa.select(L.file, counted().label("total")).where(*_output(job, cluster, restarts, begin, until))
    return asked.group_by(L.file).order_by(L.file)


def output_tail(
    job: int,
    cluster: str | None,
    restarts: int,
    begin: datetime | None,
    until: datetime | None,
    file: str | None,
    most: int,
) -> sa.Select[Any]:
    """The last lines of a run in one file, newest first."""
    of_it = _output(job, cluster, restarts, begin, until)
    return sa.select(*SHOWN).where(*of_it, L.file == file).order_by(L.line.desc()).limit(most)


def output_times(jobs: Sequence[int], start: datetime, end: datetime, cluster: str | None) -> sa.Select[Any]:
    """When jobs wrote something with a certain time."""
    asked = sa.select(L.job_id, L.time).where(
        listed(L.job_id, jobs), L.time.between(start, end), one_of(L.source, JOB_OUTPUT), L.time_quality == const("line"),
        of_cluster(L.cluster, cluster),
    )  # fmt: skip
    return asked.order_by(L.time).limit(20000)


#: Who of a job wrote a line, in front of it: "3: " of srun --label, "[rank3]:" of torchrun; "[default3]:" counts within a node.
_TASK = r"^\s{0,6}(\d{1,6}): "
_RANK = r"^\s{0,6}(?:\[\d+\] )?\[rank(\d{1,6})\]"
_LOCAL = r"^\s{0,6}(?:\[\d+\] )?\[(?:default|trainer|worker)(\d{1,6})\]"


def paces(
    job: int, cluster: str | None, restarts: int, begin: datetime | None, until: datetime | None, *,
    start: datetime | None, end: datetime | None, bin_s: float, forms: Sequence[Pace], words: str,
) -> sa.Select[Any]:  # fmt: skip
    """Seconds per step of one run by its output, by writer and bin of ``bin_s`` seconds: ``rank`` and ``local`` rank as text (null where a
    line does not say), ``file``, ``bin``, ``t`` (epoch seconds, the bin's last report), the ``low``, ``middle`` and ``high`` value, and how
    many ``reports``. The other parameters are those of ``output_files`` and ``job_output.progress``."""
    pace = func.coalesce(*(seconds_a_step(L.message, form) for form in forms))
    rank = func.coalesce(func.nullif(group_of(L.raw, _TASK), const("")), func.nullif(group_of(L.raw, _RANK), const("")))
    within = ([L.time >= start] if start else []) + ([L.time <= end] if end else [])
    timed = sa.select(
        rank.label("rank"), func.nullif(group_of(L.raw, _LOCAL), const("")).label("local"), L.file, epoch(L.time).label("t"),
        func.floor(epoch(L.time) / sa.cast(const(float(bin_s)), REAL)).label("bin"), pace.label("seconds"),
    ).where(
        *_output(job, cluster, restarts, begin, until), L.time.is_not(None), *within,
        func.coalesce(L.event, const("other")) == const("other"), matches(L.message, words),
    ).subquery("told").c  # fmt: skip
    place = (timed.rank, timed.local, timed.file, timed.bin)
    shown = (
        func.max(timed.t).label("t"), func.min(timed.seconds).label("low"), func.median(timed.seconds).label("middle"),
        func.max(timed.seconds).label("high"), counted().label("reports"),
    )  # fmt: skip
    return sa.select(*place, *shown).where(timed.seconds > const(0)).group_by(*place).order_by(*place)
