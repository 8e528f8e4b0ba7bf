"""The traps of correlation, each by name: what looks like a cause and is none, and the right verdict."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.clocks.clocks import correct, offsets
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import (
    LINKS,
    down,
    judged,
    lost_peers,
    node_fail,
    one,
    out,
    said,
    set_down,
    watchdog,
    xid,
)


def verdict(events: list[Any], job: Any, **more: Any) -> Any:
    return judged(world(events, more.pop("runs", [job]), **more))[job.key]


def test_a_flap_shorter_than_the_retry_budget() -> None:
    found = verdict([*down(0, "n1", "ib0", 4), *lost_peers(60)], one(62))
    assert said(found) == ("unknown", None, None)
    assert any("was back after 4.0 s" in r.reason for r in found.rejections)


def test_a_bounce_beside_a_broken_gpu_is_absorbed_by_the_retries() -> None:
    """Output has no timestamps: the loss of peers is known to a minute, the duration of the retries to the second."""
    closed = out(
        5, "job.nccl_error", "NCCL WARN socketProgress: Connection closed by remote peer n1<50000>", sigma=45.0
    )
    where = world([*xid(0, 95), *down(-2, "n2", "ib0", -0.5), *down(4, "n2", "ib0", 5.5), *closed], [one(8)])
    where.site.job_settings["1"] = {"NCCL_IB_TIMEOUT": "20"}
    found = judged(where)["1"]
    assert said(found) == ("infra.gpu", "gpu.xid", "n1") and found.confidence > 0.8
    assert any("the run's retries last 30 s" in r.reason for r in found.rejections)


def test_a_flap_on_a_port_the_job_did_not_use() -> None:
    lines = [event("nic.link_down", 0, "n1", "mlx5_0: Port: 1 Link DOWN", ibdev="mlx5_0"),
             event("nic.link_up", 90, "n1", "mlx5_0: Port: 1 Link ACTIVE", ibdev="mlx5_0"), *lost_peers(60, ibdev="mlx5_3")]  # fmt: skip
    found = verdict(lines, one(62))
    assert said(found) == ("unknown", None, None)
    assert any("the error is on mlx5_3, not on mlx5_0" in r.reason for r in found.rejections)


BY_BUS = ("ibp24s0", "ibp42s0", "ibp154s0", "ibp171s0")


@pytest.mark.parametrize(
    ("device", "counted", "is_it"),
    [
        ("ibp154s0", "mlx5_2", True),
        ("ibp154s0", "mlx5_3", True),  # the card of eno1 may be counted before it
        ("ibp24s0", "mlx5_2", False),
        ("ibp171s0", "mlx5_2", False),
        ("ibp154s0", "bnxt_re2", False),
    ],
)
def test_an_adapter_that_is_counted_is_one_of_those_named_by_their_bus(device: str, counted: str, is_it: bool) -> None:
    """NCCL names mlx5_2, which is counted in the order of the buses; the switch's cable names the interface by its bus."""
    cables = [
        {"host": "n1", "device": name, "switch": f"s{i}", "switch_port": "1"}
        for i, name in enumerate((*BY_BUS, "eno1"))
    ]
    lines = [*down(0, "n1", device), *lost_peers(60, ibdev=counted)]
    found = judged(world(lines, [one(62)], links=cables))["1"]
    assert said(found) == (("infra.network", "link.outage", "n1") if is_it else ("unknown", None, None))


def test_a_flap_of_the_management_link_kills_no_collective() -> None:
    assert said(verdict([*down(0, "n1", "eth0", 90), *lost_peers(60)], one(62))) == ("unknown", None, None)


def test_a_flap_of_the_fabric_sets_no_node_down() -> None:
    found = verdict([*down(0, "n1", "ib0", 900), *set_down(350, "n1"), *node_fail(350)], one(350, "NODE_FAIL"))
    assert said(found) == ("infra.node", "node.down", "n1")


@pytest.mark.parametrize(("timeout", "lag", "root"), [
    (15, 40.7, "link.outage"), (15, 44, None), (24, 38.6, "link.outage"), (24, 55, None), (300, 505, "link.outage"), (300, 515, None),
])  # fmt: skip
def test_ping_rounds_that_wait_for_each_other(timeout: int, lag: float, root: str | None) -> None:
    """With a short SlurmdTimeout the rounds last as long as MessageTimeout.

    Observed on a cluster of ours: DOWN after 40.7 s at 15 s.
    """
    lines = [*down(0, "n1", "eth0", lag + 60), *set_down(lag, "n1"), *node_fail(lag)]
    found = verdict(lines, one(lag, "NODE_FAIL"), settings={"SlurmdTimeout": timeout, "MessageTimeout": 10})
    assert (found.root and found.root.kind) == root


