"""What nodes ran at a moment: kernel, drivers, firmware, image, as their agents report it (``collector.agent.sources.software``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.functions import among, const, json_text, last_by, listed
from store.questions.conditions import of_cluster
from store.tables import METRICS

#: The sample that names a version; of value 1.
METRIC = "node_software_info"
#: An agent repeats its samples every hour: an older one is of a node whose agent was away.
LOOK_BACK = timedelta(days=2)
#: A node that was booted for a job may report just after the job has begun.
JUST_AFTER = timedelta(minutes=2)


def at(hosts: Sequence[str], cluster: str | None, begin: datetime, look_back: timedelta = LOOK_BACK) -> sa.Select[Any]:
    """``host``, ``name``, ``device`` (null: of the whole node) and ``version``: what each node had when a run began."""
    m = METRICS.c
    name, device = json_text(m.labels, "$.name").label("name"), json_text(m.labels, "$.device").label("device")
    newest = last_by(json_text(m.labels, "$.version"), m.time).label("version")
    conditions = [
        m.metric == const(METRIC), among(m.host, hosts), m.time.between(begin - look_back, begin + JUST_AFTER), of_cluster(m.cluster, cluster),
    ]  # fmt: skip
    return (
        sa.select(m.host, name, device, newest)
        .where(*conditions)
        .group_by(m.host, name, device)
        .order_by(m.host, name, device)
    )


def compared(
    hosts: Sequence[str], peers: Sequence[str], cluster: str | None, begin: datetime, look_back: timedelta, most: int
) -> sa.Select[Any]:  # fmt: skip
    """``name`` and ``version`` of what ``hosts`` or any of ``peers`` had: how many ``hosts`` and how many ``peers`` had it, and of how many
    peers any version of it is known (``known``). Only names that hosts have, at most ``most`` rows."""
    newest = at([*hosts, *peers], cluster, begin, look_back).order_by(None).subquery("newest")
    n, is_own = newest.c, listed(newest.c.host, hosts)
    own, other = sa.case((is_own, n.host)), sa.case((sa.not_(is_own), n.host))
    known = (
        sa.select(n.name, func.count(sa.distinct(other)).label("known"))
        .where(n.name.is_not(None), n.version.is_not(None))
        .group_by(n.name).having(func.count(own) > const(0)).subquery("known")
    )  # fmt: skip
    return (
        sa.select(
            n.name, n.version, func.count(sa.distinct(own)).label("hosts"), func.count(sa.distinct(other)).label("peers"), known.c.known,
        )
        .join(known, known.c.name == n.name)
        .where(n.version.is_not(None))
        .group_by(n.name, n.version, known.c.known)
        .order_by(n.name, n.version).limit(most)
    )  # fmt: skip
