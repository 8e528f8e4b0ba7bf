"""The fast path from rows to runs equals the general one, whatever the rows and lines."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from correlator.gather.events import order
from correlator.gather.runs import assemble, of_table
from correlator.gather.runs_fast import plain_runs, prepared_runs, stated_rows
from correlator.model.nouns import Event, Run
from parsers.record import TABLES
from tests.correlator.making import T0, event
from tests.examples import examples

START = datetime(1970, 1, 1) + timedelta(seconds=T0)


def moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


def row(job: int, start: float | None, length: float | None, **changes: Any) -> dict[str, Any]:
    """Accounting's row about a run on n1."""
    base = {
        "job_id": job, "db_index": job, "name": "train", "user": "u1", "partition": "gpu", "state": "FAILED", "exit_code": 1,
        "submit": moment(-5.0), "start": moment(start), "end": moment(start + length if start is not None and length is not None else None),
        "node_list": "n1", "nodes": ["n1"], "gpus": 8, "source": "sacct", "file": "sacct.txt", "line": job,
    }  # fmt: skip
    return {**base, **changes}


jobs = st.integers(1, 4)
moments = st.sampled_from([0.0, 0.4, 29.5, 31.0, 100.0])
usual = st.builds(row, jobs, moments, st.just(10.0))
odd = st.builds(
    row, jobs, st.one_of(st.none(), moments), st.sampled_from([None, 0.0, 10.0, -3.0, 200.0]),
    state=st.sampled_from(["FAILED", "FAILED", "COMPLETED", "RUNNING", "NODE_FAIL", None]),
    source=st.sampled_from(["sacct", "sacct", "sacct", "scontrol", "hook", "elsewhere"]),
    exit_code=st.sampled_from([0, 1, 1, None]), partition=st.sampled_from(["gpu", "gpu", None]),
    nodes=st.sampled_from([["n1"], ["n1"], ["n1", "n2"], []]), node_list=st.sampled_from(["n1", "n1", ""]),
    restarts=st.sampled_from([None, 0, 1]), array_job_id=st.sampled_from([None, 9]), array_task_id=st.sampled_from([None, 0, 2]),
    cancelled_by=st.sampled_from([None, None, "7"]), work_dir=st.sampled_from([None, "/home"]),
)  # fmt: skip
SAID = [("slurm.job_start", "slurmctld", "Allocate"), ("slurm.job_start", "slurmctld", "Allocate"), ("slurm.job_failed", "slurmctld", "ended"),
        ("slurm.job_requeue", "slurmctld", "requeue job"), ("slurm.job_start", "slurmd", "launch"), ("job.exit_error", "job_stdout", "Error"),
        ("slurm.job_failed", "slurmd", "not able to requeue it, cancelling job")]  # fmt: skip
lines = st.builds(
    lambda said, at, job, more: event(said[0], at, "n1", said[2], source=said[1], job_id=job, **more),
    st.sampled_from(SAID), moments, jobs,
    st.sampled_from([{}, {"nodes": ["n1"]}, {"array_job_id": "9", "array_task": "3"}, {"exit_code": 7}]),
)  # fmt: skip


def described(runs: list[Run]) -> list[str]:
    return [repr((r.key, r.job_id, r.attempt, r.state, r.nodes, r.submit, r.start, r.end, r.steps, sorted(r.row.items()))) for r in runs]  # fmt: skip


def frame(found: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(found, schema=TABLES["jobs"])


def steps_of(job: int) -> list[dict[str, Any]]:
    return [{"job_id": job, "db_index": job, "step_id": "0", "start": moment(1.0), "file": "sacct.txt", "line": 1}]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.one_of(usual, odd), max_size=4), st.lists(lines, max_size=6), st.booleans())
def test_the_shorter_way_says_what_the_longer_one_says(found: list[dict[str, Any]], said: list[Event], stepped: bool) -> None:  # fmt: skip
    events, steps = sorted(said, key=order), steps_of(1) if stepped else []
    table = frame(found)
    long = described(assemble(stated_rows(table), steps, events))
    assert described(of_table(table, steps, events)) == long
    # Also if the runs were prepared, from some of the rows.
    assert described(of_table(table, steps, events, prepared_runs(table[::2]))) == long


@pytest.mark.parametrize(
    ("rows", "lines", "short"),
    [
        ([row(1, 0.0, 60.0)], [], {1}),
        ([row(1, 0.0, 60.0)], [("slurm.job_start", 0.4, {"nodes": ["n1"]})], {1}),
        ([row(1, 0.0, 60.0, array_job_id=1, array_task_id=2)], [("slurm.job_start", 0.4, {"array_job_id": "1"})], {1}),
        ([row(1, 0.0, 60.0)], [("slurm.job_start", 0.4, {"array_job_id": "1"})], set()),
        ([row(1, 0.0, 60.0)], [("slurm.job_start", 0.4, {}), ("slurm.job_start", 50.0, {})], set()),
        ([row(1, 0.0, 60.0)], [("slurm.job_start", 90.0, {})], set()),
        ([row(1, 0.0, 60.0), row(1, 100.0, 60.0)], [], set()),
        ([row(1, 0.0, None, state="RUNNING")], [], set()),
    ],
)
def test_the_shorter_way_is_taken_for_the_ordinary_job(
    rows: list[dict[str, Any]], lines: list[tuple[str, float, dict[str, Any]]], short: set[int]
) -> None:
    events = [event(kind, at, "ctl", source="slurmctld", job_id=1, **more) for kind, at, more in lines]
    runs, rest = plain_runs(frame(rows), events, ())
    assert {r.job_id for r in runs} == short
    assert set(rest["job_id"]) == {r["job_id"] for r in rows} - short
