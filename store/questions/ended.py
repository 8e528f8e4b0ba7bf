"""The scope of reports: runs and incidents that ended in a period, and the cost of bad ends.

``Period`` is in naive UTC and half open. A run counts at its end; an incident that is not over counts at its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.job_states import OPEN, SUCCEEDED
from store.functions import (
    Element,
    const,
    counted,
    epoch,
    json_count,
    json_number,
    json_text,
    one_of,
)
from store.questions.incidents import OVER
from store.tables import INCIDENTS, NUMBER, RUNS

R, N = RUNS.c, INCIDENTS.c

_EMPTY = const("")
#: A run that ended, and one that ended in another state than COMPLETED.
ENDED = sa.and_(R.end.is_not(None), func.coalesce(R.state, _EMPTY).not_in([const(state) for state in sorted(OPEN)]))
BADLY = sa.and_(ENDED, R.state.not_in([const(state) for state in sorted(SUCCEEDED)]))
#: The computation of a run, in GPU-hours. A run without a logged GPU count counts as none.
GPU_HOURS: Element = (
    func.coalesce(R.gpus, const(0)) * func.greatest(const(0), func.coalesce(epoch(R.end) - epoch(R.start), const(0)))
    / sa.literal_column("3600.0")
)  # fmt: skip
OF_CLUSTER_FAULT = func.starts_with(R.category, const("infra."))
CATEGORY = func.coalesce(R.category, const("without a verdict"))
GPU_HOURS_LOST = json_number(N.document, "$.gpu_hours_lost")
JOBS_HURT = json_count(N.document, "$.jobs")
#: Clusters that runs or incidents name.
CLUSTERS = sa.union(sa.select(R.cluster), sa.select(N.cluster))


@dataclass(frozen=True)
class Period:
    """From ``since`` on and before ``until``; None means unbounded."""

    since: datetime | None = None
    until: datetime | None = None

    def holds(self, moment: Element) -> list[sa.ColumnElement[bool]]:
        """Conditions: a time is in the period."""
        conditions = [moment >= self.since] if self.since is not None else []
        return conditions + ([moment < self.until] if self.until is not None else [])

    @property
    def runs(self) -> list[sa.ColumnElement[bool]]:
        """Conditions: a run ended in it."""
        return [ENDED, *self.holds(R.end)]

    @property
    def incidents(self) -> list[sa.ColumnElement[bool]]:
        """Conditions: an incident ended in it."""
        return self.holds(OVER)


def total(amount: Element) -> Element:
    """A sum; 0 if there are no rows."""
    return func.coalesce(func.sum(amount), const(0))


def whole(amount: Element) -> Element:
    """An integer sum; 0 if there are no rows."""
    return sa.cast(total(amount), NUMBER)


def run_totals(of: Period) -> sa.Select[Any]:
    """One row: ended runs; bad ends, those caused by the cluster, those with unknown cause; first and last end;
    GPU-hours used and wasted."""
    return sa.select(
        counted().label("ended"), counted(BADLY).label("badly"), counted(sa.and_(BADLY, OF_CLUSTER_FAULT)).label("infra"),
        counted(sa.and_(BADLY, R.category == const("unknown"))).label("unknown"), func.min(R.end).label("first"),
        func.max(R.end).label("last"), total(GPU_HOURS).label("used"),
        func.coalesce(func.sum(GPU_HOURS).filter(BADLY), const(0)).label("wasted"),
    ).where(*of.runs)  # fmt: skip


def incident_totals(of: Period) -> sa.Select[Any]:
    """One row: incidents, those with impact, the first start, the last end, GPU-hours lost."""
    return sa.select(
        counted().label("incidents"), counted(N.severity == const("impact")).label("impact"), func.min(N.start).label("first"),
        func.max(OVER).label("last"), total(GPU_HOURS_LOST).label("lost"),
    ).where(*of.incidents)  # fmt: skip


def first_and_last() -> sa.Select[Any]:
    """The first and the last end of anything in the store."""
    runs = sa.select(R.end.label("m")).where(ENDED)
    ends = sa.union_all(runs, sa.select(OVER)).subquery("ends")
    return sa.select(func.min(ends.c.m).label("first"), func.max(ends.c.m).label("last"))


def by_category(of: Period) -> sa.Select[Any]:
    """Bad ends by category, most frequent first."""
    category = CATEGORY.label("category")
    asked = sa.select(
        category, counted().label("jobs"), func.count(sa.distinct(R.user)).label("users"), func.sum(GPU_HOURS).label("gpu_hours")
    ).where(*of.runs, BADLY)  # fmt: skip
    return asked.group_by(CATEGORY).order_by(sa.desc("jobs"), sa.asc("category"))


def by_state(of: Period) -> sa.Select[Any]:
    """Bad ends by Slurm's state, most frequent first."""
    asked = sa.select(R.state, counted().label("jobs"), func.sum(GPU_HOURS).label("gpu_hours")).where(*of.runs, BADLY)
    return asked.group_by(R.state).order_by(sa.desc("jobs"), R.state)


