"""Two faults, one of which takes down a node or its network. Every truth was written before the correlator ran."""

from __future__ import annotations

from tests.correlator.field import APP, BOOT, ETH0, IB0, KEY_ERROR, LEAF, NETWORK, RAILS, TIMELIMIT, down, ended, pace
from tests.correlator.mixed import (
    CANCELLED,
    LINK,
    PANIC,
    PREEMPTED,
    failing_prolog,
    hot,
    mixed,
    node_fail,
    peers,
    rebooted,
    restarted_controller,
    set_state,
)

SITUATIONS = [
    mixed(
        "1 one node hot, the other's rail lost",
        (*hot("gpu01", -20, -15, -10, -5), *down("-45s", "gpu02", "ib0"), peers(-2)),
        (ended(),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "2 one node hot until the time limit, the other's rail blinks",
        (
            *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
            *hot("gpu02", -20, -10, -1),
            *down("-600s", "gpu01", "ib0", "-598s"),
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        (("infra.gpu", "gpu.thermal", "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "5 slurmctld restarts while a node is cut off",
        (*down("-400s", "gpu01", "eth0"), *restarted_controller(-200), *node_fail("gpu01", 0)),
        (ended("NODE_FAIL"),),
        (ETH0,),
        links=LEAF,
    ),
    mixed(
        "6 slurmctld restarts while a rail is away",
        (
            *down("-120s", "gpu02", "ib1", "-20s"),
            *restarted_controller(-90),
            peers(-60),
            "-40s {1} stderr: KeyError: 'x'",
        ),
        (ended(end="-58s"), ended(nodes="gpu03", end="-39s")),
        ((NETWORK, LINK, "gpu02"), APP),
        links=RAILS,
    ),
    mixed(
        "7 an administrator drains a node whose link is lost",
        (
            *down("-250s", "gpu01", "eth0"),
            *set_state(-100, "gpu01", "link flapping, ticket 4711"),
            *node_fail("gpu01", 0),
        ),
        (ended("NODE_FAIL"),),
        (ETH0,),
        links=LEAF,
    ),
    mixed(
        "8 slurmd of one node dies, the other is drained",
        (
            "-300s gpu01 kernel: slurmd[812]: segfault at 0 ip 00007f3a error 4 in libslurmfull.so[7f3a00000000+1c0000]",
            *set_state(-200, "gpu02", "bad dimm, swap when idle"),
            *node_fail("gpu01", 0),
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.slurmd_crash", "gpu01"),),
    ),
    mixed(
        "11 preempted just before its node is given up",
        (
            *down("-250s", "gpu01", "eth0"),
            "-5s ctl slurmctld: preempted JobId={0} has been requeued to reclaim resources for JobId=99",
            *node_fail("gpu01", 1),
        ),
        (ended("PREEMPTED", nodes="gpu[01,03]", end="-4s"), ended("NODE_FAIL", nodes="gpu01")),
        (PREEMPTED, ETH0),
        links=LEAF,
    ),
    mixed(
        "12 a panic here, a preemption there",
        (
            f"-300s gpu01 kernel: {PANIC}",
            "-30s ctl slurmctld: preempted JobId={1} has been requeued to reclaim resources for JobId=99",
            *node_fail("gpu01", 0),
        ),
        (ended("NODE_FAIL", nodes="gpu[01,03]"), ended("PREEMPTED", nodes="gpu02", end="-29s")),
        (("infra.node", "node.panic", "gpu01"), PREEMPTED),
    ),
    mixed(
        "13 after a lost node the second run fails by itself",
        (
            *down("-3850s", "gpu01", "eth0", "-3500s"),
            *node_fail("gpu01", 0, at=-3600),
            "-3599.9s ctl slurmctld: Requeuing JobId={0}",
            "-1s {1} stderr: KeyError: 'train_loss'",
        ),
        (ended("NODE_FAIL", start="-2h", end="-3600s"), ended(nodes="gpu[03-04]", start="-3400s")),
        (ETH0, APP),
        links=LEAF,
    ),
    mixed(
        "14 after a reboot the second run loses the other node's rail",
        (
            *rebooted(-3660, "gpu01", -3600),
            "-3600.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            *down("-60s", "gpu02", "ib0", "100s"),
            peers(-5, 1),
        ),
        (ended("NODE_FAIL", start="-2h", end="-3600s"), ended(start="-3000s")),
        (("infra.node", "node.reboot", "gpu01"), (NETWORK, LINK, "gpu02")),
        links=RAILS,
    ),
    mixed(
        "19 two links lost, one carries the job",
        (
            *down("-60s", "gpu01", "ib0"),
            "-55s gpu02 kernel: igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Down",
            peers(-10),
        ),
        (ended(),),
        (IB0,),
        links=RAILS,
    ),
    mixed(
        "20 two rails lost, one for a second",
        (*down("-60s", "gpu02", "ib2", "40s"), *down("-20s", "gpu01", "ib2", "-19s"), peers(-19.5)),
        (ended(end="-18s"),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "21 a leaf reboots in a maintenance, a program fails later",
        (
            "-1100s leaf-p1 mgmtd: System is rebooting by user admin",
            *(x for i in range(1, 7) for x in down(f"-1000.{i}s", f"gpu0{i}", "ib1", "-700s")),
            KEY_ERROR.replace("{0}", "{1}"),
        ),
        (ended("COMPLETED", end="1h", env={"NCCL_MRC_PLANES": "4"}), ended(nodes="gpu[03-04]", start="-600s")),
        (None, APP),
        links=RAILS,
    ),
    mixed(
        "22 the management switch reboots, a program had failed before",
        (
            "-351s {1} stderr: KeyError: 'x'",
            *(x for i in range(1, 7) for x in down(f"-330.{i}s", f"gpu0{i}", "eth0", "200s")),
            "-0.002s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: error: Nodes gpu[01-06] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL"), ended(nodes="gpu06", end="-350s")),
        ((NETWORK, "switch.failure", "tor1"), APP),
        links=LEAF,
    ),
    mixed(
        "23 a flap, a reboot for it, then a failing prolog",
        (
            *down("-4000s", "gpu01", "eth0", "-3700s"),
            *node_fail("gpu01", 0, at=-3750),
            "-3300s ctl slurmctld: reboot request queued for nodes gpu01",
            "-3290s ctl slurmctld: Issuing reboot request for nodes gpu01",
            f"-3000s gpu01 kernel: {BOOT}",
            "-2900s ctl slurmctld: Node gpu01 now responding",
            *failing_prolog(-2, "gpu01", 1, "nvidia-smi: No devices were found"),
        ),
        (ended("NODE_FAIL", start="-2h", end="-3750s"), ended("REQUEUED", nodes="gpu01", start="-3s")),
        (ETH0, ("infra.scheduler", "slurm.prolog_failure", "gpu01")),
        links=LEAF,
    ),
    mixed(
        "24 a full disk found after a good end, another run fails by itself",
        (*set_state(-40, "gpu01", "NHC: check_fs_free: /tmp has only 1% free"), KEY_ERROR.replace("{0}", "{1}")),
        (ended("COMPLETED", nodes="gpu01", end="-100s"), ended(nodes="gpu[02-03]")),
        (None, APP),
    ),
    mixed(
        "33 two nodes lost in one ping round for two reasons",
        (
            *down("-300s", "gpu01", "eth0"),
            f"-280s gpu02 kernel: {PANIC}",
            "-0.003s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "-0.002s ctl slurmctld: Killing JobId={1} on failed node gpu02",
            "0s ctl slurmctld: error: Nodes gpu[01-02] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL", nodes="gpu[01,03]"), ended("NODE_FAIL", nodes="gpu[02,04]")),
        (ETH0, ("infra.node", "node.panic", "gpu02")),
        links=LEAF,
    ),
    mixed(
        "34 three nodes lost in one minute for three reasons",
        (
            *down("-300s", "gpu01", "eth0"),
            *node_fail("gpu01", 0),
            "9.999s ctl slurmctld: Killing JobId={1} on failed node gpu02",
            *set_state(10, "gpu02", "replace psu2", "DOWN"),
            "-290s gpu03 slurmd: Slurmd shutdown completing",
            "29.999s ctl slurmctld: Killing JobId={2} on failed node gpu03",
            "30s ctl slurmctld: error: Nodes gpu03 not responding, setting DOWN",
        ),
        (
            ended("NODE_FAIL", nodes="gpu[01,04]"),
            ended("NODE_FAIL", nodes="gpu[02,05]", end="10s"),
            ended("NODE_FAIL", nodes="gpu[03,06]", end="30s"),
        ),
        (ETH0, ("infra.scheduler", "slurm.admin_action", "gpu02"), ("infra.scheduler", "slurm.admin_action", "gpu03")),
        links=LEAF,
    ),
    mixed(
        "35 slurmd stopped on one node, a flap on the other",
        (
            *down("-400s", "gpu02", "eth0", "-370s"),
            "-350s gpu01 slurmd: Slurmd shutdown completing",
            *node_fail("gpu01", 0),
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.admin_action", "gpu01"),),
        links=LEAF,
    ),
    mixed(
        "36 munge dies on one node, a flap on the other",
        (
            *down("-150s", "gpu01", "eth0", "-130s"),
            "-300s gpu02 systemd: munge.service: Main process exited, code=killed, status=9/KILL",
            "-300s gpu02 systemd: munge.service: Failed with result 'signal'.",
            *(
                f"{t}s ctl slurmctld: error: slurm_receive_msgs: [[gpu02]:6818] failed: Socket timed out on send/recv operation"
                for t in (-210, -110, -20)
            ),
            *node_fail("gpu02", 0),
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.munge_failure", "gpu02"),),
        links=LEAF,
    ),
    mixed(
        "43 cancelled by its user while the other's node reboots",
        (
            "-3s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000",
            *rebooted(-60, "gpu01", 0),
            "-0.001s ctl slurmctld: Killing JobId={1} on failed node gpu01",
        ),
        (ended("CANCELLED", end="-2s"), ended("NODE_FAIL", nodes="gpu01")),
        (CANCELLED, ("infra.node", "node.reboot", "gpu01")),
    ),
    mixed(
        "44 a planned reboot here, a lost rail there",
        (
            "-500s ctl slurmctld: reboot request queued for nodes gpu03",
            "-490s ctl slurmctld: Issuing reboot request for nodes gpu03",
            f"-60s gpu03 kernel: {BOOT}",
            "-20s ctl slurmctld: Node gpu03 now responding",
            *down("-50s", "gpu01", "ib0", "300s"),
            peers(-2),
        ),
        (ended(),),
        (IB0,),
        links=RAILS,
    ),
    mixed(
        "52 one run of a lost node is cancelled before, one dies with it",
        (
            *down("-260s", "gpu01", "eth0"),
            "-61s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000",
            *node_fail("gpu01", 1),
        ),
        (ended("CANCELLED", nodes="gpu[01,03]", end="-60s"), ended("NODE_FAIL", nodes="gpu01")),
        (CANCELLED, ETH0),
        links=LEAF,
    ),
]
