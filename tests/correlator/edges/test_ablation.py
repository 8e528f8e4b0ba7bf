"""Every edge is necessary: a small situation in which it decides, and the result without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from correlator.facts.world import World
from correlator.model.measurements import NewLimit, Throttled
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import (
    EDGES,
    LINKS,
    PROBLEMS,
    disk,
    down,
    judged,
    lost_peers,
    lustre,
    node_fail,
    one,
    out,
    over_planes,
    rebooted,
    returned,
    said,
    set_down,
    slowed,
    unlaunched,
    watchdog,
    xid,
)


@dataclass(frozen=True)
class Case:
    """``make`` gives a world; with all edges job 1 is ``expected``, without ``edge`` it is something else."""

    edge: str
    make: Callable[[], World]
    expected: tuple[str, str | None, str | None]


def _hot_module(at: float) -> list[Any]:
    return [event("nic.error", at, "n1", "Port module event[error]: module 0, Cable error, High Temperature", pci="0000:17:00.0",
                  driver="mlx5_core", module_event="Cable error, High Temperature")]  # fmt: skip


def _slow_by(lines: list[Any], **more: Any) -> World:
    job = one(1600, "TIMEOUT", time_limit_s=3600)
    return world(lines, [job], **slowed(job, 2000), **more)


def _stalled(lines: list[Any], nodes: tuple[str, ...] = ("n1", "n2"), **more: Any) -> World:
    """Job 1 reports every minute until a minute before T0, and is ended by its time limit two hours later."""
    reported = [(T0 - 1980 + 60.0 * i, 2.0) for i in range(33)]
    return world(lines, [run(1, nodes, -2000, 7000, "TIMEOUT")], progress={(1, 0): reported}, **more)


def _by_daemon(
    at: float, text: str, host: str = "n1", job: int = 1, kind: str = "slurm.node_error", **more: Any
) -> Any:
    """A line in the own file of a node's slurmd or of slurmctld."""
    source = "slurmctld" if host == "ctl" else "slurmd"
    return replace(event(kind, at, host, text, source=source, job_id=job, **more), own=True)


def _stale() -> World:
    """The homes of two users are stale on n1."""
    lines = [
        _by_daemon(job, f"error: Could not open stdout file /home/{user}/x: Stale file handle", job=job)
        for job, user in ((1, "ada"), (2, "bob"))
    ]
    return world(lines, [run(job, ["n1"], 0, job, user=user, exit_signal=53) for job, user in ((1, "ada"), (2, "bob"))])


GIVEN_UP = "Could not launch job 1 and not able to requeue it, cancelling job"


def _given_up(*lines: Any, at: float = 1) -> World:
    return world([*lines, _by_daemon(at, GIVEN_UP)], [run(1, ["n1"], 0, at, "CANCELLED", cancelled_by="0")])


def _timed_out(at: float) -> Any:
    text = "error: slurm_receive_msgs: [[n1]:6818] failed: Socket timed out on send/recv operation"
    return event("slurm.comm_error", at, "ctl", text, source="slurmctld", nodes=["n1"])


def _spool() -> World:
    return _given_up(_by_daemon(0.5, "error: batch script setup failed for job 1 on n1: Read-only file system"))


def _controller_ends() -> World:
    missing = "error: Batch JobId=1 missing from batch node n1 (not found BatchStartTime after startup)"
    lines = [
        _by_daemon(10, "slurmctld version 24.05 started", "ctl", kind="slurm.daemon_start"),
        _by_daemon(60, missing, "ctl", kind="slurm.job_node_fail", nodes=["n1"]),
    ]
    return world(lines, [run(1, ["n1"], 0, 60, "NODE_FAIL")])


def _controller_forgets() -> World:
    lines = [
        _by_daemon(70, "slurmctld version 24.05 started", "ctl", kind="slurm.daemon_start"),
        _by_daemon(75, "error: Orphan StepId=1.0 reported on node n1", "ctl", nodes=["n1"]),
    ]
    return world(lines, [run(1, ["n1"], 0, 60, "CANCELLED")])


