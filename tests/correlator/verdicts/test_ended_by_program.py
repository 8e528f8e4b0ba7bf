"""Programs that end all their ranks themselves, and ranks that wait for each other by the program's mistake: nobody lost a peer."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.correlator.field import APP, RETRY, UNKNOWN, Situation, concluded, ended, heard, wrong

ABORT = "-0.5s {0} stderr: MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"
WATCHDOG = "-30s {0} stderr: [rank3]:[E1 00:00:00.1 x.cpp:1] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000)"
MISMATCH = "-2s {0} stderr: [rank8]: RuntimeError: Detected mismatch between collectives on ranks. Rank 8 is running collective: A, but Rank 0 is running collective: B"
LOST = "-1s {0} stderr: [node01:4242] *** An error occurred in MPI_Allreduce"
RUN = ended(nodes="gpu[01-02]", start="-1h", end="0s", user="ada")

SITUATIONS = [
    heard("a program gives up with words that nobody knows", ["-1s {0} stderr: step too large, simulation is unstable", ABORT], (RUN,), (APP,)),
    heard("an MPI library reports an error first", [LOST, ABORT], (RUN,), (UNKNOWN,)),
    heard("ranks call different collectives", [WATCHDOG, MISMATCH], (RUN,), (APP,)),
    heard("a rank loses its peers and leaves the others' order", [f"-30s {{0}} stderr: {RETRY}", MISMATCH], (RUN,), (UNKNOWN,)),
    heard("ranks wait in vain", [WATCHDOG], (RUN,), (UNKNOWN,)),
]  # fmt: skip


@cache
def _all() -> Any:
    return concluded(SITUATIONS)


NO_SPACE = "OSError: [Errno 28] No space left on device: '/tmp/x/y'"
WHOSE = "whether it had used up that space itself or others had"
LACKS = [
    heard("it lacks space, and fails by that once more", [f"-2s {{0}} stderr: {NO_SPACE}", "-1s {0} stderr: RuntimeError: unexpected pos 64 vs 0"], (RUN,), (APP,), at_most=0.75),
    heard("it fails, and lacks space to clean up", ["-2s {0} stderr: KeyError: 'x'", f"-1s {{0}} stderr: {NO_SPACE}"], (RUN,), (APP,), at_most=0.75),
]  # fmt: skip


@cache
def _lacking() -> Any:
    return concluded(LACKS)


@pytest.mark.parametrize("situation", LACKS, ids=lambda situation: situation.name)
def test_what_it_lacked_is_named(situation: Situation) -> None:
    found, verdicts = _lacking()[situation.name]
    assert wrong(situation, found, verdicts) == []
    before, _, _ = verdicts[0]["summary"].partition(WHOSE)
    assert NO_SPACE in before and before != verdicts[0]["summary"]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_who_ended_it(situation: Situation) -> None:
    assert wrong(situation, *_all()[situation.name]) == []
