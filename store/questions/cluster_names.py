"""Which names clusters have in what is stored, and the changes that replace one name with another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from parsers.record import TABLES
from store.functions import const, epoch, listed
from store.tables import FILES, JOBS, METADATA, RECENT_LINES, SOURCES

#: Rows other than lines that name a cluster, and operators' statements about them.
RENAMED = (
    *(METADATA.tables[f"raw.{name}"] for name in TABLES if name != "logs"), FILES,
    *(METADATA.tables[f"kept.{name}"] for name in ("detections", "versions", "aliases", "notices", "feedback", "triage", "drain_decisions")),
)  # fmt: skip
#: Tables that would name a second cluster before its first job: states, settings, job files.
WITNESSES = tuple(
    METADATA.tables[f"raw.{name}"]
    for name in ("node_states", "settings", "topology", "links", "boots", "artifacts", "environments")
)


def clusters_of(table: sa.Table) -> sa.Select[Any]:
    """``cluster``: each that rows of a table name."""
    return sa.select(table.c.cluster).distinct().where(table.c.cluster.is_not(None))


def nodes_of_jobs_with_lines() -> sa.Select[Any]:
    """One row where a node that accounting names has lines; none where no such node has."""
    of_jobs = sa.select(sa.func.unnest(JOBS.c.nodes).label("host")).subquery("of_jobs")
    return sa.select(const(1).label("met")).where(RECENT_LINES.c.host == of_jobs.c.host).limit(1)


def received_for() -> sa.Select[Any]:
    """``s``: for so many seconds data has arrived over the network; null where none ever did."""
    return sa.select((epoch(sa.func.max(SOURCES.c.last_seen)) - epoch(sa.func.min(SOURCES.c.first_seen))).label("s"))


def rename(table: sa.Table, others: Sequence[str], cluster: str) -> sa.Update:
    """Rows of a table that have one of the other names get the cluster's."""
    return sa.update(table).where(listed(table.c.cluster, list(others))).values(cluster=cluster)
