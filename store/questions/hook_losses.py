"""Queries about hooks that brought nothing: what they reported, what Slurm's daemons logged, and whether any work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.writers import DAEMON
from store.functions import const, contains, listed, matches, one_of
from store.questions.conditions import of_cluster
from store.questions.writers import authority
from store.tables import BLIND, JOBS, LINES, NODES

B, J, L, N = BLIND.c, JOBS.c, LINES.c, NODES.c
#: What slurmctld and slurmd write when they cannot run a program of slurm.conf: 22.05 and newer, slurmd's list of paths,
#: older versions.
NOT_RUN = r"(?i)(prolog|epilog)\w* can ?not be executed|(prolog|epilog): Unable to create list of paths|Invalid (Prolog|Epilog)Slurmctld"
#: The agent's state of a source that is in trouble, in its status (JSON of either spelling).
_TROUBLE = r'"state": ?"(error|denied)"'
#: Most rows of a question: a page shows a few.
MOST = 20


def reported(nodes: Sequence[str], begin: datetime, end: datetime) -> sa.Select[Any]:
    """``host`` and ``reason`` of hooks that wrote nothing, on these nodes and on controllers, within a time."""
    on_them = sa.or_(listed(B.host, nodes), contains(B.reason, "slurmctld hook"))
    within = (B.start <= end, func.coalesce(B.end, B.start) >= begin)
    return sa.select(B.host, B.reason).where(B.source == "hook_spool", on_them, *within).distinct().limit(MOST)


def not_run(nodes: Sequence[str], cluster: str | None, begin: datetime, end: datetime) -> sa.Select[Any]:
    """Lines of the daemons' own logs about hooks that they could not run: slurmctld's, and slurmd's of these nodes."""
    whose = sa.or_(L.source == "slurmctld", sa.and_(L.source == "slurmd", listed(L.host, nodes)))
    conditions = (L.time >= begin, L.time <= end, whose, of_cluster(L.cluster, cluster), matches(L.message, NOT_RUN))
    asked = sa.select(L.host, L.source, L.message).where(*conditions, authority(LINES) == const(DAEMON))
    return asked.distinct().order_by(L.host, L.message).limit(MOST)


def agents_in_trouble(since: datetime, hosts: Sequence[str] | None = None) -> sa.Select[Any]:
    """``host``, ``cluster``, ``status`` (JSON) and ``status_at`` of agents whose last report, not before ``since``, names
    trouble with a source."""
    conditions = [
        matches(N.status, _TROUBLE),
        N.status_at >= since,
        *([listed(N.host, hosts)] if hosts is not None else []),
    ]
    return sa.select(N.host, N.cluster, N.status, N.status_at).where(*conditions).order_by(N.host).limit(200)


def newest(cluster: str | None) -> sa.Select[Any]:
    """``time`` of the newest record that a hook brought."""
    return sa.select(func.max(J.observed_at).label("time")).where(
        one_of(J.source, ("hook",)), of_cluster(J.cluster, cluster)
    )
