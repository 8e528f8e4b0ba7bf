"""Events beside the end of a run that did not cause it, and what did."""

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
    NETWORK,
    RAILS,
    RETRY,
    SET_DOWN,
    TIMELIMIT,
    UNKNOWN,
    WATCHDOG,
    InOneStore,
    Situation,
    down,
    ended,
    heard,
    pace,
    state,
    wrong,
)

EXIT1 = "-1s {0} stderr: srun: error: gpu01: task 0: Exited with exit code 1"
LINK1 = (NETWORK, "nic.link_down|nic.link_flap", "gpu01")
OST = "Lustre: work-OST0017-osc-ffff: Connection to work-OST0017 (at 10.0.0.5@o2ib) was lost; in progress operations using this service will wait"
XID = "NVRM: Xid (PCI:0000:17:00): {}, pid=4242, name=python, {}"
OOM = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg={},task={},pid=999,uid={}"


def leaf(at: int, device: str) -> tuple[str, ...]:
    return tuple(line for i in range(1, 7) for line in down(f"{at}.{i}s", f"gpu0{i}", device))


SITUATIONS = [
    heard(
        "a drained node that dies with its run, and boots",
        (
            "-900s ctl slurmctld: update_node: node gpu01 reason set to: NHC: gpu row remap pending",
            "-900s ctl slurmctld: update_node: node gpu01 state set to DRAINING",
            "-20s ctl slurmctld: Node gpu02 now responding",
            KILLED,
            SET_DOWN,
            "350s ctl slurmctld: validate_node_specs: Node gpu01 unexpectedly rebooted boot_time=1772532300 last response=1772531750",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.reboot", "gpu01"),),
        ("node.maintenance",),
    ),
    heard(
        "a rail away since before the run began",
        (*down("-9000s", "gpu01", "ib0"), EXIT1),
        (ended(),),
        (APP,),
        links=RAILS,
    ),
    heard(
        "a rail away since before, lost peers",
        (*down("-9000s", "gpu01", "ib0"), "-2s {0} stderr: " + RETRY),
        (ended(),),
        (UNKNOWN,),
        links=RAILS,
    ),
    heard(
        "two adapters flap, the error names one",
        (
            "-60s gpu02 kernel: infiniband mlx5_2: Port: 1 Link DOWN",
            "-62s gpu01 kernel: infiniband mlx5_0: Port: 1 Link DOWN",
            "-2s {0} stderr: " + RETRY.replace("mlx5_3", "mlx5_2"),
        ),
        (ended(),),
        ((NETWORK, "nic.link_down|nic.link_flap", "gpu02"),),
    ),
    heard(
        "slow from its first step, hot all along",
        (
            *pace(0, "x", -60, -60, 0, 4.0, 4.0),
            *(
                f"-{3600 - 600 * i}s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Thermal Slowdown active, temperature 91 C"
                for i in range(6)
            ),
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        (("app.timeout", None, None),),
    ),
    heard(
        "a storage target away while it slows",
        (*pace(0, "x", -60, -40, 0, 2.0, 6.0), *(f"-{2400 - i}s gpu0{i} kernel: {OST}" for i in (1, 2, 3)), TIMELIMIT),
        (ended("TIMEOUT", start="-61min"),),
        (("infra.storage", "storage.outage", ANY),),
    ),
    heard(
        "an Xid that the run outlived for five minutes",
        ("-300s gpu01 kernel: " + FELL_OFF, KEY_ERROR),
        (ended(),),
        (APP,),
    ),
    heard(
        "contained error kills its process",
        ("-5s gpu01 kernel: " + XID.format(94, "Contained: SM (0x1). RST: No, D-RST: No"), "-2s {0} stderr: " + ECC),
        (ended(),),
        (("infra.gpu", "gpu.xid|gpu.ecc", "gpu01"),),
    ),
    heard(
        "two nodes fail, slurmctld names one",
        (
            "-260s gpu01 kernel: Kernel panic - not syncing: Fatal exception",
            *down("-255s", "gpu02", "eth0"),
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu02",
            "0s ctl slurmctld: error: Nodes gpu[01-02] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL"),),
        ((NETWORK + "|infra.node", "nic.link_down|nic.link_flap|node.panic", ANY),),
    ),
    Situation(
        "output names the failed node, nothing else",
        ("-1s {0} stderr: srun: error: Node failure on gpu03",),
        (ended("NODE_FAIL", nodes="gpu[01-04]"),),
        (("unknown", None, None),),
        at_most=0.5,
    ),
    heard(
        "out of memory beside a broken GPU",
        ("-10s gpu01 kernel: " + FELL_OFF,),
        (ended("OUT_OF_MEMORY"),),
        (("app.oom", None, None),),
    ),
    heard(
        "the node out of memory kills its process",
        (
            "-3s gpu01 kernel: " + OOM.format("/system.slice/slurmstepd.scope/job_{0}/step_0", "python", 1000),
            "-1s {0} stderr: srun: error: gpu01: task 0: Out Of Memory",
        ),
        (ended(nodes="gpu01", exit_code=137),),
        (("app.oom", None, None),),
    ),
    heard(
        "the node out of memory kills another's process",
        ("-3s gpu01 kernel: " + OOM.format("/user.slice/user-1007.slice", "matlab", 1007), EXIT1),
        (ended(nodes="gpu01"),),
        (APP,),
    ),
    heard(
        "a health check sees the lost rail first",
        (
            *down("-45s", "gpu01", "ib0"),
            "-30s ctl slurmctld: update_node: node gpu01 reason set to: NHC: check_hw_ib: ib0 down",
            "-30s ctl slurmctld: update_node: node gpu01 state set to DRAINING",
            "-2s {0} stderr: " + RETRY,
        ),
        (ended(),),
        (LINK1,),
        links=RAILS,
    ),
    heard(
        "corrected bus errors of a NIC, own error",
        (
            *(
                f"-{60 - i}s gpu01 kernel: pcieport 0000:16:01.0: AER: Corrected error received: 0000:5d:00.0"
                for i in range(20)
            ),
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "a cable that flaps twenty times for a second",
        (
            *(x for i in range(20) for x in down(f"-{600 - 30 * i}s", "gpu02", "ib0", f"-{599 - 30 * i}s")),
            "-2s {0} stderr: " + RETRY,
        ),
        (ended(),),
        (("unknown|infra.network", ANY, ANY),),
        links=RAILS,
    ),
    heard(
        "a leaf dies under one plane's job",
        (*leaf(-45, "ib1"), "-44s leaf-p1 switchd: system reboot initiated", "-2s {0} stderr: " + RETRY),
        (ended(),),
        ((NETWORK, "switch.failure|switch.plane_failure", "leaf-p1"),),
        links=RAILS,
    ),
    heard(
        "the subnet manager hands over, lost peers",
        ("-40s ctl opensm: SM port is down", "-38s ctl opensm: Entering MASTER state", "-2s {0} stderr: " + RETRY),
        (ended(),),
        (UNKNOWN,),
    ),
    heard(
        "a watchdog, and an illegal access at its onset",
        (
            "-603s gpu02 kernel: " + XID.format(31, "Ch 00000018, intr 00000000. MMU Fault"),
            "-2s {0} stderr: " + WATCHDOG,
        ),
        (ended(),),
        (("app.error|unknown", None, None),),
    ),
    heard(
        "an own error of one rank, others hang for ten minutes",
        ("-610s {0} stderr: KeyError: 'x'", "-2s {0} stderr: " + WATCHDOG, *down("-608s", "gpu02", "ib0", "-580s")),
        (ended(),),
        (APP,),
        links=RAILS,
    ),
    heard("quota", ("-1s {0} stderr: OSError: [Errno 122] Disk quota exceeded: '/home/u/x.pt'",), (ended(),), (APP,)),
    heard(
        "names alike",
        (*down("-250s", "gpu010", "eth0"), SET_DOWN, KILLED),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.unresponsive", "gpu01"),),
    ),
    heard(
        "requeued for a lost link",
        (
            *down("-250s", "gpu01", "eth0"),
            "-0.001s ctl slurmctld: requeue job JobId={0} due to failure of node gpu01",
            SET_DOWN,
        ),
        (ended("NODE_FAIL"),),
        (LINK1,),
    ),
    heard(
        "the controller loses its own link",
        (
            *down("-300s", "ctl", "eth0"),
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: error: Nodes gpu[01-06] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL"),),
        ((NETWORK, "nic.link_down|nic.link_flap", "ctl"),),
    ),
    heard(
        "the controller's munge dies",
        (
            "-300s ctl systemd: munge.service: Main process exited, code=killed, status=9/KILL",
            *(
                f"-{t}s gpu0{i} slurmd: error: Munge decode failed: Invalid credential"
                for t in (250, 150)
                for i in range(1, 7)
            ),
            KILLED,
            "0s ctl slurmctld: error: Nodes gpu[01-06] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node|infra.network", "node.munge_failure|switch.failure", ANY),),
        at_most=0.99,
    ),
    heard(
        "row remapper failure",
        (
            "-8s gpu01 kernel: " + XID.format(64, "Row Remapper: remapping failure"),
            "-6s gpu01 kernel: " + XID.format(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes"),
            "-2s {0} stderr: " + ECC,
        ),
        (ended(),),
        (("infra.gpu", "gpu.xid|gpu.ecc", "gpu01"),),
    ),
    heard(
        "an NVLink error, then an own error",
        ("-25s gpu01 kernel: " + XID.format(74, "NVLink: fatal error detected on link 3"), KEY_ERROR),
        (ended(),),
        (APP,),
    ),
    heard(
        "four machines lose power",
        (
            *(f"-250.{i}s gpu0{i} kernel: last words" for i in range(1, 5)),
            *(f"{400 + 20 * i}s gpu0{i} kernel: {BOOT}" for i in range(1, 5)),
            KILLED,
            "0s ctl slurmctld: error: Nodes gpu[01-04] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.power|node.reboot|node.unresponsive", ANY),),
    ),
    heard(
        "six nodes set DOWN for maintenance",
        (
            *(
                f"-0.05s ctl slurmctld: update_node: node gpu0{i} reason set to: cooling maintenance"
                for i in range(1, 7)
            ),
            "-0.04s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            *(f"0s ctl slurmctld: update_node: node gpu0{i} state set to DOWN" for i in range(1, 7)),
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.admin_action|node.maintenance", ANY),),
    ),
    Situation(
        "six nodes set DOWN by hand, accounting only",
        (),
        tuple(ended("NODE_FAIL", nodes=f"gpu0{i}") for i in range(1, 6)),
        (("infra.scheduler", "slurm.admin_action", ANY),) * 5,
        states=tuple(state("down", "cooling work", "root(0)", host=f"gpu0{i}") for i in range(1, 6)),
    ),
    Situation(
        "five runs end NODE_FAIL in one second, nothing tells",
        (),
        tuple(ended("NODE_FAIL", nodes=f"gpu0{i}") for i in range(1, 6)),
        (("infra.network|infra.node|unknown", ANY, ANY),) * 5,
        at_most=0.5,
    ),
    heard(
        "all slurmd are restarted while a rail is away",
        (
            *down("-42s", "gpu01", "ib0"),
            *(
                x
                for i in range(1, 7)
                for x in (
                    f"-20s gpu0{i} slurmd: Slurmd shutdown completing",
                    f"-18s gpu0{i} slurmd: slurmd version 24.05.3 started",
                )
            ),
            "-2s {0} stderr: " + RETRY,
        ),
        (ended(),),
        (LINK1,),
        ("slurm.slurmd_crash",),
        links=RAILS,
    ),
    heard(
        "another file system is away",
        (
            *(f"-{200 - i}s gpu0{i} kernel: {OST}" for i in (1, 2, 3)),
            "-2s {0} stderr: OSError: [Errno 5] Input/output error: '/lustre/home/u/x'",
        ),
        (ended(),),
        (("infra.storage|unknown", ANY, ANY),),
    ),
    heard(
        "a preempted run whose node then dies",
        (
            "-60s gpu01 kernel: Kernel panic - not syncing: Fatal exception",
            "-90s ctl slurmctld: preempted JobId={0} has been requeued to reclaim resources for JobId=99",
        ),
        (ended("PREEMPTED", end="-59s"),),
        (("sched.preempt", None, None),),
    ),
    heard(
        "one leg of the bond, then the node panics",
        (
            "-5000s gpu01 kernel: bond0: (slave eth1): link status definitely up, 25000 Mbps full duplex",
            "-300s gpu01 kernel: bond0: (slave eth0): link status definitely down, disabling slave",
            "-260s gpu01 kernel: Kernel panic - not syncing: Fatal exception",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.panic", "gpu01"),),
    ),
    heard(
        "one leg of the bond, then slurmd is stopped",
        (
            "-5000s gpu01 kernel: bond0: (slave eth1): link status definitely up, 25000 Mbps full duplex",
            "-300s gpu01 kernel: bond0: (slave eth0): link status definitely down, disabling slave",
            "-260s gpu01 systemd: Stopped slurmd.service - Slurm node daemon.",
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.admin_action", "gpu01"),),
    ),
    heard(
        "the link is lost after the panic",
        (
            "-300s gpu01 kernel: Kernel panic - not syncing: Fatal exception",
            *down("-230s", "gpu01", "eth0"),
            SET_DOWN,
            KILLED,
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.panic", "gpu01"),),
    ),
    heard(
        "time limit, and its link had been lost ten minutes",
        (*down("-600s", "gpu01", "ib0"), "-3s {0} stderr: " + WATCHDOG, TIMELIMIT),
        (ended("TIMEOUT"),),
        ((NETWORK + "|app.timeout", ANY, ANY),),
        links=RAILS,
    ),
    heard(
        "an admin's DOWN of one node while another falls silent",
        (
            *down("-250s", "gpu02", "eth0"),
            "-100.02s ctl slurmctld: update_node: node gpu01 reason set to: swap nic",
            "-100.01s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "-100s ctl slurmctld: update_node: node gpu01 state set to DOWN",
            "0s ctl slurmctld: error: Nodes gpu02 not responding, setting DOWN",
        ),
        (ended("NODE_FAIL", end="-100s"),),
        (("infra.scheduler", "slurm.admin_action", "gpu01"),),
    ),
    heard(
        "a run on the node of a failed prolog that began before",
        (
            "-5s gpu01 slurmd: error: prolog failed: rc:1 output:x",
            "-5s gpu01 slurmd: error: [job {1}] prolog failed status=1:0",
            "-4s ctl slurmctld: error: validate_node_specs: Prolog or job env setup failure on node gpu01, draining the node",
            EXIT1,
        ),
        (ended(nodes="gpu01"), ended("CANCELLED", nodes="gpu01", start="-6s", end="-4s")),
        (APP, ("infra.scheduler", "slurm.prolog_failure", "gpu01")),
    ),
    heard(
        "GPU memory retired long ago, now an assertion",
        ("-3000s gpu01 kernel: " + XID.format(48, "DBE"), "-1s {0} stderr: AssertionError: loss is nan"),
        (ended(start="-2000s"),),
        (APP,),
    ),
    heard(
        "a machine check that was corrected",
        ("-20s gpu01 kernel: mce: [Hardware Error]: Machine check events logged", EXIT1),
        (ended(),),
        (APP,),
    ),
]


ALL = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *ALL[situation.name]) == []
