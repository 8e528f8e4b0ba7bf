"""More traps from real clusters; each truth was written before the correlator ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from correlator.evidence.weigh import Weigher
from correlator.facts.world import World
from correlator.incidents.incidents import gather
from correlator.incidents.sentences import doubts
from tests.correlator.making import event, facts, run, world
from tests.correlator.situations import (
    EDGES,
    LINKS,
    down,
    judged,
    lost_peers,
    lustre,
    node_fail,
    one,
    out,
    said,
    set_down,
    xid,
)

KEY_ERROR = "KeyError: 'train_loss'"
GONE = out(61, "job.exit_error", "srun: error: n2: task 3: Exited with exit code 1")


@dataclass(frozen=True)
class Trap:
    """``true``: category, kind and host of the root of job 1; None if nothing of the cluster is to be blamed."""

    name: str
    make: Callable[[], World]
    true: tuple[str, str | None, str | None]


def _second_run() -> World:
    """The first run's node lost its link; the second one fails by its own bug, on the same nodes."""
    first = run(1, ["n1", "n2"], -4000, -3000, "NODE_FAIL")
    first.key = "1@first"
    lines = [*down(-3350, "n1", "eth0", -2950), *set_down(-3000, "n1"), *node_fail(-3000), *out(58, "job.exit_error", KEY_ERROR)]  # fmt: skip
    return world(lines, [first, run(1, ["n1", "n2"], -2000, 60)])


def _drained_before() -> World:
    """A health check drained the node for a link that was back at once; the run went on for ten minutes."""
    drain = [event("slurm.node_reason", -598, "ctl", "update_node: node n1 reason set to: NHC: check_hw_ib: No IB port is ACTIVE", source="slurmctld", nodes=["n1"],
                   reason="NHC: check_hw_ib: No IB port is ACTIVE"),
             event("slurm.node_drain", -598, "ctl", "update_node: node n1 state set to DRAINING", source="slurmctld", nodes=["n1"])]  # fmt: skip
    return world([*down(-600, "n1", "ib0", -595), *drain, *GONE], [one(62)])


def _named_node() -> World:
    """slurmctld names the node that it ended the run for; another node of the run had lost its link as well."""
    lines = [*down(0, "n1", "eth0", 340), event("kernel.panic", 20, "n2", "Kernel panic - not syncing: Fatal exception"),
             *set_down(350, "n2"), *node_fail(350, host="n2")]  # fmt: skip
    return world(lines, [one(350, "NODE_FAIL")])


def _neighbours_memory() -> World:
    """The kernel kills a task of another job on the node for that job's memory."""
    killed = event("kernel.oom_kill", 55, "n1", "Memory cgroup out of memory: Killed process 4242 (python)", job_id=2)
    other = run(2, ["n1"], -900, 57, "OUT_OF_MEMORY")
    return world([killed, *out(58, "job.exit_error", KEY_ERROR)], [one(60), other])


def _neighbours_port() -> World:
    """Ports of the same switch go down, of nodes that the run does not use."""
    ports = [event("switch.port_down", 0.1, "leaf-p1", f"Ethernet{i} down", source="switch", port=f"Ethernet{i}") for i in (4, 5)]  # fmt: skip
    return world([*down(0, "n4", "ib0", 300), *ports, *lost_peers(60)], [one(62)], links=LINKS)


def _hung_home() -> World:
    """A home directory hung for half a minute and was back; minutes later the program fails by itself."""
    hung = [event("storage.nfs_error", at, n, text, nfs_server="home1") for at, text in
            ((-300, "nfs: server home1 not responding, still trying"), (-270, "nfs: server home1 OK")) for n in ("n1", "n2")]  # fmt: skip
    return world([*hung, *out(58, "job.exit_error", KEY_ERROR)], [one(60)])


def _gpu_then_machine() -> World:
    """A GPU falls off its bus and the run ends; its machine is reset a moment later, and its links go."""
    lines = [*xid(0, 79), *down(12, "n1", "ib0", 400), *down(12, "n1", "eth0", 400), event("kernel.boot", 200, "n1", "Linux version 6.1")]  # fmt: skip
    return world(lines, [one(8)])


