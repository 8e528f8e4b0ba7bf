"""Two faults near each other in time, on overlapping nodes or jobs: whose is which. Every truth was written before anything was
asked. Those with odd numbers were worked with; those with even numbers were held out and scored once (test_mixed_faults.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.correlator.field import (
    ANY,
    APP,
    BOOT,
    ECC,
    ETH0,
    FELL_OFF,
    IB0,
    KEY_ERROR,
    LEAF,
    NETWORK,
    RAILS,
    RETRY,
    TIMELIMIT,
    WATCHDOG,
    XID48,
    Situation,
    down,
    ended,
    heard,
    pace,
)

#: What goes on everywhere and means nothing.
EVERYDAY = (
    "-1900s gpu06 kernel: EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x3d7 offset:0x0 grain:32 syndrome:0x0)",
    "-705s gpu05 kernel: pcieport 0000:64:00.0: AER: Corrected error received: 0000:65:00.0",
    "-640s gpu04 systemd: Started Session 214 of user root.",
    "-333s gpu06 chronyd: Selected source 10.0.0.1",
    "-92s gpu06 kernel: igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Down",
    "-89s gpu06 kernel: igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX",
    "-45s gpu04 slurmd: error: mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library",
)


def mixed(name: str, lines: Iterable[str], *more: Any, **rest: Any) -> Situation:
    return heard(name, (*EVERYDAY, *lines), *more, **rest)


def node_fail(host: str, *jobs: int, at: float = 0.0) -> tuple[str, ...]:
    """slurmctld gives a node up, and ends what ran there."""
    killed = (f"{at - 0.001}s ctl slurmctld: Killing JobId={{{j}}} on failed node {host}" for j in jobs)
    return (*killed, f"{at}s ctl slurmctld: error: Nodes {host} not responding, setting DOWN")


def hot(host: str, *minutes: int) -> tuple[str, ...]:
    return tuple(f"{m}min {host} nv-hostengine: GPU 00000000:9B:00.0: HW Thermal Slowdown active, temperature 91 C" for m in minutes)  # fmt: skip


def lustre_lost(at: float, *hosts: str) -> tuple[str, ...]:
    return tuple(
        f"{at + i * 0.4}s {h} kernel: Lustre: work-OST0017-osc-ffff: Connection to work-OST0017 (at 10.0.0.5@o2ib) was lost; in progress operations using this service will wait for recovery to complete"
        for i, h in enumerate(hosts)
    )


def lustre_back(at: float, *hosts: str) -> tuple[str, ...]:
    return tuple(f"{at + i * 0.4}s {h} kernel: Lustre: work-OST0017-osc-ffff: Connection restored to 10.0.0.5@o2ib (at 10.0.0.5@o2ib)" for i, h in enumerate(hosts))  # fmt: skip


def evicted(at: float, *hosts: str) -> tuple[str, ...]:
    return tuple(
        f"{at + i * 0.4}s {h} kernel: LustreError: 167-0: work-OST0017-osc-ffff: This client was evicted by work-OST0017; in progress operations using this service will fail."
        for i, h in enumerate(hosts)
    )


def killed_for_memory(at: float, host: str, job: int, step: int = 0) -> tuple[str, ...]:
    return (
        f"{at}s {host} kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_{step},mems_allowed=0,oom_memcg=/slurm/uid_1001/job_{{{job}}}/step_{step},task_memcg=/slurm/uid_1001/job_{{{job}}}/step_{step}/task_0,task=python,pid=9999,uid=1001",
        f"{at}s {host} kernel: Memory cgroup out of memory: Killed process 9999 (python) total-vm:99000kB, anon-rss:98000kB, file-rss:0kB, shmem-rss:0kB, UID:1001 pgtables:200kB oom_score_adj:0",
        f"{at + 0.5}s {host} slurmd: [{{{job}}}.{step}] error: Detected 1 oom_kill event in StepId={{{job}}}.{step}. Some of the step tasks have been OOM Killed.",
    )


def xid(at: float, host: str, code: int, text: str, pci: str = "0000:17:00", pid: int = 4242) -> str:
    return f"{at}s {host} kernel: NVRM: Xid (PCI:{pci}): {code}, pid={pid}, name=python, {text}"


def set_state(at: float, host: str, reason: str, state: str = "DRAINING") -> tuple[str, ...]:
    return (
        f"{at}s ctl slurmctld: update_node: node {host} reason set to: {reason}",
        f"{at}s ctl slurmctld: update_node: node {host} state set to {state}",
    )


def failing_prolog(at: float, host: str, job: int, why: str) -> tuple[str, ...]:
    return (
        f"{at - 1}s ctl slurmctld: sched: Allocate JobId={{{job}}} NodeList={host} #CPUs=8 Partition=gpu",
        f"{at}s {host} slurmd: error: prolog failed: rc:1 output:{why}",
        f"{at}s {host} slurmd: error: [job {{{job}}}] prolog failed status=1:0",
        f"{at + 0.5}s ctl slurmctld: error: Prolog launch failure, JobId={{{job}}}",
        f"{at + 0.5}s ctl slurmctld: error: validate_node_specs: Prolog or job env setup failure on node {host}, draining the node",
        f"{at + 0.5}s ctl slurmctld: drain_nodes: node {host} state set to DRAIN",
    )


def restarted_controller(at: float) -> tuple[str, ...]:
    return (
        f"{at}s ctl slurmctld: Terminate signal (SIGINT or SIGTERM) received",
        f"{at + 8}s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue",
        f"{at + 9}s ctl slurmctld: Recovered JobId={{0}} Assoc=0",
    )


def rebooted(at: float, host: str, registered: float) -> tuple[str, ...]:
    """A machine boots ``at``, and slurmctld finds so when its slurmd registers."""
    beginning = 1772532000
    return (
        f"{at}s {host} kernel: {BOOT}",
        f"{registered}s ctl slurmctld: validate_node_specs: Node {host} unexpectedly rebooted boot_time={beginning + at:.0f} last response={beginning + at - 120:.0f}",
    )


def peers(at: float, job: int = 0) -> str:
    return f"{at}s {{{job}}} stderr: {RETRY}"


EIO = "OSError: [Errno 5] Input/output error: '/lustre/work/ck_9.pt'"
LAUNCH_FAILURE = "RuntimeError: CUDA error: unspecified launch failure"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
PANIC = "Kernel panic - not syncing: Fatal exception in interrupt"
LINK = "nic.link_down|nic.link_flap"
XID_OF = ("infra.gpu", "gpu.xid")
PREEMPTED = ("sched.preempt", None, None)
CANCELLED = ("user.cancel", None, None)
TIMED_OUT = ("app.timeout", None, None)
OUT_OF_MEMORY = ("app.oom", None, None)
STORAGE = ("infra.storage", "storage.outage", ANY)
REMAPPED = "Row Remapper: New row marked for remapping, reset gpu to activate."

NODES = [
    mixed("1 one node hot, the other's rail lost", (*hot("gpu01", -20, -15, -10, -5), *down("-45s", "gpu02", "ib0"), peers(-2)), (ended(),), ((NETWORK, LINK, "gpu02"),), links=RAILS),
    mixed("2 one node hot until the time limit, the other's rail blinks", (*pace(0, "gpu01", -60, -20, 0, 2.0, 4.0), *hot("gpu02", -20, -10, -1), *down("-600s", "gpu01", "ib0", "-598s"), TIMELIMIT),
          (ended("TIMEOUT", start="-61min"),), (("infra.gpu", "gpu.thermal", "gpu02"),), links=RAILS),
    mixed("5 slurmctld restarts while a node is cut off", (*down("-400s", "gpu01", "eth0"), *restarted_controller(-200), *node_fail("gpu01", 0)), (ended("NODE_FAIL"),), (ETH0,), links=LEAF),
    mixed("6 slurmctld restarts while a rail is away", (*down("-120s", "gpu02", "ib1", "-20s"), *restarted_controller(-90), peers(-60), "-40s {1} stderr: KeyError: 'x'"),
          (ended(end="-58s"), ended(nodes="gpu03", end="-39s")), ((NETWORK, LINK, "gpu02"), APP), links=RAILS),
    mixed("7 an administrator drains a node whose link is lost", (*down("-250s", "gpu01", "eth0"), *set_state(-100, "gpu01", "link flapping, ticket 4711"), *node_fail("gpu01", 0)), (ended("NODE_FAIL"),), (ETH0,), links=LEAF),
    mixed("8 slurmd of one node dies, the other is drained", (
        "-300s gpu01 kernel: slurmd[812]: segfault at 0 ip 00007f3a error 4 in libslurmfull.so[7f3a00000000+1c0000]", *set_state(-200, "gpu02", "bad dimm, swap when idle"), *node_fail("gpu01", 0)),
        (ended("NODE_FAIL"),), (("infra.scheduler", "slurm.slurmd_crash", "gpu01"),)),
    mixed("11 preempted just before its node is given up", (
        *down("-250s", "gpu01", "eth0"), "-5s ctl slurmctld: preempted JobId={0} has been requeued to reclaim resources for JobId=99", *node_fail("gpu01", 1)),
        (ended("PREEMPTED", nodes="gpu[01,03]", end="-4s"), ended("NODE_FAIL", nodes="gpu01")), (PREEMPTED, ETH0), links=LEAF),
    mixed("12 a panic here, a preemption there", (
        f"-300s gpu01 kernel: {PANIC}", "-30s ctl slurmctld: preempted JobId={1} has been requeued to reclaim resources for JobId=99", *node_fail("gpu01", 0)),
        (ended("NODE_FAIL", nodes="gpu[01,03]"), ended("PREEMPTED", nodes="gpu02", end="-29s")), (("infra.node", "node.panic", "gpu01"), PREEMPTED)),
    mixed("13 after a lost node the second run fails by itself", (
        *down("-3850s", "gpu01", "eth0", "-3500s"), *node_fail("gpu01", 0, at=-3600), "-3599.9s ctl slurmctld: Requeuing JobId={0}", "-1s {1} stderr: KeyError: 'train_loss'"),
        (ended("NODE_FAIL", start="-2h", end="-3600s"), ended(nodes="gpu[03-04]", start="-3400s")), (ETH0, APP), links=LEAF),
    mixed("14 after a reboot the second run loses the other node's rail", (
        *rebooted(-3660, "gpu01", -3600), "-3600.001s ctl slurmctld: Killing JobId={0} on failed node gpu01", *down("-60s", "gpu02", "ib0", "100s"), peers(-5, 1)),
        (ended("NODE_FAIL", start="-2h", end="-3600s"), ended(start="-3000s")), (("infra.node", "node.reboot", "gpu01"), (NETWORK, LINK, "gpu02")), links=RAILS),
    mixed("19 two links lost, one carries the job", (
        *down("-60s", "gpu01", "ib0"), "-55s gpu02 kernel: igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Down", peers(-10)), (ended(),), (IB0,), links=RAILS),
    mixed("20 two rails lost, one for a second", (*down("-60s", "gpu02", "ib2", "40s"), *down("-20s", "gpu01", "ib2", "-19s"), peers(-19.5)), (ended(end="-18s"),), ((NETWORK, LINK, "gpu02"),), links=RAILS),
    mixed("21 a leaf reboots in a maintenance, a program fails later", (
        "-1100s leaf-p1 mgmtd: System is rebooting by user admin", *(x for i in range(1, 7) for x in down(f"-1000.{i}s", f"gpu0{i}", "ib1", "-700s")), KEY_ERROR.replace("{0}", "{1}")),
        (ended("COMPLETED", end="1h", env={"NCCL_MRC_PLANES": "4"}), ended(nodes="gpu[03-04]", start="-600s")), (None, APP), links=RAILS),
    mixed("22 the management switch reboots, a program had failed before", (
        "-351s {1} stderr: KeyError: 'x'", *(x for i in range(1, 7) for x in down(f"-330.{i}s", f"gpu0{i}", "eth0", "200s")),
        "-0.002s ctl slurmctld: Killing JobId={0} on failed node gpu01", "0s ctl slurmctld: error: Nodes gpu[01-06] not responding, setting DOWN"),
        (ended("NODE_FAIL"), ended(nodes="gpu06", end="-350s")), ((NETWORK, "switch.failure", "tor1"), APP), links=LEAF),
    mixed("23 a flap, a reboot for it, then a failing prolog", (
        *down("-4000s", "gpu01", "eth0", "-3700s"), *node_fail("gpu01", 0, at=-3750), "-3300s ctl slurmctld: reboot request queued for nodes gpu01",
        "-3290s ctl slurmctld: Issuing reboot request for nodes gpu01", f"-3000s gpu01 kernel: {BOOT}", "-2900s ctl slurmctld: Node gpu01 now responding", *failing_prolog(-2, "gpu01", 1, "nvidia-smi: No devices were found")),
        (ended("NODE_FAIL", start="-2h", end="-3750s"), ended("REQUEUED", nodes="gpu01", start="-3s")), (ETH0, ("infra.scheduler", "slurm.prolog_failure", "gpu01")), links=LEAF),
    mixed("24 a full disk found after a good end, another run fails by itself", (*set_state(-40, "gpu01", "NHC: check_fs_free: /tmp has only 1% free"), KEY_ERROR.replace("{0}", "{1}")),
          (ended("COMPLETED", nodes="gpu01", end="-100s"), ended(nodes="gpu[02-03]")), (None, APP)),
    mixed("33 two nodes lost in one ping round for two reasons", (
        *down("-300s", "gpu01", "eth0"), f"-280s gpu02 kernel: {PANIC}", "-0.003s ctl slurmctld: Killing JobId={0} on failed node gpu01",
        "-0.002s ctl slurmctld: Killing JobId={1} on failed node gpu02", "0s ctl slurmctld: error: Nodes gpu[01-02] not responding, setting DOWN"),
        (ended("NODE_FAIL", nodes="gpu[01,03]"), ended("NODE_FAIL", nodes="gpu[02,04]")), (ETH0, ("infra.node", "node.panic", "gpu02")), links=LEAF),
    mixed("34 three nodes lost in one minute for three reasons", (
        *down("-300s", "gpu01", "eth0"), *node_fail("gpu01", 0), "9.999s ctl slurmctld: Killing JobId={1} on failed node gpu02", *set_state(10, "gpu02", "replace psu2", "DOWN"),
        "-290s gpu03 slurmd: Slurmd shutdown completing", "29.999s ctl slurmctld: Killing JobId={2} on failed node gpu03", "30s ctl slurmctld: error: Nodes gpu03 not responding, setting DOWN"),
        (ended("NODE_FAIL", nodes="gpu[01,04]"), ended("NODE_FAIL", nodes="gpu[02,05]", end="10s"), ended("NODE_FAIL", nodes="gpu[03,06]", end="30s")),
        (ETH0, ("infra.scheduler", "slurm.admin_action", "gpu02"), ("infra.scheduler", "slurm.admin_action", "gpu03")), links=LEAF),
    mixed("35 slurmd stopped on one node, a flap on the other", (*down("-400s", "gpu02", "eth0", "-370s"), "-350s gpu01 slurmd: Slurmd shutdown completing", *node_fail("gpu01", 0)),
          (ended("NODE_FAIL"),), (("infra.scheduler", "slurm.admin_action", "gpu01"),), links=LEAF),
    mixed("36 munge dies on one node, a flap on the other", (
        *down("-150s", "gpu01", "eth0", "-130s"), "-300s gpu02 systemd: munge.service: Main process exited, code=killed, status=9/KILL", "-300s gpu02 systemd: munge.service: Failed with result 'signal'.",
        *(f"{t}s ctl slurmctld: error: slurm_receive_msgs: [[gpu02]:6818] failed: Socket timed out on send/recv operation" for t in (-210, -110, -20)), *node_fail("gpu02", 0)),
        (ended("NODE_FAIL"),), (("infra.node", "node.munge_failure", "gpu02"),), links=LEAF),
    mixed("43 cancelled by its user while the other's node reboots", (
        "-3s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000", *rebooted(-60, "gpu01", 0), "-0.001s ctl slurmctld: Killing JobId={1} on failed node gpu01"),
        (ended("CANCELLED", end="-2s"), ended("NODE_FAIL", nodes="gpu01")), (CANCELLED, ("infra.node", "node.reboot", "gpu01"))),
    mixed("44 a planned reboot here, a lost rail there", (
        "-500s ctl slurmctld: reboot request queued for nodes gpu03", "-490s ctl slurmctld: Issuing reboot request for nodes gpu03", f"-60s gpu03 kernel: {BOOT}",
        "-20s ctl slurmctld: Node gpu03 now responding", *down("-50s", "gpu01", "ib0", "300s"), peers(-2)), (ended(),), (IB0,), links=RAILS),
    mixed("52 one run of a lost node is cancelled before, one dies with it", (
        *down("-260s", "gpu01", "eth0"), "-61s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000", *node_fail("gpu01", 1)),
        (ended("CANCELLED", nodes="gpu[01,03]", end="-60s"), ended("NODE_FAIL", nodes="gpu01")), (CANCELLED, ETH0), links=LEAF),
]  # fmt: skip

RUNS = [
    mixed("3 storage evicts some, another needs too much memory", (
        *lustre_lost(-300, "gpu01", "gpu02", "gpu03", "gpu05"), *evicted(-130, "gpu01", "gpu02", "gpu03"), f"-125s {{0}} stderr: {EIO}", *killed_for_memory(-100, "gpu05", 1)),
        (ended(nodes="gpu[01-03]", end="-123s"), ended("OUT_OF_MEMORY", nodes="gpu05", end="-98s")), (STORAGE, OUT_OF_MEMORY)),
    mixed("4 storage evicts some, another fails by itself, a third waits", (
        *lustre_lost(-300, "gpu01", "gpu02", "gpu04", "gpu05"), *evicted(-130, "gpu01", "gpu02"), f"-125s {{0}} stderr: {EIO}", "-100s {1} stderr: KeyError: 'x'", *lustre_back(-80, "gpu04", "gpu05")),
        (ended(end="-123s"), ended(nodes="gpu04", end="-99s"), ended("COMPLETED", nodes="gpu05", end="1h")), (STORAGE, APP, None)),
    mixed("9 cancelled by its user ten seconds after its GPU fell off", ("-14s gpu01 kernel: " + FELL_OFF, "-4s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000"), (ended("CANCELLED"),), (CANCELLED,)),
    mixed("10 cancelled by root after a GPU fell off, a neighbour fails by it", (
        "-30s gpu01 kernel: " + FELL_OFF, f"-28s {{1}} stderr: {LAUNCH_FAILURE}", "-4s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 0"),
        (ended("CANCELLED", nodes="gpu[01,03]", cancelled_by="0"), ended(nodes="gpu01", end="-26s")), (CANCELLED, (*XID_OF, "gpu01"))),
    mixed("15 three tasks of an array on one node, three causes", (
        *killed_for_memory(-600, "gpu04", 2), "-300s {1} stderr: KeyError: 'x'", "-100s gpu04 kernel: " + FELL_OFF, f"-98s {{0}} stderr: {LAUNCH_FAILURE}"),
        (ended(nodes="gpu04", end="-95s"), ended(nodes="gpu04", end="-299s"), ended("OUT_OF_MEMORY", nodes="gpu04", end="-598s")), ((*XID_OF, "gpu04"), APP, OUT_OF_MEMORY)),
    mixed("16 two tasks of an array on one node, a quota and a disk", (
        "-200s {0} stderr: OSError: [Errno 122] Disk quota exceeded: '/home/u/x.pt'", "-20s gpu04 kernel: blk_update_request: I/O error, dev nvme0n1, sector 1234567 op 0x1:(WRITE)",
        "-19s gpu04 kernel: EXT4-fs (nvme0n1p1): Remounting filesystem read-only", "-18s {1} stderr: OSError: [Errno 5] Input/output error: '/local/scratch/x'"),
        (ended(nodes="gpu04", end="-198s"), ended(nodes="gpu04", end="-16s")), (APP, ("infra.node", "node.disk_error", "gpu04"))),
    mixed("17 time limit long after a GPU fell off", (*pace(0, "gpu01", -90, 0, -30), "-1790s gpu01 kernel: " + FELL_OFF, *down("-200s", "gpu02", "ib0", "-199s"), TIMELIMIT),
          (ended("TIMEOUT", start="-91min", time_limit_s=5460),), ((*XID_OF, "gpu01"),), links=RAILS),
    mixed("18 time limit at a steady pace, the neighbour's GPU fell off", (*pace(0, "gpu01", -90, 0, 0), "-1790s gpu03 kernel: " + FELL_OFF, f"-1788s {{1}} stderr: {LAUNCH_FAILURE}", TIMELIMIT),
          (ended("TIMEOUT", start="-91min", time_limit_s=5460), ended(nodes="gpu03", end="-1786s")), (TIMED_OUT, (*XID_OF, "gpu03"))),
    mixed("25 a step out of memory long before the rail is lost", (*killed_for_memory(-3000, "gpu01", 0, 3), *down("-60s", "gpu02", "ib0"), peers(-10)), (ended(start="-2h"),), ((NETWORK, LINK, "gpu02"),), links=RAILS),
    mixed("26 a step out of memory under a good end, the neighbour's GPU falls off", (*killed_for_memory(-300, "gpu01", 0, 3), "-30s gpu01 kernel: " + FELL_OFF, f"-28s {{1}} stderr: {LAUNCH_FAILURE}"),
          (ended("COMPLETED", nodes="gpu01"), ended(nodes="gpu01", end="-26s")), (None, (*XID_OF, "gpu01"))),
    mixed("27 capped power everywhere, one rail corrupts", (
        *(f"{m}min gpu0{i} nv-hostengine: GPU 00000000:9B:00.0: SW Power Cap active" for i in (1, 2, 3, 4) for m in (-59, -30)), *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
        *(f"{t}s ctl opensm: log_trap_info: Received Generic Notice type:1 num:129 (Local Link integrity threshold reached) Producer:2 (Switch) from LID:9 Port:4 (gpu02 ib0) TID:0x1" for t in (-1190, -700, -100)), TIMELIMIT),
        (ended("TIMEOUT", start="-61min"),), ((NETWORK, "nic.link_errors", "gpu02"),), links=RAILS),
    mixed("28 one node braked, corrected bus errors on the other", (
        *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0), "-1210s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Power Brake Slowdown active",
        *(f"{t}s gpu01 kernel: pcieport 0000:64:00.0: AER: Corrected error received: 0000:65:00.0" for t in range(-3500, 0, 500)), TIMELIMIT),
        (ended("TIMEOUT", start="-61min"),), (("infra.gpu|infra.node|app.timeout", ANY, ANY),), at_most=0.86),
    mixed("29 an Xid of the program here, of the hardware there", (
        xid(-5, "gpu01", 31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_3c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"), f"-4s {{0}} stderr: {ILLEGAL}",
        "-8s gpu02 kernel: " + FELL_OFF, f"-6s {{1}} stderr: {LAUNCH_FAILURE}"), (ended(nodes="gpu01", end="-2s"), ended(nodes="gpu02", end="-3s")), (APP, (*XID_OF, "gpu02"))),
    mixed("30 a GPU falls off, the other node's Xid follows", (
        "-12s gpu02 kernel: " + FELL_OFF, xid(-9, "gpu01", 43, "Ch 00000018"), peers(-8)), (ended(end="-3s"),), ((*XID_OF, "gpu02"),)),
    mixed("31 an illegal access here, a remapped row there", (
        xid(-300, "gpu02", 63, REMAPPED), xid(-5, "gpu01", 13, "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"), f"-4s {{0}} stderr: {ILLEGAL}"), (ended(),), (APP,)),
    mixed("32 a segfault during a short flap", (*down("-50s", "gpu01", "eth0", "-10s"), "-20s {0} stderr: srun: error: gpu02: task 3: Segmentation fault (core dumped)"), (ended(end="-18s", exit_code=139),), (APP,), links=LEAF),
    mixed("37 storage was away for a while, then a GPU's memory", (
        *(f"{-300 + i}s gpu0{i} kernel: nfs: server nfs1 not responding, still trying" for i in range(1, 7)), *(f"{-200 + i}s gpu0{i} kernel: nfs: server nfs1 OK" for i in range(1, 7)),
        "-30s gpu02 kernel: " + XID48, f"-28s {{0}} stderr: {ECC}"), (ended(end="-26s"),), ((*XID_OF, "gpu02"),)),
    mixed("38 storage evicts three nodes while a fourth's GPU falls off", (
        *lustre_lost(-300, "gpu01", "gpu02", "gpu03", "gpu05"), *evicted(-130, "gpu01", "gpu02", "gpu03"), f"-125s {{0}} stderr: {EIO}", "-128s gpu05 kernel: " + FELL_OFF, f"-126s {{1}} stderr: {LAUNCH_FAILURE}"),
        (ended(nodes="gpu[01-03]", end="-123s"), ended(nodes="gpu05", end="-124s")), (STORAGE, (*XID_OF, "gpu05"))),
    mixed("39 out of memory beside a blinking rail", (*killed_for_memory(-20, "gpu01", 0), *down("-15s", "gpu02", "ib0", "-14s"), peers(-13)), (ended("OUT_OF_MEMORY", end="-10s"),), (OUT_OF_MEMORY,), links=RAILS),
    mixed("40 a watchdog after ten minutes, a flap just now", (*down("-612s", "gpu02", "ib0", "-500s"), *down("-5s", "gpu01", "ib1", "-1s"), f"-2s {{0}} stderr: {WATCHDOG}"), (ended(),), ((NETWORK, LINK, "gpu02"),), links=RAILS),
    mixed("41 a watchdog, at its onset a hanging GPU and a blinking rail", (
        xid(-604, "gpu01", 119, "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4)."), *down("-600s", "gpu02", "ib0", "-598s"), f"-2s {{0}} stderr: {WATCHDOG}"),
        (ended(),), ((*XID_OF, "gpu01"),), links=RAILS),
    mixed("42 a watchdog, at its onset only others' faults", ("-603s gpu03 kernel: " + FELL_OFF, *down("-600s", "gpu04", "ib0", "-400s"), f"-2s {{0}} stderr: {WATCHDOG}"), (ended(),), (("unknown", None, None),), links=RAILS),
    mixed("45 an epilog fails after an own error, a prolog elsewhere", (
        "-101s {0} stderr: KeyError: 'x'", "-98s gpu01 slurmd: error: epilog failed: rc:1 output:rm: cannot remove '/scratch/7000'", "-97.9s ctl slurmctld: error: job_epilog_complete: JobId={0} epilog error on gpu01, draining the node",
        *failing_prolog(-2, "gpu02", 1, "mount /scratch failed")),
        (ended(nodes="gpu01", end="-100s"), ended("REQUEUED", nodes="gpu02", start="-3s")), (APP, ("infra.scheduler", "slurm.prolog_failure", "gpu02"))),
    mixed("46 time limit while storage is away, a remapped row, a task that would not die", (
        *pace(0, "gpu01", -90, 0, -25), *lustre_lost(-1500, "gpu01", "gpu02", "gpu03"), xid(-900, "gpu02", 63, REMAPPED), TIMELIMIT,
        "61s ctl slurmctld: error: slurmd error running JobId={0} on node(s)=gpu01: Kill task failed", "61s ctl slurmctld: drain_nodes: node gpu01 state set to DRAIN"),
        (ended("TIMEOUT", start="-91min", time_limit_s=5460),), (STORAGE,)),
    mixed("47 heat slows one run, a lost rail ends another, a third fails by itself", (
        *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0), *hot("gpu01", -20, -10, -1), *down("-60s", "gpu03", "ib0"), peers(-20, 1), "-30s {2} stderr: KeyError: 'x'", TIMELIMIT),
        (ended("TIMEOUT", start="-61min"), ended(nodes="gpu[03-04]", end="-18s"), ended(nodes="gpu05", end="-29s")), (("infra.gpu", "gpu.thermal", "gpu01"), (NETWORK, LINK, "gpu03"), APP), links=RAILS),
    mixed("48 a full disk on one node, the other's link blinks", (
        *down("-6s", "gpu02", "eth0", "-3s"), "0s gpu01 slurmd: error: write /var/spool/slurmd/cred_state.new error No space left on device",
        "0.1s gpu01 slurmd: error: _forkexec_slurmstepd: slurmstepd failed to send return code got 0: Resource temporarily unavailable"), (ended("CANCELLED", start="-5s", end="2s", cancelled_by="0"),), (("infra.node", "node.disk_full", "gpu01"),), links=LEAF),
    mixed("49 a bus fails under a GPU while the other node is hot", (
        *hot("gpu02", -20, -10, -1), *(f"-{40 - i}s gpu01 kernel: pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0" for i in range(3)), "-5s gpu01 kernel: " + FELL_OFF, f"-1s {{0}} stderr: {LAUNCH_FAILURE}"),
        (ended(),), (("infra.gpu", ANY, "gpu01"),)),
    mixed("50 one client evicted because its own link was lost", (*down("-200s", "gpu04", "ib0"), *lustre_lost(-190, "gpu04"), *evicted(-20, "gpu04"), f"-5s {{0}} stderr: {EIO}"), (ended(nodes="gpu04"),), ((NETWORK, LINK, "gpu04"),), links=RAILS),
    mixed("51 time limit long after a step was out of memory", (*pace(0, "gpu01", -110, 0, 0), *killed_for_memory(-6500, "gpu01", 0, 1), TIMELIMIT), (ended("TIMEOUT", start="-111min", time_limit_s=6660),), (TIMED_OUT,)),
]  # fmt: skip

SITUATIONS = sorted([*NODES, *RUNS], key=lambda s: int(s.name.split()[0]))