def test_an_xid_on_a_gpu_of_another_job() -> None:
    mine, other = one(8), run(2, ["n1"], -500, 900, "COMPLETED")
    found = verdict(xid(0, 79), mine, runs=[mine, other], gpu_jobs={("n1", "0000:3a:00"): [(T0 - 60, 2)]})
    assert said(found) == ("app.error", None, None)


def test_a_cause_after_the_effect() -> None:
    found = verdict([*lost_peers(60), *down(70, "n1", "ib0", 200)], one(62))
    assert said(found) == ("unknown", None, None)
    assert any("after the effect" in r.reason for r in found.rejections)


def test_a_scancel_right_after_a_flap() -> None:
    lines = [
        *down(0, "n1", "ib0", 90),
        event(
            "slurm.job_cancelled",
            40,
            "ctl",
            "REQUEST_KILL_JOB JobId=1 uid 1000",
            source="slurmctld",
            job_id=1,
            uid=1000,
        ),
    ]
    assert verdict(lines, one(41, "CANCELLED", cancelled_by="1000", uid="1000")).category == "user.cancel"


@pytest.mark.parametrize(("told", "root"), [
    (out(39, "job.nccl_error", "NCCL WARN socketProgress: Connection closed by remote peer n1<50000>"), None),
    (out(30, "job.nccl_error", "NCCL WARN socketProgress: Connection closed by remote peer n1<50000>", sigma=45.0), None),
    (lost_peers(35), None), (lost_peers(60), "link.outage"),
])  # fmt: skip
def test_ranks_that_a_time_limit_ends_lose_their_peers_as_well(told: list[Any], root: str | None) -> None:
    """A rail lost half a minute before the limit costs half a minute; one lost ten minutes before it may be the cause."""
    end = 41.0 if root is None else 700.0
    found = verdict([*down(0, "n1", "ib0", 800), *told], one(end, "TIMEOUT"))
    assert found.category == ("app.timeout" if root is None else "infra.network")
    assert (found.root.kind if found.root else None) == root


def test_a_preemption_beside_an_xid() -> None:
    assert verdict(xid(0, 79), one(5, "PREEMPTED")).category == "sched.preempt"


def test_the_own_flaps_of_a_boot() -> None:
    lines = [event("kernel.boot", -20, "n1", "Linux version 6.1"), *down(0, "n1", "ib0", 90), *lost_peers(60)]
    assert said(verdict(lines, run(1, ("n1", "n2"), -5, 62))) == ("unknown", None, None)


@pytest.mark.parametrize(
    "text", ["srun: error: n2: task 3: Killed", "srun: error: n2: task 3: Exited with exit code 137"]
)
def test_a_user_bug_whose_output_says_only_killed(text: str) -> None:
    assert said(verdict(out(5, "job.exit_error", text), one(6))) == ("app.error", None, None)


def test_a_user_bug_whose_output_says_nccl_remote_error() -> None:
    assert said(verdict(lost_peers(5), one(6))) == ("unknown", None, None)


def test_a_user_bug_beside_an_innocent_flap() -> None:
    lines = [
        *down(0, "n1", "ib0", 200),
        *out(58, "job.exit_error", "ValueError: mat1 and mat2 shapes cannot be multiplied"),
        *lost_peers(60),
    ]
    assert said(verdict(lines, one(62))) == ("app.error", None, None)


def test_a_louder_but_innocent_event_on_the_same_node() -> None:
    noise = [event("pcie.aer", i * 40.0, "n1", "AER: Corrected error received", pci="0000:17:00.0") for i in range(3)]
    noise += [
        event("kernel.mce", 5, "n1", "Machine check events logged"),
        event("kernel.thermal", 6, "n1", "CPU3: Core temperature above threshold"),
    ]
    assert said(verdict([*noise, *xid(50, 63), *xid(55, 79)], one(60))) == ("infra.gpu", "gpu.xid", "n1")
    assert said(verdict([*noise, *xid(50, 63)], one(60))) == ("app.error", None, None)


