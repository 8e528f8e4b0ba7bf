"""Two faults close in time, on overlapping nodes or jobs: short forms of their log lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.correlator.field import (
    ANY,
    BOOT,
    RETRY,
    Situation,
    heard,
)

#: Routine lines that occur everywhere and mean nothing.
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
        f"{at + i * 0.4}s {h} kernel: Lustre: work-OST0017-osc-ffff: Connection to work-OST0017 (at 10.0.0.5@o2ib) was lost; in progress operations using this service will wait"
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
    group = f"/slurm/uid_1001/job_{{{job}}}/step_{step}"
    return (
        f"{at}s {host} kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_{step},mems_allowed=0,"
        f"oom_memcg={group},task_memcg={group}/task_0,task=python,pid=9999,uid=1001",
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
    """A machine boots ``at``, and slurmctld notices when its slurmd registers."""
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
