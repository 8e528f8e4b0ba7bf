"""Time limits of jobs that were changed, as slurmctld logs it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

import polars as pl
from sqlalchemy import Select, select

from store.functions import among, const, contains, epoch, matches, same
from store.questions.authority import Speakers
from store.questions.source import CLUSTER
from store.tables import LINES

#: slurmctld's line about a new limit, and the one that says who asked for the change (slurm src/slurmctld/job_mgr.c,
#: proc_req.c).
_UPDATES = r"update_job: (?:setting time_limit to \d+ for |complete )"
#: The part of the first one without which ``updates`` says nothing about a limit.
_NEW_LIMIT = "update_job: setting time_limit to "


def any_change(cluster: str | None) -> Select[Any]:
    """One row if slurmctld ever logged a new limit, whoever wrote the line."""
    return _any_change().params(cluster=cluster)


@cache
def _any_change() -> Select[Any]:
    lines = LINES.c
    ours = (lines.source == const("slurmctld"), same(lines.cluster, CLUSTER), contains(lines.message, _NEW_LIMIT))
    return select(const(1).label("found")).where(*ours).limit(1)


def may_change_limit() -> pl.Expr:
    """Would ``any_change`` find a row among lines on their way into the store? True also if a text only looks like it."""
    ours = pl.col("source") == "slurmctld"  # the texts of others are not searched
    return pl.any_horizontal(
        pl.col(name).filter(ours).str.contains(_NEW_LIMIT, literal=True).any() for name in ("raw", "message")
    )


def updates(
    cluster: str | None, jobs: Collection[int], since: datetime, until: datetime, speakers: Speakers
) -> Select[Any]:
    """slurmctld's lines about changes of some jobs: ``job_id``, ``t`` (epoch seconds), ``message``, in the order in which
    they were written; of a range of time. ``speakers``: which of its lines count."""
    lines = LINES.c
    return (
        select(lines.job_id, epoch(lines.time).label("t"), lines.message)
        .distinct()
        .where(
            lines.source == const("slurmctld"), lines.time.between(since, until), speakers.count(LINES), same(lines.cluster, cluster),
            among(lines.job_id, jobs), matches(lines.message, _UPDATES),
        )
        .order_by(lines.job_id, "t", lines.message)
    )  # fmt: skip