@pytest.mark.parametrize("minutes", [10, 30])
def test_a_watchdog_that_fires_long_after_the_onset(minutes: int) -> None:
    late = minutes * 60.0
    lines = [*down(0, "n1", "ib0", late + 60), *down(late - 30, "n2", "ib0", late - 20), *watchdog(late + 5, late)]
    assert said(verdict(lines, one(late + 8))) == ("infra.network", "link.outage", "n1")


def test_a_node_whose_clock_is_minutes_off() -> None:
    steps = [event("slurm.step_start", at + (-228.0 if h == "n1" and at > -1000 else 0.0), h, f"launch task StepId={job}.0", source="slurmd",
                   job_id=job, step_id="0") for job, at in ((7, -1900.0), (8, -900.0), (9, -700.0)) for h in ("n1", "n2", "n3", "n4")]  # fmt: skip
    events = [*steps, *xid(0 - 228.0, 79)]
    assert said(verdict(events, one(8))) == ("app.error", None, None)
    assert said(verdict(correct(events, offsets(events)), one(8))) == ("infra.gpu", "gpu.xid", "n1")


def test_a_node_whose_log_is_missing_makes_the_verdict_less_sure() -> None:
    received, deaf = one(6), one(6)
    assert (
        verdict([], deaf, reporting_hosts=frozenset({"n2"})).confidence
        < verdict([], received, reporting_hosts=frozenset({"n1", "n2"})).confidence
    )
    assert "n1" in verdict([], deaf, reporting_hosts=frozenset({"n2"})).doubts[0]


def test_innocent_peers_that_log_due_to_node_failure() -> None:
    lines = [*down(0, "n1", "eth0", 900), *set_down(350, "n1"), *node_fail(350),
             *out(350.2, "job.node_failure", "JOB 1 ON n2 CANCELLED DUE TO NODE FAILURE"), *down(340, "n2", "ib0", 380)]  # fmt: skip
    assert said(verdict(lines, one(350, "NODE_FAIL"))) == ("infra.network", "link.outage", "n1")


def test_a_job_already_ending_when_its_node_goes_down() -> None:
    assert said(verdict([*set_down(300, "n1")], one(60))) == ("app.error", None, None)


def test_late_after_effects_of_an_old_failure() -> None:
    lines = [*xid(0, 79), *xid(1500, 154), *out(1504, "job.exit_error", "KeyError: 'loss'")]
    old, new = run(1, ["n1"], -900, 6), run(2, ["n2"], 1400, 1505)
    found = judged(world([*lines, *out(1504, "job.exit_error", "KeyError: 'loss'", job=2)], [old, new]))
    assert said(found["1"]) == ("infra.gpu", "gpu.xid", "n1") and said(found["2"]) == ("app.error", None, None)


def test_an_xid_that_the_program_causes_itself() -> None:
    found = verdict(xid(0, 31), one(4))
    assert said(found) == ("app.error", None, None) and "Xid 31" in found.reason


def test_a_sympathetic_xid_is_no_root() -> None:
    assert said(verdict(xid(0, 45), one(4))) == ("app.error", None, None)


def test_one_plane_of_several_is_bandwidth() -> None:
    found = world([*down(0, "n1", "ib0", 900), *lost_peers(60)], [one(62)])
    found.site.job_settings["1"] = {"NCCL_MRC_PLANES": "4"}
    assert said(judged(found)["1"]) == ("unknown", None, None)


def test_a_run_on_one_node_needs_no_fabric() -> None:
    assert said(verdict([*down(0, "n1", "ib0", 200), *lost_peers(60)], one(62, nodes=("n1",)))) == (
        "unknown",
        None,
        None,
    )


def test_a_spare_port_of_the_inventory_makes_no_incident() -> None:
    where = world(down(0, "n1", "eth7", 20), [one(600, "COMPLETED")], links=LINKS)
    assert not where.site.cabled("n1", "eth7") and where.site.cabled("n1", "eth0") and where.site.cabled("n8", "eth0")


def test_a_short_slowdown_does_not_explain_a_time_limit() -> None:
    job = one(1600, "TIMEOUT", time_limit_s=3600)
    pace = [((job.start or 0) + 20 + i * 60, 5.0 if 20 <= i < 24 else 2.0) for i in range(59)]
    hot = [event("kernel.thermal", -800 + i * 60.0, "n1", "Package temperature above threshold") for i in range(4)]
    assert verdict(hot, job, progress={(1, 0): pace}).category == "app.timeout"
