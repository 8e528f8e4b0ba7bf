"""Two faults, one of which only hurts runs. Every truth was written before the correlator ran."""

from __future__ import annotations

from tests.correlator.field import (
    ANY,
    APP,
    ECC,
    FELL_OFF,
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
    EIO,
    ILLEGAL,
    LAUNCH_FAILURE,
    LINK,
    OUT_OF_MEMORY,
    REMAPPED,
    STORAGE,
    TIMED_OUT,
    XID_OF,
    evicted,
    failing_prolog,
    hot,
    killed_for_memory,
    lustre_back,
    lustre_lost,
    mixed,
    peers,
    xid,
)

SITUATIONS = [
    mixed(
        "3 storage evicts some, another needs too much memory",
        (
            *lustre_lost(-300, "gpu01", "gpu02", "gpu03", "gpu05"),
            *evicted(-130, "gpu01", "gpu02", "gpu03"),
            f"-125s {{0}} stderr: {EIO}",
            *killed_for_memory(-100, "gpu05", 1),
        ),
        (ended(nodes="gpu[01-03]", end="-123s"), ended("OUT_OF_MEMORY", nodes="gpu05", end="-98s")),
        (STORAGE, OUT_OF_MEMORY),
    ),
    mixed(
        "4 storage evicts some, another fails by itself, a third waits",
        (
            *lustre_lost(-300, "gpu01", "gpu02", "gpu04", "gpu05"),
            *evicted(-130, "gpu01", "gpu02"),
            f"-125s {{0}} stderr: {EIO}",
            "-100s {1} stderr: KeyError: 'x'",
            *lustre_back(-80, "gpu04", "gpu05"),
        ),
        (ended(end="-123s"), ended(nodes="gpu04", end="-99s"), ended("COMPLETED", nodes="gpu05", end="1h")),
        (STORAGE, APP, None),
    ),
    mixed(
        "9 cancelled by its user ten seconds after its GPU fell off",
        (
            "-14s gpu01 kernel: " + FELL_OFF,
            "-4s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 1000",
        ),
        (ended("CANCELLED"),),
        (CANCELLED,),
    ),
    mixed(
        "10 cancelled by root after a GPU fell off, a neighbour fails by it",
        (
            "-30s gpu01 kernel: " + FELL_OFF,
            f"-28s {{1}} stderr: {LAUNCH_FAILURE}",
            "-4s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 0",
        ),
        (ended("CANCELLED", nodes="gpu[01,03]", cancelled_by="0"), ended(nodes="gpu01", end="-26s")),
        (CANCELLED, (*XID_OF, "gpu01")),
    ),
    mixed(
        "15 three tasks of an array on one node, three causes",
        (
            *killed_for_memory(-600, "gpu04", 2),
            "-300s {1} stderr: KeyError: 'x'",
            "-100s gpu04 kernel: " + FELL_OFF,
            f"-98s {{0}} stderr: {LAUNCH_FAILURE}",
        ),
        (
            ended(nodes="gpu04", end="-95s"),
            ended(nodes="gpu04", end="-299s"),
            ended("OUT_OF_MEMORY", nodes="gpu04", end="-598s"),
        ),
        ((*XID_OF, "gpu04"), APP, OUT_OF_MEMORY),
    ),
    mixed(
        "16 two tasks of an array on one node, a quota and a disk",
        (
            "-200s {0} stderr: OSError: [Errno 122] Disk quota exceeded: '/home/u/x.pt'",
            "-20s gpu04 kernel: blk_update_request: I/O error, dev nvme0n1, sector 1234567 op 0x1:(WRITE)",
            "-19s gpu04 kernel: EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
            "-18s {1} stderr: OSError: [Errno 5] Input/output error: '/local/scratch/x'",
        ),
        (ended(nodes="gpu04", end="-198s"), ended(nodes="gpu04", end="-16s")),
        (APP, ("infra.node", "node.disk_error", "gpu04")),
    ),
    mixed(
        "17 time limit long after a GPU fell off",
        (
            *pace(0, "gpu01", -90, 0, -30),
            "-1790s gpu01 kernel: " + FELL_OFF,
            *down("-200s", "gpu02", "ib0", "-199s"),
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-91min", time_limit_s=5460),),
        ((*XID_OF, "gpu01"),),
        links=RAILS,
    ),
    mixed(
        "18 time limit at a steady pace, the neighbour's GPU fell off",
        (
            *pace(0, "gpu01", -90, 0, 0),
            "-1790s gpu03 kernel: " + FELL_OFF,
            f"-1788s {{1}} stderr: {LAUNCH_FAILURE}",
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-91min", time_limit_s=5460), ended(nodes="gpu03", end="-1786s")),
        (TIMED_OUT, (*XID_OF, "gpu03")),
    ),
    mixed(
        "25 a step out of memory long before the rail is lost",
        (*killed_for_memory(-3000, "gpu01", 0, 3), *down("-60s", "gpu02", "ib0"), peers(-10)),
        (ended(start="-2h"),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "26 a step out of memory under a good end, the neighbour's GPU falls off",
        (
            *killed_for_memory(-300, "gpu01", 0, 3),
            "-30s gpu01 kernel: " + FELL_OFF,
            f"-28s {{1}} stderr: {LAUNCH_FAILURE}",
        ),
        (ended("COMPLETED", nodes="gpu01"), ended(nodes="gpu01", end="-26s")),
        (None, (*XID_OF, "gpu01")),
    ),
    mixed(
        "27 capped power everywhere, one rail corrupts",
        (
            *(
                f"{m}min gpu0{i} nv-hostengine: GPU 00000000:9B:00.0: SW Power Cap active"
                for i in (1, 2, 3, 4)
                for m in (-59, -30)
            ),
            *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
            *(
                f"{t}s ctl opensm: log_trap_info: Received Generic Notice type:1 num:129 (Local Link integrity threshold reached) Producer:2 (Switch) from LID:9 Port:4 (gpu02 ib0) TID:0x1"
                for t in (-1190, -700, -100)
            ),
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        ((NETWORK, "nic.link_errors", "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "28 one node braked, corrected bus errors on the other",
        (
            *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
            "-1210s gpu02 nv-hostengine: GPU 00000000:9B:00.0: HW Power Brake Slowdown active",
            *(
                f"{t}s gpu01 kernel: pcieport 0000:64:00.0: AER: Corrected error received: 0000:65:00.0"
                for t in range(-3500, 0, 500)
            ),
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"),),
        (("infra.gpu|infra.node|app.timeout", ANY, ANY),),
        at_most=0.86,
    ),
    mixed(
        "29 an Xid of the program here, of the hardware there",
        (
            xid(
                -5,
                "gpu01",
                31,
                "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_3c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            ),
            f"-4s {{0}} stderr: {ILLEGAL}",
            "-8s gpu02 kernel: " + FELL_OFF,
            f"-6s {{1}} stderr: {LAUNCH_FAILURE}",
        ),
        (ended(nodes="gpu01", end="-2s"), ended(nodes="gpu02", end="-3s")),
        (APP, (*XID_OF, "gpu02")),
    ),
    mixed(
        "30 a GPU falls off, the other node's Xid follows",
        ("-12s gpu02 kernel: " + FELL_OFF, xid(-9, "gpu01", 43, "Ch 00000018"), peers(-8)),
        (ended(end="-3s"),),
        ((*XID_OF, "gpu02"),),
    ),
    mixed(
        "31 an illegal access here, a remapped row there",
        (
            xid(-300, "gpu02", 63, REMAPPED),
            xid(-5, "gpu01", 13, "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"),
            f"-4s {{0}} stderr: {ILLEGAL}",
        ),
        (ended(),),
        (APP,),
    ),
    mixed(
        "32 a segfault during a short flap",
        (
            *down("-50s", "gpu01", "eth0", "-10s"),
            "-20s {0} stderr: srun: error: gpu02: task 3: Segmentation fault (core dumped)",
        ),
        (ended(end="-18s", exit_code=139),),
        (APP,),
        links=LEAF,
    ),
    mixed(
        "37 storage was away for a while, then a GPU's memory",
        (
            *(f"{-300 + i}s gpu0{i} kernel: nfs: server nfs1 not responding, still trying" for i in range(1, 7)),
            *(f"{-200 + i}s gpu0{i} kernel: nfs: server nfs1 OK" for i in range(1, 7)),
            "-30s gpu02 kernel: " + XID48,
            f"-28s {{0}} stderr: {ECC}",
        ),
        (ended(end="-26s"),),
        ((*XID_OF, "gpu02"),),
    ),
    mixed(
        "38 storage evicts three nodes while a fourth's GPU falls off",
        (
            *lustre_lost(-300, "gpu01", "gpu02", "gpu03", "gpu05"),
            *evicted(-130, "gpu01", "gpu02", "gpu03"),
            f"-125s {{0}} stderr: {EIO}",
            "-128s gpu05 kernel: " + FELL_OFF,
            f"-126s {{1}} stderr: {LAUNCH_FAILURE}",
        ),
        (ended(nodes="gpu[01-03]", end="-123s"), ended(nodes="gpu05", end="-124s")),
        (STORAGE, (*XID_OF, "gpu05")),
    ),
    mixed(
        "39 out of memory beside a blinking rail",
        (*killed_for_memory(-20, "gpu01", 0), *down("-15s", "gpu02", "ib0", "-14s"), peers(-13)),
        (ended("OUT_OF_MEMORY", end="-10s"),),
        (OUT_OF_MEMORY,),
        links=RAILS,
    ),
    mixed(
        "40 a watchdog after ten minutes, a flap just now",
        (*down("-612s", "gpu02", "ib0", "-500s"), *down("-5s", "gpu01", "ib1", "-1s"), f"-2s {{0}} stderr: {WATCHDOG}"),
        (ended(),),
        ((NETWORK, LINK, "gpu02"),),
        links=RAILS,
    ),
    mixed(
        "41 a watchdog, at its onset a hanging GPU and a blinking rail",
        (
            xid(
                -604,
                "gpu01",
                119,
                "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
            ),
            *down("-600s", "gpu02", "ib0", "-598s"),
            f"-2s {{0}} stderr: {WATCHDOG}",
        ),
        (ended(),),
        ((*XID_OF, "gpu01"),),
        links=RAILS,
    ),
    mixed(
        "42 a watchdog, at its onset only others' faults",
        ("-603s gpu03 kernel: " + FELL_OFF, *down("-600s", "gpu04", "ib0", "-400s"), f"-2s {{0}} stderr: {WATCHDOG}"),
        (ended(),),
        (("unknown", None, None),),
        links=RAILS,
    ),
    mixed(
        "45 an epilog fails after an own error, a prolog elsewhere",
        (
            "-101s {0} stderr: KeyError: 'x'",
            "-98s gpu01 slurmd: error: epilog failed: rc:1 output:rm: cannot remove '/scratch/7000'",
            "-97.9s ctl slurmctld: error: job_epilog_complete: JobId={0} epilog error on gpu01, draining the node",
            *failing_prolog(-2, "gpu02", 1, "mount /scratch failed"),
        ),
        (ended(nodes="gpu01", end="-100s"), ended("REQUEUED", nodes="gpu02", start="-3s")),
        (APP, ("infra.scheduler", "slurm.prolog_failure", "gpu02")),
    ),
    mixed(
        "46 time limit while storage is away, a remapped row, a task that would not die",
        (
            *pace(0, "gpu01", -90, 0, -25),
            *lustre_lost(-1500, "gpu01", "gpu02", "gpu03"),
            xid(-900, "gpu02", 63, REMAPPED),
            TIMELIMIT,
            "61s ctl slurmctld: error: slurmd error running JobId={0} on node(s)=gpu01: Kill task failed",
            "61s ctl slurmctld: drain_nodes: node gpu01 state set to DRAIN",
        ),
        (ended("TIMEOUT", start="-91min", time_limit_s=5460),),
        (STORAGE,),
    ),
    mixed(
        "47 heat slows one run, a lost rail ends another, a third fails by itself",
        (
            *pace(0, "gpu01", -60, -20, 0, 2.0, 4.0),
            *hot("gpu01", -20, -10, -1),
            *down("-60s", "gpu03", "ib0"),
            peers(-20, 1),
            "-30s {2} stderr: KeyError: 'x'",
            TIMELIMIT,
        ),
        (ended("TIMEOUT", start="-61min"), ended(nodes="gpu[03-04]", end="-18s"), ended(nodes="gpu05", end="-29s")),
        (("infra.gpu", "gpu.thermal", "gpu01"), (NETWORK, LINK, "gpu03"), APP),
        links=RAILS,
    ),
    mixed(
        "48 a full disk on one node, the other's link blinks",
        (
            *down("-6s", "gpu02", "eth0", "-3s"),
            "0s gpu01 slurmd: error: write /var/spool/slurmd/cred_state.new error No space left on device",
            "0.1s gpu01 slurmd: error: _forkexec_slurmstepd: slurmstepd failed to send return code got 0: Resource temporarily unavailable",
        ),
        (ended("CANCELLED", start="-5s", end="2s", cancelled_by="0"),),
        (("infra.node", "node.disk_full", "gpu01"),),
        links=LEAF,
    ),
    mixed(
        "49 a bus fails under a GPU while the other node is hot",
        (
            *hot("gpu02", -20, -10, -1),
            *(
                f"-{40 - i}s gpu01 kernel: pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0"
                for i in range(3)
            ),
            "-5s gpu01 kernel: " + FELL_OFF,
            f"-1s {{0}} stderr: {LAUNCH_FAILURE}",
        ),
        (ended(),),
        (("infra.gpu", ANY, "gpu01"),),
    ),
    mixed(
        "50 one client evicted because its own link was lost",
        (
            *down("-200s", "gpu04", "ib0"),
            *lustre_lost(-190, "gpu04"),
            *evicted(-20, "gpu04"),
            f"-5s {{0}} stderr: {EIO}",
        ),
        (ended(nodes="gpu04"),),
        ((NETWORK, LINK, "gpu04"),),
        links=RAILS,
    ),
    mixed(
        "51 time limit long after a step was out of memory",
        (*pace(0, "gpu01", -110, 0, 0), *killed_for_memory(-6500, "gpu01", 0, 1), TIMELIMIT),
        (ended("TIMEOUT", start="-111min", time_limit_s=6660),),
        (TIMED_OUT,),
    ),
]
