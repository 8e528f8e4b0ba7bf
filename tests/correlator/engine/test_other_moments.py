"""Findings from a real mini cluster with faults at other moments (tests/cluster/moments.py), each in the fewest lines."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.clocks.clocks import offsets
from correlator.facts.registry import conclude
from correlator.facts.world import World
from correlator.site.cabling import Cabling
from correlator.site.site import Inventory, build_site
from tests.correlator.making import event, facts, run, world
from tests.correlator.situations import down, judged, node_fail, one, out, said, set_down

PROLOG = "error: validate_node_specs: Prolog or job env setup failure on node n1, draining the node"


def prolog_failed(at: float) -> Any:
    return event("slurm.node_drain", at, "ctl", PROLOG, source="slurmctld", nodes=["n1"], reason="Prolog error")


def launched(at: float) -> Any:
    return event("slurm.step_start", at, "n1", "launch task StepId=1.0 request from UID:1", source="slurmd", job_id=1)


# -- a prolog that its node reports too late ----------------------------------------------------------------------------
def test_a_run_that_is_killed_with_its_node_died_of_what_took_the_node() -> None:
    """slurmd reports an old job's prolog when its node is back, seconds after the node was given up."""
    lines = [*down(0, "n1", "eth0", 380), *set_down(350, "n1"), *node_fail(350), prolog_failed(354)]
    verdict = judged(world(lines, [run(1, ["n1", "n2"], 290, 350, "NODE_FAIL")]))["1"]
    assert said(verdict) == ("infra.network", "link.outage", "n1")


@pytest.mark.parametrize(
    ("before", "expected"),
    [([], ("infra.scheduler", "prolog.failure", "n1")), ([launched(291)], ("app.error", None, None))],
)
def test_a_node_that_started_the_runs_step_was_through_its_prolog(
    before: list[Any], expected: tuple[str, str | None, str | None]
) -> None:
    lines = [*before, prolog_failed(345)]
    assert said(judged(world(lines, [run(1, ["n1"], 290, 348, "FAILED", exit_code=3)]))["1"]) == expected


# -- when a link was back, and when a run ended -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("back", "settings", "root"),
    [
        (260.0, {"SlurmdTimeout": 300}, "link.outage"),
        (240.0, {"SlurmdTimeout": 300}, "node.down"),  # it was pinged again a round before
        (150.0, {"SlurmdTimeout": 300}, "node.down"),
        (345.0, {}, None),  # the length of a round is unknown
    ],
)
def test_a_link_that_is_back_since_the_last_ping_round_is_back_too_late(
    back: float, settings: dict[str, object], root: str | None
) -> None:
    lines = [*down(0, "n1", "eth0", back), *set_down(350, "n1"), *node_fail(350)]
    where = world(lines, [one(350, "NODE_FAIL")], settings=settings or {"MessageTimeout": 10})
    if not settings:
        where.site.settings["SlurmdTimeout"] = build_site("c", [], Cabling(), [], []).settings["SlurmdTimeout"]
    verdict = judged(where)["1"]
    assert (verdict.root and verdict.root.kind) == root and (verdict.root is None or verdict.root.host == "n1")


@pytest.mark.parametrize(("text", "root"), [
    ("Killing JobId=1 on failed node n1", "link.outage"),
    ("error: Registered JobId=1 StepId=1.extern in state NODE_FAIL on node n1", None),
])  # fmt: skip
def test_a_suspended_run_ends_with_its_node_whatever_accounting_says(text: str, root: str | None) -> None:
    """slurmctld takes the moment of the suspension as the end: here 400 s before the node was given up."""
    killed = event("slurm.job_node_fail", 350, "ctl", text, source="slurmctld", job_id=1, nodes=["n1"])
    lines = [*down(0, "n1", "eth0", 900), *set_down(350, "n1"), killed]
    verdict = judged(world(lines, [run(1, ["n1"], -900, -50, "NODE_FAIL")]))["1"]
    assert (verdict.root and verdict.root.kind) == root
    assert (verdict.end.start == killed.time) is (root == "link.outage")


