"""Changes of conclusions: a tick deletes the rows that differ and inserts the new ones."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Delete, Insert, Select, Table, delete, func, insert, select

from store.functions import among, same
from store.questions.inventory import STATE, node_states
from store.tables import CONCLUDED_FACTS, EVENTS, INCIDENTS, MODEL_NODE_STATES, RUNS

#: The column that identifies a row of a table within its cluster.
_KEYS = {EVENTS: "event_id", INCIDENTS: "incident_id", RUNS: "run_key", CONCLUDED_FACTS: "fact_id"}
#: The column by which it lies in time; a run's may be unknown.
_TIMES = {EVENTS: "time", INCIDENTS: "start", CONCLUDED_FACTS: "start"}


def stale_rows(
    table: Table, cluster: str | None, keys: Collection[str], between: tuple[datetime | None, datetime | None] | None = None
) -> Delete:  # fmt: skip
    """Deletes rows of a cluster from a table of events, incidents, runs or facts. ``between``: the time range of the rows (of
    their starts), if known: an engine can then skip the rest of a large table."""
    found = delete(table).where(same(table.c.cluster, cluster), among(table.c[_KEYS[table]], keys))
    return found if between is None else found.where(table.c[_TIMES[table]].between(*between))


def all_rows(table: Table) -> Delete:
    """Deletes all rows of a table."""
    return delete(table)


def states_counted(cluster: str | None) -> Select[Any]:
    """The number of states of a cluster's nodes that are ``concluded``, and of distinct ones that are ``stored``."""
    states = MODEL_NODE_STATES
    concluded = select(func.count()).select_from(states).where(same(states.c.cluster, cluster))
    stored = select(func.count()).select_from(node_states(cluster).order_by(None).subquery())
    return select(concluded.scalar_subquery().label("concluded"), stored.scalar_subquery().label("stored"))


def no_states(cluster: str | None) -> Delete:
    """Deletes all states of a cluster's nodes."""
    return delete(MODEL_NODE_STATES).where(same(MODEL_NODE_STATES.c.cluster, cluster))


def states_as_stored(cluster: str | None) -> Insert:
    """Inserts the stored states of a cluster's nodes."""
    return insert(MODEL_NODE_STATES).from_select(STATE, node_states(cluster))
