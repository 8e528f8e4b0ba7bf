"""Jobs of which slurmctld had no record any more when it was back: it was started with ``-c``, or with another state.

It ends them in accounting as cancelled by nobody when it registers there, and kills what nodes report of them as orphans
(slurm src/slurmctld/controller.c, src/slurmctld/job_mgr.c validate_jobs_on_node).
"""

from __future__ import annotations

import re
from typing import TypedDict

from correlator.facts.control import CONTROLLER_RESTART
from correlator.facts.world import World
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Event, Fact, Run


class JobsForgotten(TypedDict):
    """``runs`` that went on when slurmctld ended, and that their nodes reported to it as orphans when it was back."""

    runs: list[str]


JOBS_FORGOTTEN = Kind(
    "jobs.forgotten", "slurmctld", "slurmctld restarted without its record of running jobs.", JobsForgotten,
    witnesses=("slurmctld",),
    brief="slurmctld forgot running jobs", reported_within_s=300.0,
    cause=Cause(
        "slurm.controller_restart", "infra.scheduler", "slurmctld was restarted without its record of running jobs, and ended them",
        "Slurm's controller was restarted without its record of running jobs",
        (("See how slurmctld was started (-c, -i), and whether StateSaveLocation held its state.", None),),
        short="slurmctld forgot running jobs", disproof="A request in slurmctld's log to cancel the job.",
    ),
)  # fmt: skip

#: slurmctld's line about a job on a node that it has no record of (slurm src/slurmctld/job_mgr.c).
_ORPHAN = re.compile(r"\bOrphan (?:JobId=|StepId=|job )")

#: slurmctld that was away for longer had lost more than its record; nodes register within some of its pings (seconds).
AWAY_S, REGISTERED_S = 900.0, 300.0


def is_orphan(event: Event) -> bool:
    """Does slurmctld say that a node reported a job that it has no record of?"""
    return event.source == "slurmctld" and _ORPHAN.search(event.message) is not None


def forgotten(world: World) -> list[Fact]:
    """``jobs.forgotten`` per restart of slurmctld after which nodes reported jobs that had gone on until then."""
    restarts = world.facts_of(CONTROLLER_RESTART.name)
    if not restarts:
        return []
    orphans = [e for e in world.kinds("slurm.node_error") if e.job_id is not None and is_orphan(e)]
    facts = []
    for restart in restarts if orphans else ():
        lines = [e for e in orphans if 0.0 <= e.time - restart.start <= REGISTERED_S]
        runs = {r.key: r for e in lines for r in world.runs_of_job.get(e.job_id or 0, ()) if _went_on(r, restart)}
        if not runs:
            continue
        jobs = {run.job_id for run in runs.values()}
        attrs: JobsForgotten = {"runs": sorted(runs)}
        events = (*restart.events, *[e for e in lines if e.job_id in jobs][:10])
        facts.append(JOBS_FORGOTTEN.fact(restart.start, None, restart.sigma, restart.host, attrs=attrs, events=events))
    return facts


def _went_on(run: Run, restart: Fact) -> bool:
    """Had the run begun, and does accounting end it about when slurmctld ended or was back?"""
    if run.start is None or run.end is None or run.start > restart.start:
        return False
    return restart.start - AWAY_S <= run.end <= restart.start + REGISTERED_S


KINDS = (JOBS_FORGOTTEN,)
DETECTORS = [forgotten]
