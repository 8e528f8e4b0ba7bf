"""Rows about jobs move with slurmctld's lines about the same starts, and no others do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from correlator.clocks.clocks import rows_in_true_time
from correlator.clocks.offset import Offset
from correlator.model.moments import moment_of
from parsers.record import TABLES
from tests.correlator.making import T0, event

AHEAD_S = 41.0


def row(job: int, source: str, start: float | None, end: float = 300.0) -> dict[str, Any]:
    return {
        "job_id": job, "source": source, "submit": moment_of(T0), "end": moment_of(T0 + end),
        "start": None if start is None else moment_of(T0 + start),
    }  # fmt: skip


def allocated(job: int, shown: float, ahead: float = AHEAD_S, source: str = "slurmctld") -> Any:
    line = event("slurm.job_start", shown - ahead, "ctl", "sched: Allocate", source=source, job_id=job)
    return replace(line, clock_offset=ahead)


@pytest.mark.parametrize(
    ("one", "line", "by"),
    [
        (row(7, "sacct", 100.0), allocated(7, 100.4), AHEAD_S),
        (row(7, "slurmrestd", 101.0), allocated(7, 100.4), AHEAD_S),
        (row(7, "sacct", 100.0), allocated(7, 100.4, -300.0), -300.0),
        (row(7, "sacct", 59.0), allocated(7, 100.4), 0.0),  # accounting by another clock
        (row(7, "sacct", None), allocated(7, 100.4), 0.0),
        (row(7, "hook", 100.0), allocated(7, 100.4), 0.0),  # by the clock of a node
        (row(8, "sacct", 100.0), allocated(7, 100.4), 0.0),
        (row(7, "sacct", 100.0), allocated(7, 100.4, 0.0), 0.0),
        (row(7, "sacct", 100.0), allocated(7, 100.4, source="slurmd"), 0.0),
    ],
)
def test_a_row_moves_with_the_line_about_its_start(one: dict[str, Any], line: Any, by: float) -> None:
    schema = {name: TABLES["jobs"][name] for name in one}
    step = {"job_id": 7, "submit": None, "start": moment_of(T0 + 110.0), "end": moment_of(T0 + 200.0)}
    table, (moved,) = rows_in_true_time(pl.DataFrame([one], schema=schema), [step], [line])
    for name in ("submit", "start", "end"):
        expected = None if one[name] is None else one[name] - timedelta(seconds=by)
        assert table[name][0] == expected
    assert moved["start"] == step["start"] - timedelta(seconds=by) and moved["submit"] is None


def test_each_run_of_a_job_moves_as_its_own_line_did() -> None:
    """The clock was set right between the two."""
    rows = [row(7, "sacct", 100.0, 200.0), row(7, "sacct", 900.0, 1000.0)]
    table = pl.DataFrame(rows, schema={name: TABLES["jobs"][name] for name in rows[0]})
    moved, _ = rows_in_true_time(table, [], [allocated(7, 100.2), allocated(7, 900.2, 0.0)])
    assert [at.timestamp() for at in moved["start"].dt.replace_time_zone("UTC").to_list()] == [T0 + 59.0, T0 + 900.0]


@pytest.mark.parametrize(
    ("source", "start", "by"),
    [("sacct", 100.0, AHEAD_S), ("sacct", 5000.0, 0.0), ("hook", 100.0, 0.0), ("sacct", None, 0.0)],
)
def test_a_row_older_than_the_log_moves_as_its_lines_of_that_time(source: str, start: float | None, by: float) -> None:
    """The log begins after job 8; its clock was set right at 1000 s."""
    shared = [Offset("ctl", T0 - 900.0, T0 + 1000.0, AHEAD_S, 3.0, "times of arrival agree on it")]
    one = row(8, source, start)
    table = pl.DataFrame([one], schema={name: TABLES["jobs"][name] for name in one})
    moved, _ = rows_in_true_time(table, [], [allocated(7, 100.2)], shared)
    assert moved["end"][0] == one["end"] - timedelta(seconds=by)


def test_a_row_that_contradicts_the_log_stays_where_others_move() -> None:
    one = row(7, "sacct", 59.0)
    table = pl.DataFrame([one], schema={name: TABLES["jobs"][name] for name in one})
    shared = [Offset("ctl", T0 - 900.0, T0 + 1000.0, AHEAD_S, 3.0, "times of arrival agree on it")]
    moved, _ = rows_in_true_time(table, [], [allocated(7, 100.2)], shared)
    assert moved["end"][0] == one["end"]
