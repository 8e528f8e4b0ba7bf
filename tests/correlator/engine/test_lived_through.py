"""Output that a run wrote long before its end, or survived, does not explain the end."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.correlator.field import (
    APP,
    ETH0,
    IB0,
    KEY_ERROR,
    KILLED,
    RETRY,
    SET_DOWN,
    WATCHDOG,
    Situation,
    concluded,
    down,
    ended,
    heard,
    wrong,
)

OOM = ("app.oom", None, None)
OOM_LINE = (
    "stderr: slurmstepd: error: Detected 1 oom_kill event in StepId={0}.0. Some of the step tasks have been OOM Killed."
)
RAIL = (*down("-45s", "gpu01", "ib0"), f"-2s {{0}} stderr: {RETRY}")
WAITED = WATCHDOG.replace("600000", "1800000")

SITUATIONS = [
    heard(
        "a step was out of memory half an hour before an own error",
        [f"-30min {{0}} {OOM_LINE}", KEY_ERROR],
        (ended(),),
        (APP,),
    ),
    heard(
        "a step was out of memory, and so the run ended",
        [f"-2s {{0}} {OOM_LINE}", "-1s {0} stderr: srun: error: gpu01: task 0: Out Of Memory"],
        (ended(),),
        (OOM,),
    ),
    heard(
        "a step was out of memory, and its script ended with a code minutes later",
        [f"-3min {{0}} {OOM_LINE}"],
        (ended(),),
        (OOM,),
        at_most=0.7,
    ),
    heard(
        "peers were lost 40 min before an own error", [f"-40min {{0}} stderr: {RETRY}", KEY_ERROR], (ended(),), (APP,)
    ),
    heard("peers were lost 40 min before a rail was", [f"-40min {{0}} stderr: {RETRY}", *RAIL], (ended(),), (IB0,)),
    heard(
        "a step failed by itself 40 min before a rail was lost",
        [
            "-40min {0} stderr: srun: error: gpu01: task 0: Exited with exit code 1",
            "-40min {0} stderr: KeyError: 'x'",
            *RAIL,
        ],
        (ended(),),
        (IB0,),
    ),
    heard(
        "a step failed by itself 40 min before its node was lost",
        ["-40min {0} stderr: KeyError: 'x'", *down("-300s", "gpu01", "eth0", "200s"), KILLED, SET_DOWN],
        (ended("NODE_FAIL"),),
        (ETH0,),
    ),
    heard(
        "one rank failed by itself, and the others waited half an hour for it",
        ["-1805s {0} stderr: KeyError: 'x'", f"-2s {{0}} stderr: {WAITED}"],
        (ended(),),
        (APP,),
    ),
    heard(
        "storage failed a step 50 min before an own error",
        ["-50min {0} stderr: OSError: [Errno 5] Input/output error: '/lustre/fs1/a'", KEY_ERROR],
        (ended(),),
        (APP,),
    ),
    heard(
        "slurmctld tells of a requeue when the node has ended the run",
        [
            "3s gpu01 slurmd: [{0}.batch] error: *** JOB {0} ON gpu01 CANCELLED AT 2026-03-03T10:00:03 DUE TO JOB REQUEUE ***",
            "90s ctl slurmctld: Requeuing JobId={0}",
        ],
        (ended("REQUEUED"),),
        (("user.cancel", None, None),),
    ),
    heard(
        "only slurmstepd tells of a requeue",
        [
            "3s gpu01 slurmd: [{0}.batch] error: *** JOB {0} ON gpu01 CANCELLED AT 2026-03-03T10:00:03 DUE TO JOB REQUEUE ***"
        ],
        (ended("REQUEUED"),),
        (("user.cancel", None, None),),
    ),
]


@cache
def all_of_them() -> dict[str, Any]:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *all_of_them()[situation.name]) == []
