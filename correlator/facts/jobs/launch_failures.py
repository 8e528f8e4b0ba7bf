"""Tasks that could not be started on a node (``launch.failure``)."""

from __future__ import annotations

import re

from correlator.facts.jobs.kinds import LAUNCH_FAILURE, LaunchFailure
from correlator.facts.jobs.lines import END_SLACK_S, of_run
from correlator.facts.world import World
from correlator.model.nouns import Event, Fact

#: Slurm's reasons for not starting a step on a node that concern the node or the network to it, not the program.
_LAUNCH_REFUSED = re.compile(
    r"credential (?:revoked|expired)|invalid job credential|communication connection failure|unable to contact slurmd|socket timed out"
    r"|protocol authentication error|connection (?:refused|timed out)|no route to host|zero bytes",
    re.IGNORECASE,
)

#: A slurmd's answer about a job that it considers killed, or if its clock is wrong.
_CREDENTIAL = re.compile(r"job credential (?:revoked|expired)", re.IGNORECASE)

#: A program that does not exist, or that may not be executed, is its user's fault.
_NOT_RUNNABLE = re.compile(r"\bexecve\b.*(?:permission denied|no such file|exec format|not a directory)", re.IGNORECASE)

#: A step for which its user asked for more than the job has or the site allows: no node and no network had a part in it
#: (slurm slurm/slurm_errno.h, src/slurmctld/step_mgr.c).
_REFUSED = re.compile(
    r"^srun: error: (?:Unable to create step for job \d+: (?:Memory required by task is not available|More processors requested than permitted"
    r"|Invalid generic resource|Step limit reached for this job|Task count specification invalid|CPU count specification invalid"
    r"|Node count specification invalid|More time requested than permitted)|.*\bx11 forwarding\b|Couldn't find the specified plugin name for mpi/)",
    re.IGNORECASE,
)


def launch_failures(world: World) -> list[Fact]:
    """``launch.failure`` per run and node: its tasks could not be started there.

    attrs revoked: the node still considered the job killed; refused: it answered, and rejected the request.
    """
    by_node: dict[tuple[str, str], list[Event]] = {}
    for event in world.kinds("job.launch_error"):
        if event.job_id is None or not _LAUNCH_REFUSED.search(event.message):
            continue
        for run in world.runs_of_job.get(event.job_id, ()):
            if run.ended_badly and of_run(run, [event]):
                for host in event.entities.get("nodes") or ():
                    by_node.setdefault((run.key, str(host)), []).append(event)
    for event in world.kinds("slurm.comm_error"):
        if event.source == "slurmd" and _CREDENTIAL.search(event.message):
            for run in world.runs_at(event.host or "", event.time, END_SLACK_S):
                if run.ended_badly:
                    by_node.setdefault((run.key, event.host or ""), []).append(event)
    facts = []
    for (key, host), events in sorted(by_node.items()):
        first = min(events, key=lambda e: (e.sigma, e.time, e.id))  # slurmd's lines have a timestamp, srun's have none
        refused = [e for e in events if _CREDENTIAL.search(e.message)]
        attrs: LaunchFailure = {
            "revoked": any("revoked" in e.message.lower() for e in events),
            "refused": bool(refused),
        }
        facts.append(
            LAUNCH_FAILURE.fact(first.time, None, first.sigma, host, run=key, attrs=attrs, events=(first, *(e for e in events if e is not first)))
        )  # fmt: skip
    return facts


def is_its_users_fault(message: str) -> bool:
    """Does srun report a program that cannot be executed, or a step that asked for too much?"""
    return bool(_NOT_RUNNABLE.search(message) or _REFUSED.search(message))
