"""How long nodes were out of service: periods of DOWN, DRAIN, FAIL and MAINT, and why.

Every node's observations in time order, from Slurm's own tools and from slurmctld's lines. Power saving is not an
outage, and "not responding" (*) alone is not one yet.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.node_states import POWER_FLAGS, pattern_of
from store.functions import const, counted, epoch, matches, one_of
from store.questions.ended import Period
from store.tables import EVENTS, MODEL_NODE_STATES, TEXT, TEXTS

_NOTHING = sa.cast(sa.null(), TEXT)


def _seen() -> sa.CTE:
    """Times at which a node was observed ``bad`` (how) or not (null), with reason and actor if Slurm knows them."""
    e, s = EVENTS.c, MODEL_NODE_STATES.c
    nodes = func.json_extract(sa.cast(e.entities, sa.JSON()), const("$.nodes"))
    named = func.from_json(nodes, const('["VARCHAR"]'), type_=TEXTS)
    hosts = func.unnest(func.coalesce(named, func.list_value(e.host))).label("host")
    kinds = ("slurm.node_down", "slurm.node_drain", "slurm.node_up")
    lines = sa.select(e.cluster, hosts, e.time, e.event, e.message).where(one_of(e.event, kinds)).cte("state_lines")

    def names(*states: str) -> sa.ColumnElement[bool]:
        return matches(s.state, pattern_of(states))

    bad = sa.case(
        (names("DRAIN"), const("drained")), (names(*POWER_FLAGS), _NOTHING), (names("DOWN"), const("down")),
        (names("FAIL"), const("failed")), (names("MAINTENANCE"), const("maintenance")),
    )  # fmt: skip
    begun = sa.select(s.cluster, s.host, s.time, bad.label("bad"), s.reason, s.actor)
    begun = begun.where(s.time.is_not(None), s.host.is_not(None))
    over = sa.select(s.cluster, s.host, s.until, _NOTHING, _NOTHING, _NOTHING)
    over = over.where(s.until.is_not(None), s.host.is_not(None))
    n = lines.c
    stated_state = sa.case(
        (n.event == const("slurm.node_down"), const("down")), (n.event == const("slurm.node_drain"), const("drained"))
    )
    back = sa.or_(
        n.event != const("slurm.node_up"), n.message.like(const("%returned to service%")), n.message.ilike(const("%state set to%"))
    )  # fmt: skip
    logged = sa.select(n.cluster, n.host, n.time, stated_state, _NOTHING, _NOTHING).where(back)
    return sa.union_all(begun, over, logged).cte("seen")


def _ordered(seen: sa.CTE) -> sa.CTE:
    """Each observation with the one ``before`` it, when the node was ``good`` again and when it was observed
    ``last``."""
    s = seen.c
    track: dict[str, Any] = {"partition_by": (s.cluster, s.host), "order_by": (s.time, s.bad.nulls_last())}
    good = func.min(s.time).filter(s.bad.is_(None)).over(**track, rows=(1, None))
    last = func.max(s.time).over(partition_by=(s.cluster, s.host))
    return sa.select(*s, func.lag(s.bad).over(**track).label("before"), good.label("good"), last.label("last")).cte(
        "ordered"
    )


def _episodes(ordered: sa.CTE, same_s: float) -> sa.CTE:
    """Periods of being bad; those of one node that are at most ``same_s`` seconds apart are one."""
    o = ordered.c
    stretches = (
        sa.select(o.cluster, o.host, o.time.label("start"), o.good.label("end"), o.last)
        .where(o.bad.is_not(None), o.before.is_(None)).cte("stretches")
    ).c  # fmt: skip
    node: dict[str, Any] = {"partition_by": (stretches.cluster, stretches.host), "order_by": stretches.start}
    gap = epoch(stretches.start) - epoch(func.lag(stretches.end).over(**node))
    joined = sa.select(*stretches, sa.case((gap <= same_s, const(0)), else_=const(1)).label("new")).cte("joined").c
    number = func.sum(joined.new).over(partition_by=(joined.cluster, joined.host), order_by=joined.start)
    n = sa.select(*joined, number.label("number")).cte("numbered").c
    end = sa.case((func.bool_or(n.end.is_(None)), sa.null()), else_=func.max(n.end))
    return (
        sa.select(n.cluster, n.host, func.min(n.start).label("start"), end.label("end"), func.max(n.last).label("last"))
        .group_by(n.cluster, n.host, n.number).cte("episodes")
    )  # fmt: skip


def stretches(of: Period, same_s: float) -> sa.Select[Any]:
    """Time out of service (``out_s``) by node, state and reason. ``still``: no return was observed before the data end,
    and the time counts up to the node's last observation. ``same_s``: the largest difference, in seconds, between
    sources' timestamps of one change."""
    ordered = _ordered(_seen())
    episodes = _episodes(ordered, same_s)
    e, o = episodes.c, ordered.c
    during = sa.and_(
        o.cluster.is_not_distinct_from(e.cluster), o.host == e.host, o.bad.is_not(None), o.time >= e.start,
        sa.or_(e.end.is_(None), o.time <= e.end),
    )  # fmt: skip
    drained = func.max(o.bad).filter(o.bad == const("drained"))
    x = (
        sa.select(
            e.cluster, e.host, e.start, e.end, e.last, func.arg_max(o.reason, func.length(o.reason)).label("reason"),
            func.arg_max(o.actor, func.length(o.reason)).label("actor"), func.coalesce(drained, func.max(o.bad)).label("state"),
        )
        .select_from(episodes).join(ordered, during).group_by(e.cluster, e.host, e.start, e.end, e.last).cte("explained")
    ).c  # fmt: skip
    until = func.coalesce(x.end, x.last)
    asked = sa.select(
        x.cluster, x.host, x.state, x.reason, func.max(x.actor).label("actor"), counted().label("times"),
        func.sum(epoch(until) - epoch(x.start)).label("out_s"), (counted(x.end.is_(None)) > const(0)).label("still"),
        func.min(x.start).label("first_seen"), func.max(x.start).label("last_seen"),
    ).where(*of.holds(until)).group_by(x.cluster, x.host, x.state, x.reason)  # fmt: skip
    return asked.order_by(sa.desc("out_s"), x.host, x.state, x.reason, x.cluster)
