"""More of mixed_faults.py, harder: where the wrong one of two causes lies nearer. Odd numbers for work, even ones held out."""

from __future__ import annotations

from tests.correlator.field import (
    ANY,
    APP,
    BOOT,
    ECC,
    ETH0,
    FELL_OFF,
    IB0,
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
from tests.correlator.mixed_faults import (
    CANCELLED,
    EIO,
    ILLEGAL,
    LAUNCH_FAILURE,
    LINK,
    OUT_OF_MEMORY,
    PANIC,
    STORAGE,
    TIMED_OUT,
    XID_OF,
    evicted,
    hot,
    killed_for_memory,
    lustre_back,
    lustre_lost,
    mixed,
    node_fail,
    peers,
    rebooted,
    set_state,
    xid,
)

NVLINK = "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
DISK = (
    "gpu01 kernel: blk_update_request: I/O error, dev nvme0n1, sector 1234567 op 0x1:(WRITE)",
    "gpu01 kernel: EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
)
ROW = ("gpu01", "gpu02", "gpu03", "gpu04")
TRAP = "log_trap_info: Received Generic Notice type:1 num:129 (Local Link integrity threshold reached) Producer:2 (Switch) from LID:9 Port:4 (gpu02 ib0) TID:0x1"

SITUATIONS = [
    mixed("53 a rail lost, its ranks give up, then a GPU falls off", (*down("-120s", "gpu02", "ib0"), peers(-60), "-8s gpu01 kernel: " + FELL_OFF), (ended(),), ((NETWORK, LINK, "gpu02"),), links=RAILS),
    mixed("54 an own error half a minute before its machine reboots", ("-61s {0} stderr: KeyError: 'x'", *rebooted(-30, "gpu01", 60), "59.999s ctl slurmctld: Killing JobId={1} on failed node gpu01"),
          (ended(nodes="gpu01", end="-60s"), ended("NODE_FAIL", nodes="gpu01", end="60s")), (APP, ("infra.node", "node.reboot", "gpu01"))),
    mixed("55 a leaf fails, and storage behind it with it", (
        *(x for i in range(1, 7) for x in down(f"-300.{i}s", f"gpu0{i}", "ib0", "-200s")), *lustre_lost(-290, *ROW), *evicted(-190, *ROW), f"-185s {{0}} stderr: {EIO}"),
        (ended(end="-183s"),), (("infra.network", "switch.failure", "leaf-p0"),), links=RAILS),
    mixed("56 time limit, then its machine reboots", (*pace(0, "gpu01", -60, 0, 0), TIMELIMIT, *rebooted(40, "gpu01", 120), "119.999s ctl slurmctld: Killing JobId={1} on failed node gpu01"),
          (ended("TIMEOUT", start="-61min"), ended("NODE_FAIL", nodes="gpu01", end="120s")), (TIMED_OUT, ("infra.node", "node.reboot", "gpu01"))),
    mixed("57 hot for hours, slow since storage is away", (*(x for m in range(-115, 0, 10) for x in hot("gpu01", m)), *pace(0, "gpu01", -110, -20, 0, 2.0, 6.0), *lustre_lost(-1205, *ROW), TIMELIMIT),
          (ended("TIMEOUT", start="-111min"),), (STORAGE,)),
    mixed("58 a rail that corrupts for hours, slow since a node is hot", (*(f"{t}s ctl opensm: {TRAP}" for t in range(-6900, 0, 600)), *pace(0, "gpu01", -110, -20, 0, 2.0, 4.0), *hot("gpu01", -20, -10, -1), TIMELIMIT),
          (ended("TIMEOUT", start="-111min"),), (("infra.gpu", "gpu.thermal", "gpu01"),), links=RAILS),
    mixed("59 a GPU falls off, the node is rebooted for it under a neighbour", (
        "-300s gpu01 kernel: " + FELL_OFF, f"-298s {{0}} stderr: {LAUNCH_FAILURE}", *set_state(-280, "gpu01", "NHC: check_nv_gpu: GPU 0 lost"), *rebooted(-60, "gpu01", 0), "-0.001s ctl slurmctld: Killing JobId={1} on failed node gpu01"),
        (ended(nodes="gpu01", end="-296s"), ended("NODE_FAIL", nodes="gpu01")), ((*XID_OF, "gpu01"), ("infra.gpu|infra.node|infra.scheduler", ANY, "gpu01"))),
    mixed("60 some of an array are cancelled after one lost its GPU", (
        "-30s gpu01 kernel: " + FELL_OFF, f"-28s {{0}} stderr: {LAUNCH_FAILURE}", "-3s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={1} uid 1000", "-3s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={2} uid 1000"),
        (ended(nodes="gpu01", end="-26s"), ended("CANCELLED", nodes="gpu01", end="-2s"), ended("CANCELLED", nodes="gpu02", end="-2s")), ((*XID_OF, "gpu01"), CANCELLED, CANCELLED)),
    mixed("61 the management switch blinks, one rail is lost", (*(x for i in range(1, 7) for x in down(f"-60.{i}s", f"gpu0{i}", "eth0", "-40s")), *down("-58s", "gpu03", "ib0"), peers(-10)),
          (ended(nodes="gpu[03-04]"),), ((NETWORK, LINK, "gpu03"),), links=(*LEAF, *RAILS)),
    mixed("62 one cut off, one in a planned reboot, given up in one line", (
        *down("-300s", "gpu02", "eth0"), "-310s ctl slurmctld: reboot request queued for nodes gpu01", "-305s ctl slurmctld: Issuing reboot request for nodes gpu01", "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu02",
        "0s ctl slurmctld: error: Nodes gpu[01-02] not responding, setting DOWN", f"100s gpu01 kernel: {BOOT}"), (ended("NODE_FAIL", nodes="gpu[02-03]"),), ((NETWORK, LINK, "gpu02"),), links=LEAF),
    mixed("63 a watchdog, at its onset storage went away and a rail blinked", (
        *lustre_lost(-640, *ROW), *down("-615s", "gpu02", "ib0", "-613s"), "-480s gpu01 kernel: INFO: task python:4242 blocked for more than 120 seconds.", f"-2s {{0}} stderr: {WATCHDOG}"), (ended(),), (STORAGE,), links=RAILS),
    mixed("64 a watchdog, at its onset an NFS server was silent and a GPU warned", (
        *(f"{-620 + i}s gpu0{i} kernel: nfs: server nfs1 not responding, still trying" for i in range(1, 7)), xid(-650, "gpu01", 63, "Row Remapper: New row marked for remapping, reset gpu to activate."), f"-2s {{0}} stderr: {WATCHDOG}"),
        (ended(),), (STORAGE,)),
    mixed("65 hot to death here, a fresh loss of a rail there", (
        "-50s gpu02 kernel: thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "-49s gpu02 systemd: Powering Off.", *down("-5s", "gpu01", "ib0"), peers(-2)), (ended(),), (("infra.node", "node.overheated", "gpu02"),), links=RAILS),
    mixed("66 a panic here, a fresh loss of a rail there", (f"-45s gpu02 kernel: {PANIC}", *down("-5s", "gpu01", "ib0"), peers(-2)), (ended(),), (("infra.node", "node.panic", "gpu02"),), links=RAILS),
    mixed("67 a rank out of memory, its peers tell, a rail was away", (*down("-70s", "gpu02", "ib0", "-35s"), *killed_for_memory(-30, "gpu01", 0), peers(-28)), (ended(end="-20s"),), (OUT_OF_MEMORY,), links=RAILS),
    mixed("68 an own error first, then lost peers, a rail lost meanwhile", (*down("-45s", "gpu02", "ib0"), "-40s {0} stderr: KeyError: 'x'", peers(-6)), (ended(),), (APP,), links=RAILS),
    mixed("69 storage goes away a minute before the time limit", (*pace(0, "gpu01", -60, 0, 0), *lustre_lost(-60, *ROW), TIMELIMIT), (ended("TIMEOUT", start="-61min"),), (TIMED_OUT,)),
    mixed("70 an NVLink error that it outlived, then a lost rail", (xid(-900, "gpu02", 74, NVLINK), *down("-50s", "gpu01", "ib0"), peers(-10)), (ended(),), (IB0,), links=RAILS),
    mixed("71 an NVLink error, and a rail blinks", (xid(-20, "gpu02", 74, NVLINK), *down("-21s", "gpu01", "ib0", "-20s"), "-18s {0} stderr: NCCL WARN NET/NVL: unhandled cuda error 'unspecified launch failure'", f"-17s {{0}} stderr: {LAUNCH_FAILURE}"),
          (ended(end="-15s"),), ((*XID_OF, "gpu02"),), links=RAILS),
    mixed("72 no space on the shared file system, a node's own disk is full", (
        "-20s gpu02 slurmd: error: write /var/spool/slurmd/cred_state.new error No space left on device", "-15s {0} stderr: OSError: [Errno 28] No space left on device: '/lustre/work/ck_9.pt'"), (ended(end="-13s"),), (("app.error|unknown|infra.storage", ANY, ANY),)),
    mixed("73 a local disk fails, the error names the shared storage that is away", (
        *lustre_lost(-300, *ROW), *evicted(-130, *ROW), *(f"-128s {line}" for line in DISK), f"-125s {{0}} stderr: {EIO}"), (ended(end="-123s"),), (STORAGE,)),
    mixed("74 shared storage is away, the error names the local disk that fails", (
        *lustre_lost(-300, *ROW), *evicted(-130, *ROW), *(f"-128s {line}" for line in DISK), "-125s {0} stderr: OSError: [Errno 5] Input/output error: '/local/scratch/x'"), (ended(end="-123s"),), (("infra.node", "node.disk_error", "gpu01"),)),
    mixed("75 after a lost node the second run is cancelled", (
        *down("-3850s", "gpu01", "eth0", "-3500s"), *node_fail("gpu01", 0, at=-3600), "-10s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={1} uid 1000"),
        (ended("NODE_FAIL", start="-2h", end="-3600s"), ended("CANCELLED", start="-3000s", end="-9s")), (ETH0, CANCELLED), links=LEAF),
    mixed("76 one node set DOWN by hand, the other just cut off", (
        *down("-60s", "gpu01", "eth0"), "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu02", *set_state(0, "gpu02", "replace nic", "DOWN")), (ended("NODE_FAIL"),), (("infra.scheduler", "slurm.admin_action", "gpu02"),), links=LEAF),
    mixed("77 one rail was away and back, another is lost", (*down("-500s", "gpu01", "ib0", "-475s"), *down("-50s", "gpu02", "ib0"), peers(-10)), (ended(),), ((NETWORK, LINK, "gpu02"),), links=RAILS),
    mixed("78 one GPU's memory, two other runs on the node", (
        "-30s gpu01 kernel: " + XID48, f"-28s {{0}} stderr: {ECC}", "-25s {1} stderr: KeyError: 'x'", xid(-10, "gpu01", 31, "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted", "0000:65:00", 777), f"-9s {{2}} stderr: {ILLEGAL}"),
        (ended(nodes="gpu01", end="-26s"), ended(nodes="gpu01", end="-24s"), ended(nodes="gpu01", end="-7s")), ((*XID_OF, "gpu01"), APP, APP)),
    mixed("79 storage waits for a minute under all, one run's GPU hangs", (
        *lustre_lost(-700, *ROW), *lustre_back(-640, *ROW), xid(-604, "gpu01", 119, "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4)."), f"-2s {{0}} stderr: {WATCHDOG}"), (ended(),), ((*XID_OF, "gpu01"),)),
    mixed("80 storage blinks after the onset, nothing at it", (*lustre_lost(-400, *ROW), *lustre_back(-380, *ROW), f"-2s {{0}} stderr: {WATCHDOG}"), (ended(),), (("unknown", None, None),)),
]  # fmt: skip
