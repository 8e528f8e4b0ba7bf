"""Programs whose own deadline for reading or writing ran out as their storage did not answer, and those that were late by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.facts.jobs.output import io_deadline
from tests.correlator.field import APP, Situation, concluded, ended, heard, wrong

LOST, BACK = (
    "-41s gpu04 kernel: nfs: server filer7 not responding, still trying",
    "-1.5s gpu04 kernel: nfs: server filer7 OK",
)
LATE = "-0.5s {0} stderr: RuntimeError: saving snapshot 12 took 47.5 s, longer than 20 s"


def job(**more: Any) -> tuple[dict[str, Any], ...]:
    return (ended(nodes="gpu04", start="-40min", user="hugo", **more),)


def says(text: str) -> str:
    return "-0.5s {0} stderr: " + text


OK_AT = "{} gpu04 kernel: nfs: server filer7 OK"
HIT: tuple[tuple[str, str | None, str | None], ...] = (("infra.storage", "storage.outage", "filer7"),)
SITUATIONS = [
    heard("a write took too long by the outage", [LOST, BACK, LATE], job(), HIT),
    heard("a read timed out as the storage was back", [LOST, BACK, says("TimeoutError: loading shard 3 timed out")], job(), HIT),
    heard("a deadline while the storage is still away", [LOST, says("CheckpointError: checkpoint not finished within 30 s")], job(), HIT),
    heard("its own bug after the storage was back", [LOST, OK_AT.format("-30s"), says("KeyError: 'loss'")], job(), (APP,)),
    heard("its own bug as the storage is back", [LOST, BACK, says("KeyError: 'loss'")], job(), (APP,)),
    heard("its own bug, and then a late write", [LOST, BACK, "-0.9s {0} stderr: KeyError: 'loss'", LATE], job(), (APP,)),
    heard("a late write without an outage", [LATE], job(), (APP,)),
    heard("a late write long after the outage", [LOST, OK_AT.format("-30s"), says("TimeoutError: writing part 4 took 25 s, more than 20 s")], job(), (APP,)),
    heard("it would have been late all the same", [LOST, BACK, says("TimeoutError: checkpoint of epoch 2 took 900 s, more than 20 s")], job(), (APP,)),
    heard("an outage of another node", [LOST.replace("gpu04", "gpu05"), BACK.replace("gpu04", "gpu05"), LATE], job(), (APP,)),
    heard("a deadline of something else", [LOST, BACK, says("TimeoutError: the solver took 47.5 s, longer than 20 s")], job(), (APP,)),
    heard("a file of its node's own disk", [LOST, BACK, says("RuntimeError: saving snapshot /tmp/x.pt took 47.5 s, longer than 20 s")], job(), (APP,)),
]  # fmt: skip


@pytest.fixture(scope="module")
def all_found() -> Any:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation, all_found: Any) -> None:
    assert wrong(situation, *all_found[situation.name]) == []


@pytest.mark.parametrize(("text", "known"), [
    ("RuntimeError: saving snapshot 12 took 47.5 s, longer than 20 s", (47.5, 20.0)),
    ("TimeoutError: checkpoint of step 3 exceeded the limit of 30 seconds", (None, 30.0)),
    ("TimeoutError: fsync timed out after 60s", (60.0, None)),
    ("DeadlineExceeded: data loader: deadline expired", (None, None)),
])  # fmt: skip
def test_what_a_line_says_of_a_deadline(text: str, known: tuple[float | None, float | None]) -> None:
    assert io_deadline(text) == known


@pytest.mark.parametrize("text", ["loaded the checkpoint in 3 s", "TimeoutError: the solver took 9 s, more than 5 s", "NCCL timed out, writing its state", "read " * 40_000])  # fmt: skip
def test_other_lines_speak_of_none(text: str) -> None:
    assert io_deadline(text) is None
