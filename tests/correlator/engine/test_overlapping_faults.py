"""Faults that overlap, hide or look like another one, reduced from runs of a real cluster (tests/cluster/entangled.py)."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.edges import load as edge_files
from correlator.evidence.weigh import Weigher
from correlator.facts.registry import title_of
from correlator.facts.world import World
from correlator.incidents.incidents import gather
from correlator.incidents.sentences import title
from correlator.verdicts.judge import judge
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import (
    down,
    judged,
    lost_peers,
    node_fail,
    one,
    out,
    rebooted,
    said,
    set_down,
)

GIVEN_UP = [*set_down(350, "n1"), *node_fail(350)]


def spoke(*moments: float) -> Any:
    return lambda host: [T0 + m for m in moments] if host == "n1" else []


def incidents(where: World) -> list[Any]:
    weigher = Weigher(where, edge_files.load()[0])
    return gather(where, weigher, judge(where, weigher))


def test_power_lost_longer_than_slurmd_timeout_is_reported_by_the_boot() -> None:
    """Both ends of the link log the loss; the machine was off, and booted only after it had been given up."""
    where = world([*down(0, "n1", "eth0", 890), *GIVEN_UP, rebooted(900, "n1", -40)], [one(350, "NODE_FAIL")], spoke=spoke(-30, 895))  # fmt: skip
    assert said(judged(where)["1"]) == ("infra.node", "node.reboot", "n1")


def test_a_machine_that_wrote_on_was_booted_to_mend_it() -> None:
    """An operator who boots a node whose link is lost is not the cause of the loss."""
    where = world([*down(0, "n1", "eth0", 890), *GIVEN_UP, rebooted(900, "n1", -40)], [one(350, "NODE_FAIL")], spoke=spoke(-30, 200, 500, 895))  # fmt: skip
    assert said(judged(where)["1"]) == ("infra.network", "link.outage", "n1")


def test_a_node_that_fell_silent_to_slurm_only_was_not_rebooted_by_that() -> None:
    where = world([*GIVEN_UP, rebooted(900, "n1", -40)], [one(350, "NODE_FAIL")], spoke=spoke(-30, 600))
    verdict = judged(where)["1"]
    assert said(verdict) == ("infra.node", "node.down", "n1")
    assert any("still wrote 250 s after it was set DOWN" in r.reason for r in verdict.rejections)


def refused(at: float, reader: str, peer: str, how: str) -> list[Any]:
    """What a daemon logs when munge rejects a message's credential."""
    source = "slurmctld" if reader == "ctl" else "slurmd"
    return [
        event("slurm.comm_error", at, reader, f"error: Munge decode failed: {how} credential", source=source),
        event("slurm.comm_error", at, reader, f"error: slurm_unpack_received_msg: [[{peer}]:38280] Protocol authentication error", source=source,
              peer=f"[{peer}]:38280"),
    ]  # fmt: skip


@pytest.mark.parametrize(("how", "words"), [
    ("Invalid", "munge of n1 had another key than the cluster's"),
    ("Rewound", "the clock of n1 was ahead by more than munge allows"),
    ("Expired", "the clock of n1 was behind by more than munge allows"),
])  # fmt: skip
def test_a_refused_credential_is_the_fault_of_the_odd_one_out(how: str, words: str) -> None:
    """Controller and node refuse each other; the controller works with all others, so it is the node."""
    other = {"Invalid": "Invalid", "Rewound": "Expired", "Expired": "Rewound"}[how]
    lines = [e for at in range(0, 300, 100) for e in (*refused(at, "ctl", "n1", how), *refused(at + 1, "n1", "ctl", other))]  # fmt: skip
    where = world([*lines, *GIVEN_UP], [one(350, "NODE_FAIL", nodes=("n1", "n2", "n3"))])
    verdict = judged(where)["1"]
    assert said(verdict) == ("infra.node", "munge.failure", "n1")
    assert title_of(verdict.root) == words
    assert [f.host for f in where.facts_of("munge.failure")] == ["n1"]


def test_a_controller_that_refuses_every_node_has_the_wrong_key_itself() -> None:
    lines = [e for i, n in enumerate(("n1", "n2", "n3")) for e in refused(i, "ctl", n, "Invalid")]
    where = world([*lines, *GIVEN_UP], [one(350, "NODE_FAIL", nodes=("n1", "n2", "n3"))])
    assert {f.host for f in where.facts_of("munge.failure")} == {"ctl"}


