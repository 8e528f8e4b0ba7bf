"""Periods in which nodes were out of service (``store.tables.DRAINS``, which says what that is), and why."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const, counted
from store.questions.conditions import of_cluster
from store.questions.ended import Period
from store.tables import DRAINS

D = DRAINS.c
#: Who set or ended a period, where no user is known: slurmctld by itself, and an update whose sender its log does not name.
BY_ITSELF, UNNAMED = "slurmctld", "not logged by Slurm"


def _in(period: Period) -> sa.ColumnElement[bool]:
    """A period out of service counts where it ended; one that lasts counts in every period after it began."""
    lasting = [D.end.is_(None), *([D.begin < period.until] if period.until is not None else [])]
    return sa.or_(sa.and_(D.end.is_not(None), *period.holds(D.end)), sa.and_(*lasting))


def by_node(period: Period) -> sa.Select[Any]:
    """Time out of service (``out_s``, seconds) by node, state and reason.

    What lasts is a row of its own: ``since`` is when it began, and ``out_s`` counts up to the cluster's newest record.
    """
    lasts = D.end.is_(None)
    asked = sa.select(
        D.cluster, D.host, D.state, D.reason, func.max(D.actor).label("actor"), counted().label("times"),
        func.sum(D.seconds).label("out_s"), func.min(D.begin).filter(lasts).label("since"),
        func.min(D.begin).label("first_seen"), func.max(D.begin).label("last_seen"),
    ).where(_in(period)).group_by(D.cluster, D.host, D.state, D.reason, lasts)  # fmt: skip
    return asked.order_by(sa.desc("out_s"), D.host, D.state, D.reason, D.cluster)


def ledger(period: Period) -> sa.Select[Any]:
    """Every period out of service that ended in a period or lasts, the newest first."""
    return sa.select(DRAINS).where(_in(period)).order_by(D.begin.desc(), D.cluster, D.host)


def repeated(period: Period) -> sa.Select[Any]:
    """Nodes that were taken out of service more than once within 30 days (``times``), the most often first."""
    asked = sa.select(
        D.cluster, D.host, func.max(D.times).label("times"), func.sum(D.seconds).label("out_s"),
        func.list(sa.distinct(D.reason)).filter(D.reason.is_not(None)).label("reasons"), func.max(D.begin).label("last_seen"),
    ).where(_in(period)).group_by(D.cluster, D.host).having(func.max(D.times) > const(1))  # fmt: skip
    return asked.order_by(sa.desc("times"), sa.desc("out_s"), D.cluster, D.host)


def everything() -> sa.Select[Any]:
    """Every period out of service, by node and time, without its evidence."""
    columns = (D.cluster, D.host, D.state, D.actor, D.owner, D.reason, D.begin, D.end, D.undone_by)
    return sa.select(*columns).order_by(D.cluster, D.host, D.begin)


def of_node(host: str, cluster: str | None, since: datetime | None, until: datetime | None) -> sa.Select[Any]:
    """A node's periods out of service that overlap a range, the newest first."""
    conditions: list[Any] = [D.host == host, of_cluster(D.cluster, cluster)]
    conditions += [D.begin <= until] if until else []
    conditions += [sa.or_(D.end.is_(None), D.end >= since)] if since else []
    return sa.select(DRAINS).where(*conditions).order_by(D.begin.desc())
