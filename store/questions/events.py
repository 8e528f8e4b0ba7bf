"""Queries about events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.writers import NO_USERS
from store.functions import const, counted, epoch, first_by, last_by, listed, one_of, unnested
from store.questions.conditions import of_cluster
from store.tables import EVENTS, NUMBER, REAL, TEXT

E = EVENTS.c
_SHOWN = (
    E.event_id, E.time, E.time_quality, E.resolution_us, E.received_time, E.host, E.source, E.unit, E.layer, E.event, E.severity,
    E.device, E.job_id, E.message, E["count"], E.incident_id, E.file, E.line, E.authority,
)  # fmt: skip


def found(
    *, start: datetime | None = None, end: datetime | None = None, hosts: Sequence[str] | None = None, job: int | None = None,
    clusters: Sequence[str | None] = (), newest: bool = False, limit: int,
) -> sa.Select[Any]:  # fmt: skip
    """Events of some hosts or a job in a range, oldest first; with ``newest``, newest first. ``clusters``: one,
    including rows without a cluster."""
    conditions: list[Any] = [of_cluster(E.cluster, cluster) for cluster in clusters]
    conditions += ([E.time >= start] if start else []) + ([E.time <= end] if end else [])
    either = ([listed(E.host, hosts)] if hosts is not None else []) + ([E.job_id == job] if job is not None else [])
    asked = sa.select(*_SHOWN).where(*conditions, *([sa.or_(*either)] if either else []))
    order = (E.time.desc(), E.event_id.desc()) if newest else (E.time, E.event_id)
    return asked.order_by(*order).limit(limit)


def number(start: datetime, end: datetime, hosts: Sequence[str], clusters: Sequence[str | None]) -> sa.Select[Any]:
    """``n``: how many events ``found`` has of some hosts in a range."""
    where = [of_cluster(E.cluster, cluster) for cluster in clusters] + [
        E.time >= start,
        E.time <= end,
        listed(E.host, hosts),
    ]
    return sa.select(counted().label("n")).where(*where)


#: The columns by which lines are of one kind and on one lane.
_ALIKE = ("host", "layer", "source", "event", "severity", "device", "job_id")


def gathered(
    *, start: datetime, end: datetime, hosts: Sequence[str], clusters: Sequence[str | None], bin_s: float, without: Sequence[str]
) -> sa.Select[Any]:  # fmt: skip
    """Events of some hosts in a range, where they are too many for each: of those of one kind in each ``bin_s`` seconds the first
    one, with the ``count`` of all and the time of the ``last``. ``without``: names of events that are not among them."""
    where = [of_cluster(E.cluster, cluster) for cluster in clusters] + [
        E.time >= start,
        E.time <= end,
        listed(E.host, hosts),
    ]
    named = sa.select(unnested(without, TEXT).label("name")).subquery("apart").c
    place = func.floor(epoch(E.time) / sa.cast(const(float(bin_s)), REAL))
    total = func.sum(func.greatest(func.coalesce(E["count"], const(1)), const(1)))
    # Whole rows are read of the first ones only: sorting all of them takes five times as long.
    of_kind = (
        sa.select(first_by(E.event_id, sa.tuple_(E.time, E.event_id)).label("first"),
                  sa.cast(total, NUMBER).label("count"), func.max(E.time).label("last"))
        .where(*where, E.event_id.not_in(sa.select(named.name)))
        .group_by(*(E[name] for name in _ALIKE), place)
        .subquery("of_kind")
    )  # fmt: skip
    shown = [column for column in _SHOWN if column.name != "count"]
    joined = EVENTS.join(of_kind, E.event_id == of_kind.c.first)
    return (
        sa.select(*shown, of_kind.c["count"], of_kind.c["last"])
        .select_from(joined).where(*where).order_by(E.time, E.event_id)
    )  # fmt: skip


def exactly(names: Sequence[str], clusters: Sequence[str | None]) -> sa.Select[Any]:
    """Events by their names, oldest first, with the columns of ``found``."""
    where = [listed(E.event_id, names), *(of_cluster(E.cluster, cluster) for cluster in clusters)]
    return sa.select(*_SHOWN).where(*where).order_by(E.time, E.event_id)


def boots(hosts: Sequence[str], cluster: str | None, before: datetime) -> sa.Select[Any]:
    """What each node's kernel logged of itself when it last booted ``before``, if no other can have written it: host, entities."""
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