# -- components of a heterogeneous job -----------------------------------------------------------------------------------
def test_srun_names_the_node_of_another_part() -> None:
    lines = [
        event(
            "slurm.job_start",
            -900,
            "ctl",
            "Allocate JobId=1+0(1) NodeList=n1",
            source="slurmctld",
            job_id=1,
            het_job_id="1",
        ),
        event(
            "slurm.job_start",
            -900,
            "ctl",
            "Allocate JobId=1+1(2) NodeList=n2",
            source="slurmctld",
            job_id=2,
            het_job_id="1",
        ),
        *down(0, "n2", "eth0", 900),
        *out(351, "job.node_failure", "srun: error: Node failure on n2", nodes=["n2"]),
    ]
    parts = [run(1, ["n1"], -900, 350, "NODE_FAIL"), run(2, ["n2"], -900, 350, "NODE_FAIL")]
    assert {said(v) for v in judged(world(lines, parts)).values()} == {("infra.network", "link.outage", "n2")}


def test_an_earlier_runs_words_name_no_node_of_a_later_one() -> None:
    """Both write to one file, without timestamps."""
    lines = out(351, "job.node_failure", "srun: error: Node failure on n2", nodes=["n2"])
    first, again = run(1, ["n2"], -900, -500, "NODE_FAIL"), run(1, ["n1"], -300, 350, "NODE_FAIL")
    first.key = "1@first"
    where = world(lines, [first, again])
    assert {f.host for f in facts(where, "node.down") if f.start == again.end} == {"n1"}


# -- the controller's own link -------------------------------------------------------------------------------------------
LEAVES = [{"kind": "node", "switch": s, "child": f"{s}{i}"} for s in ("a", "b") for i in range(5)]


def cut_off(*extra: Any, switches: str = "ab", reporting_hosts: frozenset[str] = frozenset()) -> World:
    """The nodes of some switches are given up at one moment; one run on each switch."""
    nodes = [f"{s}{i}" for s in switches for i in range(5)]
    settings = [{"scope": "cluster", "name": n, "value": v, "source": "slurm.conf"} for n, v in
                (("SlurmctldHost", "ctl(10.0.0.1)"), ("SlurmdTimeout", "300"))]  # fmt: skip
    site = build_site("c", settings, Cabling(), LEAVES, {r["child"] for r in LEAVES})
    runs = [run(n, [f"{s}0"], -900, 350, "NODE_FAIL") for n, s in enumerate(switches, 1)]
    stated_down = event(
        "slurm.node_down", 350, "log", "error: Nodes not responding, setting DOWN", source="syslog", nodes=nodes
    )
    where = World(
        site,
        sorted([*extra, stated_down], key=lambda e: e.time),
        runs,
        inventory=Inventory(settings, [], LEAVES),
        reporting_hosts=reporting_hosts,
    )
    conclude(where)
    return where


@pytest.mark.parametrize(("switches", "heard", "name"), [
    ("a", False, "a"),  # half of the cluster: what they share is their switch
    ("ab", False, None),  # all of it: the controller may have been cut off as well
    ("a", True, None),  # they kept logging and lost no carrier: it was not their switch
])  # fmt: skip
def test_the_switch_is_named_where_it_alone_explains_the_silence(switches: str, heard: bool, name: str | None) -> None:
    reporting_hosts = frozenset(r["child"] for r in LEAVES) if heard else frozenset()
    where = cut_off(switches=switches, reporting_hosts=reporting_hosts)
    assert [f.host for f in facts(where, "switch.silent")] == [name]
    assert {v.category for v in judged(where).values()} == {"infra.network"}


def test_a_switch_reports_the_link_of_a_controller_that_is_named_in_slurm_conf_only() -> None:
    lost = [
        event(f"switch.port_{way}", at, "a", f"port 9(m-ctl) {way}", source="switch", port="m-ctl")
        for way, at in (("down", 0), ("up", 380))
    ]
    where = cut_off(*lost)
    assert {said(v) for v in judged(where).values()} == {("infra.network", "link.outage", "ctl")}


# -- limits --------------------------------------------------------------------------------------------------------------
ENDED = "error: *** STEP 1.0 ON n1 CANCELLED AT T DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(("source", "state", "limit", "category"), [
    ("slurmd", "TIMEOUT", 3600, "unknown"),  # InactiveLimit: slurmstepd logs the same for it
    ("slurmctld", "TIMEOUT", 3600, "app.timeout"),  # slurmctld, which ended it, says why
    ("slurmd", "TIMEOUT", 2000, "app.timeout"), ("slurmd", "TIMEOUT", None, "app.timeout"), ("slurmd", "DEADLINE", 3600, "app.timeout"),
])  # fmt: skip
def test_a_run_that_ends_long_before_its_limit_did_not_reach_it(
    source: str, state: str, limit: int | None, category: str
) -> None:
    host = "ctl" if source == "slurmctld" else "n1"  # a node that logs as slurmctld is not trusted
    lines = [event("slurm.job_timeout", 0, host, ENDED, source=source, job_id=1)]
    assert judged(world(lines, [one(0, state, time_limit_s=limit)]))["1"].category == category


