"""Runs whose end only the slurmstepd of their batch script reports."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from correlator.gather.runs import assemble
from correlator.model.nouns import Event
from tests.correlator.making import T0, event

ENDS = "*** {} ON n1 CANCELLED AT 2026-02-06T16:05:00{} ***"


def began(at: float, job: int = 7) -> Event:
    return event("slurm.job_start", at, "ctl", "sched: Allocate", source="slurmctld", job_id=job, nodes=["n1", "n2"])


def stepd(at: float, kind: str, why: str = "", whose: str = "JOB 7", source: str = "slurmstepd", **more: Any) -> Event:
    return event(kind, at, "n1", ENDS.format(whose, why), source=source, job_id=7, **more)


def ends(events: list[Event], rows: list[dict[str, Any]] | None = None) -> list[tuple[str, str, float | None]]:
    return [(r.key, r.state, None if r.end is None else r.end - T0) for r in assemble(rows or [], [], events)]


@pytest.mark.parametrize(("kind", "why", "state"), [
    ("slurm.job_node_fail", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "NODE_FAIL"),
    ("slurm.job_timeout", " DUE TO TIME LIMIT", "TIMEOUT"), ("slurm.job_preempted", " DUE TO PREEMPTION", "PREEMPTED"),
    ("slurm.job_requeue", " DUE TO JOB REQUEUE", "REQUEUED"), ("slurm.job_cancelled", "", "CANCELLED"),
])  # fmt: skip
def test_the_batch_scripts_slurmstepd_shows_the_end_of_a_run(kind: str, why: str, state: str) -> None:
    assert ends([began(0), stepd(300, kind, why)]) == [("7", state, 300.0)]


def test_the_runs_own_output_shows_it_as_well_and_less_exactly() -> None:
    reported = stepd(290, "job.node_failure", " DUE TO NODE FAILURE", source="job_stderr", sigma=60.0)
    assert ends([began(0), reported]) == [("7", "NODE_FAIL", 290.0)]
    assert ends([began(0), reported, stepd(300, "slurm.job_node_fail", " DUE TO NODE FAILURE")])[0][2] == 300.0


def test_a_step_that_is_ended_ends_no_run() -> None:
    step = stepd(300, "slurm.job_node_fail", " DUE TO NODE FAILURE", "STEP 7.0", step_id="0")
    assert ends([began(0), step]) == [("7", "RUNNING", None)]


def test_slurmctld_and_accounting_know_better() -> None:
    word = stepd(300, "slurm.job_cancelled")
    done = event("slurm.job_failed", 310, "ctl", "WEXITSTATUS 1", source="slurmctld", job_id=7, exit_code=1)
    assert ends([began(0), word, done]) == [("7", "FAILED", 310.0)]
    moment = datetime(1970, 1, 1) + timedelta(seconds=T0)
    row = {"job_id": 7, "source": "sacct", "state": "COMPLETED", "start": moment, "end": moment + timedelta(seconds=310), "nodes": ["n1", "n2"]}  # fmt: skip
    assert ends([began(0), word], [row]) == [("7", "COMPLETED", 310.0)]
    running = {**row, "state": "RUNNING", "end": None, "source": "squeue"}
    assert ends([word], [{k: v for k, v in running.items() if v is not None}]) == [("7", "CANCELLED", 300.0)]


def test_of_several_runs_each_has_its_own_word() -> None:
    lines = [began(0), stepd(300, "slurm.job_requeue", " DUE TO JOB REQUEUE"), began(500), stepd(900, "slurm.job_timeout", " DUE TO TIME LIMIT")]  # fmt: skip
    assert ends(lines) == [("7", "REQUEUED", 300.0), ("7#1", "TIMEOUT", 900.0)]
    assert ends(lines[1:]) == [("7", "TIMEOUT", 900.0)]  # nothing is known from before the first allocation
