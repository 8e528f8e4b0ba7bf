"""All stored rows of a cluster around a time: what is needed to conclude about that time anew."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Select, func

from parsers.record import TABLES
from store.functions import counted, listed, same
from store.tables import ARTIFACTS, BOOTS, JOBS, LINES, LINKS, METRICS, NODE_STATES, SETTINGS, SOURCES, STEPS, TOPOLOGY

L = LINES.c


def _columns(table: sa.Table, name: str) -> list[Any]:
    return [table.c[column] for column in TABLES[name]]


def line_count(cluster: str | None, since: datetime, until: datetime) -> Select[Any]:
    """``n``: the number of log lines of a cluster in a range."""
    return sa.select(counted().label("n")).where(same(L.cluster, cluster), L.time >= since, L.time <= until)


def sample_count(cluster: str | None, since: datetime, until: datetime) -> Select[Any]:
    """``n``: the number of measurements of a cluster in a range."""
    m = METRICS.c
    return sa.select(counted().label("n")).where(same(m.cluster, cluster), m.time >= since, m.time <= until)


def lines(cluster: str | None, since: datetime, until: datetime) -> Select[Any]:
    """Log lines in a range."""
    asked = sa.select(*_columns(LINES, "logs")).where(same(L.cluster, cluster), L.time >= since, L.time <= until)
    return asked.order_by(L.time, L.file, L.line)


def unstamped(cluster: str | None, jobs: Collection[int], most: int) -> Select[Any]:
    """At most ``most`` lines without a time that these jobs wrote."""
    asked = sa.select(*_columns(LINES, "logs")).where(
        same(L.cluster, cluster), L.time.is_(None), listed(L.job_id, jobs)
    )
    return asked.order_by(L.file, L.line).limit(most)


def jobs(cluster: str | None, since: datetime, until: datetime) -> Select[Any]:
    """Rows about jobs of which a run overlaps the range, or that were submitted or observed in it."""
    j = JOBS.c
    began, over = func.coalesce(j.start, j.submit, j.observed_at), func.coalesce(j.end, j.observed_at)
    near = sa.select(j.job_id).where(same(j.cluster, cluster), began <= until, sa.or_(over.is_(None), over >= since))
    return sa.select(*_columns(JOBS, "jobs")).where(same(j.cluster, cluster), j.job_id.in_(near))


def steps(cluster: str | None, jobs_of: Collection[int]) -> Select[Any]:
    """The steps of these jobs."""
    s = STEPS.c
    return sa.select(*_columns(STEPS, "steps")).where(same(s.cluster, cluster), listed(s.job_id, jobs_of))


def artifacts(cluster: str | None, jobs_of: Collection[int]) -> Select[Any]:
    """The files that these jobs left."""
    a = ARTIFACTS.c
    return sa.select(*_columns(ARTIFACTS, "artifacts")).where(same(a.cluster, cluster), listed(a.job_id, jobs_of))


def node_states(cluster: str | None, since: datetime, until: datetime) -> Select[Any]:
    """States of nodes that were reported in a range, or held in it."""
    s = NODE_STATES.c
    held = sa.or_(s.time >= since, s.until >= since)
    return sa.select(*_columns(NODE_STATES, "node_states")).where(same(s.cluster, cluster), s.time <= until, held)


def samples(cluster: str | None, since: datetime, until: datetime, hosts: Collection[str] | None) -> Select[Any]:
    """Measurements in a range, of some hosts or of all."""
    m = METRICS.c
    of = [listed(m.host, hosts)] if hosts is not None else []
    within = (same(m.cluster, cluster), m.time >= since, m.time <= until)
    return sa.select(*_columns(METRICS, "metrics")).where(*within, *of)


def timeless(cluster: str | None) -> dict[str, Select[Any]]:
    """Configuration, cables, switches and boots of a cluster, by table."""
    tables = {"settings": SETTINGS, "links": LINKS, "topology": TOPOLOGY, "boots": BOOTS}
    return {
        name: sa.select(*_columns(table, name)).where(same(table.c.cluster, cluster)) for name, table in tables.items()
    }


def delays() -> Select[Any]:
    """``host``, ``source`` and ``delay_s``: by how many seconds the newest lines of a source came later than written."""
    s = SOURCES.c
    asked = sa.select(s.host, s.source, func.max(s.lag_s).label("delay_s")).where(s.lag_s.is_not(None))
    return asked.group_by(s.host, s.source).order_by(s.host, s.source)
