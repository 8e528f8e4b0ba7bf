"""What nodes ran at a moment: kernel, drivers, firmware, image, as their agents report it (``collector.agent.sources.software``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.functions import const, json_text, last_by, listed
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
        m.metric == const(METRIC), listed(m.host, hosts), m.time.between(begin - look_back, begin + JUST_AFTER), of_cluster(m.cluster, cluster),
    ]  # fmt: skip
    return (
        sa.select(m.host, name, device, newest)
        .where(*conditions)
        .group_by(m.host, name, device)
        .order_by(m.host, name, device)
    )
