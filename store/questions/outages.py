"""Queries about flapping links: outages counted per link end from events, with or without an incident.

An outage lasts from the first "down" to the next "up". Repeated "down" lines in between belong to the same outage,
unless the machine rebooted meanwhile: then its links came back with it, unlogged. A copy of a line that lost its host
belongs to the only host with such a device.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import const, counted, epoch, json_count, one_of
from store.questions.ended import Period
from store.tables import EVENTS, INCIDENTS, NUMBER

_KINDS = ("nic.link_down", "nic.link_up", "switch.port_down", "switch.port_up")


@cache
def _outages(restarts: tuple[str, ...]) -> sa.CTE:
    """``restarts``: root causes after which a machine starts again. Outages: cluster, host ('' if unnamed), device, side (nic or switch), start, end, incident_id."""
    e, i = EVENTS.c, INCIDENTS.c
    one_host = (
        sa.select(e.cluster, e.device, func.min(e.host).label("host")).where(one_of(e.event, _KINDS), e.host.is_not(None))
        .group_by(e.cluster, e.device).having(func.count(sa.distinct(e.host)) == const(1)).cte("one_host")
    )  # fmt: skip
    changes = (
        sa.select(
            e.cluster, func.coalesce(e.host, one_host.c.host).label("host"), e.device,
            func.split_part(e.event, const("."), const(1)).label("side"), e.time,
            func.ends_with(e.event, const("_down")).label("down"), e.incident_id,
        )
        .select_from(EVENTS)
        .outerjoin(one_host, sa.and_(one_host.c.cluster.is_not_distinct_from(e.cluster), one_host.c.device == e.device))
        .where(one_of(e.event, _KINDS), e.device.is_not(None)).cte("link_changes")
    )  # fmt: skip
    boots = (
        sa.select(i.cluster, i.root_host.label("host"), i.end.label("time"))
        .where(one_of(i.root_event, restarts)).distinct().cte("reboots")
    )  # fmt: skip
    c = changes.c
    ends = sa.select(c.cluster, c.host, c.device, c.side).distinct().subquery("link_ends")
    came_back = sa.select(
        ends.c.cluster, ends.c.host, ends.c.device, ends.c.side, boots.c.time, sa.false(), sa.cast(sa.null(), sa.String)
    ).join_from(ends, boots, sa.and_(boots.c.cluster.is_not_distinct_from(ends.c.cluster), boots.c.host == ends.c.host))
    all_changes = sa.select(c.cluster, c.host, c.device, c.side, c.time, c.down, c.incident_id)
    marked = sa.union_all(all_changes, came_back).cte("marked")
    m = marked.c
    track: dict[str, Any] = {"partition_by": (m.cluster, m.host, m.device, m.side), "order_by": (m.time, m.down.desc())}
    before = func.coalesce(func.lag(m.down).over(**track), sa.false()).label("before")
    up = func.min(m.time).filter(sa.not_(m.down)).over(**track, rows=(1, None)).label("up")
    o = sa.select(*m, before, up).cte("ordered").c
    return (
        sa.select(
            o.cluster, func.coalesce(o.host, const("")).label("host"), o.device, o.side, o.time.label("start"), o.up.label("end"),
            o.incident_id,
        ).where(o.down, sa.not_(o.before)).cte("outages")
    )  # fmt: skip


def per_link(of: Period, restarts: tuple[str, ...]) -> sa.Select[Any]:
    """Outages of each link end with their length in seconds; ``open``: those without a logged end; ``jobs``: hurt by
    incidents rooted there."""
    o, i = _outages(restarts).c, INCIDENTS.c
    hurt = (
        sa.select(i.cluster, i.root_host, i.root_device, sa.cast(func.sum(json_count(i.document, "$.jobs")), NUMBER).label("jobs"))
        .group_by(i.cluster, i.root_host, i.root_device).subquery("hurt")
    )  # fmt: skip
    h = hurt.c
    lasted = epoch(o.end) - epoch(o.start)
    side = sa.case((o.side == const("nic"), const("node")), else_=const("switch"))
    same_end = sa.and_(h.cluster.is_not_distinct_from(o.cluster), h.root_host == o.host, h.root_device == o.device)
    asked = (
        sa.select(
            o.cluster, o.host, o.device, side.label("side"), counted().label("outages"),
            func.coalesce(func.sum(lasted), const(0)).label("down_s"), func.max(lasted).label("longest_s"),
            counted(o.end.is_(None)).label("open"), func.min(o.start).label("first_seen"), func.max(o.start).label("last_seen"),
            func.max(func.coalesce(h.jobs, const(0))).label("jobs"),
        )
        .select_from(_outages(restarts)).outerjoin(hurt, same_end).where(*of.holds(func.coalesce(o.end, o.start)))
        .group_by(o.cluster, o.host, o.device, side)
    )  # fmt: skip
    return asked.order_by(sa.desc("outages"), sa.desc("down_s"), o.host, o.device, o.cluster)


def spans(of: Period, restarts: tuple[str, ...]) -> sa.Select[Any]:
    """Outages from the nodes' ends, by start."""
    o = _outages(restarts).c
    asked = sa.select(o.cluster, o.host, o.device, o.start, o.end).where(o.side == const("nic"))
    return asked.where(*of.holds(func.coalesce(o.end, o.start))).order_by(o.start, o.host, o.device, o.cluster)
