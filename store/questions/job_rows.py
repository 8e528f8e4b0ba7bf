"""Sources' rows about jobs and their steps: the input of runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, Select, and_, func, not_, or_, select

from parsers.job_states import NOT_STARTED
from store.functions import among, const, contains, epoch, group_of, in_order, one_of, same
from store.questions.conditions import of_cluster
from store.questions.source import CLUSTER
from store.questions.times import AS_WRITTEN, WrittenTimes
from store.tables import JOBS, STEPS

#: The columns of a row about a job that a run needs.
COLUMNS = (
    "job_id", "array_job_id", "array_task_id", "restarts", "db_index", "name", "user", "uid", "account", "partition", "state",
    "cancelled_by", "exit_code", "exit_signal", "submit", "start", "end", "time_limit_s", "node_list", "nodes", "gpus",
    "gpu_index", "work_dir", "submit_line", "failed_node", "reason", "observed_at", "source", "host", "file", "line",
)  # fmt: skip

#: File name patterns of task hooks. Older stores have their rows under the source ``hook``.
_TASK_HOOKS = ("/task-hooks/", ".taskprolog.")
#: The sources whose rows a user may have written.
_BY_HOOKS = ("task_hook", "hook")


def _by_slurm() -> ColumnElement[bool]:
    """Rows that no user wrote: a task hook's row is a user's claim about any job."""
    file = func.coalesce(JOBS.c.file, const(""))
    of_user = and_(
        JOBS.c.source.is_not_distinct_from(const("hook")), or_(*(contains(file, name) for name in _TASK_HOOKS))
    )
    return and_(JOBS.c.source.is_distinct_from(const("task_hook")), not_(of_user))


def rows_by_slurm(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows in memory of which the same holds."""
    if not rows["source"].is_in(_BY_HOOKS).any():
        return rows
    file, source = pl.col("file").fill_null(""), pl.col("source").fill_null("")
    of_user = pl.any_horizontal(file.str.contains(name, literal=True) for name in _TASK_HOOKS)
    return rows.filter((source != "task_hook") & ~((source == "hook") & of_user))


def waiting_reasons(job: int, cluster: str | None) -> Select[Any]:
    """The reasons for which a job waited, as records of it while it waited have them."""
    mine = (JOBS.c.job_id == job, of_cluster(JOBS.c.cluster, cluster), JOBS.c.reason.is_not(None))
    return in_order(select(JOBS.c.reason).where(*mine, one_of(JOBS.c.state, sorted(NOT_STARTED))).distinct())


def job_rows(cluster: str | None) -> Select[Any]:
    """All rows about a cluster's jobs: ``COLUMNS``."""
    return _job_rows().params(cluster=cluster)


@cache
def _job_rows() -> Select[Any]:
    return select(*(JOBS.c[name] for name in COLUMNS)).where(same(JOBS.c.cluster, CLUSTER), _by_slurm())


def new_job_rows(cluster: str | None, new: ColumnElement[bool]) -> Select[Any]:
    """The ``new`` rows about jobs with an ID (a condition of the store's ``stored_since``): ``COLUMNS``."""
    return _job_rows().where(JOBS.c.job_id.is_not(None), new).params(cluster=cluster)


def job_rows_of(cluster: str | None, jobs: Collection[int], which: ColumnElement[bool]) -> Select[Any]:
    """The rows about some jobs that match a condition of the store's ``stored_since``: ``COLUMNS``."""
    return _job_rows().where(which, among(JOBS.c.job_id, jobs)).params(cluster=cluster)


def steps(cluster: str | None, jobs: Collection[int] | None = None) -> Select[Any]:
    """All rows about a cluster's steps, or those of some jobs."""
    found = select(STEPS).where(same(STEPS.c.cluster, cluster))
    return found if jobs is None else found.where(among(STEPS.c.job_id, jobs))


def rows_about(job: int, cluster: str | None) -> Select[Any]:
    """All rows about one job: ``COLUMNS``, and what only pages show."""
    columns = (*COLUMNS, "derived_exit_code", "tres", "reservation")
    return select(*(JOBS.c[name] for name in columns)).where(
        JOBS.c.job_id == job, of_cluster(JOBS.c.cluster, cluster), _by_slurm()
    )


def steps_about(job: int, cluster: str | None) -> Select[Any]:
    """All rows about one job's steps, the newest last."""
    found = select(STEPS).where(STEPS.c.job_id == job, of_cluster(STEPS.c.cluster, cluster))
    return found.order_by(STEPS.c.step_id, STEPS.c.end.nulls_first(), STEPS.c.file, STEPS.c.line)


