"""What runs and nodes are like: for comparing those that were hurt with the others."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Select, func

from store.functions import const, same
from store.tables import LINKS, RUNS, SETTINGS, TOPOLOGY

R = RUNS.c

#: What is asked of a run.
COLUMNS = (R.run_key, R.state, R.category, R.user, R.account, R.partition, R.name, R.nodes, R.start)

#: What a job's environment says of how it communicates; the rest differs between any two jobs.
EXPLAINING = ("NCCL_", "UCX_", "OMPI_MCA_", "PMIX_MCA_", "FI_", "CUDA_", "TORCH_")
#: A longer value is a path or a list of its own.
LONGEST = 100


def clusters() -> Select[Any]:
    """``cluster``: each one with runs."""
    return sa.select(R.cluster).distinct().order_by(R.cluster.nulls_first())


def runs_meanwhile(start: datetime, end: datetime, cluster: str | None, most: int) -> Select[Any]:
    """At most ``most`` runs of a cluster that ran at some time from ``start`` to ``end``, the last ones first."""
    return _runs(cluster, most, R.start, R.start <= end, sa.or_(R.end.is_(None), R.end >= start))


def runs_ended(start: datetime, end: datetime, cluster: str | None, most: int) -> Select[Any]:
    """At most ``most`` runs of a cluster that ended from ``start`` to ``end``, the last ones first."""
    return _runs(cluster, most, R.end, R.start.is_not(None), R.end >= start, R.end < end)


def _runs(cluster: str | None, most: int, by: Any, *conditions: Any) -> Select[Any]:
    asked = sa.select(*COLUMNS).where(same(R.cluster, cluster), *conditions)
    return asked.order_by(by.desc(), R.run_key).limit(most)


def places(cluster: str | None) -> Select[Any]:
    """``host``, ``kind`` and ``value``: the switches and planes that a node is cabled to, and its place in Slurm's topology."""
    link, place = LINKS.c, TOPOLOGY.c
    parts = [
        sa.select(link.host, const("switch").label("kind"), link.switch.label("value")).where(same(link.cluster, cluster), link.switch.is_not(None)),
        sa.select(place.child.label("host"), const("switch"), place.switch).where(same(place.cluster, cluster), place.kind == const("node")),
    ]  # fmt: skip
    return sa.select(sa.union(*parts).subquery("places"))


def environments(cluster: str | None) -> Select[Any]:
    """``scope`` (job:42 or job:42#1), ``name`` and ``value`` of what jobs set for their communication."""
    s = SETTINGS.c
    explaining = sa.or_(*(func.starts_with(s.name, const(prefix)) for prefix in EXPLAINING))
    short = func.length(s.value) <= const(LONGEST)
    return (
        sa.select(s.scope, s.name, s.value)
        .where(same(s.cluster, cluster), func.starts_with(s.scope, const("job:")), explaining, short)
        .distinct()
    )
