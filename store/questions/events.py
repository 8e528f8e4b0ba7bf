"""Queries about events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.writers import NO_USERS
from store.functions import const, last_by, listed, one_of
from store.questions.conditions import of_cluster
from store.tables import EVENTS

E = EVENTS.c


def found(
    *, start: datetime | None = None, end: datetime | None = None, hosts: Sequence[str] | None = None, job: int | None = None,
    clusters: Sequence[str | None] = (), newest: bool = False, limit: int,
) -> sa.Select[Any]:  # fmt: skip
    """Events of some hosts or a job in a range, oldest first; with ``newest``, newest first. ``clusters``: one,
    including rows without a cluster."""
    conditions: list[Any] = [of_cluster(E.cluster, cluster) for cluster in clusters]
    conditions += ([E.time >= start] if start else []) + ([E.time <= end] if end else [])
    either = ([listed(E.host, hosts)] if hosts is not None else []) + ([E.job_id == job] if job is not None else [])
    asked = sa.select(
        E.event_id, E.time, E.time_quality, E.resolution_us, E.received_time, E.host, E.source, E.unit, E.layer, E.event,
        E.severity, E.device, E.job_id, E.message, E["count"], E.incident_id, E.file, E.line, E.authority,
    ).where(*conditions, *([sa.or_(*either)] if either else []))  # fmt: skip
    order = (E.time.desc(), E.event_id.desc()) if newest else (E.time, E.event_id)
    return asked.order_by(*order).limit(limit)


def boots(hosts: Sequence[str], cluster: str | None, before: datetime) -> sa.Select[Any]:
    """What each node's kernel said of itself when it last booted ``before``, if nobody else can have said it: host, entities."""
    newest = last_by(E.entities, E.time).label("entities")
    conditions = [
        E.event == const("kernel.boot"),
        listed(E.host, hosts),
        E.time < before,
        one_of(E.authority, sorted(NO_USERS)),
    ]
    return (
        sa.select(E.host, newest).where(*conditions, of_cluster(E.cluster, cluster)).group_by(E.host).order_by(E.host)
    )


def newest() -> sa.Select[Any]:
    """``at``: the time of the newest event."""
    return sa.select(func.max(E.time).label("at"))


def of_kind_since(kind: str, since: datetime) -> sa.Select[Any]:
    """Events of one kind (a constant of ours) since a time: name, time, cluster, host and entities, oldest first."""
    asked = sa.select(E.event_id, E.time, E.cluster, E.host, E.entities).where(E.event == const(kind), E.time >= since)
    return asked.order_by(E.time, E.event_id)


def of_names(names: Sequence[str], cluster: str | None) -> sa.Select[Any]:
    """Events by their names."""
    asked = sa.select(E.event_id, E.host, E.device, E.message, E.source, E.file, E.job_id)
    return asked.where(listed(E.event_id, names), of_cluster(E.cluster, cluster))