def by_severity(of: Period) -> sa.Select[Any]:
    """Incidents by severity, worst first."""
    order = func.list_position(func.list_value(*map(const, ("impact", "degraded", "benign"))), N.severity)
    asked = sa.select(N.severity, counted().label("incidents"), whole(JOBS_HURT).label("jobs")).where(*of.incidents)
    return asked.group_by(N.severity).order_by(order.nulls_last(), N.severity)


def spans_by_root(of: Period, nobody: str) -> sa.Select[Any]:
    """Incidents by start, with the host at their root (``nobody`` if there is none)."""
    asked = sa.select(
        func.coalesce(N.root_host, nobody).label("host"), N.start, N.end, N.severity,
        func.coalesce(json_text(N.document, "$.title"), N.root_event).label("title"),
    ).where(*of.incidents)  # fmt: skip
    return asked.order_by(N.start, N.incident_id)


def repeated(of: Period, least: int) -> sa.Select[Any]:
    """Jobs of one user and name that ended badly at least ``least`` times."""
    badly = counted(BADLY)
    categories = func.list_sort(func.list(sa.distinct(CATEGORY)).filter(BADLY)).label("categories")
    asked = sa.select(
        R.cluster, R.user, R.name, counted().label("runs"), badly.label("failed"), (badly / counted()).label("rate"), categories,
        func.coalesce(func.sum(GPU_HOURS).filter(BADLY), const(0)).label("gpu_hours"),
        func.min(R.end).filter(BADLY).label("first_seen"), func.max(R.end).filter(BADLY).label("last_seen"),
    ).where(*of.runs)  # fmt: skip
    asked = asked.group_by(R.cluster, R.user, R.name).having(badly >= least)
    return asked.order_by(sa.desc("failed"), sa.desc("gpu_hours"), R.user, R.name, R.cluster)


def usage_totals(of: Period) -> sa.Select[Any]:
    """One row: ended runs, their GPU-hours, the median wait in seconds."""
    return sa.select(counted().label("jobs"), total(GPU_HOURS).label("gpu_hours"), WAIT.label("wait_s")).where(*of.runs)


#: Seconds from submission to start, the median.
WAIT = func.median(func.greatest(const(0), epoch(R.start) - epoch(R.submit)))


def usage(of: Period, column: str) -> sa.Select[Any]:
    """Ended runs by a column of ``RUNS`` (``of``): GPU-hours, failure rate, wait."""
    whose = func.coalesce(R[column], const("not told"))
    asked = sa.select(
        R.cluster, whose.label("of"), counted().label("jobs"), counted(BADLY).label("badly"),
        (counted(BADLY) / counted()).label("rate"), counted(OF_CLUSTER_FAULT).label("infra"),
        func.sum(GPU_HOURS).label("gpu_hours"), WAIT.label("wait_s"),
    ).where(*of.runs)  # fmt: skip
    return asked.group_by(R.cluster, whose).order_by(sa.desc("gpu_hours"), sa.desc("jobs"), sa.asc("of"), R.cluster)


def verdicts(of: Period) -> sa.Select[Any]:
    """One row about bad ends: their number, of unknown cause, without a verdict, of weak confidence, without GPUs."""
    return sa.select(
        counted().label("n"), counted(R.category == const("unknown")).label("unknown"),
        counted(R.category.is_(None)).label("missing"),
        counted(sa.and_(R.category != const("unknown"), R.confidence < sa.literal_column("0.5"))).label("weak"),
        counted(func.coalesce(R.gpus, const(0)) == const(0)).label("no_gpus"),
    ).where(BADLY, *of.holds(R.end))  # fmt: skip


#: Runs without a known end.
STILL_OPEN = sa.select(counted().label("n")).select_from(RUNS).where(sa.not_(ENDED))


def limits_met(of: Period) -> sa.Select[Any]:
    """Runs that ran out of memory or time, by the user who requested too little."""
    what = sa.case((R.category == const("app.oom"), const("memory")), else_=const("time limit"))
    asked = sa.select(
        R.cluster, what.label("what"), R.user, R.name, counted().label("jobs"), func.sum(GPU_HOURS).label("gpu_hours"),
        func.max(R.time_limit_s).label("limit_s"), func.max(epoch(R.end) - epoch(R.start)).label("longest_s"),
        func.max(R.end).label("last_seen"),
    ).where(BADLY, one_of(R.category, ("app.oom", "app.timeout")), *of.holds(R.end))  # fmt: skip
    asked = asked.group_by(R.cluster, what, R.user, R.name)
    return asked.order_by(sa.desc("jobs"), sa.desc("gpu_hours"), sa.asc("what"), R.user, R.name, R.cluster)
