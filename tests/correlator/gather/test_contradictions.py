"""Records of one run by several sources: gaps are filled, what cannot both be true is told, known spellings are not."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from correlator.facts.jobs.deaths import exit_code_of
from correlator.gather.contradictions import contradictions
from correlator.gather.runs import assemble
from correlator.model.nouns import Fact

BEGAN = datetime(2026, 3, 1, 10)


def row(source: str, state: str = "FAILED", code: int | None = 1, signal: int = 0, **more: Any) -> dict[str, Any]:
    told = {
        "job_id": 7, "source": source, "state": state, "exit_code": code, "exit_signal": signal, "submit": BEGAN, "start": BEGAN,
        "end": BEGAN + timedelta(minutes=10), "nodes": ["n1", "n2"], "node_list": "n[1-2]", "partition": "p", **more,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value is not None}


def told(*rows: dict[str, Any]) -> list[str]:
    found = {tuple(map(str, contradictions(order))) for order in permutations(rows)}
    assert len(found) == 1, "the order of rows changes nothing"
    return list(found.pop())


@pytest.mark.parametrize(("one", "other"), [
    (row("sacct", code=11), row("jobcomp", code=139)),
    (row("sacct", code=0, signal=11), row("jobcomp", code=139)),
    (row("sacct", "NODE_FAIL", 0), row("scontrol", "NODE_FAIL", 0, 15)),
    (row("sacct", "NODE_FAIL", 0), row("slurmrestd", "REQUEUED", 0)),
    (row("sacct", "TIMEOUT", 0), row("slurmrestd", "DEADLINE", 0)),
    (row("sacct"), row("slurmrestd", "RUNNING", end=BEGAN + timedelta(days=1))),
    (row("sacct"), row("jobcomp", end=BEGAN + timedelta(minutes=10, seconds=1))),
    (row("sacct"), row("jobcomp", start=BEGAN + timedelta(hours=1), end=BEGAN + timedelta(hours=1, minutes=10))),
    (row("sacct"), row("slurmrestd", code=None, nodes=None)),
    (row("sacct"), row("hook", code=0)),
    (row("sacct"), row("sacct", "COMPLETED", 0)),
])  # fmt: skip
def test_what_is_no_contradiction(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert told(one, other) == []


def test_what_is_one() -> None:
    assert told(row("sacct"), row("slurmrestd", "TIMEOUT", 0), row("jobcomp")) == [
        "state: jobcomp and sacct: FAILED; slurmrestd: TIMEOUT",
    ]
    assert told(row("sacct", code=1), row("jobcomp", code=2)) == ["exit code: jobcomp: 2:0; sacct: 1:0"]
    assert told(row("sacct"), row("slurmrestd", nodes=["n1", "n3"])) == ["nodes: sacct: n[1-2]; slurmrestd: n[1,3]"]
    assert told(row("sacct"), row("jobcomp", end=BEGAN + timedelta(minutes=25))) == [
        "end: jobcomp: 2026-03-01 10:25:00; sacct: 2026-03-01 10:10:00",
    ]


def test_a_run_gets_what_each_source_alone_knows() -> None:
    (run,) = assemble([
        row("sacct", code=11, user="ann"),
        row("jobcomp", code=139, failed_node="n2", user="ann"),
        row("slurmrestd", "TIMEOUT", None, gpus=8, nodes=None, node_list=None),
    ], [], [])  # fmt: skip
    assert (run.state, run.row["failed_node"], run.row["gpus"], run.row["user"]) == ("FAILED", "n2", 8, "ann")
    assert run.row["exit_code"] == 139, "slurmdbd loses the high bit"
    end = Fact("run.failed", run.end or 0.0, run.end, 1.0, run=run.key)
    assert exit_code_of(run, end) == "exit code 139 (11 in sacct)"
    assert run.row["contradicted"] == ["state: jobcomp and sacct: FAILED; slurmrestd: TIMEOUT"]
    (quiet,) = assemble([row("sacct"), row("jobcomp")], [], [])
    assert "contradicted" not in quiet.row and quiet.row["exit_code"] == 1
