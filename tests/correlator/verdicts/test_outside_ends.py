"""A run that failed after Slurm had ordered its tasks to end: open where Slurm may preempt jobs with a time of grace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.correlator.making import event, run, world
from tests.correlator.situations import judged, out

ORDERED = out(-4, "job.cancelled", "slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-12-01T00:33:55 ***")
EXITED = out(0, "job.exit_error", "srun: error: n1: task 0: Exited with exit code 1")
LOGGED = [event("slurm.job_failed", 0, "ctl", "_job_complete: JobId=1 WEXITSTATUS 1", source="slurmctld", job_id=1)]


def category(*lines: Any, preempts: str = "preempt/partition_prio", code: int = 1) -> str:
    where = world([*lines], [run(1, ["n1"], -600, 0, exit_code=code)])
    where.inventory = SimpleNamespace(settings=[{"scope": "cluster", "name": "PreemptType", "value": preempts}])  # type: ignore[assignment]
    return judged(where)["1"].category


def test_it_is_open_who_ordered_that() -> None:
    assert category(*ORDERED, *EXITED, *LOGGED) == "unknown"


@pytest.mark.parametrize(
    "found",
    [
        category(*ORDERED, *EXITED, *LOGGED, preempts="preempt/none"),
        category(*EXITED, *LOGGED),
        category(*ORDERED, *EXITED, *LOGGED, code=124),
        category(*ORDERED, *EXITED),
        category(*out(-5, "job.exit_error", "srun: error: n1: task 0: Exited with exit code 1"), *ORDERED, *LOGGED),
    ],
    ids=["no preemption", "no order", "the command timeout", "no log of slurmctld", "a task failed before"],
)
def test_it_is_the_programs_own_end(found: str) -> None:
    assert found == "app.error"
