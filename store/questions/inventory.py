"""Knowledge of a cluster regardless of time: settings, cables, switches; and the states of its nodes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select, union

from store.functions import in_order, same
from store.questions.source import ALL, CLUSTER, Rows, Source
from store.tables import JOBS, LINE_CLUSTERS, LINKS, SETTINGS, TOPOLOGY


def clusters() -> Select[Any]:
    """``cluster``: each one that lines or jobs name; null, first, for rows that name none."""
    named = union(select(LINE_CLUSTERS.c.cluster), select(JOBS.c.cluster)).subquery("named")
    return select(named.c.cluster).distinct().order_by(named.c.cluster.nulls_first())


def settings(cluster: str | None) -> Select[Any]:
    """All distinct rows about a cluster's configuration."""
    return in_order(select(SETTINGS).distinct().where(same(SETTINGS.c.cluster, cluster)))


def links(cluster: str | None) -> Select[Any]:
    """All distinct rows about a cluster's cables."""
    return in_order(select(LINKS).distinct().where(same(LINKS.c.cluster, cluster)))


def topology(cluster: str | None) -> Select[Any]:
    """All distinct rows about the switches that Slurm knows."""
    return in_order(select(TOPOLOGY).distinct().where(same(TOPOLOGY.c.cluster, cluster)))


#: The columns of a node's state in ``raw`` and in ``model``.
STATE = ("time", "until", "cluster", "host", "state", "reason", "actor", "source")


def node_states(cluster: str | None, source: Source = ALL) -> Select[Any]:
    """The distinct states of a cluster's nodes that have a time: ``STATE``."""
    return source.asked(_node_states, cluster)


def _node_states(rows: Rows) -> Select[Any]:
    states = rows.node_states.c
    return in_order(
        select(*(states[name] for name in STATE))
        .distinct()
        .where(same(states.cluster, CLUSTER), states.time.is_not(None))
    )
