"""A run of which it is open what ended it: no incident counts it, and none says that it was unhurt."""

from __future__ import annotations

from typing import Any

from correlator.evidence.weigh import Weigher
from correlator.incidents.documents import incident_document, verdict_document
from correlator.incidents.incidents import gather
from correlator.verdicts.judge import judge
from tests.correlator.making import event, run, world
from tests.correlator.situations import EDGES, down, node_fail, set_down


def documents(lines: list[Any], **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The verdict on a job of one node that ended NODE_FAIL, and the incidents. The node logged before and after."""
    words = [event("kernel.mce", t, "n1", "EDAC MC: Ver: 3.0.0") for t in (-800, 2000)]
    where = world([*words, *lines], [run(1, ["n1"], -900, 350, "NODE_FAIL")], **more)
    weigher = Weigher(where, EDGES)
    verdicts = judge(where, weigher)
    found = [incident_document(where, weigher, one) for one in gather(where, weigher, verdicts)]
    return verdict_document(where, weigher, verdicts[0], None), found


def test_a_node_of_whose_loss_no_line_tells_is_not_blamed() -> None:
    """Somebody may have set it DOWN, or taken it out of slurm.conf: slurmctld alone would tell."""
    verdict, (incident,) = documents([])
    assert verdict["category"] == "unknown" and verdict["root_cause"] is None
    assert "no line of slurmctld tells how" in verdict["summary"]
    assert "Slurm took a node" in verdict["headline"] and "suspect the program" not in str(verdict["advice"])
    assert incident["confidence"] == 0.5 and not incident["jobs"] and not incident["unaffected_jobs"]
    assert incident["title"].endswith("Whether it ended job 1 is open.") and incident["headline"].endswith(
        "job 1 undecided"
    )


def test_a_node_that_slurmctld_says_did_not_answer_is_named() -> None:
    verdict, (incident,) = documents([*set_down(350, "n1"), *node_fail(350)])
    assert (verdict["category"], verdict["root_cause"]["host"]) == ("infra.node", "n1")
    assert [job["job_id"] for job in incident["jobs"]] == ["1"]


def test_what_would_be_the_cause_by_another_clock_does_not_say_that_no_job_was_hurt() -> None:
    verdict, incidents = documents(
        [*down(360, "n1", "eth0", 900), *set_down(350, "n1"), *node_fail(350)], settings={"SlurmdTimeout": 300}
    )
    assert verdict["category"] == "unknown"
    lost = next(one for one in incidents if one["root_cause"]["event"] == "node.unresponsive")
    assert (
        lost["confidence"] == 0.5 and "Whether it ended job 1 is open" in lost["title"] and not lost["unaffected_jobs"]
    )