@pytest.mark.parametrize(("both", "words"), [(True, "timed out on each other"), (False, "did not answer")])
def test_packets_lost_are_reported_from_a_hanging_slurmd_by_its_own_wait(both: bool, words: str) -> None:
    text = "error: slurm_receive_msgs: [[n1]:6818] failed: Socket timed out on send/recv operation"
    lines = [event("slurm.comm_error", 330, "ctl", text, source="slurmctld", nodes=["n1"]), *GIVEN_UP]
    if both:
        text = "error: slurm_receive_msg_and_forward: [[ctl]:50714] failed: Socket timed out on send/recv operation"
        lines.append(event("slurm.comm_error", 331, "n1", text, source="slurmd"))
    verdict = judged(world(lines, [one(350, "NODE_FAIL")]))["1"]
    assert said(verdict) == ("infra.node", "node.deaf", "n1") and words in title_of(verdict.root)


def test_two_nodes_cut_off_at_once_are_both_reported() -> None:
    """slurmctld names one node as the one that ended the job; the other one was set DOWN as well, which is significant."""
    lines = [*down(0, "n1", "eth0", 900), *down(0.1, "n2", "eth0", 900), *set_down(350, "n1", "n2"), *node_fail(350)]
    where = world(lines, [one(350, "NODE_FAIL", nodes=("n1", "n2", "n3"))])
    found = {i.root.host: i for i in incidents(where)}
    assert {i.severity for i in found.values()} == {"impact", "degraded"}
    (beside,) = [i for i in found.values() if i.severity == "degraded"]
    assert "Slurm set" in title(where, beside) and "No job was hurt" not in title(where, beside)


def test_a_node_lost_without_slurmctlds_log() -> None:
    """Accounting alone says NODE_FAIL: the only node of a run, or the one on which something happened."""
    lines = down(0, "n1", "eth0", 900)
    assert said(judged(world(lines, [one(350, "NODE_FAIL", nodes=("n1",))]))["1"]) == ("infra.network", "link.outage", "n1")  # fmt: skip
    assert said(judged(world(lines, [one(350, "NODE_FAIL", nodes=("n1", "n2"))]))["1"]) == ("infra.network", "link.outage", "n1")  # fmt: skip
    nowhere = judged(world([], [one(350, "NODE_FAIL", nodes=("n1", "n2"))]))["1"]
    assert (nowhere.category, nowhere.root) == (
        "unknown",
        None,
    )  # slurmstepd, slurmctld and slurm.conf can be why as well


def test_words_of_a_broken_gpu_are_reported_before_the_peers_that_follow_them() -> None:
    words = [*out(0, "job.cuda_error", "RuntimeError: CUDA error: unspecified launch failure"), *lost_peers(3)]
    verdict = judged(world(words, [one(6)]))["1"]
    assert verdict.category == "unknown" and "a GPU broke" in verdict.reason
    assert "peers" in judged(world([*lost_peers(-5), *words], [one(6)]))["1"].reason


def test_a_run_cancelled_before_its_node_was_given_up() -> None:
    job = run(1, ["n1", "n2"], -900, 30, "CANCELLED", cancelled_by="1000", uid="1000", user="alice")
    assert said(judged(world([*down(0, "n1", "eth0", 900), *set_down(350, "n1")], [job]))["1"]) == ("user.cancel", None, None)  # fmt: skip


@pytest.mark.parametrize(("job_id", "uid", "expected"), [(1, 1000, "app.oom"), (None, 1000, "app.oom"), (7, 1000, "infra.network"), (None, 0, "infra.network")])  # fmt: skip
def test_a_rank_that_the_kernel_killed_for_memory_beside_a_lost_rail(
    job_id: int | None, uid: int, expected: str
) -> None:
    """The node's memory was used up, beyond any limit of Slurm's.

    A daemon's death or another job's is unrelated to this run.
    """
    text = "Out of memory: Killed process 4242 (python3) total-vm:812345678kB"
    kill = event("kernel.oom_kill", 60, "n2", text, job_id=job_id, uid=uid)
    killed = out(61, "job.exit_error", "srun: error: n2: task 8: Killed", nodes=["n2"])
    where = world([*down(0, "n1", "ib0", 900), kill, *killed], [one(62, exit_code=137, uid=1000)])
    assert judged(where)["1"].category == expected