def differing_records(sources: Collection[str], open_states: Collection[str], most: int) -> Select[Any]:
    """``COLUMNS`` and ``cluster``: rows of ``sources`` about ended runs of jobs for which they differ in a state, an exit code, an
    end or the nodes; of at most so many jobs, the newest."""
    ended = and_(
        JOBS.c.job_id.is_not(None), one_of(JOBS.c.source, sources), not_(one_of(func.coalesce(JOBS.c.state, const("")), open_states))
    )  # fmt: skip
    differ = or_(
        *(func.count(JOBS.c[name].distinct()) > const(1) for name in ("state", "exit_code", "end", "node_list"))
    )
    jobs = (
        select(JOBS.c.job_id, JOBS.c.cluster).where(ended).group_by(JOBS.c.job_id, JOBS.c.cluster)
        .having(func.count(JOBS.c.source.distinct()) > const(1), differ)
        .order_by(func.max(JOBS.c.end).desc().nulls_last(), JOBS.c.job_id).limit(most).subquery("differ")
    )  # fmt: skip
    matching = and_(jobs.c.job_id == JOBS.c.job_id, jobs.c.cluster.is_not_distinct_from(JOBS.c.cluster))
    return select(*(JOBS.c[name] for name in COLUMNS), JOBS.c.cluster).join(jobs, matching).where(ended)


def any_step() -> Select[Any]:
    """One row if anything is stored about steps of any cluster."""
    return select(STEPS.c.job_id).limit(1)


def users_of_jobs(sources: Iterable[str]) -> Select[Any]:
    """``job_id``, ``uid``, ``user`` and ``name``: the user that some sources name for each job, and how it is called."""
    return select(JOBS.c.job_id, JOBS.c.uid, JOBS.c.user, JOBS.c.name).distinct().where(one_of(JOBS.c.source, sources))


#: The name of a file, without its folders.
_BASE_NAME = r"([^/]*)$"
#: What Slurm puts into the patterns of output files.
OF_PATTERNS = ("job_id", "array_job_id", "array_task_id", "name", "user", "uid", "node_list", "std_out", "std_err")


def outputs_of_jobs(sources: Iterable[str], jobs: Collection[int], names: Collection[str]) -> Select[Any]:
    """``OF_PATTERNS`` of rows that name an output file: of some ``jobs``, and of all jobs that name one of these base
    ``names``."""
    of = JOBS.c
    base = (group_of(func.coalesce(path, const("")), _BASE_NAME) for path in (of.std_out, of.std_err))
    wanted = or_(among(of.job_id, jobs), *(among(name, names) for name in base))
    asked = select(*(of[name] for name in OF_PATTERNS)).distinct()
    return asked.where(one_of(of.source, sources), or_(of.std_out.is_not(None), of.std_err.is_not(None)), wanted)


def name_of_job(job_id: int) -> Select[Any]:
    """``name`` of the last job with that ID, if one is known."""
    named = select(JOBS.c.name).where(JOBS.c.job_id == job_id, JOBS.c.name.is_not(None))
    return named.order_by(JOBS.c.submit.desc().nulls_last()).limit(1)


def named_clusters(other_than: str) -> Select[Any]:
    """One row if a job of another cluster is known."""
    return select(JOBS.c.cluster).where(JOBS.c.cluster.is_not(None), JOBS.c.cluster != other_than).limit(1)


def hosts_of_jobs(cluster: str | None) -> Select[Any]:
    """``host``: each node that a job of the cluster ran on."""
    return select(func.unnest(JOBS.c.nodes).label("host")).distinct().where(same(JOBS.c.cluster, cluster))


def begun_once(cluster: str | None, jobs: Collection[int], times: WrittenTimes = AS_WRITTEN) -> Select[Any]:
    """``job_id`` and ``t``: when jobs began (epoch seconds), for those of ``jobs`` whose rows all give the same
    time."""
    start = times.of_job(JOBS, "start")
    return (
        select(JOBS.c.job_id, epoch(func.min(start)).label("t"))
        .where(same(JOBS.c.cluster, cluster), JOBS.c.start.is_not(None), among(JOBS.c.job_id, jobs))
        .group_by(JOBS.c.job_id)
        .having(func.count(start.distinct()) == const(1))
    )


def node_failures(cluster: str | None, sources: Collection[str]) -> Select[Any]:
    """Runs that ended because a node failed, according to some sources: ``t`` (epoch seconds), ``nodes``, ``file`` and
    ``source``."""
    return in_order(
        select(
            epoch(JOBS.c.end).label("t"), JOBS.c.nodes, func.coalesce(JOBS.c.file, JOBS.c.source).label("file"), JOBS.c.source
        ).distinct().where(
            JOBS.c.state == const("NODE_FAIL"), JOBS.c.end.is_not(None), JOBS.c.nodes.is_not(None),
            one_of(JOBS.c.source, sources), same(JOBS.c.cluster, cluster),
        )
    )  # fmt: skip
