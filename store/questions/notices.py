"""Queries about sent notifications."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const
from store.tables import NOTICES


def last_sent(target: str, since: datetime) -> sa.Select[Any]:
    """The last notification to a target for each name since a time: name, cluster, digest, thread, about, told_at, and
    ``times``, how many messages its thread has."""
    n = NOTICES.c
    thread = func.coalesce(n.thread, n.name)
    newest = func.row_number().over(partition_by=n.name, order_by=n.told_at.desc())
    times = func.count(sa.distinct(n.told_at)).over(partition_by=thread)
    sent = sa.select(
        n.name, n.cluster, n.digest, n.thread, n.about, n.told_at, newest.label("place"), times.label("times")
    ).where(n.target == target, n.told_at >= since)
    of = sent.subquery("sent").c
    return sa.select(of.name, of.cluster, of.digest, of.thread, of.about, of.told_at, of.times).where(
        of.place == const(1)
    )


def sent(
    target: str, cluster: str | None, name: str, digest: str, now: datetime, thread: str, about: str | None
) -> sa.Insert:
    """Records that a target was notified of a name, in which state (``digest``), and in which thread."""
    return sa.insert(NOTICES).values(
        target=target, cluster=cluster, name=name, digest=digest, told_at=now, thread=thread, about=about
    )
