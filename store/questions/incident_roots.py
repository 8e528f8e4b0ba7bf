"""Queries about the roots of incidents: how often each had trouble, and incidents that resemble another one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const, counted, json_count, last_by, same
from store.questions.triage import UNHANDLED, WITH_STANDING
from store.tables import INCIDENTS

N = INCIDENTS.c


def listed(
    wanted: Sequence[sa.ColumnElement[bool]], *, behind: tuple[datetime, str] | None = None, limit: int
) -> sa.Select[Any]:
    """Host and device that incidents have as their root, the one with the newest incident first: how many (``n``), how
    many not over, how many that nobody handled, the jobs that they ended, and ``newest``, with its start.

    ``wanted``: conditions of ``store.questions.incidents``; ``behind``: where the list continues.
    """
    last, newest = func.max(N.start).label("last"), last_by(N.incident_id, N.start).label("newest")
    asked = sa.select(
        N.cluster, N.root_host, N.root_device, counted().label("n"), func.min(N.start).label("first"), last, newest,
        counted(N.end.is_(None)).label("open"), counted(UNHANDLED).label("unhandled"),
        func.coalesce(func.sum(json_count(N.document, "$.jobs")), const(0)).label("jobs"),
        counted(N.severity == const("impact")).label("impact"),
    ).select_from(WITH_STANDING).where(*wanted)  # fmt: skip
    asked = asked.group_by(N.cluster, N.root_host, N.root_device)
    if behind:
        asked = asked.having(sa.tuple_(last, newest) < sa.tuple_(*behind))
    return asked.order_by(last.desc(), newest.desc()).limit(limit)


def similar(
    *, cluster: str | None, before: datetime, host: str | None, device: str | None, event: str | None, limit: int
) -> sa.Select[Any]:
    """Earlier incidents of a cluster with the same root: ``way`` is "device" (host and device), "node" (host) or "cause"
    (event). Of each way the newest ``limit``, and ``n``, how many there are; each incident once."""
    on_host = N.root_host == (host or "")
    on_device = sa.and_(on_host, func.coalesce(N.root_device, const("")) == (device or ""))
    way = sa.case((on_device, const("device")), (on_host, const("node")), else_=const("cause")).label("way")
    place = func.row_number().over(partition_by=way, order_by=(N.start.desc(), N.incident_id.desc())).label("place")
    numbered = (
        sa.select(
            N.incident_id, N.start, N.end, N.severity, N.root_event, N.root_host, N.root_device, way, place,
            func.count().over(partition_by=way).label("n"),
        ).where(N.start < before, same(N.cluster, cluster), sa.or_(on_host, N.root_event == (event or "")))
    ).subquery("numbered")  # fmt: skip
    found = sa.select(numbered).where(numbered.c.place <= limit)
    return found.order_by(numbered.c.start.desc(), numbered.c.incident_id.desc())
