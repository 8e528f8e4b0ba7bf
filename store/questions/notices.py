"""Queries about sent notifications."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const
from store.tables import NOTICES


def last_sent(target: str, since: datetime) -> sa.Select[Any]:
    """The last notification to a target for each name since a time: name, cluster, digest."""
    n = NOTICES.c
    newest = func.row_number().over(partition_by=n.name, order_by=n.told_at.desc())
    sent = sa.select(n.name, n.cluster, n.digest, newest.label("place")).where(n.target == target, n.told_at >= since)
    of = sent.subquery("sent").c
    return sa.select(of.name, of.cluster, of.digest).where(of.place == const(1))


def sent(target: str, cluster: str | None, name: str, digest: str, now: datetime) -> sa.Insert:
    """Records that a target was notified of a name, and in which state (``digest``)."""
    return sa.insert(NOTICES).values(target=target, cluster=cluster, name=name, digest=digest, told_at=now)
