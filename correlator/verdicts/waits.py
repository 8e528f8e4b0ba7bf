"""The confidence in a standstill as the cause of a time limit."""

from __future__ import annotations

from correlator.facts.storage_hangs import Wait, wait_of
from correlator.facts.world import World
from correlator.model.nouns import Fact
from correlator.verdicts.verdict import Verdict

#: The highest confidence if processes could not be killed, or the output stopped with the storage; and if nothing shows
#: that the run used the storage at all.
SHOWN_SURE, UNSHOWN_SURE = 0.95, 0.75
#: A wait of this share of the run made it miss its limit; after a shorter one it may have needed more time anyway.
ENOUGH = 0.5


def doubt_wait(world: World, verdict: Verdict, outage: Fact) -> None:
    """Limits the confidence by the share of the run that it waited, and by what shows that it waited."""
    run = verdict.run
    wait = wait_of(world, outage, run)
    if wait is None:
        return
    verdict.at_most = min(verdict.at_most, _sure(wait))
    if not (wait.stuck or wait.silent):
        verdict.doubts.append(
            f"Nothing tells when its output stopped: it may have worked on while {outage.device} did not answer"
        )
    if wait.share < ENOUGH:
        lasted = (run.end or wait.end) - (run.start or wait.begin)
        verdict.doubts.append(
            f"It waited for {(wait.end - wait.begin) / 60:.0f} of {lasted / 60:.0f} min: it may have needed more time anyway"
        )


def _sure(wait: Wait) -> float:
    sure = SHOWN_SURE if wait.stuck or wait.silent else UNSHOWN_SURE
    return 0.5 + (sure - 0.5) * min(1.0, wait.share / ENOUGH)
