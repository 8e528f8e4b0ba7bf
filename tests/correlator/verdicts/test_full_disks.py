"""A run that found no space on a node where a daemon had met a full disk: who had filled it, nothing tells."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlator.making import event, run, world
from tests.correlator.situations import judged, out

FULL = "OSError: [Errno 28] No space left on device: '/tmp/torch_1/cache.bin'"


def slurmd(at: float, host: str = "n1") -> Any:
    return event(
        "slurm.node_error",
        at,
        host,
        "error: write /var/spool/slurmd/cred_state.new error No space left on device",
        source="slurmd",
    )


def category(words: str, *lines: Any) -> str:
    return judged(world([*out(-1, "job.exit_error", words), *lines], [run(1, ["n1"], -3600, 0)]))["1"].category


@pytest.mark.parametrize("words", [FULL, f"[rank3]: {FULL}"])
@pytest.mark.parametrize("at", [-20, -300])
def test_it_is_open_who_filled_it(words: str, at: float) -> None:
    assert category(words, slurmd(at)) == "unknown"


@pytest.mark.parametrize(
    "found",
    [
        category(FULL),
        category(FULL, slurmd(-20, "n2")),
        category(FULL, slurmd(-3000)),
        category("KeyError: 'loss'", slurmd(-20)),
        category(FULL.replace("/tmp", "/lustre/work"), slurmd(-20)),
    ],
    ids=["no daemon", "another node", "long before", "another error", "a shared file system"],
)
def test_it_is_the_programs_error(found: str) -> None:
    assert found == "app.error"
