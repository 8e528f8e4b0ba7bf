"""Errors of CUDA that a program's mistake and a lost GPU both give: beside an Xid after which only a reset helps, they are the GPU's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlator.making import run, world
from tests.correlator.situations import judged, one, out, said, xid

TIMED_OUT = "RuntimeError: CUDA error: the launch timed out and was terminated"
ASTRAY = "RuntimeError: CUDA error: an illegal memory access was encountered"
ASSERTED = "RuntimeError: CUDA error: device-side assert triggered"
SHAPES = "RuntimeError: CUDA error: invalid argument"
GPU, OWN = ("infra.gpu", "gpu.xid", "n1"), ("app.error", None, None)


def verdict(code: int, words: str, at: float, *others: Any) -> Any:
    lines = [*xid(0, code), *out(at - 1, "job.cuda_error", words)]
    return judged(world(lines, [one(at), *others]))["1"]


@pytest.mark.parametrize(
    ("code", "words", "at"),
    [(79, TIMED_OUT, 20), (79, TIMED_OUT, 70), (79, TIMED_OUT, 300), (95, ASTRAY, 20), (95, TIMED_OUT, 70)],
)
def test_the_gpu_is_the_cause(code: int, words: str, at: float) -> None:
    found = verdict(code, words, at)
    assert said(found) == GPU and found.confidence >= 0.85


@pytest.mark.parametrize(
    ("code", "words", "at"),
    [
        (79, ASSERTED, 20),
        (79, SHAPES, 20),
        (79, "KeyError: 'loss'", 20),
        (79, ASTRAY, 70),
        (79, TIMED_OUT, 900),
        (31, ASTRAY, 20),
        (94, TIMED_OUT, 70),
    ],
    ids=[
        "an assertion",
        "an argument",
        "no error of CUDA",
        "astray a minute later",
        "much later",
        "the program's own Xid",
        "contained",
    ],
)
def test_the_program_is_the_cause(code: int, words: str, at: float) -> None:
    assert said(verdict(code, words, at)) == OWN


def test_a_gpu_that_another_run_may_have_held_explains_no_later_end() -> None:
    assert said(verdict(79, TIMED_OUT, 70, run(2, ["n1"], -2000, 4000, "COMPLETED"))) == OWN
