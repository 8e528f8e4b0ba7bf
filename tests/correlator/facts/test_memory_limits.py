"""Jobs that were killed for want of memory while they had less than Slurm had given them, and those that took more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlator.field import Situation, concluded, ended, heard, wrong

OOM = ("app.oom", None, None)
TAKEN, LIMITED = ("infra.node", "node.memory_pressure", "gpu05"), ("infra.node", "node.memory_limit", "gpu05")


def allowed(given: int, limit: int, host: str = "gpu05", job: str = "{0}", at: str = "-20min") -> str:
    return f"{at} {host} slurmd: [{job}.0] task/cgroup: _memcg_initialize: job: alloc={given}MB mem.limit={limit}MB memsw.limit=unlimited"


def killed(group: str, anon_mib: int, pid: int = 977, job: str = "{0}", host: str = "gpu05") -> list[str]:
    """The kernel's two lines. ``group``: the one that was full; empty for the machine."""
    full = (
        f"CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group}"
        if group
        else "CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom"
    )
    what = "Memory cgroup out of memory" if group else "Out of memory"
    return [
        f"-1.2s {host} kernel: oom-kill:constraint={full},task_memcg=/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0,task=simulate,pid={pid},uid=1044",
        f"-1.2s {host} kernel: {what}: Killed process 977 (simulate) total-vm:9000000kB, anon-rss:{anon_mib * 1024}kB, file-rss:2048kB, shmem-rss:0kB, UID:1044 pgtables:90kB oom_score_adj:0",
    ]  # fmt: skip


def noted(job: str = "{0}", host: str = "gpu05") -> str:
    return f"-1s {host} slurmd: [{job}.0] error: Detected 1 oom_kill event in StepId={job}.0. Some of the step tasks have been OOM Killed."


def job(state: str = "OUT_OF_MEMORY", **more: Any) -> tuple[dict[str, Any], ...]:
    return (ended(state, nodes="gpu05", start="-25min", user="greta", **more),)


ABOVE, OWN = "/system.slice/slurmstepd.scope", "/system.slice/slurmstepd.scope/job_{0}"
ELSEWHERE = allowed(3000, 3000, "gpu06", "64990")
SITUATIONS = [
    # the whole machine, or a group above the job's, is full
    heard("the machine is full", [allowed(2000, 2000), *killed("", 700), noted()], job(), (TAKEN,)),
    heard("the machine is full, and only its step tells", [allowed(2000, 2000), *killed("", 700), noted()], job("FAILED"), (TAKEN,)),
    heard("the group of all jobs is full", [allowed(2000, 2000), *killed(ABOVE, 700), noted()], job(), (TAKEN,)),
    heard("its own group is full", [allowed(2000, 2000), *killed(OWN, 700), noted()], job(), (OOM,)),
    heard("a group of its step is full", [allowed(2000, 2000), *killed(OWN + "/step_0", 700), noted()], job(), (OOM,)),
    heard("a group of its user is full", [allowed(2000, 2000), *killed("/slurm/uid_1044", 700), noted()], job(), (OOM,)),
    heard("it had nearly all that it was given", [allowed(2000, 2000), *killed("", 1900), noted()], job(), (OOM,)),
    heard("nothing limited it to what it was given", [allowed(2000, 9000), *killed("", 700), noted()], job(), (OOM,)),
    heard("it is not known what it was given", [*killed("", 700), noted()], job(), (OOM,)),
    heard("the count is of another process", [allowed(2000, 2000), *killed("", 700, pid=978), noted()], job(), (OOM,)),
    heard("a user writes slurmstepd's line", [allowed(2000, 2000).replace("slurmd: [{0}.0]", "slurmstepd[99]:"), *killed("", 700), noted()], job(), (OOM,)),
    heard("a program prints the kernel's lines", [
        allowed(2000, 2000), *("-1.2s {0} stderr: " + line.split("kernel: ")[1] for line in killed("", 700)), noted()], job(), (OOM,)),
    # one node allows less than Slurm gave
    heard("one node allows half", [allowed(3000, 1500), ELSEWHERE, noted()], job(), (LIMITED,)),
    heard("one node allows half, and its own group was full", [allowed(3000, 1500), ELSEWHERE, *killed(OWN, 1490), noted()], job("FAILED"), (LIMITED,)),
    heard("all nodes allow half", [allowed(3000, 1500), allowed(3000, 1500, "gpu06", "64990"), noted()], job(), (OOM,)),
    heard("others were given less", [allowed(3000, 1500), allowed(1000, 1000, "gpu06", "64990"), noted()], job(), (OOM,)),
    heard("it allows nearly the whole", [allowed(3000, 2900), ELSEWHERE, noted()], job(), (OOM,)),
    heard("another job there was allowed half", [allowed(3000, 3000), allowed(3000, 1500, job="64991"), ELSEWHERE, noted()], job(), (OOM,)),
    heard("it failed by itself", [allowed(3000, 1500), ELSEWHERE, "-1s {0} stderr: KeyError: 'x'"], job("FAILED"), (("app.error", None, None),)),
    heard("a program prints slurmstepd's line", [
        "-20min {0} stderr: " + allowed(3000, 1500).split("slurmd: ")[1], ELSEWHERE, noted()], job(), (OOM,)),
]  # fmt: skip


@pytest.fixture(scope="module")
def all_found() -> Any:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation, all_found: Any) -> None:
    assert wrong(situation, *all_found[situation.name]) == []


def test_the_verdict_says_how_much_it_had(all_found: Any) -> None:
    _, (verdict,) = all_found["the machine is full"]
    assert "which held 702 of the 2000 MiB that its job was given, as the memory had none left" in verdict["summary"]
    _, (verdict,) = all_found["one node allows half"]
    assert "limited a job to 1500 of the 3000 MiB that it was given, where gpu06 sets the whole" in verdict["summary"]
