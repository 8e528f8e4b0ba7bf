"""slurmctld's log by another clock than accounting: its runs are those of accounting, and no further ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from correlator.gather.runs import assemble
from correlator.model.moments import moment_of
from tests.correlator.making import T0, event


def booked(start: float, end: float | None, state: str = "FAILED", *nodes: str) -> dict[str, Any]:
    """A row of sacct."""
    row = {"job_id": 7, "source": "sacct", "state": state, "start": moment_of(T0 + start), "nodes": list(nodes or ("n1", "n2"))}  # fmt: skip
    return row if end is None else row | {"end": moment_of(T0 + end)}


def ctl(at: float, kind: str, text: str, **more: Any) -> Any:
    return event(kind, at, "ctl", text, source="slurmctld", job_id=7, **more)


def logged(start: float, end: float | None, again: bool = False, *nodes: str) -> list[Any]:
    """A run in slurmctld's log; ``again``: it was requeued."""
    lines = [ctl(start, "slurm.job_start", "sched: Allocate JobId=7", nodes=list(nodes or ("n1", "n2")))]
    if end is not None and again:
        lines.append(ctl(end, "slurm.job_requeue", "requeue job JobId=7 due to failure of node n1"))
    elif end is not None:
        lines.append(ctl(end, "slurm.job_failed", "_job_complete: JobId=7 WEXITSTATUS 1", exit_code=1))
    return lines


@dataclass(frozen=True)
class Case:
    """``starts``: when the runs began."""

    name: str
    rows: Sequence[dict[str, Any]]
    lines: Sequence[Any]
    starts: Sequence[float]


FIRST, SECOND = booked(0, 300, "NODE_FAIL"), booked(500, 900)
CASES = [
    Case("the log is behind", [booked(0, 300)], logged(-37, 263), [0]),
    Case("ahead, whole seconds", [booked(0, 300)], logged(600.7, 901.6), [0]),
    Case("requeued in the second of its start", [booked(0, 0, "REQUEUED")], logged(-36.4, -36.1, True), [0]),
    Case("two runs, both moved", [FIRST, SECOND], [*logged(600, 900, True), *logged(1100, 1500)], [0, 500]),
    Case("two runs, one of them logged", [booked(0, 10), booked(500, 510)], logged(41, 51), [0, 500]),
    Case("of other length", [booked(0, 300)], logged(600, 700), [0, 600]),
    Case("on other nodes", [booked(0, 300)], logged(600, 900, False, "n1", "n3"), [0, 600]),
    Case("the log shows that run, and another", [booked(0, 300)], [*logged(0.4, 300.2, True), *logged(600, 900)], [0, 600]),
    Case("accounting knows the second run only", [SECOND], [*logged(0, 400, True), *logged(500.2, 900)], [0, 500]),
    Case("both runs are moved, and accounting knows one", [SECOND], [*logged(41, 341, True), *logged(541, 941)], [41, 500, 541]),
    Case("as far as zones are", [booked(0, 300)], logged(1800, 2100), [0, 1800]),
    Case("nothing tells its end", [booked(0, 300)], logged(600, None), [0, 600]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_run_of_a_log_by_another_clock_is_that_of_accounting(case: Case) -> None:
    runs = assemble(list(case.rows), [], list(case.lines))
    assert sorted(r.start - T0 for r in runs if r.start is not None) == pytest.approx(case.starts)
    states = {row["start"]: row["state"] for row in case.rows}
    assert all(r.state == states.get(moment_of(r.start), r.state) for r in runs)
