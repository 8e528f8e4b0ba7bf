"""Queries about job runs, by their names in a store of several clusters (``store.run_names``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.job_states import NOT_FAILED
from store.functions import (
    Element,
    const,
    counted,
    fixed_subquery,
    has,
    holds,
    json_text,
    kept_until_commit,
    listed,
    moment,
    one_of,
    same,
)
from store.questions.conditions import of_cluster
from store.tables import EVENTS, JOBS, LINES, RUNS

R = RUNS.c
#: Denotes an unnamed cluster.
UNNAMED = "-"
#: The columns of a run that pages show; its document is queried separately.
SHOWN = (
    "run_key", "own_key", "cluster", "job_id", "attempt", "array_job_id", "array_task_id", "name", "user", "account",
    "partition", "state", "exit_code", "exit_signal", "submit", "start", "end", "node_list", "nodes", "node_count", "gpus",
    "gpu_index", "time_limit_s", "work_dir", "submit_line", "category", "incident_id", "confidence",
)  # fmt: skip

#: The number of clusters with runs; runs without one count as one.
CLUSTERS = kept_until_commit(sa.select(func.count(sa.distinct(func.coalesce(R.cluster, const(UNNAMED)))).label("n")))
#: Names of users.
USERS = sa.select(R.user.label("name")).where(R.user != const("")).distinct()
#: One row if any run has a user.
ACCOUNTED = sa.select(const(1).label("found")).where(R.user.is_not(None)).limit(1)


@cache
def named(several: bool) -> sa.Subquery:
    """All runs, with ``run_key`` as the name in the whole store and ``own_key`` as that in the run's cluster.
    ``several``: whether there is more than one cluster, so that two may have used a job ID."""
    name: Element = R.run_key
    if several:
        order = (func.coalesce(R.end, R.start, R.submit).desc().nulls_last(), R.cluster.nulls_last())
        last = func.row_number().over(partition_by=R.run_key, order_by=order) == const(1)
        mark = const("@").op("||")(func.coalesce(R.cluster, const(UNNAMED))).op("||")(const("\\1"))
        name = sa.case((last, R.run_key), else_=func.regexp_replace(R.run_key, const("(#[0-9]+)?$"), mark))
    rest = [column for column in R if column.name != "run_key"]
    return fixed_subquery(sa.select(name.label("run_key"), R.run_key.label("own_key"), *rest), "named_runs")


def failed(of: sa.FromClause) -> sa.ColumnElement[bool]:
    """A run that ended badly."""
    return of.c.state.not_in([const(state) for state in sorted(NOT_FAILED)])


def columns(of: sa.FromClause, *names: str) -> list[Element]:
    """Columns of named runs; by default those that pages show."""
    return [of.c[name] for name in names or SHOWN]


def began(of: sa.FromClause) -> Element:
    """When a run started, or was submitted if it never started."""
    return func.coalesce(of.c.start, of.c.submit)


def by_key(of: sa.FromClause, key: str, *names: str) -> sa.Select[Any]:
    """The run of that name in the whole store."""
    return sa.select(*columns(of, *names)).where(of.c.run_key == key)


def exactly(of: sa.FromClause, key: str) -> sa.Select[Any]:
    """The name of the run of that name, if there is one (``found``)."""
    return sa.select(of.c.run_key.label("found")).where(of.c.run_key == key)


def by_own_key(of: sa.FromClause, own: str, cluster: str, *names: str) -> sa.Select[Any]:
    """The run of that name in a cluster (``UNNAMED`` for none)."""
    named_so = func.coalesce(of.c.cluster, const(UNNAMED)) == cluster
    return sa.select(*columns(of, *names)).where(of.c.own_key == own, named_so)


def by_number(of: sa.FromClause, number: int, attempt: int, cluster: str | None) -> sa.Select[Any]:
    """Runs of a job by Slurm's raw numeric ID, or of an array by its own (``run_key``, ``job_id``); ``attempt``: the restart
    count; ``cluster``: one of several, ``UNNAMED`` for none."""
    alike = sa.or_(of.c.job_id == number, of.c.array_job_id == number)
    of_it = [func.coalesce(of.c.cluster, const(UNNAMED)) == cluster] if cluster is not None else []
    return (
        sa.select(of.c.run_key, of.c.job_id)
        .where(alike, func.coalesce(of.c.attempt, const(0)) == attempt, *of_it)
        .limit(2)
    )


def by_keys(of: sa.FromClause, keys: Sequence[str]) -> sa.Select[Any]:
    """Several runs, by start."""
    return sa.select(*columns(of)).where(listed(of.c.run_key, keys)).order_by(of.c.start)


def for_users(of: sa.FromClause, keys: Sequence[str]) -> sa.Select[Any]:
    """What the verdicts on several runs say to the runs' users; nothing about a run without a verdict."""
    says = [json_text(of.c.document, f"$.{name}").label(name) for name in ("headline", "summary", "final")]
    shown = columns(of, "run_key", "name", "user", "state", "end", "category", "confidence")
    return sa.select(*shown, *says).where(listed(of.c.run_key, keys), of.c.document.is_not(None)).order_by(of.c.end)


