"""What a clock or a timeout that nobody knows would explain is left open, and what needs no clock is not."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.clocks.clocks import shared_with_accounting
from correlator.clocks.offset import Offset
from correlator.clocks.signs import PAIR_ACCOUNTING, PAIR_RECEIVED
from correlator.edges.conditions.nodes import away_at_boot
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_REBOOT
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import LINKS, down, judged, lost_peers, node_fail, said, set_down


def lost_node(lines: list[Any], at: float = 350.0, **more: Any) -> Any:
    """The verdict on a job whose node n1 was set DOWN; n1 logged at all times."""
    job = run(1, ["n1", "n2"], -900, at, "NODE_FAIL")
    words = [event("kernel.mce", t, "n1", "EDAC MC: Ver: 3.0.0") for t in (-800, 2000)]
    return judged(world([*words, *lines, *set_down(at, "n1"), *node_fail(at)], [job], **more))["1"]


def test_a_link_that_was_back_is_left_open_if_the_timeout_is_not_known() -> None:
    lines = down(0, "n1", "eth0", 240)
    open_one = lost_node(lines, settings={"MessageTimeout": 10})
    assert said(open_one)[0] == "unknown" and "no SlurmdTimeout was collected" in open_one.reason
    known = lost_node(lines, settings={"SlurmdTimeout": 300})
    assert said(known) == ("infra.node", "node.down", "n1")


@pytest.mark.parametrize("away", [2.0, 20.0])
def test_no_timeout_makes_a_short_flap_long_before_the_cause(away: float) -> None:
    found = lost_node(down(0, "n1", "eth0", away), settings={"MessageTimeout": 10})
    assert "no SlurmdTimeout" not in found.reason


def test_a_link_that_would_be_the_cause_by_another_clock_leaves_the_node_open() -> None:
    found = lost_node(down(360, "n1", "eth0", 900), settings={"SlurmdTimeout": 300})
    assert said(found)[0] == "unknown" and "if a clock is off" in found.reason


def test_a_nodes_own_clock_is_not_off_by_more_than_munge_allows() -> None:
    found = lost_node(down(-700, "n1", "eth0", 200), settings={"SlurmdTimeout": 300})
    assert said(found) == ("infra.node", "node.down", "n1")
    assert not any("if a clock is off" in doubt for doubt in found.doubts)


def test_a_switchs_clock_may_be_off_by_more_than_munge_allows() -> None:
    lines = [
        event("switch.port_down", at, "tor", "Ethernet1: down", source="switch", port="Ethernet1") for at in (-700,)
    ]
    lines += [event("switch.port_up", 200, "tor", "Ethernet1: up", source="switch", port="Ethernet1")]
    found = lost_node(lines, settings={"SlurmdTimeout": 300}, links=LINKS)
    assert said(found)[0] == "unknown" and "if a clock is off" in found.reason


def boot(went: float, *, inferred: bool) -> Any:
    attrs: Any = {"boot": T0 + 370, "noticed": T0 + 375, **({"inferred": True} if inferred else {})}
    return NODE_REBOOT.fact(T0 + went, T0 + 375, 0.5, "n1", attrs=attrs)


def loss(*, far: bool) -> Any:
    attrs: Any = {"role": "unknown", **({"far_end_only": True} if far else {})}
    return LINK_OUTAGE.fact(T0 + 330, T0 + 372, 0.1, "n1", "p1", attrs=attrs)


@pytest.mark.parametrize(("inferred", "far", "holds"), [(True, True, True), (False, True, False), (True, False, False)])
def test_a_machine_that_went_some_time_before_its_boot_took_a_link_along_of_which_it_logged_nothing(
    inferred: bool, far: bool, holds: bool
) -> None:
    where = world([], spoke=lambda host: [T0 + 60.0])
    assert (away_at_boot(where, boot(70, inferred=inferred), loss(far=far)) is None) == holds


def test_accounting_has_the_controllers_clock_unless_it_shows_that_the_log_is_off() -> None:
    clock, log = (Offset("ctl", 0.0, 9.0, 41.0, 3.0, f"{why} agree on it") for why in (PAIR_RECEIVED, PAIR_ACCOUNTING))
    node, zone = Offset("n1", 0.0, 9.0, 41.0, 3.0, ""), Offset("ctl", 0.0, 9.0, 3600.0, 0.0, "", zone=True)
    assert shared_with_accounting([node, clock, zone], {"ctl"}) == [clock]
    assert not shared_with_accounting([log], {"ctl"}) and not shared_with_accounting([clock], {"ctl", "backup"})


@pytest.mark.parametrize(("early", "category"), [(0.0, "infra.network"), (600.0, "unknown")])
def test_a_controller_whose_line_arrived_before_it_was_written_dates_no_run(early: float, category: str) -> None:
    """Only accounting tells of the run's end."""
    line = event("slurm.node_up", 900, "ctl", "Node n2 now responding", source="slurmctld", received=900 - early)
    job = run(1, ["n1"], -900, 350, "NODE_FAIL")
    found = judged(world([*down(0, "n1", "eth0", 900), line], [job]))["1"]
    assert said(found)[0] == category and ("before it was written" in found.reason) == bool(early)


@pytest.mark.parametrize(("early", "category"), [(0.0, "infra.network"), (57.0, "unknown")])
def test_a_node_that_launches_before_the_submission_dates_no_cause(early: float, category: str) -> None:
    """The job was requeued later, so that its launches do not tell by how much the clock was off."""
    submit = event(
        "slurm.job_submit", -950, "ctl", "_slurm_rpc_submit_batch_job: JobId=1", source="slurmctld", job_id=1
    )
    launch = event("slurm.step_start", -948 - early, "n1", "launch task StepId=1.0", source="slurmd", job_id=1)
    where = world(
        [submit, launch, *down(-900, "n1", "ib0", 900), *lost_peers(-850)], [run(1, ["n1", "n2"], -949, -848)]
    )
    found = judged(where)["1"]
    assert said(found)[0] == category and ("before its job was submitted" in found.reason) == bool(early)
