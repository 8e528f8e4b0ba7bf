"""Causes that only Slurm's answers, systemd, a bond or another component of a job show."""

from __future__ import annotations

import pytest

from tests.correlator.field import (
    ANY,
    APP,
    BOOT,
    ECC,
    FELL_OFF,
    KEY_ERROR,
    KILLED,
    LEAF,
    RAILS,
    RETRY,
    SET_DOWN,
    UNKNOWN,
    InOneStore,
    Situation,
    booted,
    down,
    ended,
    pace,
    state,
    wrong,
)

ADMIN = ("infra.scheduler", "slurm.admin_action", "gpu01")
QUIET = "-3600s gpu01 kernel: EDAC MC: Ver: 3.0.0"
LAUNCHED = "-3600s gpu01 slurmd: launch task StepId={0}.0 request from UID:1000 GID:1000 HOST:10.0.0.1 PORT:4242"
#: slurmds launch a step of a heterogeneous job.
STEPS_OF_PARTS = (
    "-3600s gpu01 slurmd: launch task {0}+0.0 (StepId={0}.0) request from UID:1000 GID:1000 HOST:10.0.0.1 PORT:4242",
    "-3600s gpu03 slurmd: launch task {0}+1.0 (StepId={1}.0) request from UID:1000 GID:1000 HOST:10.0.0.1 PORT:4242",
)
SITUATIONS = [
    # an administrator's DOWN
    Situation(
        "admin down, sinfo polls",
        (QUIET,),
        (ended("NODE_FAIL"),),
        (ADMIN,),
        states=(
            state("allocated", None, None, when=-60, source="sinfo"),
            state("down", "replace psu2", None, when=60, source="sinfo"),
        ),
    ),
    Situation(
        "admin down, polls every 2 s",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (ADMIN,),
        states=(
            state("allocated", None, None, when=-2, source="poll"),
            state("down", "replace psu2", None, when=1, source="poll"),
        ),
    ),
    Situation(
        "silence, sinfo polls",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (("infra.node", "node.unresponsive", "gpu01"),),
        states=(
            state("allocated", None, None, when=-60, source="sinfo"),
            state("down*", "Not responding", None, when=60, source="sinfo"),
        ),
    ),
    Situation(
        "drained then downed, scontrol down+drain same moment",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (ADMIN,),
        states=(state("down+drain", "replace psu2", "ana", when=0, source="scontrol"),),
    ),
    Situation(
        "maintenance reservation, sinfo down$",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (ADMIN,),
        states=(
            state("allocated", None, None, when=-60, source="sinfo"),
            state("down$", None, None, when=60, source="sinfo"),
        ),
    ),
    Situation(
        "reason by number of user",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (ADMIN,),
        states=(state("down", "gpu swap", "1003", when=0, source="scontrol"),),
    ),
    Situation(
        "reason by uid, gpu in the reason, no xid",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (ADMIN,),
        states=(state("down", "reseat gpu 3", "bob", when=-1, source="slurmrestd"),),
    ),
    Situation(
        "health check set DOWN, xid known",
        (QUIET, "-40s gpu01 kernel: " + FELL_OFF),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (("infra.gpu", "gpu.xid", "gpu01"),),
        states=(state("down", "NHC: check_nv_gpu: GPU 0 lost", "root(0)", when=0),),
    ),
    Situation(
        "nothing tells",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (("infra.node|unknown", ANY, ANY),),
        at_most=0.5,
    ),
    Situation(
        "nothing tells, two nodes", (QUIET,), (ended("NODE_FAIL"),), (("infra.node|unknown", ANY, ANY),), at_most=0.62
    ),
    Situation(
        "old down reason of another time",
        (QUIET,),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (("infra.node|unknown", ANY, ANY),),
        at_most=0.5,
        states=(state("down", "replace psu2", "root(0)", when=-80000),),
    ),
    # BootTime
    Situation(
        "BootTime changed between polls",
        ("-7200s gpu02 kernel: EDAC MC: Ver: 3.0.0",),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (("infra.node", "node.reboot", "gpu01"),),
        boots=(booted(-864000), booted(-30), booted(-30.6)),
    ),
    Situation(
        "BootTime unchanged but for a second",
        ("-7200s gpu02 kernel: EDAC MC: Ver: 3.0.0",),
        (ended("NODE_FAIL", nodes="gpu01"),),
        (("infra.node|unknown", ANY, ANY),),
        ("node.reboot",),
        at_most=0.5,
        boots=(booted(-864000), booted(-864001)),
    ),
    Situation(
        "BootTime of one poll only, days ago",
        ("-7200s gpu02 kernel: EDAC MC: Ver: 3.0.0", KEY_ERROR),
        (ended(),),
        (APP,),
        ("node.reboot",),
        boots=(booted(-864000),),
    ),
    Situation(
        "BootTime later than the loss of a link",
        (*down("-250s", "gpu01", "eth0"), SET_DOWN, KILLED, "500s gpu01 sshd: session opened for user root"),
        (ended("NODE_FAIL"),),
        (("infra.network", "nic.link_down", "gpu01"),),
        boots=(booted(-864000), booted(900)),
    ),
    Situation(
        "BootTime after slurmctld gave the node up",
        ("-120s gpu01 sshd: session opened for user root", SET_DOWN, KILLED),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.reboot", "gpu01"),),
        boots=(booted(-864000), booted(200)),
    ),
    # slurmd at level error
    Situation(
        "systemd stopped slurmd, slurmd quiet",
        (
            QUIET,
            LAUNCHED,
            "-260s gpu01 systemd: Stopping slurmd.service - Slurm node daemon...",
            "-258s gpu01 systemd: Stopped slurmd.service - Slurm node daemon.",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (ADMIN,),
    ),
    Situation(
        "systemd restarted slurmd, own error",
        (
            QUIET,
            LAUNCHED,
            "-260s gpu01 systemd: Stopping Slurm node daemon...",
            "-258s gpu01 systemd: Stopped Slurm node daemon.",
            "-257s gpu01 systemd: Started Slurm node daemon.",
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
        ("slurm.admin_action", "slurm.slurmd_crash"),
    ),
    Situation(
        "systemd: slurmd killed by a signal",
        (
            QUIET,
            LAUNCHED,
            "-260s gpu01 systemd: slurmd.service: Main process exited, code=killed, status=9/KILL",
            "-260s gpu01 systemd: slurmd.service: Failed with result 'signal'.",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.slurmd_crash", "gpu01"),),
    ),
    Situation(
        "slurmd at level error, node back by a start with long uptime",
        (
            QUIET,
            LAUNCHED,
            SET_DOWN,
            KILLED,
            "400s ctl slurmctld: Node gpu01 now responding",
            "400s ctl slurmctld: node gpu01 returned to service",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node|infra.scheduler", "node.unresponsive|slurm.slurmd_crash", "gpu01"),),
        at_most=0.86,
    ),
    Situation(
        "systemd stopped slurmd because the machine shuts down",
        (
            QUIET,
            LAUNCHED,
            "-100s gpu01 systemd: Stopping Slurm node daemon...",
            "-99s gpu01 systemd: Stopped Slurm node daemon.",
            "-95s gpu01 systemd: Reached target Reboot.",
            f"-20s gpu01 kernel: {BOOT}",
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: validate_node_specs: Node gpu01 unexpectedly rebooted boot_time=1772532000 last response=1772531900",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.reboot", "gpu01"),),
    ),
    # two boots
    Situation(
        "two boots 70 s apart, no slurmctld",
        (
            QUIET,
            f"-90s gpu01 kernel: {BOOT}",
            "-60s gpu01 sshd: Server listening",
            f"-20s gpu01 kernel: {BOOT}",
            "10s gpu01 sshd: Server listening",
        ),
        (ended("NODE_FAIL", nodes="gpu01", end="-60s"), ended("NODE_FAIL", nodes="gpu01", start="-55s", end="-5s")),
        (("infra.node", "node.reboot", "gpu01"), ("infra.node", "node.reboot", "gpu01")),
    ),
    # bonds
    Situation(
        "LACP, one leg lost, node silent for another reason",
        (
            "-250s gpu01 kernel: mlx5_core 0000:17:00.0 eth0: Link down",
            "-249.9s gpu01 kernel: bond0: (slave eth0): link status definitely down, disabling slave",
            "-3000s gpu01 kernel: bond0: (slave eth0): link status definitely up, 25000 Mbps full duplex",
            "-3000s gpu01 kernel: bond0: (slave eth1): link status definitely up, 25000 Mbps full duplex",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.node|unknown", "node.unresponsive", "gpu01"),),
    ),
    Situation(
        "LACP, both legs lost",
        (
            "-3000s gpu01 kernel: bond0: (slave eth0): link status definitely up, 25000 Mbps full duplex",
            "-3000s gpu01 kernel: bond0: (slave eth1): link status definitely up, 25000 Mbps full duplex",
            "-250s gpu01 kernel: bond0: (slave eth0): link status definitely down, disabling slave",
            "-248s gpu01 kernel: bond0: (slave eth1): link status definitely down, disabling slave",
            "-248s gpu01 kernel: bond0: now running without any active interface!",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.network", "nic.link_down|nic.link_flap", "gpu01"),),
    ),
    Situation(
        "LACP, second leg lost a minute after the first",
        (
            "-3000s gpu01 kernel: bond0: (slave eth0): link status definitely up, 25000 Mbps full duplex",
            "-3000s gpu01 kernel: bond0: (slave eth1): link status definitely up, 25000 Mbps full duplex",
            "-900.1s gpu01 kernel: mlx5_core 0000:17:00.0 eth0: Link down",
            "-900s gpu01 kernel: bond0: (slave eth0): link status definitely down, disabling slave",
            "-250s gpu01 kernel: bond0: (slave eth1): link status definitely down, disabling slave",
            "-250s gpu01 kernel: bond0: now running without any active interface!",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.network", "nic.link_down|nic.link_flap", "gpu01"),),
    ),
    Situation(
        "LACP over two switches, one dies",
        (
            *(
                f"-3000s gpu0{i} kernel: bond0: (slave eth{p}): link status definitely up, 25000 Mbps full duplex"
                for i in range(1, 7)
                for p in (0, 1)
            ),
            *(
                f"-250.{i}s gpu0{i} kernel: bond0: (slave eth0): link status definitely down, disabling slave"
                for i in range(1, 7)
            ),
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.node|unknown", "node.unresponsive", "gpu01"),),
        links=LEAF,
    ),
    Situation(
        "bond of the fabric, one leg, own error",
        (
            "-3000s gpu01 kernel: bond1: (slave ib0): link status definitely up, 200000 Mbps full duplex",
            "-3000s gpu01 kernel: bond1: (slave ib1): link status definitely up, 200000 Mbps full duplex",
            "-60s gpu01 kernel: bond1: (slave ib0): link status definitely down, disabling slave",
            "-59s gpu01 kernel: bond1: (slave ib1): making interface the new active one",
            "-2s {0} stderr: " + RETRY,
        ),
        (ended(),),
        (UNKNOWN,),
    ),
    Situation(
        "LACP partner churn",
        (
            "-260s gpu01 kernel: bond0: Warning: No 802.3ad response from the link partner for any adapters in the bond",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.network|infra.node", ANY, "gpu01"),),
    ),
    # power saving
    Situation(
        "node not resumed",
        (
            "-330s ctl slurmctld: POWER: power_save: waking nodes gpu01",
            "0s ctl slurmctld: node gpu01 not resumed by ResumeTimeout(300), setting DOWN and POWERED_DOWN",
            "-0.001s ctl slurmctld: requeue job JobId={0} due to failure of node gpu01",
        ),
        (ended("NODE_FAIL", start="-331s"),),
        (("infra.node", "node.unresponsive", "gpu01"),),
    ),
    # planes
    Situation(
        "one of four planes lost, slowed to its limit",
        (
            *pace(0, "gpu01", -60, -20, 0, 2.0, 2.6),
            *down("-20min", "gpu01", "ib2"),
            "-0.5s ctl slurmctld: Time limit exhausted for JobId={0}",
        ),
        (ended("TIMEOUT", start="-1h", env={"NCCL_MRC_PLANES": "4"}),),
        (("infra.network", "nic.link_down|nic.link_flap", "gpu01"),),
        links=RAILS,
    ),
    Situation(
        "one of four planes lost, ended well",
        (*pace(0, "gpu01", -60, -20, 0, 2.0, 2.6), *down("-20min", "gpu01", "ib2")),
        (ended("COMPLETED", start="-1h", env={"NCCL_MRC_PLANES": "4"}),),
        (None,),
        links=RAILS,
    ),
    # heterogeneous jobs
    Situation(
        "a part of a heterogeneous job loses its node",
        (
            *down("-250s", "gpu03", "eth0"),
            "-0.002s ctl slurmctld: Killing JobId={0}+1({1}) on failed node gpu03",
            "-0.001s ctl slurmctld: Killing JobId={0}+0({0}) on failed node gpu03",
            "0s ctl slurmctld: error: Nodes gpu03 not responding, setting DOWN",
        ),
        (ended("NODE_FAIL", nodes="gpu[01-02]"), ended("NODE_FAIL", nodes="gpu[03-04]")),
        (("infra.network", "nic.link_down", "gpu03"), ("infra.network", "nic.link_down", "gpu03")),
    ),
    Situation(
        "a part of a heterogeneous job loses its node, others CANCELLED",
        (
            *down("-250s", "gpu03", "eth0"),
            "-0.002s ctl slurmctld: Killing JobId={0}+1({1}) on failed node gpu03",
            "0s ctl slurmctld: error: Nodes gpu03 not responding, setting DOWN",
            "-3600s ctl slurmctld: sched: Allocate JobId={0}+0({0}) NodeList=gpu[01-02] #CPUs=8 Partition=gpu",
            "-3600s ctl slurmctld: sched: Allocate JobId={0}+1({1}) NodeList=gpu[03-04] #CPUs=8 Partition=gpu",
        ),
        (ended("CANCELLED", nodes="gpu[01-02]"), ended("NODE_FAIL", nodes="gpu[03-04]")),
        (("infra.network", "nic.link_down", "gpu03"), ("infra.network", "nic.link_down", "gpu03")),
    ),
    Situation(
        "a part of a heterogeneous job loses its node, without slurmctld's log",
        (
            *down("-250s", "gpu03", "eth0"),
            *STEPS_OF_PARTS,
            "-1s {0} stderr: srun: error: Node failure on gpu03",
        ),
        (ended("NODE_FAIL", nodes="gpu01"), ended("NODE_FAIL", nodes="gpu03")),
        (("infra.network", "nic.link_down", "gpu03"), ("infra.network", "nic.link_down", "gpu03")),
    ),
    Situation(
        "the same, and nothing tells that they are parts of one job",
        (
            *down("-250s", "gpu03", "eth0"),
            "-1s {0} stderr: srun: error: Node failure on gpu03",
        ),
        (ended("NODE_FAIL", nodes="gpu01"), ended("NODE_FAIL", nodes="gpu03")),
        (("unknown", None, None), ("infra.network", "nic.link_down", "gpu03")),
    ),
    Situation(
        "srun names no other node",
        (*down("-250s", "gpu03", "eth0"), "-1s {0} stderr: srun: error: Node failure on gpu01"),
        (ended("NODE_FAIL", nodes="gpu01"), ended("NODE_FAIL", nodes="gpu03")),
        (("unknown", None, None), ("infra.network", "nic.link_down", "gpu03")),
    ),
    Situation(
        "a part of a heterogeneous job fails by a GPU",
        (
            "-30s gpu03 kernel: " + FELL_OFF,
            "-2s {0} stderr: " + ECC.replace("uncorrectable ECC error encountered", "unspecified launch failure"),
            "-1s {0} stderr: srun: error: gpu03: task 4: Exited with exit code 1",
            "-3600s ctl slurmctld: sched: Allocate JobId={0}+0({0}) NodeList=gpu[01-02] #CPUs=8 Partition=gpu",
            "-3600s ctl slurmctld: sched: Allocate JobId={0}+1({1}) NodeList=gpu[03-04] #CPUs=8 Partition=gpu",
            "0s ctl slurmctld: _job_complete: JobId={0}+0({0}) WEXITSTATUS 1",
            "0s ctl slurmctld: _job_complete: JobId={0}+1({1}) WEXITSTATUS 1",
        ),
        (ended("FAILED", nodes="gpu[01-02]"), ended("FAILED", nodes="gpu[03-04]")),
        (("infra.gpu", "gpu.xid", "gpu03"), ("infra.gpu", "gpu.xid", "gpu03")),
    ),
    Situation(
        "a part of a heterogeneous job fails by its own error",
        (
            "-2s {0} stderr: KeyError: 'x'",
            "-1s {0} stderr: srun: error: gpu03: task 4: Exited with exit code 1",
            "-3600s ctl slurmctld: sched: Allocate JobId={0}+0({0}) NodeList=gpu[01-02] #CPUs=8 Partition=gpu",
            "-3600s ctl slurmctld: sched: Allocate JobId={0}+1({1}) NodeList=gpu[03-04] #CPUs=8 Partition=gpu",
            "0s ctl slurmctld: _job_complete: JobId={0}+0({0}) WEXITSTATUS 1",
            "0s ctl slurmctld: _job_complete: JobId={0}+1({1}) WEXITSTATUS 1",
        ),
        (ended("FAILED", nodes="gpu[01-02]"), ended("FAILED", nodes="gpu[03-04]")),
        (APP, APP),
    ),
]


ALL = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *ALL[situation.name]) == []
