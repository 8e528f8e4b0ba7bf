"""Events beside a fault: the program's own errors, other jobs' failures, people's actions."""

from __future__ import annotations

import pytest

from tests.correlator.field import (
    ANY,
    APP,
    BOOT,
    ECC,
    ETH0,
    KEY_ERROR,
    KILLED,
    LEAF,
    NETWORK,
    RAILS,
    RETRY,
    SET_DOWN,
    UNKNOWN,
    WATCHDOG,
    XID48,
    InOneStore,
    Situation,
    down,
    ended,
    heard,
    wrong,
)

SITUATIONS = [
    heard(
        "NVSwitch fatal error",
        (
            "-20s gpu01 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error",
            "-19s gpu01 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Severity 1 Engine instance 32 Sub-engine instance 00",
            "-2s {0} stderr: RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        ),
        (ended(),),
        (("infra.gpu|unknown", ANY, ANY),),
    ),
    heard(
        "NVSwitch fatal error with Xid 74",
        (
            "-20s gpu01 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error",
            "-19s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 74, pid=4242, name=python, NVLink: fatal error detected on link 2(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            "-2s {0} stderr: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        ),
        (ended(),),
        (("infra.gpu", ANY, "gpu01"),),
    ),
    heard(
        "fabric manager is not running",
        (
            "-400s gpu01 systemd: nvidia-fabricmanager.service: Main process exited, code=exited, status=1/FAILURE",
            "-400s gpu01 systemd: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
            "-2s {0} stderr: RuntimeError: CUDA error: system not yet initialized",
        ),
        (ended(nodes="gpu01", start="-20s"),),
        (("infra.gpu|infra.node|unknown", ANY, ANY),),
    ),
    heard(
        "client evicted on one node",
        (
            *tuple(
                f"-{200 - i}s gpu0{i} kernel: Lustre: work-OST0017-osc-ffff: Connection to work-OST0017 (at 10.0.0.5@o2ib) was lost; in progress operations using this service will wait"
                for i in (1, 2, 3)
            ),
            "-20s gpu02 kernel: LustreError: 167-0: work-OST0017-osc-ffff: This client was evicted by work-OST0017; in progress operations using this service will fail.",
            "-15s {0} stderr: OSError: [Errno 5] Input/output error: '/lustre/work/u/x.pt'",
        ),
        (ended(end="-12s"),),
        (("infra.storage", "storage.outage", ANY),),
    ),
    heard(
        "soft lockup that recovers, own error later",
        ("-600s gpu01 kernel: watchdog: BUG: soft lockup - CPU#13 stuck for 23s! [kworker/13:1:512]", KEY_ERROR),
        (ended(),),
        (APP,),
    ),
    heard(
        "soft lockup that recovers, exit code only",
        (
            "-600s gpu01 kernel: watchdog: BUG: soft lockup - CPU#13 stuck for 23s! [kworker/13:1:512]",
            "-1s {0} stderr: srun: error: gpu01: task 0: Exited with exit code 1",
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "array fails by a bug of its user while one node's rail is away",
        (
            *down("-60s", "gpu01", "ib0", "90s"),
            *(f"-1s {{{n}}} stderr: srun: error: gpu0{n + 1}: task 0: Exited with exit code 1" for n in range(4)),
        ),
        tuple(ended(nodes=f"gpu0{n + 1}") for n in range(4)),
        (APP,) * 4,
        links=RAILS,
    ),
    heard(
        "two jobs on a node, one GPU breaks",
        ("-30s gpu01 kernel: " + XID48, "-28s {0} stderr: " + ECC),
        (ended(nodes="gpu01", end="-25s"), ended("COMPLETED", nodes="gpu01", end="1h")),
        (("infra.gpu", "gpu.xid|gpu.ecc", "gpu01"), None),
    ),
    heard(
        "two jobs on a node, one GPU breaks, the other has a bug",
        (
            "-30s gpu01 kernel: " + XID48,
            "-28s {0} stderr: " + ECC,
            "-27s {1} stderr: ValueError: too many values to unpack",
        ),
        (ended(nodes="gpu01", end="-25s"), ended(nodes="gpu01", end="-26s")),
        (("infra.gpu", "gpu.xid|gpu.ecc", "gpu01"), APP),
    ),
    heard(
        "epilog fails after the own end",
        (
            KEY_ERROR,
            "2s ctl slurmctld: error: job_epilog_complete: JobId={0} epilog error on gpu01, draining the node",
            "2s ctl slurmctld: drain_nodes: node gpu01 state set to DRAIN",
        ),
        (ended(),),
        (APP,),
    ),
    heard(
        "switch upgraded, ports go one by one for 90 s",
        (
            *(x for i in range(1, 7) for x in down(f"-{400 - 10 * i}s", f"gpu0{i}", "eth0", f"-{310 - 10 * i}s")),
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
        links=LEAF,
    ),
    heard(
        "a switch dies, one node had panicked before",
        (
            "-430s gpu01 kernel: Kernel panic - not syncing: Fatal exception",
            *(x for i in range(2, 7) for x in down(f"-250.{i}s", f"gpu0{i}", "eth0")),
            "-30s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "-30s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN",
            "-0.01s ctl slurmctld: Killing JobId={1} on failed node gpu03",
            "0s ctl slurmctld: error: Nodes gpu[02-06] not responding, setting DOWN",
        ),
        (ended("NODE_FAIL", nodes="gpu01", end="-30s"), ended("NODE_FAIL", nodes="gpu[03-04]")),
        (("infra.node", "node.panic", "gpu01"), (NETWORK, "switch.failure", "tor1")),
        links=LEAF,
    ),
    heard(
        "kdump tells of a panic",
        (
            f"-100s gpu01 kernel: {BOOT}",
            "-90s gpu01 kdump: saving vmcore complete",
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: validate_node_specs: Node gpu01 unexpectedly rebooted boot_time=1772531900 last response=1772531800",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.reboot|node.panic", "gpu01"),),
    ),
    heard(
        "requeued by its user during a flap",
        (
            *down("-20s", "gpu01", "ib0", "20s"),
            "-3600s ctl slurmctld: sched: Allocate JobId={0} NodeList=gpu[01-02] #CPUs=8 Partition=gpu",
            "-0.01s ctl slurmctld: Requeuing JobId={0}",
        ),
        (ended("REQUEUED"),),
        (("user.cancel", None, None),),
    ),
    heard(
        "mlx5 health failure on the rail",
        (
            "-60s gpu02 kernel: mlx5_core 0000:5d:00.0: poll_health:818:(pid 0): Fatal error 1 detected",
            "-60s gpu02 kernel: mlx5_core 0000:5d:00.0: print_health_info:425: assert_var[0] 0x1, severity 3",
            "-59s gpu02 kernel: mlx5_core 0000:5d:00.0 ib0: Link down",
            "-2s {0} stderr: " + RETRY,
        ),
        (ended(),),
        ((NETWORK, "nic.link_down|nic.link_flap|nic.error", "gpu02"),),
        links=RAILS,
    ),
    heard(
        "watchdog with a flap elsewhere at its onset",
        (*down("-602s", "gpu05", "ib0", "-570s"), "-1s {0} stderr: " + WATCHDOG),
        (ended(),),
        (UNKNOWN,),
        links=RAILS,
    ),
    heard(
        "controller away for 20 minutes, own error",
        (
            "-1500s ctl slurmctld: Terminate signal SIGTERM received",
            "-300s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue",
            "-900s gpu01 slurmd: error: Unable to contact slurm controller (connect failure)",
            KEY_ERROR,
        ),
        (ended(),),
        (APP,),
        ("node.unresponsive", "slurm.slurmd_crash"),
    ),
    heard(
        "a rank out of memory, its peers lose it",
        (
            "-5s {0} stderr: slurmstepd: error: Detected 1 oom_kill event in StepId={0}.0. Some of the step tasks have been OOM Killed.",
            "-4s {0} stderr: NCCL WARN socketProgress: Connection closed by remote peer gpu01<50000>",
            *down("-30s", "gpu02", "ib0", "-10s"),
        ),
        (ended(),),
        (("app.oom", None, None),),
        links=RAILS,
    ),
    heard(
        "requeued after a lost link, then an error of its own",
        (
            *down("-1250s", "gpu01", "eth0", "-700s"),
            "-1000.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "-1000s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN",
            "-1s {1} stderr: FileNotFoundError: [Errno 2] No such file or directory: 'ckpt/latest.pt'",
        ),
        (ended("NODE_FAIL", end="-1000s"), ended(nodes="gpu[03-04]", start="-500s")),
        (ETH0, APP),
    ),
    heard(
        "rack power, told by slurmctld only",
        (
            "-0.01s ctl slurmctld: Killing JobId={0} on failed node gpu02",
            "0s ctl slurmctld: error: Nodes gpu[01-06] not responding, setting DOWN",
            *(
                f"{600 + i}s ctl slurmctld: validate_node_specs: Node gpu0{i} unexpectedly rebooted boot_time={1772532000 + 560 + i} last response={1772532000 - 300}"
                for i in range(1, 7)
            ),
        ),
        (ended("NODE_FAIL", nodes="gpu[02-03]"),),
        (("infra.node", "node.power|node.reboot", ANY),),
        links=LEAF,
    ),
    heard(
        "uncorrectable memory, machine check, reboot",
        (
            "-60s gpu01 kernel: mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000010090",
            "-60s gpu01 kernel: Kernel panic - not syncing: Fatal machine check",
            f"-20s gpu01 kernel: {BOOT}",
            "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: validate_node_specs: Node gpu01 unexpectedly rebooted boot_time=1772531980 last response=1772531930",
        ),
        (ended("NODE_FAIL"),),
        (("infra.node", "node.panic|node.memory_error", "gpu01"),),
    ),
    heard(
        "stale handle of one run",
        (
            "-400s gpu01 kernel: nfs: server nfs1 not responding, still trying",
            "-380s gpu01 kernel: nfs: server nfs1 OK",
            "-1s {0} stderr: OSError: [Errno 116] Stale file handle: '/home/u/data.idx'",
        ),
        (ended(nodes="gpu01"),),
        (("infra.storage|unknown", ANY, ANY),),
    ),
    heard(
        "node expelled from GPFS",
        (
            "-60s gpu01 mmfs: [E] This node was expelled from the cluster gpfs1.site. Reason: lease overdue",
            "-2s {0} stderr: OSError: [Errno 116] Stale file handle: '/gpfs/work/u/x'",
        ),
        (ended(nodes="gpu01"),),
        (("infra.storage|unknown", ANY, ANY),),
    ),
    heard(
        "container image missing",
        (
            "-2s {0} stderr: slurmstepd: error: pyxis: failed to import docker image",
            "-1s {0} stderr: slurmstepd: error: pyxis: [ERROR] URL https://registry-1.docker.io/v2/u/train/manifests/12 returned error code: 404 Not Found",
        ),
        (ended(start="-5s"),),
        (("app.error|unknown", None, None),),
    ),
    heard(
        "slurmd of one node crashes, rails fine",
        (
            "-250s gpu01 kernel: slurmd[812]: segfault at 0 ip 00007f sp 00007f error 4 in libslurmfull.so[7f+1]",
            SET_DOWN,
            KILLED,
            *down("-100s", "gpu02", "ib0", "-70s"),
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler", "slurm.slurmd_crash", "gpu01"),),
        links=RAILS,
    ),
    heard(
        "a deadline",
        ("-0.5s ctl slurmctld: JobId={0} deadline reached",),
        (ended("DEADLINE"),),
        (("app.timeout|user.cancel", None, None),),
    ),
    heard(
        "cancelled by its administrator with a sick GPU",
        ("-600s gpu01 kernel: " + XID48, "-1s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={0} uid 0"),
        (ended("CANCELLED"),),
        (("user.cancel", None, None),),
    ),
    heard(
        "two nodes of a job lose links within a minute: the first counts",
        (
            *down("-300s", "gpu01", "eth0"),
            *down("-240s", "gpu02", "eth0"),
            SET_DOWN,
            KILLED,
            "100s ctl slurmctld: error: Nodes gpu02 not responding, setting DOWN",
        ),
        (ended("NODE_FAIL"),),
        (ETH0,),
    ),
    heard(
        "IB link errors, no loss, peers lost",
        (
            *(
                f"-{300 - 20 * i}s gpu02 kernel: mlx5_core 0000:5d:00.0 ib0: symbol errors exceeded threshold"
                for i in range(5)
            ),
            "-2s {0} stderr: " + RETRY,
        ),
        (ended(),),
        (("unknown|infra.network", ANY, ANY),),
        at_most=0.96,
    ),
    heard(
        "BMC says power supply lost redundancy, own error",
        ("-300s gpu01 ipmievd: Power Supply sensor PSU2 Status - Failure detected", KEY_ERROR),
        (ended(),),
        (APP,),
    ),
    heard(
        "a node is set DOWN by hand while its rail flaps",
        (
            *down("-30s", "gpu01", "ib0", "-20s"),
            "-0.02s ctl slurmctld: update_node: node gpu01 reason set to: swap cable",
            "-0.01s ctl slurmctld: Killing JobId={0} on failed node gpu01",
            "0s ctl slurmctld: update_node: node gpu01 state set to DOWN",
        ),
        (ended("NODE_FAIL"),),
        (("infra.scheduler|infra.network", "slurm.admin_action", "gpu01"),),
        links=RAILS,
    ),
    heard(
        "hung: the other job's watchdog, GSP timeout on one node",
        (
            "-605s gpu02 kernel: NVRM: Xid (PCI:0000:17:00): 119, pid=4242, name=python, Timeout after 45s of waiting for RPC response from GPU0 GSP!",
            "-3s {0} stderr: " + WATCHDOG,
            *down("-20s", "gpu01", "ib2", "-18s"),
        ),
        (ended(),),
        (("infra.gpu", "gpu.xid", "gpu02"),),
        links=RAILS,
    ),
    heard(
        "whole-cluster clock of accounting a second early",
        (
            *down("-250s", "gpu01", "eth0"),
            "0.8s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN",
            "0.799s ctl slurmctld: Killing JobId={0} on failed node gpu01",
        ),
        (ended("NODE_FAIL"),),
        (ETH0,),
    ),
]


ALL = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *ALL[situation.name]) == []
