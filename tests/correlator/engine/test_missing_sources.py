"""Missing sources: what the others still show, and what they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from correlator.clocks.clocks import correct, offsets
from correlator.evidence.weigh import Weigher
from correlator.facts.world import World
from correlator.gather.runs import assemble
from correlator.incidents.incidents import gather
from correlator.incidents.sentences import title
from correlator.incidents.steps import chain_rows
from correlator.model.time_texts import stamp
from correlator.site.cabling import Cabling
from tests.correlator.making import T0, event, facts, run, world
from tests.correlator.situations import (
    EDGES,
    conclude,
    down,
    judged,
    lost_peers,
    lustre,
    node_fail,
    one,
    out,
    said,
    set_down,
    watchdog,
    xid,
)

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
EIO = "OSError: [Errno 5] Input/output error: '/lustre/fs2/u/step_7.pt'"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


#: Any user can print such lines: they clear nobody, and accuse no machine.
REPORTED = "the program reports that {}; no line of a node confirms it"


# -- a run's own output -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "text", "root"), [
    ("job.cuda_error", ECC, "gpu.ecc"),
    ("job.exit_error", "Unable to determine the device handle for GPU0000:BA:00.0: GPU is lost.", "gpu.lost"),
    ("job.nccl_error", "ncclUnhandledCudaError: Cuda failure 'uncorrectable NVLink error detected during the execution'", "gpu.fabric_error"),
])  # fmt: skip
def test_a_program_names_the_gpu_that_broke(kind: str, text: str, root: str) -> None:
    where = world(out(5, kind, text), [one(7, nodes=("n1",))])
    verdict = judged(where)["1"]
    assert said(verdict) == ("unknown", None, None) and verdict.reason == REPORTED.format("a GPU failed")
    (reported,) = facts(where, "gpu.told")
    assert (reported.host, reported.attrs["event"]) == ("n1", root)


def test_an_xid_that_the_job_printed_itself_is_nobodys_word() -> None:
    line = out(5, "gpu.xid", "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.", pci="0000:3a:00", xid=79)
    where = world(line, [one(7, nodes=("n1",))])
    assert not facts(where, "gpu.told") and said(judged(where)["1"]) == ("app.error", None, None)


def test_a_launch_failure_may_be_a_wild_pointer() -> None:
    assert said(judged(world(out(5, "job.cuda_error", "CUDA error: unspecified launch failure"), [one(7)]))["1"]) == (
        "unknown",
        None,
        None,
    )


def test_an_error_of_its_own_before_the_gpu_complains() -> None:
    lines = [*out(3, "job.exit_error", "KeyError: 'input_ids'"), *out(6, "job.cuda_error", ECC)]
    assert said(judged(world(lines, [one(7)]))["1"])[0] == "app.error"


def test_a_log_that_shows_the_fault_goes_before_the_output() -> None:
    where = world([*xid(0, 48), *out(5, "job.cuda_error", ECC)], [one(7)])
    assert not facts(where, "gpu.told")
    assert said(judged(where)["1"]) == ("infra.gpu", "gpu.xid", "n1")


def test_runs_that_lose_one_file_system_are_one_outage() -> None:
    lines = [
        *out(0, "job.exit_error", EIO),
        *out(200, "job.exit_error", EIO, job=2),
        *out(210, "job.exit_error", "KeyError: 'x'", job=3),
    ]
    jobs = [run(1, ["n1"], -900, 1), run(2, ["n2"], -900, 201), run(3, ["n3"], -900, 211)]
    found = judged(where := world(lines, jobs))
    assert len(facts(where, "storage.told")) == 1
    assert {found[j].reason for j in "12"} == {REPORTED.format("a shared file system failed")}
    assert said(found["1"]) == said(found["2"]) == ("unknown", None, None)
    assert said(found["3"])[0] == "app.error"


def test_a_run_may_say_that_a_file_is_gone_without_any_outage() -> None:
    lines = out(0, "job.exit_error", "FileNotFoundError: [Errno 2] No such file or directory: '/lustre/fs2/u/x'")
    assert said(judged(world(lines, [one(1)]))["1"])[0] == "app.error"


def test_retries_that_ran_out_blame_nobody() -> None:
    """A peer whose process died gives the same completion error as a broken link.

    Without a log of either, the cause is unknown.
    """
    assert said(judged(world(lost_peers(5), [one(7)]))["1"]) == ("unknown", None, None)


TIMED_OUT = "TimeoutError: [Errno 110] Connection timed out: '/scratch/u{0}/shard-{0}.tar'"


def timed_out(runs: int) -> World:
    lines = [e for i in range(1, runs + 1) for e in out(60.0 * i, "job.exit_error", TIMED_OUT.format(i), job=i)]
    return world(lines, [run(i, [f"n{i}"], -900, 60.0 * i + 1) for i in range(1, runs + 1)])


def test_runs_on_many_nodes_that_time_out_on_one_file_system_are_one_outage_without_a_name() -> None:
    where = timed_out(5)
    found = judged(where)
    assert {said(v) for v in found.values()} == {("unknown", None, None)}
    assert {v.reason for v in found.values()} == {REPORTED.format("a shared file system failed")}
    assert not gather(where, Weigher(where, EDGES), list(found.values()))
    (reported,) = facts(where, "storage.told")
    assert (reported.host, reported.device) == (None, "/scratch")


def test_one_or_two_time_outs_on_a_path_blame_nobody() -> None:
    assert {said(v) for v in judged(timed_out(2)).values()} == {("unknown", None, None)}


def test_time_outs_that_the_clients_logged_are_that_outage() -> None:
    lines = [*lustre(0), *out(150, "job.exit_error", TIMED_OUT.format(1).replace("/scratch", "/lustre/fs1"))]
    assert said(judged(world(lines, [one(151)]))["1"]) == ("infra.storage", "storage.outage", "fs1")


def test_a_silent_node_without_its_log_is_reported_with_more_doubt() -> None:
    lines = [*set_down(350, "n1"), *node_fail(350)]
    received, mute = (
        judged(world(lines, [one(350, "NODE_FAIL")], reporting_hosts=frozenset(v)))["1"]
        for v in (("n1", "n2"), ("n2",))
    )
    assert said(received) == said(mute) == ("infra.node", "node.down", "n1")
    assert mute.confidence <= 0.5 < received.confidence and "n1" in mute.doubts[-1]


# -- nodes that only slurmctld logs -----------------------------------------------------------------------------------
TREE = [
    {"kind": "node", "switch": s, "child": n} for s, nodes in (("leaf1", "abcde"), ("leaf2", "pqrst")) for n in nodes
]


def test_nodes_of_one_switch_that_fall_silent_in_two_rounds() -> None:
    from correlator.facts.registry import conclude
    from correlator.site.site import build_site

    lines = [*set_down(300, "a", "b", "c"), *set_down(400, "d", "e"), *set_down(900, "p"), *set_down(1000, "q")]
    jobs = [
        run(1, ["a"], -900, 300, "NODE_FAIL"),
        run(2, ["e"], -900, 400, "NODE_FAIL"),
        run(3, ["p"], -900, 900, "NODE_FAIL"),
    ]
    where = World(
        build_site("c", [], Cabling(), TREE, set("abcdepqrst"), {"SlurmdTimeout": 300}),
        sorted(lines, key=lambda e: e.time),
        jobs,
    )
    conclude(where)
    found = judged(where)
    assert said(found["1"]) == said(found["2"]) == ("infra.network", "switch.silent", "leaf1")
    assert said(found["3"]) == ("infra.node", "node.down", "p")


def test_a_node_whose_loss_was_logged_is_not_counted_among_the_silent() -> None:
    lines = [*down(0, "n1", "eth0", 900), *set_down(350, "n1", "n2", "n3", "n4"), *node_fail(350)]
    where = world(lines, [one(350, "NODE_FAIL")])
    assert not facts(where, "switch.silent")
    assert said(judged(where)["1"]) == ("infra.network", "link.outage", "n1")


def test_srun_names_the_failed_node_where_slurmctld_is_not_logged() -> None:
    lines = [*down(0, "n2", "eth0", 900), *out(352, "job.node_failure", "srun: error: Node failure on n2", nodes=["n2"]),
             *out(351, "job.node_failure", "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT T DUE TO NODE FAILURE ***", nodes=["n1"])]  # fmt: skip
    assert said(judged(world(lines, [one(350, "NODE_FAIL")]))["1"]) == ("infra.network", "link.outage", "n2")


@pytest.mark.parametrize(("at", "reason", "root"), [(349.98, "replace psu2", "admin.down"), (349.98, "NHC: check_fs failed", None), (300.0, "replace psu2", None)])  # fmt: skip
def test_a_reason_given_in_the_moment_of_the_kill_shows_who_set_the_node_down(
    at: float, reason: str, root: str | None
) -> None:
    """The line with the state was lost; the reason that was given with it was not. Given at another time, or by a health
    check, which drains, it tells nothing of who set the node DOWN, or whether anybody did."""
    text = f"update_node: node n1 reason set to: {reason}"
    given = event("slurm.node_reason", at, "ctl", text, source="slurmctld", nodes=["n1"], reason=reason)
    verdict = judged(world([given, *node_fail(350)], [one(350, "NODE_FAIL")]))["1"]
    if root is None:
        assert verdict.category == "unknown" and verdict.root is None
    else:
        assert verdict.root is not None and (verdict.root.kind, verdict.root.host) == (root, "n1")


def test_all_nodes_of_a_run_under_a_dead_switch() -> None:
    links = [{"host": f"n{i}", "device": "eth0", "switch": "tor", "switch_port": f"Ethernet{i}"} for i in range(1, 6)]
    lines = [e for i in range(1, 6) for e in down(0.1 * i, f"n{i}", "eth0", 900)]
    where = world(lines, [one(350, "NODE_FAIL", nodes=("n1", "n2", "n3"))], links=links)
    assert said(judged(where)["1"]) == ("infra.network", "switch.outage", "tor")


# -- a young machine is no dead slurmd --------------------------------------------------------------------------------
@pytest.mark.parametrize(("uptime", "expected"), [(40.0, ("infra.node", "node.reboot", "n1")), (90000.0, ("infra.scheduler", "slurmd.crash", "n1"))])  # fmt: skip
def test_slurmd_shows_the_age_of_its_machine(uptime: float, expected: tuple[str, str, str]) -> None:
    lines = [event("slurm.step_start", -1500, "n1", "launch task StepId=1.0", source="slurmd", job_id=1), *set_down(350, "n1"), *node_fail(350),
             event("slurm.daemon_start", 600, "n1", "slurmd version 24.05.4 started", source="slurmd")]  # fmt: skip
    where = world(lines, [one(350, "NODE_FAIL")], spoke=lambda host: [T0 - 1500, T0 - 20, T0 + 600],
                  slurmd_starts=lambda host: [(T0 + 600.4, uptime)])  # fmt: skip
    assert said(judged(where)["1"]) == expected


def test_without_its_system_log_a_start_of_slurmd_reports_no_death() -> None:
    """A boot would not show either."""
    lines = [event("slurm.step_start", -1500, "n1", "launch task StepId=1.0", source="slurmd", job_id=1), *set_down(350, "n1"), *node_fail(350),
             event("slurm.daemon_start", 600, "n1", "slurmd version 24.05.4 started", source="slurmd")]  # fmt: skip
    assert said(judged(world(lines, [one(350, "NODE_FAIL")]))["1"]) == ("infra.node", "node.down", "n1")


# -- runs without accounting ------------------------------------------------------------------------------------------
def ctl(at: float, kind: str, text: str, **more: Any) -> Any:
    return event(kind, at, "ctl", text, source="slurmctld", job_id=7, **more)


def test_two_allocations_are_two_runs() -> None:
    lines = [ctl(0, "slurm.job_start", "sched: Allocate JobId=7 NodeList=n1", nodes=["n1"]),
             ctl(300, "slurm.job_requeue", "requeue job JobId=7 due to failure of node n1"),
             ctl(430, "slurm.job_start", "sched: Allocate JobId=7 NodeList=n2", nodes=["n2"]),
             ctl(500, "slurm.job_failed", "_job_complete: JobId=7 WEXITSTATUS 1", exit_code=1)]  # fmt: skip
    assert [(r.key, r.state, r.nodes) for r in assemble([], [], lines)] == [
        ("7", "NODE_FAIL", ("n1",)),
        ("7#1", "FAILED", ("n2",)),
    ]


def test_a_launch_that_slurmd_gave_up_ends_the_run() -> None:
    lines = [ctl(0, "slurm.job_start", "sched: Allocate JobId=7 NodeList=n1", nodes=["n1"]),
             event("slurm.node_error", 2, "n1", "error: [job 7] prolog failed status=1:0", source="slurmd", job_id=7),
             event("slurm.node_error", 2.1, "n1", "Could not launch job 7 and not able to requeue it, cancelling job", source="slurmd", job_id=7)]  # fmt: skip
    runs = assemble([], [], lines)
    assert [(r.key, r.state) for r in runs] == [("7", "CANCELLED")]
    assert said(judged(world(lines, runs))["7"]) == ("infra.scheduler", "prolog.failure", "n1")


def test_the_last_words_of_a_job_make_a_run_where_slurm_is_not_logged(tmp_path: Path) -> None:
    folder = write(tmp_path, {
        "jobs/31/stdout": "[2026-03-02 10:00:00] iter 1 | iter_time 1.0s\n[2026-03-02 10:10:00] iter 600 | iter_time 1.0s\n",
        "jobs/31/stderr": f"[rank4]: {ECC}\nsrun: error: gpu-024: task 4: Exited with exit code 1\n",
        "jobs/32/stderr": "slurmstepd: error: *** JOB 32 ON gpu-003 CANCELLED AT 2026-03-02T10:00:00 DUE TO TIME LIMIT ***\n",
        "jobs/32/stdout": "[2026-03-02 09:59:00] iter 1 | iter_time 1.0s\n",
        "jobs/33/stdout": "[2026-03-02 09:59:00] iter 1 | iter_time 1.0s\ndone.\n",
    })  # fmt: skip
    found = conclude(folder)
    assert {k: v["category"] for k, v in found["verdicts"].items()} == {"31": "unknown", "32": "app.timeout"}
    assert not found["incidents"] and "no line of a node confirms it" in found["verdicts"]["31"]["summary"]


def test_output_without_stamps_lies_where_slurmctld_ends_the_job(tmp_path: Path) -> None:
    """Without accounting, lines without neighbouring timestamps would have no place.

    The run's own error would be lost.
    """
    log = """[2026-03-02T10:00:00.000] sched: Allocate JobId=41 NodeList=gpu-001 #CPUs=8 Partition=gpu
