"""Runs that somebody ended for a GPU of theirs that had failed: the node was drained for it. Their own users' requests, other
drains and faults after which a GPU goes on explain no end."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.facts.gpu_drains import may_be_taken_off
from correlator.facts.world import World
from correlator.model.nouns import Event, Run
from correlator.verdicts.verdict import Verdict
from tests.correlator.making import event, run, world
from tests.correlator.situations import judged, said

GPU = ("infra.gpu", "gpu.xid", "n2")
CANCEL = ("user.cancel", None, None)


def fault(code: int = 120, at: float = 0.0, host: str = "n2", pci: str = "0000:9b:00", text: str = "") -> Event:
    return event("gpu.xid", at, host, f"NVRM: Xid (PCI:{pci}): {code}, pid=812, name=a.out, {text}", pci=pci, xid=code)


def drained(reason: str = "gpu 2 dead, swap it", at: float = 90.0, host: str = "n2") -> list[Event]:
    text = f"update_node: node {host} state set to DRAINING"
    return [
        event("slurm.node_reason", at, "ctl", "update_node", source="slurmctld", nodes=[host], reason=reason),
        event("slurm.node_drain", at, "ctl", text, source="slurmctld", nodes=[host]),
    ]


def requeuing(at: float = 140.0, job: int = 1) -> Event:
    return event("slurm.job_requeue", at, "ctl", f"Requeuing JobId={job}", source="slurmctld", job_id=job)


def requeued(end: float = 140.0, **more: Any) -> Run:
    return run(1, ["n2"], -900, end, "REQUEUED", **{"exit_code": 0, "uid": "1007", "gpus": 4} | more)


def cancelled(by: str, end: float = 140.0, **more: Any) -> Run:
    return run(
        1, ["n2"], -900, end, "CANCELLED", **{"exit_code": 0, "uid": "1007", "gpus": 4, "cancelled_by": by} | more
    )


def of(where: World, key: str = "1") -> Verdict:
    return judged(where)[key]


@pytest.mark.parametrize("reason", ["gpu 2 dead, swap it", "NHC: check_gpu: Xid=120", "XID 120 / case 99"])
def test_a_run_requeued_from_a_node_with_a_failed_gpu_is_ended_by_the_gpu(reason: str) -> None:
    found = of(world([fault(), *drained(reason), requeuing()], [requeued()]))
    assert said(found) == GPU and found.confidence <= 0.85
    assert any("Who asked for its requeue" in doubt for doubt in found.doubts)


@pytest.mark.parametrize("by", ["0", "root", "955"])
def test_a_run_cancelled_by_somebody_else_for_its_gpu_is_ended_by_the_gpu(by: str) -> None:
    assert said(of(world([fault(), *drained()], [cancelled(by)]))) == GPU


@pytest.mark.parametrize("by", ["0", "955"])
def test_who_drains_right_after_had_the_same_in_mind(by: str) -> None:
    assert said(of(world([fault(), *drained(at=150.0)], [cancelled(by)]))) == GPU


OWN_ORDER = event(
    "slurm.job_cancelled", 139.0, "ctl", "REQUEST_KILL_JOB JobId=1 uid 1007", source="slurmctld", job_id=1, uid="1007"
)
#: What does not lead from the fault to the end.
OTHERWISE = {
    "its own user's": ([fault(), *drained()], cancelled("1007")),
    "a number's, which may be its user's": ([fault(), *drained()], cancelled("1210", uid=None, user="joana")),
    "its own user's, and requeued": ([fault(), *drained(), OWN_ORDER, requeuing()], requeued()),
    "a healthy node": (drained("replace psu2"), cancelled("0")),
    "a healthy node, its reason names a gpu": (drained(), cancelled("0")),
    "not drained": ([fault()], cancelled("0")),
    "drained for something else": ([fault(), *drained("bad dimm")], cancelled("0")),
    "drained long after": ([fault(), *drained(at=900.0)], cancelled("0")),
    "drained before the fault": ([fault(at=100.0), *drained(at=90.0)], cancelled("0")),
    "another node": ([fault(host="n3"), *drained(host="n3")], cancelled("0")),
    "a row was replaced": ([fault(63), *drained()], cancelled("0")),
    "many single bits": ([fault(92), *drained()], cancelled("0")),
    "the program's own": ([fault(31), *drained()], cancelled("0")),
    "hours before": ([fault(at=-9000.0), *drained()], cancelled("0")),
    "it had no gpu": ([fault(), *drained()], cancelled("0", gpus=0)),
    "requeued by itself": ([fault(), *drained(), requeuing()], requeued(exit_code=75)),
    "requeued, not drained": ([fault(), requeuing()], requeued()),
    "slurm drained it": ([fault(), *drained("gres/gpu count reported lower than configured (3 < 4)")], cancelled("0")),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "ended"), OTHERWISE.values(), ids=OTHERWISE)
def test_what_else_ends_a_run(lines: list[Event], ended: Run) -> None:
    found = of(world(lines, [ended, run(9, ["n1"], -900, 900, "COMPLETED", gpus=1)]))
    assert found.root is None and found.category in ("user.cancel", "app.error")


def test_telemetry_shows_that_another_job_held_the_gpu() -> None:
    held = {("n2", "0000:9b:00"): [(-300.0 + event("x", 0.0).time, 2), (event("x", 0.0).time, 2)]}
    others = run(2, ["n2"], -900, 4000, "COMPLETED", gpus=1)
    found = of(world([fault(), *drained()], [cancelled("0", gpus=1), others], gpu_jobs=held))
    assert said(found) == CANCEL


def test_preempted_after_a_fault_is_preempted() -> None:
    line = event("slurm.job_preempted", 140.0, "ctl", "preempted JobId=1 has been requeued to reclaim resources for JobId=9", source="slurmctld", job_id=1)  # fmt: skip
    found = of(world([fault(), *drained(), line, requeuing()], [requeued()]))
    assert said(found)[0] == "sched.preempt"


def test_a_run_beside_the_one_that_was_taken_off_is_left_open() -> None:
    other = run(2, ["n2"], -900, 58.0, "FAILED", exit_code=3, uid="1008", gpus=1)
    lines = [fault(), *drained(at=20.0), requeuing(31.0)]
    found = judged(world(lines, [requeued(30.0, gpus=1), other]))
    assert said(found["1"]) == GPU and found["1"].confidence <= 0.75
    assert found["2"].category == "unknown" and found["2"].confidence <= 0.5 and found["2"].root is None


def test_a_run_that_failed_before_the_other_was_taken_off_may_have_held_it() -> None:
    other = run(2, ["n2"], -900, 3.0, "FAILED", exit_code=3, uid="1008", gpus=1)
    lines = [fault(), *drained(at=20.0), requeuing(31.0)]
    found = judged(world(lines, [requeued(30.0, gpus=1), other]))
    assert said(found["2"]) == GPU


def test_what_its_own_user_ended_waits_for_no_fault() -> None:
    where = world([], [cancelled("1007"), run(2, ["n2"], -900, 140, "CANCELLED", uid="1007", cancelled_by="0")])
    ends = {f.run or "": f for f in where.facts_of("run.cancelled")}
    assert {key: may_be_taken_off(where.run[key], end) for key, end in ends.items()} == {"1": False, "2": True}
