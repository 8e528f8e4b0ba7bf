"""A job whose deadline came before it had started: its verdict says if the nodes that it had asked for were out of service."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlator.making import event, run, world
from tests.correlator.situations import judged

REASON = "gres/gpu count reported lower than configured (7 < 8)"
INVALID = event("slurm.node_invalid", 0.0, "ctl", f"Setting node n5 state to INVAL with reason:{REASON}", source="slurmctld", nodes=["n5"], reason=REASON)  # fmt: skip
BACK = event("slurm.node_up", 60.0, "ctl", "node n5 returned to service", source="slurmctld", nodes=["n5"])


def verdict(*events: Any, command: str = "sbatch -w n5 --deadline=now+9 x.sh") -> Any:
    waiting = run(1, [], 90, 90, "DEADLINE", submit_line=command, exit_code=1)
    return judged(world(events, [waiting]))["1"]


def reason(*events: Any, command: str = "sbatch -w n5 --deadline=now+9 x.sh") -> str:
    return str(verdict(*events, command=command).reason)


def test_it_is_open_whether_it_would_have_started() -> None:
    out = verdict(INVALID)
    assert (out.category, out.headline) == (
        "unknown",
        "The deadline of your job came before it could start: the nodes that it asks for were out of service.",
    )
    assert out.confidence <= 0.6
    assert verdict(INVALID, BACK).category == verdict().category == "app.timeout"


@pytest.mark.parametrize("option", ["-w n5", "-wn5", "--nodelist=n5", "--nodelist n5"])
def test_the_node_was_invalid(option: str) -> None:
    said = reason(INVALID, command=f"sbatch {option} --deadline=now+9 x.sh")
    assert said.endswith(f"; n5, which it had asked for, was out of service: {REASON}")


@pytest.mark.parametrize(
    "said",
    [
        reason(),
        reason(INVALID, BACK),
        reason(INVALID, command="sbatch -w n6 --deadline=now+9 x.sh"),
        reason(INVALID, command="sbatch -w n[5-6] --deadline=now+9 x.sh"),
        reason(INVALID, command="sbatch --deadline=now+9 x.sh"),
    ],
    ids=["no drain", "back before", "another node", "one of two", "any node"],
)
def test_nothing_is_said_where_it_could_have_run(said: str) -> None:
    assert "deadline" in said and "out of service" not in said
