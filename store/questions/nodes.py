"""Queries about nodes, by their names in a store of several clusters (``store.node_names``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import Element, const, counted, listed, moment, one_of
from store.questions.conditions import of_cluster
from store.tables import EVENTS, INCIDENTS, LINES, LINKS, NUMBER, RUNS, STATES, TEXT

_ERRORS = ("error", "critical", "crit", "alert", "emerg")
#: Clusters that events or runs name.
CLUSTERS = sa.union(sa.select(EVENTS.c.cluster), sa.select(RUNS.c.cluster))


def named(states: sa.FromClause = STATES) -> sa.Select[Any]:
    """Every node that Slurm or a log line named: ``name`` in the whole store, ``host`` and ``cluster``. ``states``: the
    source of its states."""
    both = sa.union(sa.select(states.c.host, states.c.cluster), sa.select(EVENTS.c.host, EVENTS.c.cluster))
    seen = both.subquery("seen")
    clusters = func.count(seen.c.cluster).over(partition_by=seen.c.host).label("clusters")
    counts = sa.select(seen.c.host, seen.c.cluster, clusters).where(seen.c.host.is_not(None), seen.c.host != const(""))
    of = counts.subquery("counts")
    qualified = of.c.host.op("||")(const("@")).op("||")(of.c.cluster)
    name = sa.case((of.c.clusters > const(1), qualified), else_=of.c.host).label("name")
    return sa.select(name, of.c.host, of.c.cluster).where(sa.or_(of.c.cluster.is_not(None), of.c.clusters == const(0)))


def shared() -> sa.Select[Any]:
    """Hosts that have their cluster in their name."""
    nodes = named().subquery("nodes")
    return sa.select(nodes.c.host).where(nodes.c.name != nodes.c.host).distinct()


def listed_nodes(*, search: str = "", behind: str = "", host: str | None = None, limit: int) -> sa.Select[Any]:
    """Nodes by name, with the newest state, since when it has lasted uninterrupted, and what happened to each.
    ``search``: a part of the name; ``behind``: the name after which the list continues; ``host``: that host's only."""
    given = {"search": search, "behind": behind, "most": limit}
    return _listed(host is not None).params(**given, **({} if host is None else {"host": host}))


