"""Time limits of jobs that were changed, as slurmctld logs it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select

from store.functions import among, const, epoch, matches, same
from store.questions.authority import Speakers
from store.tables import LINES

#: slurmctld's line about a new limit, and the one that says who asked for the change (slurm src/slurmctld/job_mgr.c,
#: proc_req.c).
_UPDATES = r"update_job: (?:setting time_limit to \d+ for |complete )"


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