def renamed(of: sa.FromClause, cluster: str | None) -> sa.Select[Any]:
    """Names of a cluster's runs that differ in the whole store."""
    return sa.select(of.c.own_key, of.c.run_key).where(of.c.run_key != of.c.own_key, same(of.c.cluster, cluster))


def found(
    of: sa.FromClause, *, start: datetime | None = None, end: datetime | None = None, state: str | None = None,
    user: str | None = None, host: str | None = None, incident: str | None = None, search: str | None = None,
    clusters: Sequence[str | None] = (), behind: tuple[datetime, str] | None = None, limit: int,
) -> sa.Select[Any]:  # fmt: skip
    """Newest first by start (``ordered``). ``state``: one of Slurm's, or "failed" for every bad end. ``clusters``: one,
    including rows without a cluster. ``behind``: the ``ordered`` and name after which the list continues."""
    ordered = func.coalesce(of.c.start, of.c.submit, moment("1970-01-01"))
    key, name = of.c.run_key, of.c.name
    conditions: list[Any] = [of_cluster(of.c.cluster, cluster) for cluster in clusters]
    conditions += [
        began(of) <= end if end else None, func.coalesce(of.c.end, of.c.start, of.c.submit) >= start if start else None,
        failed(of) if state == "failed" else of.c.state == state if state else None, of.c.user == user if user else None,
        has(of.c.nodes, host) if host else None, of.c.incident_id == incident if incident else None,
        sa.or_(key == search, of.c.own_key == search, holds(name, search), of.c.user == search) if search else None,
        sa.tuple_(ordered, key) < sa.tuple_(*behind) if behind else None,
    ]  # fmt: skip
    asked = sa.select(*columns(of), ordered.label("ordered")).where(*(c for c in conditions if c is not None))
    return asked.order_by(sa.desc("ordered"), key.desc()).limit(limit)


def attempts(of: sa.FromClause, job: int, cluster: str | None) -> sa.Select[Any]:
    """All runs of a job, first to last."""
    return sa.select(*columns(of)).where(of.c.job_id == job, same(of.c.cluster, cluster)).order_by(of.c.attempt)


def _other_tasks(of: sa.FromClause, array: int, job: int, cluster: str | None) -> sa.ColumnElement[bool]:
    return sa.and_(of.c.array_job_id == array, of.c.job_id != job, same(of.c.cluster, cluster))


def states_of_array(of: sa.FromClause, array: int, job: int, cluster: str | None) -> sa.Select[Any]:
    """The number of other tasks of an array in each state."""
    asked = sa.select(of.c.state, counted().label("n")).where(_other_tasks(of, array, job, cluster))
    return asked.group_by(of.c.state).order_by(sa.desc("n"), of.c.state)


def tasks_of_array(of: sa.FromClause, array: int, job: int, cluster: str | None, most: int) -> sa.Select[Any]:
    """The first other tasks of an array, failed ones first."""
    asked = sa.select(*columns(of, "run_key", "state", "start", "end")).where(_other_tasks(of, array, job, cluster))
    return asked.order_by(sa.not_(failed(of)), of.c.array_task_id, of.c.attempt).limit(most)


def blaming(of: sa.FromClause, incident_id: str) -> sa.Select[Any]:
    """Names of runs whose verdicts blame an incident, by end."""
    return sa.select(of.c.run_key).where(of.c.incident_id == incident_id).order_by(of.c.end, of.c.run_key)


def every_name(of: sa.FromClause) -> sa.Select[Any]:
    """All runs with job ID and state, by ID."""
    return sa.select(of.c.run_key, of.c.job_id, of.c.state).order_by(of.c.job_id, of.c.attempt, of.c.run_key)


def documents(of: sa.FromClause) -> sa.Select[Any]:
    """Documents of the runs that have one, by job ID."""
    asked = sa.select(of.c.run_key, of.c.cluster, of.c.document).where(of.c.document.is_not(None))
    return asked.order_by(of.c.job_id, of.c.attempt, of.c.run_key)


def of_user(of: sa.FromClause, user: str) -> sa.Select[Any]:
    """Both names of a user's runs."""
    return sa.select(of.c.run_key, of.c.own_key).where(of.c.user == user)


def document(own_key: str, cluster: str | None, user: str) -> sa.Select[Any]:
    """The document of a user's run, by its name in the cluster."""
    return sa.select(R.document).where(R.run_key == own_key, same(R.cluster, cluster), R.user == user)


