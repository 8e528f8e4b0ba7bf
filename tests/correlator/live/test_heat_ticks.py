"""Ticks say what a full pass says of runs that are compared with others: held back by heat, or ended alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from correlator.engine import result
from store import open_store
from tests.correlator.live.test_streaming import benchmark
from tests.correlator.live.test_tick_reach import AT, as_told

HOT = "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = {})"


def hot_for_hours(day: Any, quicker: float = 3_000.0) -> None:
    """A node is throttled for hours, and a run reaches its limit there; the same program ends elsewhere, as accounting
    tells late."""
    nodes = benchmark().NODES[30:32]
    for n in range(27):
        day.say(AT + 300.0 * n, nodes[0], "kernel", "kernel.thermal", HOT.format(n * 900), cpu=3, total_events=n * 900)
    day._lifecycle(901, nodes[:1], AT - 600, AT + 8_000, "TIMEOUT")
    day._lifecycle(951, nodes[1:], AT - 600, AT + quicker, "COMPLETED")  # of the same name and user, by their numbers
    for row in day.jobs[-2:]:
        row |= {"name": "work", "user": "u1", "uid": 1001, "submit_line": f"sbatch -w {row['nodes'][0]} work.sh"}
    day.jobs[-1]["late"] = 5_500.0


def ended_alike(day: Any) -> None:
    """Programs of two users die of SIGBUS in one second; accounting tells late of one of them."""
    for job, node in ((901, 30), (902, 31)):
        lines = len(day.logs)
        day._lifecycle(job, [benchmark().NODES[node]], AT - 600, AT + 100, "FAILED")
        day.logs = [*day.logs[:lines], *(row for row in day.logs[lines:] if row["event"] != "job.exit_error")]
        day.jobs[-1] |= {"exit_code": 0, "exit_signal": 7}
    day.jobs[-1]["late"] = 4_000.0


@pytest.mark.parametrize(
    ("break_it", "steps", "verdicts"),
    [
        (hot_for_hours, (4_000.0, 8_050.0, 8_200.0, 8_600.0), ["unknown", "infra.node"]),
        pytest.param(ended_alike, (50.0, 150.0, 3_000.0, 4_150.0), ["app.error", "unknown"], marks=pytest.mark.long),
    ],
)
def test_a_tick_compares_runs_as_a_full_pass_does(
    break_it: Callable[[Any], None], steps: tuple[float, ...], verdicts: list[str]
) -> None:
    found, partly = [], 0
    with open_store(None) as store:
        for partial in as_told(store, break_it, -AT, steps):
            partly += partial
            verdict = result(store)["verdicts"].get("901")
            if verdict and verdict["category"] not in found:
                found.append(verdict["category"])
    assert found == verdicts and partly, "a full pass proves nothing"
