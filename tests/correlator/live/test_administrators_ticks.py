"""What administrators and guards do, while it comes in: each tick says what a full pass says then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from correlator.engine import result
from store import open_store
from tests.correlator.live.test_streaming import benchmark
from tests.correlator.live.test_tick_reach import AT, as_told


def prologs_in_turn(day: Any) -> None:
    """A job's prolog fails on one node after another: what it is called on the first one changes minutes later."""
    for number, late in enumerate((0.0, 160.0, 520.0)):
        host, job = benchmark().NODES[40 + number], 900 + number
        day.say(AT + late, host, "slurmd", "slurm.node_error", f"error: [job {job}] prolog failed status=1:0", job=job, check="prolog")  # fmt: skip
        day._lifecycle(job, [host], AT + late - 3, AT + late + 3, "CANCELLED")


def node_removed(day: Any) -> None:
    """slurmctld restarts without a node; what it says about the node comes before the job's record."""
    host = benchmark().NODES[41]
    day.say(AT, "ctl", "slurmctld", "slurm.config_removed", f"error: Node {host} has vanished from configuration", nodes=[host])  # fmt: skip
    day.say(AT + 0.1, "ctl", "slurmctld", "slurm.config_removed", f"error: Invalid nodes ({host}) for JobId=900", job=900, nodes=[host])  # fmt: skip
    day._lifecycle(900, [host], AT - 3000, AT + 0.2, "NODE_FAIL")


@pytest.mark.parametrize(
    ("break_it", "root"),
    [
        pytest.param(prologs_in_turn, "slurm.prolog_failure", marks=pytest.mark.long),
        (node_removed, "slurm.admin_action"),
    ],
)
def test_every_tick_says_what_a_full_pass_says_then(break_it: Callable[[Any], None], root: str) -> None:
    with open_store(None) as store:
        partial = list(as_told(store, break_it, -AT, (5.0, 200.0, 400.0, 700.0, 1000.0)))
        found = result(store)
    assert any(partial), "a full pass at each step tests nothing"
    verdict = found["verdicts"]["900"]
    assert verdict["root_cause"]["event"] == root
    assert verdict["root_cause"]["host"] in (None, "ctl"), "no node is to blame"