# -- output without a timestamp ------------------------------------------------------------------------------------------
RETRIED = "NCCL WARN NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12)"


@pytest.mark.parametrize(("lost", "root"), [(-40.0, "link.outage"), (-12.0, None), (8.0, None), (60.0, None)])
def test_a_link_that_is_lost_too_late_for_the_end_is_not_its_cause(lost: float, root: str | None) -> None:
    """The line was written before the run ended, wherever it was placed; retries of 30 s had run out by then."""
    output = out(-0.5, "job.nccl_error", RETRIED, sigma=60.0)
    where = world([*output, *down(lost, "n1", "ib0", 900)], [one(0)])
    where.site.job_settings["1"] = {"NCCL_IB_TIMEOUT": "20"}
    verdict = judged(where)["1"]
    assert (verdict.root.kind if verdict.root else None) == root
    assert verdict.category == ("infra.network" if root else "unknown")


# -- a clock that is ahead -----------------------------------------------------------------------------------------------
EXPIRED = "srun: error: Task launch for StepId=1.0 failed on node n1: Job credential expired"


@pytest.mark.parametrize(
    ("nodes", "logged", "expected"),
    [
        (["n1"], True, ("infra.node", "munge.failure", "n1")),
        (["n1", "n2"], True, ("unknown", None, None)),
        (["n1"], False, ("unknown", None, None)),
    ],
)
def test_a_credential_that_is_over_at_once_reports_a_clock(
    nodes: list[str], logged: bool, expected: tuple[str, str | None, str | None]
) -> None:
    """A link lost a moment later is not the cause; if all nodes refuse it, the controller's clock may be the wrong one.
    Any user can print srun's words: alone they show nothing."""
    output = [e for n in nodes for e in out(3, "job.launch_error", EXPIRED.replace("n1", n), nodes=[n], sigma=60.0)]
    own = [event("slurm.node_error", 3, n, "error: Job credential expired", source="slurmd") for n in nodes if logged]
    where = world([*output, *own, *down(8, "n1", "eth0", 70)], [run(1, ["n1", "n2"], 0, 4)])
    verdict = judged(where)["1"]
    assert said(verdict) == expected


@pytest.mark.parametrize(
    ("requeued", "jobs", "off"),
    [(False, [1], None), (True, [1], None), (False, [1, 2], -1800.0)],
)
def test_a_launch_before_its_allocation_may_be_another_runs(requeued: bool, jobs: list[int], off: float | None) -> None:
    """The line of the first allocation was lost, or is in an older file.

    Its launches do not show a clock half an hour behind, which munge would have rejected. They may be in another zone:
    that is doubtful, and nothing is moved. Two jobs that agree show it.
    """
    lines = [e for job in jobs for e in (
        event("slurm.job_start", 9000 * job, "ctl", "Allocate", source="slurmctld", job_id=job),
        event("slurm.step_start", 9000 * job - 1799, "n1", f"Launching batch job {job} for UID 1", source="slurmd", job_id=job),
        event("slurm.step_start", 9000 * job - 1798, "n1", f"launch task StepId={job}.0 request", source="slurmd", job_id=job, step_id="0"),
    )]  # fmt: skip
    again = event("slurm.job_requeue", 8000, "ctl", "Requeuing JobId=1", source="slurmctld", job_id=1)
    found = offsets([*lines, again] if requeued else lines)
    assert [o.seconds for o in found if o.seconds] == ([] if off is None else [pytest.approx(off, abs=3)])
    assert all(o.sigma >= 1800 for o in found if not o.seconds)


def test_two_runs_of_a_job_on_other_nodes_report_no_clock() -> None:
    """Both start steps 0 and 1; the second run is four minutes later, on n2."""
    lines = [event("slurm.job_start", at, "ctl", "Allocate", source="slurmctld", job_id=1) for at in (0, 240)]
    lines += [
        event("slurm.step_start", at + 2 + 10 * step, host, f"launch task StepId=1.{step} request", source="slurmd", job_id=1, step_id=str(step))
        for at, host in ((0, "n1"), (240, "n2")) for step in (0, 1)
    ]  # fmt: skip
    assert offsets(sorted(lines, key=lambda e: e.time)) == []