[2026-03-02T10:05:00.000] _job_complete: JobId=41 WEXITSTATUS 1
[2026-03-02T10:05:00.001] _job_complete: JobId=41 done
"""
    error = (
        "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.60 GiB.\n"
    )
    found = conclude(write(tmp_path, {"controller/slurmctld.log": log, "jobs/41/stderr": error}))
    assert {k: v["category"] for k, v in found["verdicts"].items()} == {"41": "app.oom"}


@pytest.mark.parametrize("kind", ["slurm.job_timeout", "slurm.job_node_fail"])
def test_an_end_whose_beginning_was_lost_is_a_run(kind: str) -> None:
    """The line of the allocation is older than the log, or was lost; the steps show where the job was."""
    lines = [
        event("slurm.step_start", 1, "n1", "launch task StepId=7.0", source="slurmd", job_id=7),
        ctl(90, kind, "JobId=7", nodes=["n1"]),
    ]
    (found,) = assemble([], [], lines)
    assert (found.state, found.nodes, found.start) == (
        {"slurm.job_timeout": "TIMEOUT"}.get(kind, "NODE_FAIL"),
        ("n1",),
        T0 + 1,
    )


def test_steps_that_are_cleared_away_make_no_run() -> None:
    lines = [ctl(90, "slurm.job_node_fail", "error: Registered JobId=7 StepId=7.batch in state NODE_FAIL on node n1"),
             event("slurm.job_node_fail", 91, "n1", "*** JOB 7 ON n1 CANCELLED AT T DUE TO NODE FAILURE ***", source="slurmstepd", job_id=7)]  # fmt: skip
    assert assemble([], [], lines) == []


def test_a_task_of_an_array_is_named_as_slurm_names_it() -> None:
    lines = [ctl(0, "slurm.job_start", "sched: Allocate JobId=4_2(7) NodeList=n1", nodes=["n1"], array_job_id="4", array_task="2"),
             ctl(9, "slurm.job_failed", "_job_complete: JobId=4_2(7) WEXITSTATUS 1", exit_code=1)]  # fmt: skip
    assert [r.key for r in assemble([], [], lines)] == ["4_2"]


def test_output_without_a_stamp_does_not_follow_its_hosts_clock() -> None:
    """It was placed near the end of its run, which another clock gave."""
    placed = event("job.nccl_error", 0, "n1", "NCCL WARN", source="job_stderr", job_id=1, sigma=60.0)
    launches = [e for i in (1, 2, 3) for e in (
        event("slurm.job_start", -900 * i, "ctl", "Allocate", source="slurmctld", job_id=10 + i, nodes=["n1"]),
        event("slurm.step_start", -900 * i - 200, "n1", f"Launching batch job {10 + i} for UID 1", source="slurmd", job_id=10 + i))]  # fmt: skip
    events = sorted([placed, *launches], key=lambda e: e.time)
    moved = correct(events, offsets(events))
    assert next(e for e in moved if e.kind == "job.nccl_error").time == T0
    assert {e.clock_offset for e in moved if e.kind == "slurm.step_start"} != {0.0}


def test_a_program_that_cannot_be_run_is_its_users() -> None:
    lines = [
        *out(1, "job.launch_error", "slurmstepd: error: execve(): /home/u/run.sh: Permission denied"),
        *lost_peers(9),
    ]
    assert said(judged(world(lines, [one(10)]))["1"])[0] == "app.error"


def test_what_fails_when_the_watchdog_runs_out_did_not_make_the_run_hang() -> None:
    lines = [*xid(0, 119), *watchdog(602), *xid(606, 79, host="n2")]
    assert said(judged(world(lines, [one(605)]))["1"]) == ("infra.gpu", "gpu.xid", "n1")


def test_a_read_only_local_disk_during_an_outage_of_the_shared_storage() -> None:
    lines = [*lustre(0), *lustre(100, ("n1",), "This client was evicted by fs1-OST0001"),
             *out(110, "job.exit_error", "OSError: [Errno 30] Read-only file system: '/local/7/x'")]  # fmt: skip
    verdict = judged(world(lines, [one(111, nodes=("n1",))]))["1"]
    assert said(verdict) == ("unknown", None, None) and verdict.reason == REPORTED.format("a local file system failed")


def far_end(at: float) -> Any:
    return event(
        "fabric.sm_event", at, "ctl", "Removed port", source="opensm", ibdev="ib0", peer_node="n1", verb="Removed"
    )


def test_a_machine_that_boots_while_its_link_is_away_had_died_however_quiet_it_was() -> None:
    lines = [far_end(0), *set_down(350, "n1"), *node_fail(350), event("kernel.boot", 600, "n1", "Linux version 6.1")]
    where = world(lines, [one(350, "NODE_FAIL")], spoke=lambda host: [T0 - 4000, T0 + 600])
    assert [f.host for f in facts(where, "node.dead")] == ["n1"]


def test_a_panic_says_what_the_machine_died_of() -> None:
    lines = [
        far_end(0),
        event("kernel.panic", 0.2, "n1", "Kernel panic - not syncing"),
        *set_down(350, "n1"),
        *node_fail(350),
    ]
    where = world(lines, [one(350, "NODE_FAIL")], spoke=lambda host: [T0 - 30])
    assert said(judged(where)["1"]) == ("infra.node", "node.panic", "n1")


def test_the_far_end_alone_does_not_show_a_dead_machine_from_a_dead_link() -> None:
    lines = [
        event("switch.port_down", 0, "tor", "Ethernet1 down", source="switch", port="Ethernet1"),
        *set_down(350, "n1"),
        *node_fail(350),
    ]
    links = [{"host": "n1", "device": "eth0", "switch": "tor", "switch_port": "Ethernet1"}]
    sure, unsure = (
        judged(world(lines, [one(350, "NODE_FAIL")], links=links, reporting_hosts=frozenset(v)))["1"]
        for v in (("n1", "n2"), ("n2",))
    )
    assert said(sure) == said(unsure) == ("infra.network", "link.outage", "n1")
    assert unsure.confidence < 0.85 < sure.confidence
    assert any("No log of n1" in d for d in unsure.doubts)


def test_all_links_at_once_without_a_word_of_the_machine_may_be_the_machine() -> None:
    """It logged again a minute later, without a line about a boot: neither is certain."""
    mine = event("switch.port_down", 0, "tor", "Ethernet1 down", source="switch", port="Ethernet1")
    other = event("switch.port_down", 0.4, "leaf", "Ethernet7 down", source="switch", port="Ethernet7")
    later = event("switch.port_down", 30, "leaf", "Ethernet7 down", source="switch", port="Ethernet7")
    links = [
        {"host": "n1", "device": "eth0", "switch": "tor", "switch_port": "Ethernet1"},
        {"host": "n1", "device": "ib0", "switch": "leaf", "switch_port": "Ethernet7"},
    ]
    alone, separate, together = (
        judged(world([*ports, *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")], links=links, reporting_hosts=frozenset({"n1", "n2"}),
                     spoke=lambda host: [T0 - 30, T0 + 60]))["1"]
        for ports in ((mine,), (mine, later), (mine, other))
    )  # fmt: skip
    assert said(alone) == said(separate) == said(together) == ("infra.network", "link.outage", "n1")
    assert together.confidence < 0.85 < min(alone.confidence, separate.confidence)
    assert any("may have lost power" in d for d in together.doubts) and not separate.doubts


def test_an_interface_that_most_nodes_lose_together_is_what_lies_behind_it() -> None:
    """No inventory lists where each cable ends; the switch that lost as many ports does."""
    lines = [e for i in range(1, 6) for e in down(0.1 * i, f"n{i}", "eth0", 900)]
    ports = [
        event("switch.port_down", 0.1 * i, "tor-7", f"Ethernet{i}", source="switch", port=f"Ethernet{i}")
        for i in range(1, 6)
    ]
    reported = [*set_down(350, *(f"n{i}" for i in range(1, 6))), *node_fail(350)]
    assert said(judged(world([*lines, *ports, *reported], [one(350, "NODE_FAIL")]))["1"]) == (
        "infra.network",
        "switch.outage",
        "tor-7",
    )
    alone = judged(world([*lines[:2], *ports[:1], *set_down(350, "n1"), *node_fail(350)], [one(350, "NODE_FAIL")]))["1"]
    assert said(alone) == ("infra.network", "link.outage", "n1")


def test_nodes_of_which_only_the_ends_of_their_runs_show() -> None:
    """Accounting and srun alone: one failed node per run, all in one second."""
    lines = [
        e
        for i in range(1, 6)
        for e in out(350, "job.node_failure", f"srun: error: Node failure on n{i}", job=i, nodes=[f"n{i}"])
    ]
    found = judged(world(lines, [run(i, [f"n{i}", f"m{i}"], -900, 350, "NODE_FAIL") for i in range(1, 6)]))
    assert {said(v)[:2] for v in found.values()} == {("infra.network", "switch.silent")}
    assert len({id(v.root) for v in found.values()}) == 1


def test_no_end_is_reported_as_before_its_cause() -> None:
    where = world(xid(0.4, 79), [one(0)])
    verdicts = list(judged(where).values())
    (incident,) = gather(where, Weigher(where, EDGES), verdicts)
    assert "Job 1 ended FAILED." in title(where, incident)


def test_no_delay_is_reported_from_a_cause_whose_beginning_is_not_known() -> None:
    """A health check finds a GPU lost after the job: "ended FAILED 392.6 s later" counted from the first moment it can have been."""
    found = event(
        "slurm.node_reason",
        200.0,
        "ctl",
        "update_node",
        source="slurmctld",
        nodes=["n1"],
        reason="NHC: GPU 0000:3a:00.0 is lost",
    )
    where = world([found, *out(0, "job.cuda_error", "RuntimeError: CUDA error: GPU is lost")], [one(0)])
    verdicts = list(judged(where).values())
    (incident,) = gather(where, Weigher(where, EDGES), verdicts)
    assert incident.root.attrs["inferred"] and incident.root.start < verdicts[0].end.start - 1.0
    assert "Job 1 ended FAILED." in title(where, incident)
    (step,) = [row for row in chain_rows(incident.hops) if row["effect_run"] == "1"]
    assert step["cause_until"] == stamp(incident.root.end) and step["effect_until"] is None


# -- advice on a run's page ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("output", "advice"), [
    ({"jobs/7/stderr": "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nValueError: bad shape\n"}, "marked lines"),
    ({}, "No line of its output that was collected"),
])  # fmt: skip
def test_nobody_is_sent_to_lines_that_are_not_there(output: dict[str, str], advice: str, tmp_path: Path) -> None:
    sacct = "JobID|JobName|User|Partition|State|ExitCode|Start|End|NodeList|Submit\n7|train|ann|gpu|FAILED|1:0|2026-02-27T12:00:00|2026-02-27T12:10:00|n1|2026-02-27T11:59:00\n"
    verdict = conclude(write(tmp_path, {"accounting/sacct.txt": sacct, **output}))["verdicts"]["7"]
    assert verdict["category"] == "app.error" and advice in verdict["advice"][0]["text"]


EXITED = "srun: error: n1: task 0: Exited with exit code 1"


@pytest.mark.parametrize(("told", "printed", "expected"), [
    ((), 900.0, [("7", "FAILED")]),
    ((), None, [("7", "COMPLETED")]),
    ((), 300.0, [("7", "COMPLETED")]),  # it went on for ten minutes
    ((ctl(899.9, "slurm.job_end", "_job_complete: JobId=7 WEXITSTATUS 0", exit_code=0),), 900.0, [("7", "COMPLETED")]),
])  # fmt: skip
def test_a_run_whose_exit_status_was_lost_ended_as_its_output_says(
    told: tuple[Any, ...], printed: float | None, expected: list[tuple[str, str]]
) -> None:
    """slurmctld logs the status, and then that the job is done; a step that fails under a good script ends nothing."""
    lines = [ctl(0, "slurm.job_start", "sched: Allocate JobId=7 NodeList=n1", nodes=["n1"]), *told,
             ctl(900, "slurm.job_end", "_job_complete: JobId=7 done"), *(out(printed, "job.exit_error", EXITED, job=7) if printed else [])]  # fmt: skip
    assert [(r.key, r.state) for r in assemble([], [], lines)] == expected