@cache
def _listed(of_host: bool) -> sa.Select[Any]:
    """Built once: building takes as long as running it."""
    host = sa.bindparam("host", type_=TEXT)
    states = sa.select(STATES).cte("states").prefix_with("MATERIALIZED")
    nodes = named(states).subquery("nodes")
    which = sa.select(nodes) if not of_host else sa.select(nodes).where(nodes.c.host == host)
    called = which.cte("named").prefix_with("MATERIALIZED")
    e = EVENTS.c
    per_host = sa.select(
        e.host, e.cluster, counted().label("events"), func.max(e.time).label("last_event"),
        counted(one_of(e.severity, _ERRORS)).label("errors"),
    ).group_by(e.host, e.cluster)  # fmt: skip
    counts = (per_host if not of_host else per_host.where(e.host == host)).cte("counted")

    def of_nodes(table: sa.FromClause, host: Element, *columns: Element) -> sa.Select[Any]:
        """Columns of a table's rows for each node: those of its cluster and those without one."""
        theirs = table.c.cluster.is_(None) | table.c.cluster.is_not_distinct_from(called.c.cluster)
        return sa.select(called.c.name, *columns).join_from(table, called, sa.and_(host == called.c.host, theirs))

    s = states.c
    latest = of_nodes(
        states, s.host, func.arg_max_null(s.state, s.time).label("state"), func.arg_max_null(s.reason, s.time).label("reason")
    ).group_by(called.c.name).cte("latest")  # fmt: skip
    each = of_nodes(states, s.host, s.state, s.time).subquery("each_state")
    differs = func.lower(each.c.state).is_distinct_from(func.lower(latest.c.state))
    otherwise = (
        sa.select(each.c.name, func.max(each.c.time).filter(differs).label("last"))
        .join_from(each, latest, each.c.name == latest.c.name).group_by(each.c.name).cte("otherwise")
    )  # fmt: skip
    moments = of_nodes(states, s.host, s.time).subquery("moments")
    behind_it = otherwise.c.last.is_(None) | (moments.c.time > otherwise.c.last)
    held = (
        sa.select(moments.c.name, func.min(moments.c.time).filter(behind_it).label("since"))
        .join_from(moments, otherwise, moments.c.name == otherwise.c.name).group_by(moments.c.name).cte("held")
    )  # fmt: skip
    c = counts.c
    happened = of_nodes(
        counts, c.host, func.sum(c.events).label("events"), func.sum(c.errors).label("errors"),
        func.max(c.last_event).label("last_event"),
    ).group_by(called.c.name).cte("happened")  # fmt: skip
    rooted = (
        of_nodes(INCIDENTS, INCIDENTS.c.root_host, counted().label("incidents")).group_by(called.c.name).cte("rooted")
    )
    return (
        sa.select(
            called.c.name, called.c.host, called.c.cluster, latest.c.state, latest.c.reason, held.c.since,
            sa.cast(func.coalesce(happened.c.events, const(0)), NUMBER).label("events"),
            sa.cast(func.coalesce(happened.c.errors, const(0)), NUMBER).label("errors"), happened.c.last_event,
            func.coalesce(rooted.c.incidents, const(0)).label("incidents"),
        )
        .select_from(called).outerjoin(latest, latest.c.name == called.c.name).outerjoin(held, held.c.name == called.c.name)
        .outerjoin(happened, happened.c.name == called.c.name).outerjoin(rooted, rooted.c.name == called.c.name)
        .where(
            func.contains(called.c.name, sa.bindparam("search", type_=TEXT)), called.c.name > sa.bindparam("behind", type_=TEXT)
        )
        .order_by(called.c.name).limit(sa.bindparam("most", type_=NUMBER))
    )  # fmt: skip


def exactly(name: str) -> sa.Select[Any]:
    """The only node of that name or host; no row if several have it."""
    nodes = named().subquery("nodes")
    asked = sa.select(func.any_value(nodes.c.name).label("found")).where(
        sa.or_(nodes.c.name == name, nodes.c.host == name)
    )
    return asked.having(counted() == const(1))


def near(short: str, letters: int, most: int) -> sa.Select[Any]:
    """Nodes whose name contains a text, or whose host differs from it by a few letters; nearest first."""
    nodes = named().subquery("nodes")
    far = func.damerau_levenshtein(func.lower(nodes.c.host), func.lower(short))
    alike = sa.or_(func.contains(func.lower(nodes.c.name), func.lower(short)), far <= letters)
    return sa.select(nodes.c.name.label("found")).where(alike).order_by(far, nodes.c.name).limit(most)


def cluster_of_lines(host: str) -> sa.Select[Any]:
    """A cluster given in lines of a host."""
    asked = sa.select(LINES.c.cluster).where(LINES.c.host == host)
    return asked.order_by(LINES.c.cluster).limit(1)


def states(
    hosts: Sequence[str], start: datetime | None, end: datetime | None, clusters: Sequence[str | None] = ()
) -> sa.Select[Any]:
    """Node states during a range, by host and time; ``clusters``: one, including rows without a cluster."""
    s = STATES.c
    conditions: list[Any] = [listed(s.host, hosts), *(of_cluster(s.cluster, cluster) for cluster in clusters)]
    conditions += [s.time <= end] if end else []
    conditions += [func.coalesce(s.until, moment("9999-01-01")) >= start] if start else []
    asked = sa.select(s.time, s.until, s.host, s.state, s.reason, s.actor, s.source).where(*conditions)
    return asked.order_by(s.host, s.time).limit(5000)


def links(host: str, cluster: str | None) -> sa.Select[Any]:
    """Cables of a node."""
    c = LINKS.c
    asked = sa.select(c.device, c.switch, c.switch_port, c.plane, c.rail).where(
        c.host == host, of_cluster(c.cluster, cluster)
    )
    return asked.distinct().order_by(c.device)