def _own_memory_beside_a_flap() -> World:
    """One rank exceeds its memory, the others lose it; another node's rail is down meanwhile."""
    killed = event("kernel.oom_kill", 30, "n2", "Memory cgroup out of memory: Killed process 77 (python)", job_id=1)
    reported = out(31, "job.oom", "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.")
    return world([*down(-20, "n1", "ib0", 90), killed, *reported, *lost_peers(33)], [one(36)])


def _rolling_update() -> World:
    """Drained, empty nodes boot one after the other; a run on another node fails by itself."""
    lines = []
    for i, host in enumerate(("n3", "n4", "n5")):
        lines += [
            event("slurm.node_drain", -900 + i, "ctl", "update_node: state set to DRAINED", source="slurmctld", nodes=[host], reason="kernel upgrade"),
            event("kernel.boot", -300 + 200.0 * i, host, "Linux version 6.1"),
        ]  # fmt: skip
    return world([*lines, *GONE], [one(62)])


def _busy_before() -> World:
    """A node answered too late once, long before its link was lost."""
    deaf = event("slurm.node_error", -1500, "ctl", "error: slurm_receive_msgs: [[n1]:6818] failed: Socket timed out on send/recv operation", source="slurmctld", nodes=["n1"])  # fmt: skip
    return world([deaf, *down(0, "n1", "eth0", 900), *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")])


def _flapper() -> World:
    """A rail that is lost for a minute repeatedly without affecting this run, which does not use it."""
    flaps = [e for n in range(5) for e in down(-1600.0 + 320 * n, "n1", "ib0", -1540.0 + 320 * n)]
    return world([*flaps, *down(0, "n1", "ib0", 60), *GONE], [one(62)])


def _refused(at: float, host: str) -> list[Any]:
    return [event("slurm.comm_error", at, "ctl", "error: Munge decode failed: Invalid credential", source="slurmctld"),
            event("slurm.comm_error", at, "ctl", f"error: slurm_unpack_received_msg: [[{host}]:35000] auth_g_verify: Unspecified error", source="slurmctld", peer=f"[{host}]:35000")]  # fmt: skip


def _refused_today() -> World:
    """Last week the controller had another key and refused all nodes; today one node has."""
    last_week = [e for i in range(1, 6) for e in _refused(-7 * 86400.0 + i, f"n{i}")]
    lines = [*last_week, *_refused(0, "n1"), *_refused(200, "n1"), *set_down(350, "n1"), *node_fail(350)]
    return world(lines, [one(350, "NODE_FAIL"), run(2, ["n3", "n4", "n5"], -900, 900, "COMPLETED")], links=LINKS)


def _stopped_today() -> World:
    """A month ago the node's clock was wrong; today an administrator stops its slurmd and forgets it."""
    expired = event("slurm.comm_error", -30 * 86400.0, "n1", "error: Munge decode failed: Expired credential", source="slurmd")  # fmt: skip
    stop = event("slurm.daemon_stop", 0, "n1", "Slurmd shutdown completing", source="slurmd")
    return world([expired, stop, *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")])


def _outlives(*, down_at: float = 350.0) -> World:
    """A job that is to outlive its nodes loses a step with one (``--no-kill``), and its script ends it."""
    reported = out(
        350.5,
        "job.node_failure",
        "slurmstepd: error: *** STEP 1.0 ON n2 CANCELLED AT 2026-02-06T16:05:50 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )
    lines = [
        *down(0, "n1", "eth0", 900),
        *set_down(down_at, "n1"),
        *reported,
        *out(351, "job.killed", "srun: error: n2: task 1: Killed"),
    ]
    return world(lines, [one(352)])


def _full_disk(path: str) -> World:
    """slurmd's spool is full on a node, and the program could not write to ``path``."""
    full = event("slurm.node_drain", -30, "ctl", "update_node: node n1 reason set to: SlurmdSpoolDir is full", source="slurmctld", nodes=["n1"])  # fmt: skip
    return world([full, *out(0, "job.exit_error", f"OSError: [Errno 28] No space left on device: '{path}'")], [one(2)])


def _other_file_system(name: str) -> World:
    """A target of fs1 is lost, and the program had an error on a Lustre file system."""
    reported = out(0, "job.exit_error", f"OSError: [Errno 5] Input/output error: '/lustre/{name}/x'")
    return world([*lustre(-100), *reported], [one(2)])


TRAPS = [
    Trap("a job that outlives its nodes", _outlives, ("infra.network", "link.outage", "n1")),
    Trap("a quota of a shared file system beside a full disk", lambda: _full_disk("/lustre/work/x"), ("app.error", None, None)),
    Trap("an error on the file system that was lost", lambda: _other_file_system("fs1"), ("infra.storage", "storage.outage", "fs1")),
    Trap("the second run's own bug, on nodes that the first one lost", _second_run, ("app.error", None, None)),
    Trap("a node that was drained for an old flap", _drained_before, ("app.error", None, None)),
    Trap("the node that slurmctld names", _named_node, ("infra.node", "node.panic", "n2")),
    Trap("memory of a neighbour on the node", _neighbours_memory, ("app.error", None, None)),
    Trap("ports of neighbours on the switch", _neighbours_port, ("unknown", None, None)),
    Trap("a home directory that was back", _hung_home, ("app.error", None, None)),
    Trap("a machine that is reset after its GPU", _gpu_then_machine, ("infra.gpu", "gpu.xid", "n1")),
    Trap("its own memory, lost peers and a flap", _own_memory_beside_a_flap, ("app.oom", None, None)),
    Trap("nodes that are updated one after the other", _rolling_update, ("app.error", None, None)),
    Trap("a late answer long before", _busy_before, ("infra.network", "link.outage", "n1")),
    Trap("a rail that this very run lost before without harm", _flapper, ("app.error", None, None)),
    Trap("a key that is wrong today, and another one last week", _refused_today, ("infra.node", "munge.failure", "n1")),
    Trap("a daemon that is stopped, a month after a wrong clock", _stopped_today, ("infra.scheduler", "slurmd.stop", "n1")),
]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.name)
def test_a_trap(trap: Trap) -> None:
    where = trap.make()
    assert said(judged(where)["1"]) == trap.true


def test_an_error_on_another_file_system_blames_no_target_of_this_one() -> None:
    verdict = judged(_other_file_system("fs2"))["1"]
    assert (verdict.root.device if verdict.root else None) != "fs1-OST0001"
    assert any("the error was on /lustre/fs2/x" in r.reason for r in verdict.rejections)


def test_what_a_full_disk_was() -> None:
    found = judged(_full_disk("/lustre/work/x"))["1"]
    assert found.category == "app.error" and any(
        "what was full was the file system of /lustre/work/x" in r.reason for r in found.rejections
    )
    assert 0.6 < found.confidence < 0.7 and "or others had" in found.reason, "all of the cluster fill that"
    assert judged(_full_disk("/tmp/x"))["1"].confidence < 0.7, "whose files filled it, nobody said"


def test_a_node_of_the_cloud_that_never_came_up_did_not_fall_silent() -> None:
    late = event("slurm.node_down", 0, "ctl", "error: node n1 not resumed by ResumeTimeout(300), setting DOWN and POWERED_DOWN",
                 source="slurmctld", nodes=["n1"], secs=300)  # fmt: skip
    where = world([late, *node_fail(0)], [run(1, ["n1", "n2"], -310, 0, "NODE_FAIL")])
    weigher = Weigher(where, EDGES)
    (incident,) = gather(where, weigher, list(judged(where).values()))
    reported = doubts(incident)
    assert incident.root.attrs["unresumed"] == "300"
    assert any("ResumeProgram" in d for d in reported) and not any("fell silent" in d for d in reported)


def test_nobody_is_blamed_for_last_weeks_key_of_the_controller() -> None:
    assert {f.host for f in facts(_refused_today(), "munge.failure")} == {"ctl", "n1"}
