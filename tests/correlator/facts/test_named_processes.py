"""A user's process may be called like a daemon: what then shows that slurmd died."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.correlator.erins_job import RING, concluded, ring
from tests.correlator.field import KILLED, SET_DOWN, InOneStore, Situation, ended, heard

SEGFAULT = "-250s gpu01 kernel: slurmd[812]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6[7f+1]"
OF_JOB = "task_memcg=/slurm/uid_1001/job_7000/step_0/task_0,task=slurmd,pid=812,uid={}"
CONSTRAINT = (
    "-250s gpu01 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=gpu01,mems_allowed=0,oom_memcg=/x,"
)
IN_GROUP = (
    "-250s gpu01 kernel: Memory cgroup out of memory: Killed process 812 (slurmd) total-vm:116376kB, anon-rss:96768kB, "
)
OLD_KERNEL = "-250s gpu01 kernel: Killed process 812 (slurmd) total-vm:116376kB, anon-rss:96768kB, file-rss:5664kB, shmem-rss:0kB"
OF_ROOT = "-250s gpu01 kernel: Out of memory: Killed process 812 (slurmd) total-vm:4194304kB, anon-rss:21000kB, UID:0 pgtables:200kB"
LAUNCH = "-{}s gpu01 slurmd: launch task StepId=7000.1 request from UID:1001 GID:1001 HOST:10.0.0.1 PORT:4"
STOP = "-210s gpu01 slurmd: Slurmd shutdown completing"
START = "-{}s gpu01 slurmd: slurmd version 23.11.4 started"
SOME_PROCESS = "-250s gpu01 systemd: slurmd.service: A process of this unit has been killed by the OOM killer."
UNIT = "-249s gpu01 systemd: slurmd.service: Main process exited, code=dumped, status=11/SEGV"
STARTED = ("-3000s gpu01 slurmd: launch task StepId=7000.0 request from UID:1001 GID:1001 HOST:10.0.0.1 PORT:4",)


def told(name: str, *lines: str, jobs: Iterable[dict[str, object]] = (ended("COMPLETED", nodes="gpu01"),)) -> Situation:
    jobs = tuple(jobs)
    return heard(name, (*STARTED, *lines), jobs, tuple(None for _ in jobs))


OF_A_USER = [
    told("its uid is shown", IN_GROUP + "UID:1001 pgtables:248kB oom_score_adj:0"),
    told("its uid is shown beside", CONSTRAINT + OF_JOB.format(1001), OLD_KERNEL),
    told("it is root in a container of a job", CONSTRAINT + OF_JOB.format(0), IN_GROUP + "UID:0 pgtables:248kB"),
    told("it asked for memory", "-250s gpu01 kernel: slurmd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0"),
    told("an old kernel shows no owner, and slurmd goes on", OLD_KERNEL, LAUNCH.format(240)),
    told("nothing follows a segfault", SEGFAULT),
    told("slurmd goes on after a segfault, and is restarted", SEGFAULT, LAUNCH.format(240), STOP, START.format(200)),
    told("a process of its unit's control group", SOME_PROCESS, LAUNCH.format(240)),
    told("a folder with its name cannot be mounted", "-250s gpu01 systemd: Failed to mount /home/ann/slurmd."),
]
OF_SLURMD = [
    told("systemd reports its unit", SEGFAULT, UNIT),
    told("slurmd begins anew", SEGFAULT, START.format(220)),
    told("slurmctld gets no answer", SEGFAULT, SET_DOWN, KILLED, jobs=(ended("NODE_FAIL", nodes="gpu01"),)),
    told("the kernel shows root", OF_ROOT),
    told("nobody had a job there", SEGFAULT, jobs=(ended("COMPLETED", nodes="gpu01", end="-1000s"),)),
    told("one of its unit, and it begins anew", SOME_PROCESS, START.format(220)),
]
ALL = InOneStore([*OF_A_USER, *OF_SLURMD])


def _roots(situation: Situation) -> set[tuple[str, str]]:
    found, _ = ALL[situation.name]
    return {(i["root_cause"]["event"], i["root_cause"]["host"]) for i in found.incidents}


@pytest.mark.parametrize("situation", OF_A_USER, ids=lambda s: s.name)
def test_a_process_that_its_user_calls_slurmd_is_not_slurmd(situation: Situation) -> None:
    assert ("slurm.slurmd_crash", "gpu01") not in _roots(situation)


@pytest.mark.parametrize("situation", OF_SLURMD, ids=lambda s: s.name)
def test_slurmd_died(situation: Situation) -> None:
    assert ("slurm.slurmd_crash", "gpu01") in _roots(situation)


AT_TEN = "slurmd[812]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6[7f+1]"
FILE = "nodes/gx02/slurmd.log"
BEFORE = "[2026-02-28T10:10:00.000] launch task StepId=42.1 request from UID:1005 GID:1005 HOST:10.0.0.1 PORT:4\n"


@pytest.mark.parametrize(
    ("after", "died"),
    [
        pytest.param("[2026-02-28T10:13:00.000] slurmd version 23.11.4 started\n", True, id="begins anew"),
        pytest.param(BEFORE.replace("10:10", "10:13"), False, id="goes on", marks=pytest.mark.long),
    ],
)
def test_it_is_known_as_lines_arrive(after: str, died: bool) -> None:
    """By ticks, as at once: what slurmd writes after the kernel's line decides."""
    found = concluded({RING: ring("10:12:00", AT_TEN), FILE: BEFORE + after}, live=True)
    roots = {(i["root_cause"]["event"], i["root_cause"]["host"]) for i in found["incidents"]}
    assert (("slurm.slurmd_crash", "gx02") in roots) is died