def judged(of: sa.FromClause) -> sa.Select[Any]:
    """Runs with a verdict."""
    return every(of).where(of.c.category.is_not(None))


def ended_since(of: sa.FromClause, since: datetime, cluster: str | None) -> sa.Select[Any]:
    """The last run of each job of a cluster (or of all) if it ended since a time and its user is known, newest first: names,
    ``job_id``, ``user``, ``end`` and the verdict's ``category``, ``incident_id`` and ``confidence``."""
    last = func.row_number().over(
        partition_by=(of.c.cluster, of.c.job_id), order_by=(began(of).desc().nulls_last(), of.c.attempt.desc())
    )
    names = ("run_key", "job_id", "user", "end", "category", "incident_id", "confidence")
    numbered = sa.select(*columns(of, *names), last.label("place"))
    if cluster is not None:
        numbered = numbered.where(of_cluster(of.c.cluster, cluster))
    runs = numbered.subquery("last_runs").c
    kept = (runs.place == const(1), runs.end >= since, runs.user != const(""))
    return sa.select(*(runs[name] for name in names)).where(*kept).order_by(runs.end.desc(), runs.run_key)


def every(of: sa.FromClause) -> sa.Select[Any]:
    """All runs, as pages show them."""
    return sa.select(*columns(of))


def of_incident(of: sa.FromClause, incident_id: str, cluster: str | None) -> sa.Select[Any]:
    """Runs of a cluster whose verdicts blame an incident."""
    return every(of).where(of.c.incident_id == incident_id, same(of.c.cluster, cluster))


def of_job_number(of: sa.FromClause, number: str, most: int) -> sa.Select[Any]:
    """Runs of a job or an array, by its ID as text."""
    alike = sa.or_(sa.cast(of.c.job_id, sa.String) == number, sa.cast(of.c.array_job_id, sa.String) == number)
    return sa.select(of.c.run_key.label("found")).where(alike).order_by(of.c.job_id, of.c.attempt).limit(most)


def near(of: sa.FromClause, key: str, letters: int, most: int) -> sa.Select[Any]:
    """Runs whose name differs by a few letters, nearest first."""
    far = func.damerau_levenshtein(of.c.run_key, key)
    asked = sa.select(of.c.run_key.label("found"), far.label("far")).where(far <= letters)
    return asked.order_by(sa.asc("far"), began(of).desc().nulls_last()).limit(most)


def node_count(cluster: str | None) -> sa.Select[Any]:
    """The number of nodes that runs of a cluster (or of none) used."""
    nodes = sa.select(func.unnest(R.nodes).label("node")).where(of_cluster(R.cluster, cluster)).subquery("ran_on")
    return sa.select(func.count(sa.distinct(nodes.c.node)).label("n"))


def stored() -> sa.Select[Any]:
    """Totals: runs, those that did not end well, events, whether there are lines."""
    events = sa.select(counted()).select_from(EVENTS).scalar_subquery()
    return sa.select(
        counted().label("runs"), counted(failed(RUNS)).label("failed"), events.label("events"),
        sa.exists(sa.select(const(1)).select_from(LINES)).label("lines"),
    ).select_from(RUNS)  # fmt: skip


def _disputed() -> sa.Select[Any]:
    named_by = json_text(R.document, "$.disputed")
    judged_so = sa.select(R.run_key, R.cluster, named_by.label("named")).where(
        R.user.is_(None), func.contains(R.document, const('"disputed"')), named_by.is_not(None)
    )
    j = JOBS.c
    uid = func.coalesce(sa.cast(j.uid, sa.String), const("?"))
    says = func.concat(j.source, const(": "), j.user, const(" ("), uid, const(")"))
    named_in = func.array_to_string(func.list_sort(func.list(sa.distinct(says))), const("; "))
    recorded = (
        sa.select(R.run_key, R.cluster, named_in.label("named"))
        .join(JOBS, sa.and_(j.job_id == R.job_id, j.cluster.is_not_distinct_from(R.cluster)))
        .where(
            R.user.is_(None), R.document.is_(None), j.user != const(""), sa.not_(one_of(j.source, ("task_hook", "log")))
        )
        .group_by(R.run_key, R.cluster)
        .having(func.count(sa.distinct(j.user)) > const(1))
    )
    both = sa.union_all(judged_so, recorded).subquery("disputed")
    return kept_until_commit(sa.select(both).order_by(both.c.run_key, both.c.cluster, both.c.named).limit(100))


#: Runs for which trusted sources name different users: name, cluster and the sources with their users. A run without a
#: verdict (it is running, or ended well) has no document: its records show the users.
DISPUTED = _disputed()
