"""Faults that overlap on different layers, and sources that are missing."""

from __future__ import annotations

import pytest

from tests.correlator.field import (
    ANY,
    APP,
    BOOT,
    ECC,
    ETH0,
    FELL_OFF,
    KEY_ERROR,
    KILLED,
    LEAF,
    NETWORK,
    RAILS,
    RETRY,
    SET_DOWN,
    TIMELIMIT,
    UNKNOWN,
    WATCHDOG,
    XID48,
    InOneStore,
    Situation,
    down,
    ended,
    heard,
    pace,
    wrong,
)

LIMITED = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0,oom_memc"
    "g=/slurm/uid_1001/job_{1},task_memcg=/slurm/uid_1001/job_{1}/step_0/task_0,task=python,pid=999,uid=1001"
)
NFS = "nfs: server nfs1 not responding, still trying"
ROW = tuple(f"gpu0{i}" for i in range(1, 7))


SITUATIONS = [
    heard(
        "two faults on two layers within minutes",
        (
            *down("-250s", "gpu01", "eth0"),
            "-100s gpu02 kernel: " + FELL_OFF,
            SET_DOWN,
            KILLED,
            "-98s {1} stderr: RuntimeError: CUDA error: unspecified launch failure",
        ),
        (ended("NODE_FAIL", nodes="gpu[01,03]"), ended("FAILED", nodes="gpu02", end="-95s")),
        (ETH0, ("infra.gpu", "gpu.xid", "gpu02")),
    ),
    heard(
        "innocent rank errors, decoy flap on another plane",
        (*down("-45s", "gpu02", "ib0"), *down("-5s", "gpu01", "ib3", "-3s"), "-2s {0} stderr: " + RETRY),
        (ended(),),
        ((NETWORK, "nic.link_down|nic.link_flap", "gpu02"),),
        links=RAILS,
    ),
    heard(
        "lost peers, decoy flap only, too short",
        (*down("-5s", "gpu01", "ib3", "-3s"), "-2s {0} stderr: " + RETRY),
        (ended(),),
        (UNKNOWN,),
        links=RAILS,
    ),
    heard(
        "preempted during a switch outage",
        (
            *(x for i in range(1, 7) for x in down(f"-60.{i}s", f"gpu0{i}", "eth0")),
            "-30s ctl slurmctld: preempted JobId={0} has been requeued to reclaim resources for JobId=99",
        ),
        (ended("PREEMPTED", end="-29s"),),
        (("sched.preempt", None, None),),
        links=LEAF,
    ),
    heard(
        "requeue loop by a prolog",
        tuple(
            x
            for n, t in ((0, -900), (1, -600), (2, -300))
            for x in (
                f"{t}s ctl slurmctld: sched: Allocate JobId={{{n}}} NodeList=gpu01 #CPUs=8 Partition=gpu",
                f"{t + 1}s gpu01 slurmd: error: prolog failed: rc:1 output:mount /scratch failed",
                f"{t + 1}s gpu01 slurmd: error: [job {{{n}}}] prolog failed status=1:0",
                f"{t + 2}s ctl slurmctld: error: Prolog launch failure, JobId={{{n}}}",
                f"{t + 2}s ctl slurmctld: error: validate_node_specs: Prolog or job env setup failure on node gpu01, draining the node",
            )
        ),
        tuple(ended("REQUEUED", nodes="gpu01", start=f"{t}s", end=f"{t + 2}s") for t in (-900, -600, -300)),
        (("infra.scheduler", "slurm.prolog_failure", "gpu01"),) * 3,
    ),
    heard(
        "array with one bad node",
        (
            "-30s gpu04 kernel: " + XID48,
            "-28s {1} stderr: " + ECC,
            "-1s {0} stderr: KeyError: 'x'",
            "-400s gpu04 kernel: " + XID48,
            "-398s {2} stderr: " + ECC,
        ),
        (
            ended(nodes="gpu05"),
            ended(nodes="gpu04", end="-26s", start="-300s"),
            ended(nodes="gpu04", end="-396s"),
            ended("COMPLETED", nodes="gpu06"),
        ),
        (APP, ("infra.gpu", "gpu.xid|gpu.ecc", "gpu04"), ("infra.gpu", "gpu.xid|gpu.ecc", "gpu04"), None),
    ),
    heard(
        "prolog that hangs",
        (
            "-62s ctl slurmctld: sched: Allocate JobId={0} NodeList=gpu01 #CPUs=8 Partition=gpu",
            "-2s gpu01 slurmd: error: run_command: prolog poll timeout @ 60000 msec",
            "-2s gpu01 slurmd: error: prolog failed: rc:-1 output:",
            "-1.5s gpu01 slurmd: error: [job {0}] prolog failed status=-1:0",
            "-1s ctl slurmctld: error: Prolog launch failure, JobId={0}",
        ),
        (ended("CANCELLED", nodes="gpu01", start="-62s"),),
        (("infra.scheduler", "slurm.prolog_failure", "gpu01"),),
    ),
    heard(
        "oom of another job's step on a shared node",
        (
            "-20s gpu01 kernel: Memory cgroup out of memory: Killed process 999 (python) total-vm:99kB, anon-rss:99kB, file-rss:0kB, shmem-rss:0kB, UID:1001 pgtables:200kB oom_score_adj:0",
            "-20s gpu01 kernel: " + LIMITED,
            "-1s {0} stderr: srun: error: gpu01: task 0: Exited with exit code 1",
        ),
        (ended(nodes="gpu01"), ended("OUT_OF_MEMORY", nodes="gpu01", end="-19s")),
        (APP, ("app.oom", None, None)),
    ),
    heard(
        "oom of another job, killed by a signal 9 alike",
        (
            "-20s gpu01 kernel: " + LIMITED,
            "-1s {0} stderr: srun: error: gpu01: task 0: Killed",
        ),
        (ended(nodes="gpu01", exit_code=137), ended("OUT_OF_MEMORY", nodes="gpu01", end="-19s")),
        (("app.error|unknown", None, None), ("app.oom", None, None)),
    ),
    heard(
        "time limit beside a flap",
        (*down("-10s", "gpu01", "ib0", "200s"), TIMELIMIT, "1s {0} stderr: " + RETRY),
        (ended("TIMEOUT", end="2s"),),
        (("app.timeout", None, None),),
        links=RAILS,
    ),
    heard(
        "QOS limit beside an Xid of another job",
        (
            "-10s gpu02 kernel: NVRM: Xid (PCI:0000:99:00): 63, pid=77, name=x, Row Remapper: New row marked for remapping",
            "-0.5s ctl slurmctld: JobId={0} timed out, the job is at or exceeds QOS normal group max wall limit of 600 with 601",
        ),
        (ended("TIMEOUT"),),
        (("app.timeout", None, None),),
    ),
    heard(
        "NFS stall over two racks",
        (
            *(f"-{180 - i}s {h} kernel: {NFS}" for i, h in enumerate(ROW)),
            *(
                f"{x}s {{{n}}} stderr: OSError: [Errno 110] Connection timed out: '/home/u/ck_{n}.pt'"
                for n, x in ((0, -20), (1, -19), (2, -18))
            ),
        ),
        (ended(nodes="gpu01", end="-18s"), ended(nodes="gpu03", end="-17s"), ended(nodes="gpu05", end="-16s")),
        (("infra.storage", "storage.outage", ANY),) * 3,
    ),
    heard(
        "NFS stall on other nodes, own import error",
        (
            *(f"-{180 - i}s gpu0{i} kernel: {NFS}" for i in (4, 5, 6)),
            "-1s {0} stderr: ModuleNotFoundError: No module named 'apex'",
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "NFS stall, a job that waits and goes on",
        (
            *(f"-{180 - i}s {h} kernel: {NFS}" for i, h in enumerate(ROW)),
            *(f"-{90 - i}s {h} kernel: nfs: server nfs1 OK" for i, h in enumerate(ROW)),
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "controller fails over to its backup",
        (
            "-300s ctl2 slurmctld: error: ControlMachine ctl not responding, BackupController1 ctl2 taking over",
            "-299s ctl2 slurmctld: slurmctld version 24.05.3 started on cluster blue",
            "-290s gpu01 slurmd: error: Unable to register: Unable to contact slurm controller (connect failure)",
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
        ("slurm.slurmd_crash", "node.unresponsive"),
    ),
    heard(
        "wrong munge key on one node",
        (
            *(f"{t}s ctl slurmctld: error: Munge decode failed: Invalid credential" for t in (-300, -200, -100)),
            *(
                f"{t}s ctl slurmctld: error: slurm_unpack_received_msg: [[gpu01]:38280] Protocol authentication error"
                for t in (-300, -200, -100)
            ),
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.munge_failure", "gpu01"),),
    ),
    heard(
        "a clock that jumps",
        (
            "-320s gpu01 chronyd: System clock was stepped by 3612.418 seconds",
            *(f"{t}s ctl slurmctld: error: Munge decode failed: Rewound credential" for t in (-300, -200)),
            *(
                f"{t}s ctl slurmctld: error: slurm_unpack_received_msg: [[gpu01]:38280] Protocol authentication error"
                for t in (-300, -200)
            ),
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.munge_failure", "gpu01"),),
    ),
    heard(
        "drained by a health check while the job runs, own error",
        (
            "-600s ctl slurmctld: update_node: node gpu01 reason set to: NHC: check_hw_ib: ib3 degraded",
            "-600s ctl slurmctld: update_node: node gpu01 state set to DRAINING",
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "GPU off the bus, then the machine reboots",
        (
            "-300s gpu01 kernel: " + FELL_OFF,
            f"-40s gpu01 kernel: {BOOT}",
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: validate_node_specs: Node gpu01 unexpectedly rebooted boot_time=1772531960 last response=1772531800",
        ),
        (ended("NODE_FAIL"),),
        (("infra.gpu", "gpu.xid", "gpu01"),),
    ),
    heard(
        "row remap pending, drained, own error",
        (
            "-500s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
            "-480s ctl slurmctld: update_node: node gpu01 reason set to: NHC: gpu row remap pending",
            "-480s ctl slurmctld: update_node: node gpu01 state set to DRAINING",
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "row remap failure without an own word",
        (
            "-500s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
            "-1s {0} stderr: srun: error: gpu01: task 0: Exited with exit code 1",
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "heat slows one rank",
        (
            *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
            "-1210s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Thermal Slowdown active, temperature 91 C",
            "-600s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Thermal Slowdown active, temperature 92 C",
            "-60s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Thermal Slowdown active, temperature 92 C",
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        (("infra.gpu", "gpu.thermal", "gpu02"),),
    ),
    heard(
        "power cap slows one rank",
        (
            *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
            "-1210s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Power Brake Slowdown active",
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        (("infra.gpu|infra.node|app.timeout", ANY, ANY),),
        at_most=0.86,
    ),
    heard(
        "leaf of one of four planes reboots, own error later",
        (*(x for i in range(1, 7) for x in down(f"-120.{i}s", f"gpu0{i}", "ib1", "-10s")), KEY_ERROR),
        (ended(env={"NCCL_MRC_PLANES": "4"}),),
        (APP,),
        links=RAILS,
    ),
    heard(
        "leaf of one of four planes reboots, lost peers",
        (*(x for i in range(1, 7) for x in down(f"-120.{i}s", f"gpu0{i}", "ib1", "-10s")), "-60s {0} stderr: " + RETRY),
        (ended(end="-58s", env={"NCCL_MRC_PLANES": "4"}),),
        (UNKNOWN,),
        links=RAILS,
    ),
    heard(
        "every line twice, some late",
        tuple(x for x in (*down("-250s", "gpu01", "eth0"), SET_DOWN, KILLED) for _ in (0, 1)),
        (ended("NODE_FAIL"),),
        (ETH0,),
    ),
    Situation(
        "switch log and accounting only",
        ("-250s tor1 switchd: swp1: link state changed to down",),
        (ended("NODE_FAIL"),),
        (ETH0,),
        links=LEAF,
        at_most=0.9,
    ),
    Situation(
        "slurmctld only", (SET_DOWN, KILLED), (ended("NODE_FAIL"),), (("infra.node", "node.unresponsive", "gpu01"),)
    ),
    Situation("output only: a watchdog", ("-1s {0} stderr: " + WATCHDOG,), (ended(),), (UNKNOWN,)),
    Situation(
        "output only: exit by signal",
        ("-1s {0} stderr: srun: error: gpu01: task 3: Segmentation fault (core dumped)",),
        (ended(exit_code=139),),
        (APP,),
    ),
    heard(
        "user cancels after the link is lost, before DOWN",
        (
            *down("-120s", "gpu01", "eth0"),
            "-60s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000",
        ),
        (ended("CANCELLED", end="-59s"),),
        (("user.cancel", None, None),),
    ),
    heard(
        "a segfault, peers lost, decoy flap",
        (
            *down("-3s", "gpu02", "ib0", "-2.5s"),
            "-5s {0} stderr: srun: error: gpu01: task 0: Segmentation fault (core dumped)",
            "-4s {0} stderr: NCCL WARN socketProgress: Connection closed by remote peer gpu01<50000>",
        ),
        (ended(exit_code=139),),
        (APP,),
    ),
    heard(
        "CUDA out of memory beside an Xid 31 of another job",
        (
            "-4s gpu02 kernel: NVRM: Xid (PCI:0000:99:00): 31, pid=7, name=other, MMU Fault",
            "-1s {0} stderr: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.60 GiB.",
        ),
        (ended(nodes="gpu02"), ended("COMPLETED", nodes="gpu02", end="2h")),
        (("app.oom", None, None), None),
    ),
]


ALL = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *ALL[situation.name]) == []
