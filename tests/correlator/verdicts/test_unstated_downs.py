"""A node that only a run's end shows as lost, and one that never came up: the confidence, and the wording."""

from __future__ import annotations

from correlator.evidence.weigh import Weigher
from correlator.incidents.incidents import gather
from correlator.incidents.sentences import headline
from correlator.model.time_texts import clock
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import EDGES, judged, node_fail, said, set_down

VOICES = frozenset({"n1", "n2"})


def test_why_a_node_was_lost_that_nobody_says_fell_silent_is_left_open() -> None:
    """Without slurmctld's log an administrator may as well have set it DOWN."""
    lost = run(1, ["n1"], -900, 350, "NODE_FAIL")
    where = world([event("kernel.mce", -600, "n1", "x")], [lost], reporting_hosts=VOICES)
    unsaid, silent = (
        judged(where)["1"],
        judged(world([*set_down(350, "n1"), *node_fail(350)], [lost], reporting_hosts=VOICES))["1"],
    )
    assert said(silent) == ("infra.node", "node.down", "n1") and silent.confidence > 0.5
    assert unsaid.category == "unknown" and unsaid.left_open and "somebody set it DOWN" in unsaid.reason


def test_a_node_that_did_not_resume_is_reported_for_certain() -> None:
    late = event("slurm.node_down", 0, "ctl", "error: node n1 not resumed by ResumeTimeout(300), setting DOWN and POWERED_DOWN",
                 source="slurmctld", nodes=["n1"], secs="300")  # fmt: skip
    where = world(
        [late, *node_fail(0)], [run(1, ["n1", "n2"], -310, 0, "NODE_FAIL")], reporting_hosts=frozenset({"n2"})
    )
    found = judged(where)
    assert found["1"].confidence > 0.85
    (incident,) = gather(where, Weigher(where, EDGES), list(found.values()))
    assert "n1 did not resume" in headline(incident)


def test_a_time_of_day_says_its_zone() -> None:
    assert clock(T0) == "16:00:00.000 UTC"