def panicked(at: float) -> Any:
    return event("kernel.panic", at, "n1", "Kernel panic - not syncing: Fatal exception")


def gone(at: float) -> Any:
    text = "Batch JobId=1 missing from batch node n1 (not found BatchStartTime after startup)"
    return event("slurm.job_node_fail", at, "ctl", text, source="slurmctld", job_id=1, nodes=["n1"])


def broken_memory(at: float) -> Any:
    return event(
        "kernel.mce",
        at,
        "n1",
        "Memory failure: 0x1d3f80: Sending SIGBUS to python3:44 due to hardware memory corruption",
    )


def too_hot(at: float) -> Any:
    return event("kernel.thermal", at, "n1", "thermal_zone0: critical temperature reached, shutting down")


def set_down_by_check(at: float, reason: str) -> list[Any]:
    return [event("slurm.node_reason", at, "ctl", f"update_node: node n1 reason set to: {reason}", source="slurmctld", nodes=["n1"], reason=reason),
            event("slurm.node_down", at + 0.001, "ctl", "update_node: node n1 state set to DOWN", source="slurmctld", nodes=["n1"], actor="admin")]  # fmt: skip


#: A run's output alone accuses no machine of a hardware fault: the edge decides whether it is mentioned at all.
UNKNOWN_USER = "KeyError: 'getpwuid(): uid not found: 20001'"

REPORTED, OF_OUTPUT = ("unknown", None, None), ("E56", "E57", "E58", "E81")

