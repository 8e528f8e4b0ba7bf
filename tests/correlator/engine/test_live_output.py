"""Lines of a job's output that the agent sent while the job ran, and again with its epilog: they change no verdict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.agent import wire
from collector.decoding import _rows
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload
from correlator.engine import correlate, result, write
from store import open_store
from tests.correlator.rows import CAPTURES, concluded, rows_of
from tests.line_parser import line_parser

OUTPUT = ("job_stdout", "job_stderr")


def verdicts(found: dict[str, Any]) -> dict[str, tuple[str, float]]:
    return {run: (verdict["category"], verdict["confidence"]) for run, verdict in found["verdicts"].items()}


@pytest.mark.long
@pytest.mark.parametrize("folder", CAPTURES, ids=lambda folder: folder.name)
def test_a_line_that_came_early_and_again_changes_no_verdict(folder: Path) -> None:
    rows = rows_of(folder)
    logs = rows["logs"]
    of_output = pl.col("source").is_in(OUTPUT)
    output = logs.filter(of_output)
    events = output.filter(pl.col("event").fill_null("other") != "other")
    if events.is_empty():
        pytest.skip("nothing in a job's output is an event")
    ended = rows["jobs"].filter(pl.col("end").is_not_null()).group_by("job_id").agg(pl.col("end").max())
    seen = pl.col("end") - timedelta(seconds=30)
    early = events.join(ended, on="job_id", how="left").with_columns(time=pl.coalesce("time", seen))
    last = logs["line"].max()
    assert isinstance(last, int)
    behind = output.with_columns(line=pl.col("line") + last)  # in the same file, which the epilog brought later
    everything = pl.concat([logs.filter(~of_output), early.select(logs.columns), behind])
    with concluded(folder) as store:
        wanted = verdicts(result(store))
    with open_store(None) as store:
        store.add({**rows, "logs": everything})
        write(store, correlate(store))
        assert verdicts(result(store)) == wanted and wanted


def test_a_line_without_a_time_gets_the_one_at_which_it_was_seen() -> None:
    seen = datetime(2026, 11, 29, 2, 0, 5, tzinfo=UTC)
    stamp = wire.stamp(seen.timestamp())
    head = wire.head(stream="job_output", source="job_stdout", path="/home/a/15.out", host="gpu01", job_id=15, restarts=1, tags=["live"], time=stamp)  # fmt: skip
    text = b"RuntimeError: CUDA error: an illegal memory access was encountered"
    into = Decoded()
    known = {"received": int((seen.timestamp() + 60) * 1e6), "peer": "10.0.0.1"}
    all_receivers()["ingest"].decode(Payload(wire.lines_record(head, text, read=stamp), known), into)
    (row,) = [row for group in into.groups.values() for row in pl.concat(_rows(group, line_parser())).to_dicts()]
    assert (row["time"], row["event"], row["job_id"], row["file"]) == (seen.replace(tzinfo=None), "job.cuda_error", 15, "gpu01:/home/a/15.out")  # fmt: skip
    assert "live" in row["tags"]
