"""A service that ticks, with late and repeated lines and a restart, reaches the result of a full pass, byte for byte."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from benchmarks import soak
from correlator.engine import correlate
from correlator.live.ticker import Ticker
from parsers.record import frame
from store import open_store

#: Seeds of simulated clusters; ``benchmarks/soak.py`` takes any number.
SEEDS = [int(s) for s in os.environ.get("FAULTLINE_SOAK", "1").split()]


@pytest.mark.long  # test_streaming.py has the quick form
@pytest.mark.parametrize("seed", SEEDS)
def test_ticks_end_as_a_full_pass(seed: int) -> None:
    found = soak.soak(soak.cluster_rows(seed), seed, ticks=12)
    assert found.differs == []
    assert found.partly >= 3, "hardly a tick was partial: this test says little"
    assert found.incidents and found.verdicts


def test_what_is_delivered_is_all_there_is_and_some_lines_twice() -> None:
    rows = soak.day_rows(3, events=600)
    reported = [part for _, part in soak.deliveries(rows, seed=3, ticks=7)]
    assert len(reported) == 8
    jobs = pl.concat([part["jobs"] for part in reported])
    assert sorted(jobs["job_id"].to_list()) == sorted(rows["jobs"]["job_id"].to_list())
    lines = pl.concat([part["logs"].select("file", "line") for part in reported])
    assert lines.unique().height == rows["logs"].height < lines.height


def test_output_of_a_job_that_no_run_is_known_of_stays_where_it_was_placed() -> None:
    """slurmctld logged that the job was submitted, and its output how it went on: neither makes a run of it."""
    begin = datetime(2026, 3, 2, 8, tzinfo=UTC).replace(tzinfo=None)

    def line(number: int, event: str, source: str, at: float | None, job: int | None, file: str) -> dict[str, object]:
        return {"time": None if at is None else begin + timedelta(seconds=at), "time_quality": "line", "resolution_us": 1000, "cluster": "made", "host": None if source == "job_stdout" else "ctl",
                "source": source, "format": "slurm", "severity": "error", "message": event, "event": event, "job_id": job, "raw": event, "file": file, "line": number}  # fmt: skip

    with open_store(None) as store:
        steady = [line(n, "slurm.rpc", "slurmctld", 600.0 * n, None, "ctl.log") for n in range(200)]
        output = [line(n, "job.nccl_error", "job_stdout", None, 7, "jobs/7/stdout") for n in range(1, 4)]
        submitted = line(900, "slurm.job_submit", "slurmctld", 110_000.0, 7, "ctl.log")
        store.add({"logs": frame("logs", [*steady, *output, submitted])})
        ticker = Ticker(store)
        ticker.tick(soak.LATER)
        store.add({"logs": frame("logs", [line(901, "slurm.rpc", "slurmctld", 109_700.0, None, "ctl.log")])})  # late
        assert not ticker.tick(soak.LATER).full
        ticked = soak.stored(store)
        correlate(store)
        assert soak.stored(store) == ticked
        assert sum("'job.nccl_error'" in row for row in ticked["events"]) >= 1
