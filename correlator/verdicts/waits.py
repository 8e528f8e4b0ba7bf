"""The confidence in a standstill as the cause of a time limit."""

from __future__ import annotations

from correlator.facts.storage_hangs import Elsewhere, Wait, ended_elsewhere, wait_of
from correlator.facts.world import World
from correlator.model.nouns import Fact
from correlator.verdicts.verdict import Verdict

#: The highest confidence if processes could not be killed, or the output stopped with the storage; and if nothing shows
#: that the run used the storage at all.
SHOWN_SURE, UNSHOWN_SURE = 0.95, 0.75
#: If the same program ended in time elsewhere: it may have had other work there.
ELSEWHERE_SURE = 0.85
#: A wait of this share of the run made it miss its limit; after a shorter one it may have needed more time anyway.
ENOUGH = 0.5


def doubt_wait(world: World, verdict: Verdict, outage: Fact) -> None:
    """Limits the confidence by the share of the run that it waited, and by what shows that it waited."""
    run = verdict.run
    wait = wait_of(world, outage, run)
    if wait is None:
        return
    elsewhere = None if wait.stuck or wait.silent else ended_elsewhere(world, run, wait)
    verdict.at_most = min(verdict.at_most, _sure(wait, elsewhere))
    if not (wait.stuck or wait.silent):
        beside = (
            f"; job {elsewhere.run.key} of the same name took {elsewhere.took:.0f} s elsewhere" if elsewhere else ""
        )
        verdict.doubts.append(
            f"Nothing tells when its output stopped: it may have worked on while {outage.device} did not answer{beside}"
        )
    if wait.share < ENOUGH:
        lasted = (run.end or wait.end) - (run.start or wait.begin)
        verdict.doubts.append(
            f"It waited for {(wait.end - wait.begin) / 60:.0f} of {lasted / 60:.0f} min: it may have needed more time anyway"
        )


def _sure(wait: Wait, elsewhere: Elsewhere | None) -> float:
    sure = SHOWN_SURE if wait.stuck or wait.silent else ELSEWHERE_SURE if elsewhere else UNSHOWN_SURE
    return 0.5 + (sure - 0.5) * min(1.0, wait.share / ENOUGH)
