"""A backup controller that takes over has not restarted, and a node that it set DOWN is not lost again when another reads so."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.facts.registry import title_of
from tests.correlator.erins_job import concluded
from tests.correlator.making import event, facts, run, world

START = "slurmctld version 22.05.8 started on cluster mini"
SERVES = "Running as primary controller"
TAKES_OVER = "error: ControlMachine ctl not responding, BackupController1 ctl2 taking over"
STANDS_BY = "slurmctld running in background mode"


def restarts(*said: tuple[float, str, str]) -> list[tuple[str | None, float, bool]]:
    lines = [event("slurm.daemon_start", at, host, text, source="slurmctld") for at, host, text in said]
    found = facts(world(lines), "controller.restart")
    return [(fact.host, fact.start, bool(fact.attrs.get("took_over"))) for fact in found]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (((0, "ctl", START), (1.5, "ctl", SERVES)), [("ctl", 0, False)]),
        (((0, "ctl2", TAKES_OVER), (0.6, "ctl2", SERVES)), [("ctl2", 0, True)]),
        (((0, "ctl2", TAKES_OVER), (40, "ctl2", SERVES)), [("ctl2", 0, True), ("ctl2", 40, True)]),
        (((0, "ctl2", STANDS_BY),), []),
        (((0, "ctl2", START), (1, "ctl2", STANDS_BY)), [("ctl2", 0, False)]),
        (((0, "ctl", START), (1, "ctl", SERVES), (2, "ctl2", STANDS_BY)), [("ctl", 0, False)]),
        (((0, "ctl2", TAKES_OVER), (60, "ctl2", START), (61, "ctl2", SERVES)), [("ctl2", 0, True), ("ctl2", 60, False)]),
    ],
)  # fmt: skip
def test_what_restarts_and_what_takes_over(said: Any, found: Any) -> None:
    start = restarts((0, "c", START))[0][1]
    assert restarts(*said) == [(host, start + at, took_over) for host, at, took_over in found]


def test_a_takeover_says_what_it_is() -> None:
    (fact,) = facts(
        world([event("slurm.daemon_start", 0, "ctl2", TAKES_OVER, source="slurmctld")]), "controller.restart"
    )
    assert title_of(fact) == "the backup controller ctl2 took over"


@pytest.mark.parametrize(("returns", "incident"), [("", True), (f"[2026-02-28T10:40:00.000] {START}\n", False)])
def test_a_takeover_is_the_incident_if_the_other_never_comes_back(returns: str, incident: bool) -> None:
    said = f"[2026-02-28T09:00:00.000] {STANDS_BY}\n[2026-02-28T10:18:10.000] {TAKES_OVER}\n[2026-02-28T10:18:12.000] {SERVES}\n"
    found = concluded({"controller/slurmctld.log": returns, "ctl2/slurmctld.log": said}, False, {})
    begun = [i["start"][:16] for i in found["incidents"] if i["root_cause"]["event"] == "slurm.controller_restart"]
    assert begun == ["2026-02-28T10:18" if incident else "2026-02-28T10:40"]


DOWN, RECALLED = "error: Nodes n1 not responding, setting DOWN", "Down nodes: n1"


@pytest.mark.parametrize(
    ("others", "runs", "count"),
    [
        ([("slurm.node_down", 0, "ctl2", DOWN)], [], 1),
        ([], [], 1),
        # It was back meanwhile, as a line or a run shows; another node was lost; or it is set DOWN once more.
        ([("slurm.node_down", 0, "ctl2", DOWN), ("slurm.node_up", 30, "ctl2", "Node n1 now responding")], [], 2),
        ([("slurm.node_down", 0, "ctl2", DOWN)], [run(1, ["n1"], 20, 90)], 2),
        ([("slurm.node_down", 60, "ctl", DOWN)], [], 2),
    ],
)  # fmt: skip
def test_a_node_that_is_found_down_is_lost_once(others: Any, runs: Any, count: int) -> None:
    lines = [event(kind, at, host, text, source="slurmctld", nodes=["n1"]) for kind, at, host, text in others]
    lines.append(event("slurm.node_down", 40, "ctl", RECALLED, source="slurmctld", nodes=["n1"]))
    assert len(facts(world(lines, runs), "node.down")) == count
