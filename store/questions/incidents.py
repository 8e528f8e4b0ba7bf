"""Queries about incidents and operators' answers to verdicts that blame them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const, counted, has, holds, json_count, json_number, json_texts, listed, same, shared
from store.questions.conditions import of_cluster
from store.tables import ALIASES, FEEDBACK, INCIDENTS

N = INCIDENTS.c
#: When an incident is over; one without an end is still open and counts from its start.
OVER = func.coalesce(N.end, N.start)
#: Names of all incidents.
NAMES = sa.select(N.incident_id)


def overlapping(start: datetime | None, end: datetime | None) -> list[sa.ColumnElement[bool]]:
    """Conditions: an incident belongs to a range that it overlaps."""
    return ([N.start <= end] if end else []) + ([start <= OVER] if start else [])


#: What stands for the root of incidents whose root has no host, in a filter.
NO_ROOT = "(none)"


def conditions(
    *, start: datetime | None = None, end: datetime | None = None, severity: str | None = None, host: str | None = None,
    job: str | None = None, search: str | None = None, clusters: Sequence[str | None] = (), root: str | None = None,
    device: str | None = None, also: Sequence[sa.ColumnElement[bool]] = (),
) -> list[sa.ColumnElement[bool]]:  # fmt: skip
    """The conditions of a list of incidents. ``job``: a run that they ended or slowed. ``clusters``: one, including rows without a cluster. ``root`` and
    ``device``: the host and the device of their roots, ``NO_ROOT`` for those without a host."""
    hosts, jobs = json_texts(N.document, "$.hosts[*]"), json_texts(N.document, "$.jobs[*].job_id")
    slowed = json_texts(N.document, "$.slowed_jobs[*]")
    made: list[Any] = [of_cluster(N.cluster, cluster) for cluster in clusters] + overlapping(start, end)
    made += [
        N.severity == severity if severity else None, sa.or_(N.root_host == host, has(hosts, host)) if host else None,
        sa.or_(has(jobs, job), has(slowed, job)) if job else None, holds(N.document, search) if search else None,
        (N.root_host.is_(None) if root == NO_ROOT else N.root_host == root) if root else None,
        N.root_device == device if device else None,
    ]  # fmt: skip
    return [one for one in made if one is not None] + list(also)


def found(
    wanted: Sequence[sa.ColumnElement[bool]], *, behind: tuple[datetime, str] | None = None, limit: int,
    costly: bool = False,
) -> sa.Select[Any]:  # fmt: skip
    """Newest first, with documents. ``wanted``: see ``conditions``; ``behind``: start and name after which the list
    continues. ``costly``: those that cost most GPU-hours first, then those that ended most runs."""
    after = [sa.tuple_(N.start, N.incident_id) < sa.tuple_(*behind)] if behind else []
    asked = sa.select(INCIDENTS).where(*wanted, *after)
    cost = (json_number(N.document, "$.gpu_hours_lost").desc().nulls_last(), json_count(N.document, "$.jobs").desc())
    return asked.order_by(*(cost if costly else ()), N.start.desc(), N.incident_id.desc()).limit(limit)


def one(incident_id: str) -> sa.Select[Any]:
    """An incident with its document."""
    return sa.select(INCIDENTS).where(N.incident_id == incident_id)


def named(names: Sequence[str]) -> sa.Select[Any]:
    """Incidents of some names, with their documents."""
    return sa.select(INCIDENTS).where(listed(N.incident_id, names))


def heir(former_id: str) -> sa.Select[Any]:
    """The incident that continues another one under a new name."""
    of_it = sa.and_(ALIASES.c.incident_id == N.incident_id, ALIASES.c.alias == former_id)
    return sa.select(INCIDENTS).join(ALIASES, of_it).order_by(ALIASES.c.since.desc()).limit(1)


def names_now(former_ids: Sequence[str]) -> sa.Select[Any]:
    """The current names of incidents: ``alias``, ``incident_id``."""
    a = ALIASES.c
    newest = func.row_number().over(partition_by=a.alias, order_by=a.since.desc()).label("place")
    of = sa.select(a.alias, a.incident_id, newest).where(listed(a.alias, former_ids)).subquery("names").c
    return sa.select(of.alias, of.incident_id).where(of.place == const(1))


def document(incident_id: str, cluster: str | None) -> sa.Select[Any]:
    """The document of an incident of a cluster."""
    return sa.select(N.document).where(N.incident_id == incident_id, same(N.cluster, cluster))


def documents(cluster: str | None) -> sa.Select[Any]:
    """Documents of all incidents of a cluster, or of none."""
    return sa.select(N.document).where(of_cluster(N.cluster, cluster))


def rooted_in(host: str, device: str | None, cluster: str | None) -> sa.Select[Any]:
    """Incidents whose root is a device of a host."""
    asked = sa.select(N.incident_id, N.start, N.severity, N.root_event, N.document)
    on_it = func.coalesce(N.root_device, const("")) == (device or "")
    return asked.where(N.root_host == host, on_it, same(N.cluster, cluster))


def slowing(key: str, cluster: str | None) -> sa.Select[Any]:
    """Incidents that made a run slower (its name in its cluster), oldest first, with their documents."""
    slowed = json_texts(N.document, "$.slowed_jobs[*]")
    asked = sa.select(INCIDENTS).where(has(slowed, key), of_cluster(N.cluster, cluster))
    return asked.order_by(N.start, N.incident_id)


def severities(start: datetime | None, end: datetime | None) -> sa.Select[Any]:
    """How many incidents of each severity overlap a range."""
    asked = sa.select(N.severity, counted().label("n")).where(*overlapping(start, end))
    return asked.group_by(N.severity)


def cost(start: datetime | None, end: datetime | None) -> sa.Select[Any]:
    """How many runs the incidents of a range ended, slowed and did not end, their cost, and how many are not over."""
    slowed, ended = json_texts(N.document, "$.slowed_jobs[*]"), json_texts(N.document, "$.jobs[*].job_id")
    return sa.select(
        func.coalesce(func.sum(json_count(N.document, "$.jobs")), const(0)).label("jobs"),
        func.coalesce(func.sum(func.length(slowed) - func.length(shared(slowed, ended))), const(0)).label("slowed"),
        func.coalesce(func.sum(json_number(N.document, "$.gpu_hours_lost")), const(0)).label("gpu_hours"),
        counted(N.end.is_(None)).label("open"),
    ).where(*overlapping(start, end))  # fmt: skip


def exactly(name: str) -> sa.Select[Any]:
    """The incident of that name, case-insensitively."""
    return sa.select(N.incident_id.label("found")).where(func.lower(N.incident_id) == func.lower(name))


def near(name: str, letters: int, most: int) -> sa.Select[Any]:
    """Incidents whose name has this prefix, or differs by a few letters; newest first."""
    lower = func.lower(N.incident_id)
    alike = sa.or_(
        func.starts_with(lower, func.lower(name)), func.damerau_levenshtein(lower, func.lower(name)) <= letters
    )
    return sa.select(N.incident_id.label("found")).where(alike).order_by(N.start.desc()).limit(most)


def recent(since: datetime) -> sa.Select[Any]:
    """Incidents that are open or ended since a time, with documents; ``last``: when they were over."""
    asked = sa.select(N.incident_id, N.cluster, N.severity, N.start, OVER.label("last"), N.document)
    return asked.where(sa.or_(N.end.is_(None), N.end >= since))


def among(names: Sequence[str]) -> sa.Select[Any]:
    """Those of some names that denote incidents."""
    return sa.select(N.incident_id).where(listed(N.incident_id, names))


def answers(*, run: tuple[str, str | None] | None = None, incident_id: str | None = None) -> sa.Select[Any]:
    """Operators' answers to the verdict on a run (its name in its cluster, the cluster) or to all verdicts that blame
    an incident, oldest first. ``counts`` is false if the same person answered again later."""
    f = FEEDBACK.c
    person = (f.cluster, f.run_key, func.coalesce(f.author, const("")))
    counts = func.lead(f.given_at).over(partition_by=person, order_by=f.given_at).is_(None)
    conditions = [f.run_key == run[0], same(f.cluster, run[1])] if run else []
    conditions += [f.incident_id == incident_id] if incident_id else []
    return sa.select(
        f.cluster, f.run_key, f.answer, f.category, f.event, f.host, f.device, f.note, f.author, f.given_at, f.said_category,
        f.said_event, counts.label("counts"),
    ).where(*conditions).order_by(f.given_at)  # fmt: skip
