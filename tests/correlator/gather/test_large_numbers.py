"""A job's own output may have any digits where Slurm writes a number: nothing ends by that."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate
from parsers.documents.fields import integer
from parsers.record import frame
from store import open_store
from tests.line_parser import line_parser

#: No column of whole numbers holds it; and digits that are none to ``int``.
HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "line",
    [
        f"slurmstepd: error: Detected 1 oom_kill event in StepId=7_{HUGE}.batch. Some of the step tasks have been OOM Killed.",
        f"slurmstepd: error: *** JOB 7_{HUGE} ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***",
        f"srun: error: n1: task 0: Exited with exit code {HUGE}",
    ],
    ids=["a task", "a task that was cancelled", "an exit code"],
)
def test_output_about_a_run_that_nothing_else_knows(line: str, tmp_path: Path) -> None:
    """Accounting comes later: until then, a user ended every pass with such a line."""
    (tmp_path / "jobs/7").mkdir(parents=True)
    (tmp_path / "jobs/7/stderr").write_text(f"[2026-11-21T09:59:00] begin\n{line}\n", encoding="utf-8")
    (tmp_path / "hosts/n1").mkdir(parents=True)
    (tmp_path / "hosts/n1/syslog").write_text("2026-11-21T10:00:00+00:00 n1 kernel: hello\n", encoding="utf-8")
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([tmp_path])
        (found,) = correlate(store)
        assert [run.key for run in found.runs] == ["7"]


@pytest.mark.parametrize("nodes", [4, True, 1e300, [1, 2], {"a": 1}], ids=str)
def test_names_of_nodes_that_are_none(nodes: Any) -> None:
    """An attribute of a record may be called so."""
    words = "error: Nodes n2 not responding, setting DOWN"
    given = {
        "time": datetime(2026, 11, 21, 10),
        "time_quality": "line",
        "host": "n1",
        "source": "slurmd",
        "file": "f",
        "line": 1,
    }
    line = {
        **given,
        "event": "slurm.node_down",
        "format": "slurm",
        "message": words,
        "raw": words,
        "entities": json.dumps({"nodes": nodes}),
    }
    with open_store(None) as store:
        store.add({"logs": frame("logs", [line])})
        assert correlate(store)


@pytest.mark.parametrize("value", [[], {}, ["0"], {"uid": 0}], ids=str)
@pytest.mark.parametrize("name", ["uid", "reason", "pid", "step_id", "device"])
def test_an_attribute_of_several_values_is_no_entity(name: str, value: Any) -> None:
    words = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***"
    line = {
        "time": datetime(2026, 11, 21, 10), "time_quality": "line", "host": "n1", "source": "slurmctld", "file": "f", "line": 1, "job_id": 7,
        "event": "slurm.job_cancelled", "format": "slurm", "message": words, "raw": words, "entities": json.dumps({name: value}),
    }  # fmt: skip
    with open_store(None) as store:
        store.add({"logs": frame("logs", [line])})
        (found,) = correlate(store)
        assert [event.kind for event in found.events] == ["slurm.job_cancelled"]
        assert name not in found.events[0].entities


@pytest.mark.parametrize("offset", [HUGE, "nan", "1e300", f"-{HUGE}"])
def test_a_clock_that_no_date_can_hold_is_not_believed(offset: str) -> None:
    words = "System clock wrong by 3 seconds"
    given = {"time_quality": "line", "host": "n1", "file": None, "format": "kmsg", "source": "kernel"}
    lines = [
        {**given, "time": datetime(2026, 11, 21, 10), "line": 1, "event": "sys.clock", "message": words, "raw": words, "entities": json.dumps({"offset_s": offset})},
        {**given, "time": datetime(2026, 11, 21, 9, 59), "line": 2, "event": "nic.link_down", "message": "eth0: Link down", "raw": "eth0: Link down"},
    ]  # fmt: skip
    with open_store(None) as store:
        store.add({"logs": frame("logs", lines)})
        (found,) = correlate(store)
        assert [event.clock_offset for event in found.events] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        (" -3 ", -3),
        (HUGE, None),
        (int(HUGE), None),
        ("²", None),
        ("--5", None),
        ("", None),
        (True, None),
        (1 << 62, 1 << 62),
    ],
)
def test_a_whole_number(text: Any, number: int | None) -> None:
    assert integer(text) == number