CASES = [
    Case("E03", lambda: world([*down(0, "n1", "eth0", 900), *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]),
         ("infra.network", "link.outage", "n1")),
    Case("E04", lambda: world([*down(0, "n1", "eth0", 900), *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]),
         ("infra.network", "link.outage", "n1")),
    Case("E04F", lambda: world([*down(0, "n1", "eth0", 900), *set_down(350, "n1"), *out(351, "job.node_failure", "srun: error: Node failure on n1", nodes=["n1"])],
                               [one(352)]), ("infra.network", "link.outage", "n1")),
    Case("E30", lambda: world([e for i in range(1, 5) for n in range(12) for e in [event("kernel.thermal", -120 + 20 * i + 300.0 * n, f"n{i}", "Package temperature above threshold")]],
                              [job := run(1, ["n1"], -2000, 1600, "TIMEOUT", time_limit_s=3600), *(run(i, [f"n{i}"], -9000, 9000, "COMPLETED") for i in range(2, 6))],
                              links=LINKS, **slowed(job, 2000)), ("infra.gpu", "cooling.outage", None)),
    Case("E30S", lambda: world([*(event("kernel.thermal", 30.0 * i, f"n{i}", "thermal_zone0: critical temperature reached, shutting down") for i in range(1, 5)),
                                *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")], links=LINKS), ("infra.node", "cooling.shutdown", None)),
    Case("E03S", lambda: world([*(e for i in range(2, 6) for e in down(0.1 * i, f"n{i}", "eth0", 900)), *set_down(350, "n1"), *node_fail(350)],
                               [one(350, "NODE_FAIL")], links=LINKS), ("infra.network", "switch.outage", "tor")),
    Case("E14", lambda: world([*(e for i in range(1, 6) for e in down(0.1 * i, f"n{i}", "ib0", 300)), *lost_peers(60)], [one(62)],
                              links=LINKS), ("infra.network", "switch.outage", "leaf-p1")),
    Case("E15", lambda: world([event("switch.hw_error", -0.5, "spine-p1-1", "Module 1 failed", source="switch"),
                               *(e for i in range(1, 6) for e in down(0.1 * i, f"n{i}", "ib0", 300)), *lost_peers(60)], [one(62)], links=LINKS),
         ("infra.network", "plane.outage", "spine-p1-1")),
    Case("E07", lambda: world([*down(0, "n1", "ib0", 200), *lost_peers(60)], [one(62)]), ("infra.network", "link.outage", "n1")),
    Case("E10", lambda: world([*down(0, "n1", "ib0", 200), *lost_peers(60)], [one(62)]), ("infra.network", "link.outage", "n1")),
    Case("E07R", lambda: world([*down(0, "n1", "ib0", 200), *out(61, "job.exit_error", "srun: error: n2: task 3: Aborted (core dumped)")], [one(62)]),
         ("infra.network", "link.outage", "n1")),
    Case("E07S", lambda: world([*(e for i in range(2, 6) for e in down(0.1 * i, f"n{i}", "ib0", 300)), *lost_peers(60)],
                               [one(62, nodes=("n1", "n9"))], links=LINKS), ("infra.network", "switch.outage", "leaf-p1")),
    Case("E11", lambda: world([*down(0, "n1", "ib0", 700), *watchdog(605)], [one(608)]), ("infra.network", "link.outage", "n1")),
    Case("E12", lambda: world([*down(0, "n1", "ib0", 700), *watchdog(605)], [one(1600, "TIMEOUT")]), ("infra.network", "link.outage", "n1")),
    Case("E16", lambda: _slow_by([event("fabric.link_errors", i * 120.0, "ctl", "Local Link integrity threshold reached", source="opensm",
                                        ibdev="mlx5_1", peer_node="n1") for i in range(12)]), ("infra.network", "link.errors", "n1")),
    Case("E16M", lambda: world([*_hot_module(0), *lost_peers(60)], [one(62)]), ("infra.network", "link.module_fault", "n1")),
    Case("E16P", lambda: world([*_hot_module(0), *watchdog(605)], [one(608)]), ("infra.network", "link.module_fault", "n1")),
    Case("E45H", lambda: world([*xid(0, 79), *set_down_by_check(60, "NHC: check_nv_gpu: GPU 0 lost"), *node_fail(60)], [one(60, "NODE_FAIL")]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E09", lambda: over_planes(down(0, "n1", "rdma0")), ("infra.network", "link.outage", "n1")),
    Case("E28", lambda: _slow_by([], throttling=[Throttled("n2", "00000000:9A:00.0", T0 + 60, T0 + 1590, T0 - 240, None, 9)]),
         ("infra.gpu", "gpu.thermal", "n2")),
    Case("E29", lambda: _slow_by([], throttling=[Throttled("n2", "00000000:9A:00.0", T0 + 60, T0 + 1590, T0 - 240, None, 9)]),
         ("infra.gpu", "gpu.thermal", "n2")),
    Case("E19F", lambda: world([event("gpu.fabric_error", -60, "n1", "nvidia-fabricmanager.service: Main process exited, code=killed, status=11/SEGV", source="syslog"),
                               *out(5, "job.cuda_error", "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized")],
                              [run(1, ["n1"], -5, 6)]), ("infra.gpu", "gpu.fabric_manager", "n1")),
    Case("E28L", lambda: world([event("kernel.thermal", 300.0 * n, "n1", "Package temperature above threshold") for n in range(12)],
                               [run(i, [f"n{i}"], 0, end, state, user="bob", name="work", submit_line="sbatch work.sh")
                                for i, end, state in ((1, 3600, "TIMEOUT"), (2, 900, "COMPLETED"))]), ("infra.node", "gpu.thermal", "n1")),
    Case("E43", lambda: _slow_by([e for i in range(8) for e in lustre(i * 200.0)]), ("infra.storage", "storage.outage", "fs1")),
    Case("E18", lambda: world(xid(0, 79), [one(8)]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E18U", lambda: world([*xid(0, 79), *out(98, "job.cuda_error", "RuntimeError: CUDA error: the launch timed out and was terminated")], [one(100)]),
         ("infra.gpu", "gpu.xid", "n1")),
    Case("E24", lambda: world(xid(0, 74), [one(8)]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E25", lambda: world([*xid(0, 119), *watchdog(602)], [one(605)]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E26", lambda: world([*(event("pcie.aer", i * 20.0, "n1", "AER: Corrected error received", pci="0000:3a:00.0") for i in range(8)), *xid(300, 79)],
                              [one(306)]), ("infra.gpu", "pcie.aer", "n1")),
    Case("E20", lambda: world([*xid(0, 63), *out(5, "job.cuda_error", "CUDA error: uncorrectable ECC error encountered")], [one(6)]),
         ("infra.gpu", "gpu.xid", "n1")),
    Case("E38", lambda: world([event("slurm.node_drain", -1998, "n1", "error: prolog failed: rc:1", source="slurmd", job_id=1, nodes=["n1"])],
                              [one(-1995, "REQUEUED")]), ("infra.scheduler", "prolog.failure", "n1")),
    Case("E45", lambda: world([event("slurm.node_down", 350, "ctl", "update_node: node n1 state set to DOWN", source="slurmctld", nodes=["n1"]),
                               *node_fail(350)], [one(350, "NODE_FAIL")]), ("infra.scheduler", "admin.down", "n1")),
    Case("E42", lambda: world([*lustre(0), *out(150, "job.exit_error", "OSError: [Errno 5] Input/output error: '/lustre/fs1/x'")], [one(151)]),
         ("infra.storage", "storage.outage", "fs1")),
    Case("E31", lambda: world([event("kernel.panic", 0, "n1", "Kernel panic - not syncing"), *set_down(350, "n1"), *node_fail(350)],
                              [one(350, "NODE_FAIL")]), ("infra.node", "node.panic", "n1")),
    Case("E31R", lambda: world([event("kernel.panic", 0, "n1", "Kernel panic - not syncing"),
                                event("slurm.node_reboot", 100, "ctl", "Node n1 unexpectedly rebooted", source="slurmctld", nodes=["n1"]),
                                *node_fail(100)], [one(100, "NODE_FAIL")]), ("infra.node", "node.panic", "n1")),
    Case("E32", lambda: world([event("slurm.node_reboot", 100, "ctl", "Node n1 unexpectedly rebooted", source="slurmctld", nodes=["n1"]),
                               *node_fail(100)], [one(100, "NODE_FAIL")]), ("infra.node", "node.reboot", "n1")),
    Case("E31B", lambda: world([event("kernel.boot", 100, "n1", "Linux version 6.1"), *set_down(350, "n1"), *node_fail(350)],
                               [one(350, "NODE_FAIL")]), ("infra.node", "node.reboot", "n1")),
    Case("E34S", lambda: world([event("slurm.daemon_stop", 0, "n1", "Slurmd shutdown completing", source="slurmd"), *set_down(350, "n1"), *node_fail(350)],
                               [one(350, "NODE_FAIL")]), ("infra.scheduler", "slurmd.stop", "n1")),
    Case("E03C", lambda: world([*down(0, "ctl", "eth0", 900), *set_down(350, "n1", "n2"), *node_fail(350)], [one(350, "NODE_FAIL")]),
         ("infra.network", "link.outage", "ctl")),
    Case("E31P", lambda: world([*(event("kernel.boot", 600 + i, f"n{i}", "Linux version 6.1") for i in range(1, 6)), *set_down(350, "n1"), *node_fail(350)],
                               [one(350, "NODE_FAIL")], spoke=lambda host: [T0 - 15]), ("infra.node", "power.outage", None)),
    Case("E31Q", lambda: world([*(rebooted(600 + i, f"n{i}", last_response=-20 - i) for i in range(1, 6)), *node_fail(605)],
                               [one(605, "NODE_FAIL")], spoke=lambda host: [T0 - 15]), ("infra.node", "power.outage", None)),
    Case("E31L", lambda: world([*(e for i in range(1, 6) for e in down(0.1 * i, f"n{i}", "ib0", 590)), *lost_peers(60),
                                *(event("kernel.boot", 600 + i, f"n{i}", "Linux version 6.1") for i in range(1, 6))], [one(62)], links=LINKS,
                               spoke=lambda host: [T0 - 15, T0 + 600]), ("infra.node", "power.outage", None)),
    Case("E50", lambda: world([gone(350)], [one(350, "NODE_FAIL")]), ("infra.scheduler", "batch.lost", "n1")),
    Case("E50C", lambda: world([replace(event("slurm.stepd_gone", -400, "n1", "_handle_stray_script: Purging vestigial job script /d/job00001/slurm_script",
                                              source="slurmd", job_id=1), own=True)], [one(350, "CANCELLED", cancelled_by="0")]),
         ("infra.scheduler", "batch.lost", "n1")),
    Case("E50R", lambda: world([event("kernel.boot", 100, "n1", "Linux version 6.1"), gone(350)], [one(350, "FAILED")]),
         ("infra.node", "node.reboot", "n1")),
    Case("E34", lambda: world([event("slurm.daemon_fatal", 0, "n1", "fatal: out of memory", source="slurmd"), *set_down(350, "n1"), *node_fail(350)],
                              [one(350, "NODE_FAIL")]), ("infra.scheduler", "slurmd.crash", "n1")),
    Case("E48", lambda: world([event("slurm.comm_error", 0, "n1", "error: Munge encode failed: Failed to access socket", source="slurmd"),
                               *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]), ("infra.node", "munge.failure", "n1")),
    Case("E48D", lambda: world([event("slurm.comm_error", 100, "ctl", "error: slurm_receive_msgs: failed: Socket timed out on send/recv operation",
                                      source="slurmctld", nodes=["n1"]), *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]),
         ("infra.node", "node.deaf", "n1")),
    Case("E37", lambda: world([*disk(0), *out(8, "job.exit_error", "OSError: [Errno 5] Input/output error: '/local/x'")], [one(9)]),
         ("infra.node", "disk.error", "n1")),
    Case("E37K", lambda: world([*disk(0, read_only=True), *out(8, "job.exit_error", "srun: error: n1: task 0: Killed")], [one(9)]),
         ("infra.node", "disk.error", "n1")),
    Case("E37F", lambda: world([event("slurm.node_drain", -1999, "n1", "error: SlurmdSpoolDir is full: No space left on device", source="slurmd",
                                      nodes=["n1"])], [one(-1996, "CANCELLED", cancelled_by="0")]), ("infra.node", "disk.full", "n1")),
    Case("E51", lambda: returned(node_fail(350)), ("infra.network", "link.outage", "n1")),
    Case("E52", lambda: returned(node_fail(350)), ("infra.network", "link.outage", "n1")),
    Case("E53F", lambda: world(down(-60, "n1", "eth0", 900), [run(1, ["n1", "n2"], -20, 0)]), ("infra.network", "link.outage", "n1")),
    Case("E62", lambda: _stalled(down(-20, "n1", "ib0")), ("infra.network", "link.outage", "n1")),
    Case("E62S", lambda: _stalled([e for i in range(2, 6) for e in down(-20 + i / 10, f"n{i}", "ib0")], ("n1", "n9"), links=LINKS),
         ("infra.network", "switch.outage", "leaf-p1")),
    Case("E63", lambda: _stalled(xid(-20, 74)), ("infra.gpu", "gpu.xid", "n1")),
    Case("E64", lambda: _stalled([e for i in range(40) for e in lustre(-20 + i * 200.0)]), ("infra.storage", "storage.outage", "fs1")),
    Case("E64W", lambda: world([*lustre(0), *watchdog(640)], [one(642)]), ("infra.storage", "storage.outage", "fs1")),
    Case("E39", lambda: world([*down(0, "n1", "ib0", 100), *lustre(12, ("n1",)), *out(30, "job.exit_error", "OSError: [Errno 5] Input/output error: '/lustre/fs1/x'")],
                              [one(31, nodes=("n1",))]), ("infra.network", "link.outage", "n1")),
    Case("E65", lambda: _stalled(xid(-20, 74)), ("infra.gpu", "gpu.xid", "n1")),
    Case("E66", lambda: world([panicked(0), *lost_peers(45)], [one(50)]), ("infra.node", "node.panic", "n1")),
    Case("E66R", lambda: world([event("kernel.boot", 200, "n1", "Linux version 6.1"), *lost_peers(45)], [one(50)], spoke=lambda host: [T0 - 200]),
         ("infra.node", "node.reboot", "n1")),
    Case("E66W", lambda: world([panicked(0)], [one(50)]), ("infra.node", "node.panic", "n1")),
    Case("E53", lambda: world([*down(-60, "n1", "eth0", 900), *unlaunched(-50, "Communication connection failure")], [run(1, ["n1", "n2"], -400, -45)]),
         ("infra.network", "link.outage", "n1")),
    Case("E54", lambda: world([event("slurm.daemon_fatal", -60, "n1", "fatal: slurmd: out of memory", source="slurmd"),
                               *unlaunched(-50, "Connection refused")], [run(1, ["n1", "n2"], -55, -45)]), ("infra.scheduler", "slurmd.crash", "n1")),
    Case("E55", lambda: world([event("slurm.comm_error", -48, "n1", "error: Munge decode failed: Failed to connect to munge.socket.2", source="slurmd"),
                               *unlaunched(-50, "Protocol authentication error")], [run(1, ["n1", "n2"], -55, -45)]), ("infra.node", "munge.failure", "n1")),
    Case("E31A", lambda: world([*set_down(350, "n1"), *node_fail(350), rebooted(900, "n1", last_response=-40)], [one(350, "NODE_FAIL")],
                               spoke=lambda host: [T0 - 30, T0 + 895]), ("infra.node", "node.reboot", "n1")),
    Case("E31D", lambda: world([event("fabric.sm_event", 0, "ctl", "Removed port", source="opensm", ibdev="ib0", peer_node="n1", verb="Removed"),
                                *lost_peers(60), *out(300, "job.step_terminated", "srun: Terminating")], [one(300)], spoke=lambda host: [T0 - 30]),
         ("infra.node", "node.dead", "n1")),
    Case("E31N", lambda: world([event("fabric.sm_event", 0, "ctl", "Removed port", source="opensm", ibdev="ib0", peer_node="n1", verb="Removed"),
                                *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")], spoke=lambda host: [T0 - 30]),
         ("infra.node", "node.dead", "n1")),
    Case("E14D", lambda: world([*set_down(350, "n1", "n2", "n3", "n4"), *node_fail(350)], [one(350, "NODE_FAIL")]), ("infra.network", "switch.silent", None)),
    Case("E56", lambda: world([*out(5, "job.cuda_error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
                               *out(6, "job.exit_error", "srun: error: n2: task 4: Exited with exit code 1", nodes=["n2"], task=4)], [one(7)]),
         REPORTED),
    Case("E57", lambda: world(out(5, "job.exit_error", "OSError: [Errno 5] Input/output error: '/lustre/fs2/u/x.pt'"), [one(7)]),
         REPORTED),
    Case("E59", lambda: world([broken_memory(0), *out(1, "job.bus_error", "srun: error: n1: task 0: Bus error (core dumped)")], [one(2)]),
         ("infra.node", "memory.error", "n1")),
    Case("E60", lambda: world([broken_memory(0), event("kernel.panic", 1, "n1", "Kernel panic - not syncing: Fatal machine check"),
                               *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]), ("infra.node", "memory.error", "n1")),
    Case("E61", lambda: world([too_hot(0), *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]), ("infra.node", "node.overheated", "n1")),
    Case("E61B", lambda: world([too_hot(0), event("kernel.boot", 100, "n1", "Linux version 6.1"),
                                event("slurm.node_reboot", 110, "ctl", "Node n1 unexpectedly rebooted", source="slurmctld", nodes=["n1"]),
                                *node_fail(110)], [one(110, "NODE_FAIL")]), ("infra.node", "node.overheated", "n1")),
    Case("E61L", lambda: world([too_hot(-3), *down(0, "n1", "ib0", 400), *lost_peers(60)], [one(62)]), ("infra.node", "node.overheated", "n1")),
    Case("E63T", lambda: world([*xid(-4000, 119), event("slurm.kill_task_failed", 60, "n1", "*** STEP 1.0 STEPD TERMINATED ON n1 AT x DUE TO JOB NOT ENDING WITH SIGNALS ***",
                                                        source="slurmd", job_id=1, nodes=["n1"])], [run(1, ["n1"], -9000, 0, "TIMEOUT", time_limit_s=9000)]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E18D", lambda: world([*xid(0, 79), event("slurm.node_reason", 40, "ctl", "update_node", source="slurmctld", nodes=["n1"], reason="gpu 3 lost"),
                                event("slurm.node_drain", 40, "ctl", "update_node: node n1 state set to DRAINING", source="slurmctld", nodes=["n1"])],
                               [one(60, "CANCELLED", cancelled_by="0", uid="1000")]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E26R", lambda: world([*xid(0, 79), event("slurm.node_reboot", 100, "ctl", "Node n1 unexpectedly rebooted", source="slurmctld", nodes=["n1"]),
                                *node_fail(100)], [one(100, "NODE_FAIL")]), ("infra.gpu", "gpu.xid", "n1")),
    Case("E58", lambda: world(out(5, "job.exit_error", "OSError: [Errno 30] Read-only file system: '/local/1/x.pt'"), [one(7, nodes=("n1",))]),
         REPORTED),
    Case("E45C", lambda: world([event("slurm.config_removed", 0, "ctl", "error: Invalid partition (urgent) for JobId=1", source="slurmctld", job_id=1,
                                      partition="urgent")], [one(0, "NODE_FAIL", nodes=("n1",))]), ("infra.scheduler", "config.removed", "ctl")),
    # Half a day, of which the file server is away from the second hour to the limit.
    Case("E64T", lambda: world([event("storage.nfs_error", -36_000, "n1", "nfs: server nas1 not responding, still trying", nfs_server="nas1")],
                               [run(1, ["n1"], -43_200, 0, "TIMEOUT", time_limit_s=43_200)]), ("infra.storage", "storage.outage", "nas1")),
    Case("E45L", lambda: world([], [run(1, ["n1"], -2000, 0, "TIMEOUT", time_limit_s=600, submit_line="sbatch --time=60 x.sh", uid="1000")],
                               new_limits=lambda jobs, since, until: {1: [NewLimit(T0 - 30, 600.0, "0")]}), ("infra.scheduler", "limit.shortened", None)),
    Case("E36G", lambda: world([
        event("sys.memory_low", -1, "n1", "mem avail:   131 of  3950 MiB ( 3.32%)", source="syslog", avail_mib="131", total_mib="3950"),
        event("sys.guard_kill", -1, "n1", "sending SIGKILL to process 42 uid 1000", source="syslog", uid=1000, process="a.out", rss_mib="402"),
        event("slurm.job_failed", -1, "n1", "get_exit_code task 0 died by signal: 9", source="slurmd", job_id=1, signal=9)],
        [one(0, nodes=("n1",), exit_code=137)]), ("infra.node", "memory.guard", "n1")),
    Case("E36T", lambda: world([
        replace(event("slurm.memory_limit", -600, "n1", "job: alloc=900MB mem.limit=900MB", source="slurmstepd", job_id=1, alloc_mib="900", limit_mib="900"), own=True),
        event("kernel.oom_kill", -1, "n1", "oom-kill:constraint=CONSTRAINT_NONE", source="kernel", job_id=1, constraint="CONSTRAINT_NONE", pid=42, process="a.out"),
        event("kernel.oom_kill", -1, "n1", "Out of memory: Killed process 42 (a.out) total-vm:9kB, anon-rss:204800kB, file-rss:0kB", source="kernel", pid=42)],
        [one(0, "OUT_OF_MEMORY", nodes=("n1",))]), ("infra.node", "memory.taken", "n1")),
    Case("E36L", lambda: world([
        replace(event("slurm.memory_limit", -600, "n1", "job: alloc=900MB mem.limit=90MB", source="slurmstepd", job_id=1, alloc_mib="900", limit_mib="90"), own=True),
        replace(event("slurm.memory_limit", -600, "n2", "job: alloc=900MB mem.limit=900MB", source="slurmstepd", job_id=2, alloc_mib="900", limit_mib="900"), own=True),
        replace(event("slurm.job_oom", -1, "n1", "error: Detected 1 oom_kill event in StepId=1.0.", source="slurmstepd", job_id=1), own=True)],
        [one(0, "OUT_OF_MEMORY", nodes=("n1",))]), ("infra.node", "memory.limited", "n1")),
    Case("E80", lambda: world([*out(-1, "job.exit_error", UNKNOWN_USER), *out(0, "job.exit_error", UNKNOWN_USER, job=2)],
                              [run(1, ["n1"], -9, 0, user="a"), run(2, ["n1"], -9, 1, user="b"), run(3, ["n2"], -9, 1, "COMPLETED", user="a")]),
         ("infra.node", "node.environment", "n1")),
    Case("E81", lambda: world(out(-1, "job.exit_error", UNKNOWN_USER), [run(1, ["n1"], -9, 0, user="a")]), REPORTED),
    *(Case(edge, _stale, ("infra.node", "mount.failure", "n1")) for edge in ("E70", "E71")),
    *(Case(edge, _spool, ("infra.node", "spool.failure", "n1")) for edge in ("E72", "E73")),
    Case("E79", lambda: world([_by_daemon(-29, "error: job_manager: exiting abnormally: Plugin initialization failed")], [run(1, ["n1", "n2"], -30, 0)]),
         ("infra.node", "plugin.failure", "n1")),
    Case("E74", lambda: _given_up(_timed_out(10), at=120), ("infra.node", "node.deaf", "n1")),
    Case("E50B", lambda: world([event("kernel.boot", -500, "n1", "Linux version 6.1")], [one(60, "CANCELLED", cancelled_by="0")]), ("infra.node", "node.reboot", "n1")),
    Case("E50F", _controller_forgets, ("infra.scheduler", "jobs.forgotten", "ctl")),
    Case("E75", _controller_ends, ("infra.scheduler", "launch.lost", "ctl")),
    Case("E76", lambda: world([_timed_out(2), *unlaunched(5, "Socket timed out on send/recv operation")], [run(1, ["n1", "n2"], -20, 5)]),
         ("infra.node", "node.deaf", "n1")),
]  # fmt: skip

#: Edges that take blame away: with them job 1 is ``expected``, without them an innocent cause is blamed.
BLOCKING = [
    Case("E33", lambda: world([*down(0, "n1", "ib0", 400), event("kernel.boot", 100, "n1", "Linux version 6.1"), *lost_peers(60)], [one(62)]),
         ("unknown", None, None)),
    Case("E33X", lambda: world([event("kernel.boot", 0, "n1", "Linux version 6.1"), *xid(20, 79)], [run(1, ["n1", "n2"], 15, 40)]),
         ("app.error", None, None)),
    Case("E44", lambda: world([event("slurm.daemon_start", 95, "ctl", "slurmctld version 24.05 started", source="slurmctld"),
                               event("slurm.comm_error", 100, "ctl", "error: slurm_receive_msgs: Socket timed out on send/recv operation",
                                     source="slurmctld", nodes=["n1"]), *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]),
         ("infra.node", "node.down", "n1")),
    Case("E23", lambda: world([event("slurm.node_drain", -900, "ctl", "update_node: node n1 reason set to: maintenance", source="slurmctld", nodes=["n1"],
                                     reason="maintenance"),
                               event("slurm.node_down", 350, "ctl", "update_node: node n1 state set to DOWN", source="slurmctld", nodes=["n1"]),
                               *node_fail(350)], [run(1, ["n1", "n2"], 349.5, 350, "NODE_FAIL")]), ("unknown", None, None)),
]  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *BLOCKING], ids=lambda c: c.edge)
def test_the_edge_decides(case: Case) -> None:
    where = case.make()
    verdict = judged(where)["1"]
    without = judged(where, without=case.edge)["1"]
    if case.edge in OF_OUTPUT:
        assert said(verdict) == REPORTED and verdict.reason.startswith("the program reports"), verdict.reason
        assert not without.reason.startswith("the program reports")
        return
    assert said(verdict) == case.expected, verdict.reason
    assert said(without) != case.expected


def test_every_edge_has_its_case() -> None:
    assert not PROBLEMS
    assert {e.id for e in EDGES} == {c.edge for c in [*CASES, *BLOCKING]}
