"""Why a run went back into the queue, if no cause in the infrastructure explains it."""

from __future__ import annotations

import re

from correlator.facts.gpu_drains import ASKED_REQUEUE
from correlator.facts.world import World
from correlator.model.nouns import Fact, Run
from correlator.verdicts import stated_ends
from correlator.verdicts.burst_buffers import unready
from correlator.verdicts.cancellations import ROOT_OR_SLURMD_SURE, may_not_have_been_launched
from correlator.verdicts.verdict import Explanation, quoted
from parsers.documents.fields import integer

#: slurmctld's lines for a job that it could not start itself (slurm src/slurmctld/job_scheduler.c).
_UNSTARTED = re.compile(
    r"\b(?:Can not create job credential|prolog_slurmctld failed for JobId=\S+), (?:attempting to )?requeu"
)

#: Only a run that ended by itself has an exit code of its own in accounting; a launch that failed may have one.
RETURNED_SURE = 0.8
ASKED_SURE = 0.9
UNSTATED_SURE = 0.7
#: slurmctld says so, and accounting calls it a requeue.
PREEMPTED_SURE = 0.98


def requeued(world: World, run: Run, end: Fact) -> Explanation:
    """The explanation of a requeue by accounting and by Slurm's own lines."""
    if own := [e for e in end.events if e.source == "slurmctld" and _UNSTARTED.search(e.message)]:
        reason = f"slurmctld could not start it and put it back into the queue: {quoted(own[0])}"
        return Explanation("infra.scheduler", reason, own[:5], UNSTATED_SURE)
    if preempted := [e for e in end.events if e.source == "slurmctld" and e.kind == "slurm.job_preempted"]:
        return Explanation("sched.preempt", stated_ends.preempted(preempted), preempted[:5], PREEMPTED_SURE)
    if failed := unready(world, run):
        reason = f"its burst buffer was not made ready, and Slurm put it back into the queue: {quoted(failed[-1])}"
        return Explanation("infra.scheduler", reason, failed[:5], UNSTATED_SURE)
    unlaunched = run.state == "LAUNCH_FAILED"
    code = integer(run.row.get("exit_code"))
    if code and not unlaunched:
        how = (
            "held it in the queue (RequeueExitHold)"
            if stated_ends.is_held(run)
            else "put it back into the queue (RequeueExit)"
        )
        reason = f"it ended by itself with exit code {code}, and Slurm {how}"
        return Explanation("app.error", reason, list(end.events)[:5], RETURNED_SURE)
    asked = [e for e in end.events if ASKED_REQUEUE.search(e.message)]
    if asked and not unlaunched:
        unlogged = may_not_have_been_launched(world, run)
        also = ", or a slurmd that could not launch it and whose log was not collected" if unlogged else ""
        reason = f"somebody asked for it to be requeued (its user, its own script or an administrator{also})"
        return Explanation("user.cancel", reason, asked[:5], ROOT_OR_SLURMD_SURE if unlogged else ASKED_SURE)
    what = "Slurm could not launch it and put it back into the queue" if unlaunched else "it was requeued"
    return Explanation("unknown", f"{what}, and nothing tells why", asked[:5], UNSTATED_SURE)
