"""What the drain advisor decided (``kept.drain_decisions``), and the lines that it decides by."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.writers import NO_USERS
from store.functions import among, counted, last_by, one_of, same
from store.questions.ended import Period
from store.tables import DRAIN_DECISIONS, EVENTS, INCIDENTS

D, E, N = DRAIN_DECISIONS.c, EVENTS.c, INCIDENTS.c


def since(moment: datetime) -> sa.Select[Any]:
    """Every step from a time on, the oldest first."""
    return sa.select(DRAIN_DECISIONS).where(D.at >= moment).order_by(D.at, D.decision)


def newest() -> sa.Select[Any]:
    """``at``: when the last step was kept; null if there is none."""
    return sa.select(func.max(D.at).label("at"))


def in_period(period: Period) -> sa.Select[Any]:
    """Every step of a period, the newest first."""
    return sa.select(DRAIN_DECISIONS).where(*period.holds(D.at)).order_by(D.at.desc(), D.decision)


def incidents(cluster: str | None, names: Collection[str]) -> sa.Select[Any]:
    """Of some incidents: id, root and times, the oldest first."""
    columns = (N.incident_id, N.root_event, N.root_host, N.root_device, N.start, N.end)
    return (
        sa.select(*columns)
        .where(same(N.cluster, cluster), among(N.incident_id, names))
        .order_by(N.start, N.incident_id)
    )


def witnesses(
    cluster: str | None,
    incident: str | None,
    places: Collection[tuple[str, str]],
    kinds: Iterable[str],
    moment: datetime,
) -> sa.Select[Any]:
    """Lines of an incident (None: of any or none) from a time on that no user can have written, of some kinds and ``places`` (host,
    device): for each host and ``authority`` their number (``lines``), the last ``time``, and that line's ``message``, ``event`` and ``event_id``."""
    by = (E.host, E.authority)
    return (
        sa.select(
            *by, counted().label("lines"), func.max(E.time).label("time"), last_by(E.message, E.time).label("message"),
            last_by(E.event, E.time).label("event"), last_by(E.event_id, E.time).label("event_id"),
        )
        .where(
            same(E.cluster, cluster), *([E.incident_id == incident] if incident is not None else ()),
            sa.or_(*(sa.and_(E.host == host, E.device == device) for host, device in places)), one_of(E.event, kinds),
            one_of(E.authority, sorted(NO_USERS)), E.time >= moment,
        )
        .group_by(*by).order_by(*by)
    )  # fmt: skip


__all__ = ["in_period", "incidents", "newest", "since", "witnesses"]
