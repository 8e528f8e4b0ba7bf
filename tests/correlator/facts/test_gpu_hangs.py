"""Time limits that runs reached after a GPU of theirs had failed so that only a reset brings it back: the GPU's if the run stood
still from then on, left open if nothing shows that, its own if it printed on or the GPU works on."""

from __future__ import annotations

import pytest

from tests.correlator.field import TIMELIMIT, UNKNOWN, InOneStore, Situation, ended, heard, wrong

GPU = ("infra.gpu", "gpu.xid", "gpu01")
TIMEOUT = ("app.timeout", None, None)
#: Two hours on one node, an hour and a half of which remain when a GPU fails.
LIMIT = (ended("TIMEOUT", start="-2h", nodes="gpu01", time_limit_s=7200),)
BESIDE = (*LIMIT, ended("TIMEOUT", start="-2h", nodes="gpu01", time_limit_s=7200))
XID = "-90min gpu01 kernel: NVRM: Xid (PCI:0000:c1:00): {}, pid=8817, name=solver, {}"
GSP = XID.format(120, "GSP task timeout @ pc:0x4bc42a0, task: 1")
MCU = XID.format(62, "0000(0000) 00000000 00000000")
UNKILLED = "65s gpu01 slurmd: [{0}.0] error: *** STEP {0}.0 STEPD TERMINATED ON gpu01 AT 2026-03-03T10:01:05 DUE TO JOB NOT ENDING WITH SIGNALS ***"


def wrote(first: int, last: int, job: int = 0) -> tuple[str, ...]:
    """A line a minute without a pace, from minute ``first`` to ``last``."""
    return tuple(f"{m}min {{{job}}} stdout: wrote cell {m + 999}" for m in range(first, last))


SITUATIONS = [
    heard("its output stops with the GPU", [*wrote(-119, -90), GSP, TIMELIMIT], LIMIT, (GPU,), at_most=0.9),
    heard("its processes cannot be killed", [MCU, TIMELIMIT, UNKILLED], LIMIT, (GPU,), at_most=0.9),
    heard("nothing shows that it stood still", [GSP, TIMELIMIT], LIMIT, (UNKNOWN,), at_most=0.5),
    heard("its output had stopped long before", [*wrote(-119, -105), GSP, TIMELIMIT], LIMIT, (UNKNOWN,), at_most=0.5),
    heard("its output goes on", [*wrote(-119, -1), GSP, TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("the GPU works on", [XID.format(94, "Contained"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("a row is replaced", [XID.format(63, "Row Remapper"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("the program's own Xid", [XID.format(31, "MMU Fault"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("a GPU of another node", [GSP.replace("gpu01", "gpu02"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("right before the limit", [GSP.replace("-90min", "-20s"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("before it began", [GSP.replace("-90min", "-130min"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard("two may have held it", [GSP, TIMELIMIT], BESIDE, (TIMEOUT, TIMEOUT), at_most=0.5),
    heard("of two, one prints on", [GSP, TIMELIMIT, *wrote(-119, -1, 1)], BESIDE, (TIMEOUT, TIMEOUT)),
]  # fmt: skip
FOUND = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_time_limit_after_a_gpu_failed(situation: Situation) -> None:
    assert wrong(situation, *FOUND[situation.name]) == []


def test_the_doubt_is_named() -> None:
    (verdict,) = FOUND["nothing shows that it stood still"][1]
    assert "whether it stood still for that, nothing that was collected tells" in verdict["summary"]
    first, second = FOUND["two may have held it"][1]
    assert all("failed 5400 s before (Xid 120)" in one["summary"] for one in (first, second))


def test_a_run_that_printed_on_is_as_sure_as_without_the_fault() -> None:
    assert FOUND["its output goes on"][1][0]["confidence"] > 0.9
    assert FOUND["of two, one prints on"][1][1]["confidence"] > 0.9
