"""Two faults, one of which follows from the other, or seems to. Every truth was written before the correlator ran."""

from __future__ import annotations

from tests.correlator.field import (
    ANY,
    APP,
    ECC,
    FELL_OFF,
    IB0,
    KEY_ERROR,
    LEAF,
    NETWORK,
    RAILS,
    TIMELIMIT,
    WATCHDOG,
    XID48,
    down,
    ended,
    pace,
)
from tests.correlator.mixed import (
    CANCELLED,
    ILLEGAL,
    LINK,
    PANIC,
    STORAGE,
    TIMED_OUT,
    XID_OF,
    hot,
    killed_for_memory,
    lustre_lost,
    mixed,
    node_fail,
    peers,
    rebooted,
    set_state,
    xid,
)

NFS = "kernel: nfs: server nfs1 not responding, timed out"
NFS_EIO = "OSError: [Errno 5] Input/output error: '/home/u/ck_9.pt'"
REMAPPED = "Row Remapper: New row marked for remapping, reset gpu to activate."
ROW = ("gpu01", "gpu02", "gpu03", "gpu04")

SITUATIONS = [
    mixed(
        "81 the management switch is lost, and NFS behind it with it",
        (
            *(x for i in range(1, 7) for x in down(f"-300.{i}s", f"gpu0{i}", "eth0", "-100s")),
            *(f"{-200 + i}s gpu0{i} {NFS}" for i in range(1, 7)),
            f"-195s {{0}} stderr: {NFS_EIO}",
        ),
        (ended(end="-193s"),),
        ((NETWORK, "switch.failure", "tor1"),),
        links=LEAF,
    ),
    mixed(
        "82 one node cut off, and NFS with it",
        (*down("-150s", "gpu03", "eth0", "-20s"), f"-50s gpu03 {NFS}", f"-45s {{0}} stderr: {NFS_EIO}"),
        (ended(nodes="gpu03", end="-43s"),),
        ((NETWORK, LINK, "gpu03"),),
        links=LEAF,
    ),
    mixed(
        "83 a watchdog while storage is away, another's GPU hangs",
        (
            *lustre_lost(-590, *ROW),
            xid(-610, "gpu03", 119, "Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
            f"-2s {{0}} stderr: {WATCHDOG}",
        ),
        (ended(),),
        (STORAGE,),
    ),
    mixed(
        "84 a watchdog, storage came back at once, a rail stayed away",
        (
            *lustre_lost(-640, *ROW),
            *(
                f"-620s {h} kernel: Lustre: work-OST0017-osc-ffff: Connection restored to 10.0.0.5@o2ib (at 10.0.0.5@o2ib)"
                for h in ROW
            ),
            *down("-603s", "gpu02", "ib0"),
            f"-2s {{0}} stderr: {WATCHDOG}",
        ),
        (ended(),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "85 a clock is stepped here, slurmd dies there",
        (
            "-310s gpu02 chronyd: System clock was stepped by 0.812 seconds",
            "-300s gpu01 kernel: slurmd[812]: segfault at 0 ip 00007f3a error 4 in libslurmfull.so[7f3a00000000+1c0000]",
            *node_fail("gpu01", 0),
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.slurmd_crash", "gpu01"),),
    ),
    mixed(
        "86 a power supply warns here, a machine reboots there",
        (
            "-70s gpu02 ipmievd: Power Supply sensor PS Redundancy Redundancy Lost Asserted",
            *rebooted(-60, "gpu01", 0),
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.reboot", "gpu01"),),
    ),
    mixed(
        "87 a GPU falls off, and its machine panics under a neighbour",
        (
            "-320s gpu01 kernel: " + FELL_OFF,
            "-318s {0} stderr: RuntimeError: CUDA error: unspecified launch failure",
            f"-300s gpu01 kernel: {PANIC}",
            *node_fail("gpu01", 1),
        ),
        (ended(nodes="gpu01", end="-315s"), ended("NODE_FAIL", nodes="gpu01")),
        ((*XID_OF, "gpu01"), ("infra.gpu|infra.node", ANY, "gpu01")),
    ),
    mixed(
        "88 memory of one GPU, then the other falls off while the run dies",
        ("-40s gpu01 kernel: " + XID48, f"-38s {{0}} stderr: {ECC}", "-8s gpu02 kernel: " + FELL_OFF),
        (ended(),),
        ((*XID_OF, "gpu01"),),
    ),
    mixed(
        "89 a rail lost, its ranks give up, then a local disk fails",
        (
            *down("-120s", "gpu02", "ib0"),
            peers(-60),
            "-20s gpu01 kernel: blk_update_request: I/O error, dev nvme0n1, sector 1234567 op 0x1:(WRITE)",
            "-19s gpu01 kernel: EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
            "-15s {0} stderr: OSError: [Errno 5] Input/output error: '/local/scratch/x'",
        ),
        (ended(),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "90 a rail lost, its ranks give up, an Xid as they end",
        (
            *down("-60s", "gpu02", "ib0"),
            peers(-20),
            xid(-5, "gpu01", 31, "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted"),
        ),
        (ended(),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "91 requeued by its user while a rail is away",
        (
            *down("-300s", "gpu02", "ib0"),
            "-1s ctl slurmctld: Requeuing JobId={0}",
        ),
        (ended("REQUEUED"),),
        (CANCELLED,),
        links=RAILS,
    ),
    mixed(
        "92 a prolog fails since the home directories are away",
        (
            *(f"{-200 + i}s gpu0{i} kernel: nfs: server nfs1 not responding, still trying" for i in range(1, 7)),
            "-3s ctl slurmctld: sched: Allocate JobId={0} NodeList=gpu01 #CPUs=8 Partition=gpu",
            "-2s gpu01 slurmd: error: prolog failed: rc:1 output:ls: cannot access '/home/u': Input/output error",
            "-2s gpu01 slurmd: error: [job {0}] prolog failed status=1:0",
            "-1.5s ctl slurmctld: error: Prolog launch failure, JobId={0}",
        ),
        (ended("REQUEUED", nodes="gpu01", start="-3s"),),
        (("infra.scheduler|infra.storage", ANY, ANY),),
    ),
    mixed(
        "93 a rail ends the run that uses it, the other fails by itself",
        (*down("-60s", "gpu01", "ib0"), peers(-10), "-12s {1} stderr: KeyError: 'x'"),
        (ended(end="-8s"), ended(nodes="gpu01", end="-11s")),
        (IB0, APP),
        links=RAILS,
    ),
    mixed(
        "94 of two runs on a lost rail one dies",
        (*down("-150s", "gpu01", "ib0", "-30s"), peers(-90)),
        (ended(end="-88s"), ended("COMPLETED", end="2h")),
        (("infra.network|unknown", ANY, ANY), None),
        links=RAILS,
    ),
    mixed(
        "95 time limit at a steady pace on a node that a check drained",
        (
            *pace(0, "gpu01", -60, 0, 0),
            xid(-900, "gpu01", 63, REMAPPED),
            *set_state(-880, "gpu01", "NHC: gpu row remap pending"),
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        (TIMED_OUT,),
    ),
    mixed(
        "96 slurmd died before the launch, the other node is hot",
        (
            *hot("gpu01", -20, -10, -1),
            "-100s gpu02 kernel: slurmd[812]: segfault at 0 ip 00007f3a error 4 in libslurmfull.so[7f3a00000000+1c0000]",
            "-3s {0} stderr: srun: error: Task launch for StepId={0}.0 failed on node gpu02: Communication connection failure",
            "-2s {0} stderr: srun: error: Application launch failed: Communication connection failure",
        ),
        (ended(start="-20s"),),
        (("infra.scheduler", "slurm.slurmd_crash", "gpu02"),),
    ),
    mixed(
        "97 a leg of storage's network is lost, and a program fails by itself",
        (*down("-200s", "gpu01", "ib0", "-150s"), *lustre_lost(-190, "gpu01"), KEY_ERROR),
        (ended(nodes="gpu01"),),
        (APP,),
        links=RAILS,
    ),
    mixed(
        "98 the controller is cut off for a minute, a machine panics",
        (
            *down("-200s", "ctl", "eth0", "-140s"),
            f"-300s gpu03 kernel: {PANIC}",
            *node_fail("gpu03", 0),
        ),
        (ended("NODE_FAIL", nodes="gpu[03-04]"),),
        (("infra.node", "node.panic", "gpu03"),),
        links=LEAF,
    ),
    mixed(
        "99 a signal from its user beside a blinking rail",
        (
            *down("-5s", "gpu02", "ib0", "-3s"),
            "-2s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000",
            "-1s {0} stderr: srun: error: gpu01: task 0: Terminated",
        ),
        (ended(exit_code=143),),
        (CANCELLED,),
        links=RAILS,
    ),
    mixed(
        "100 a kill that nothing tells of, a neighbour out of memory and an Xid of the program's kind",
        (
            *killed_for_memory(-20, "gpu02", 1),
            xid(-30, "gpu01", 31, "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted", pid=777),
            f"-29s {{2}} stderr: {ILLEGAL}",
            "-1s {0} stderr: srun: error: gpu01: task 0: Killed",
        ),
        (ended(exit_code=137), ended("OUT_OF_MEMORY", nodes="gpu02", end="-18s"), ended(nodes="gpu01", end="-27s")),
        (("app.error|unknown", None, None), ("app.oom", None, None), APP),
    ),
]
