"""Programs that could start no more processes where the kernel says that a control group of their node had reached its limit.

Such a limit (TasksMax of slurmd's unit, pids.max of what is above the jobs) holds for all jobs there together. Any of them may
have used it up, this one too, and so may what others started. The kernel writes the line once for each group, without a number.
"""

from __future__ import annotations

import re

from correlator.facts.environment.kinds import PROCESSES
from correlator.facts.environment.symptoms import signature_of
from correlator.facts.jobs.lines import between
from correlator.facts.world import World
from correlator.model.nouns import Event, Fact, Run

#: A program that gets no process fails within this of the kernel's line (seconds).
FAILS_WITHIN_S = 60.0


def refused_fork(world: World, run: Run, end: Fact) -> tuple[str, list[Event]] | None:
    """What ended a run whose last error is that it could start no process, in words, with its lines; None without a line of the
    kernel shortly before; of a limit that holds for one job or for one user there is no such event."""
    refused = [
        e for host in run.nodes for e in between(world.by_host.get(host, ()), end.start - FAILS_WITHIN_S, end.start + 1.0)
        if e.kind == "kernel.fork_refused" and _holds_jobs(_group(e)) and run.covers(e.time)
    ]  # fmt: skip
    refused.sort(key=lambda e: (e.time, e.id))
    signature = signature_of(end) if refused else None
    if signature is None or signature.event is None or signature.symptom.name != PROCESSES:
        return None
    first = refused[0]
    which = (
        f"the control group {_group(first)}, which it shares with others,"
        if _group(first)
        else "a control group, which it does not name,"
    )
    reason = (
        f"it could start no more processes on {first.host}, as its output says, and the kernel there says that {which} had reached its limit; "
        "who had used that up, nothing that was collected tells"
    )
    return reason, [first, signature.event]


#: What systemd starts beside slurmd: its processes are no jobs, and the limit of its group holds for none.
_BESIDE_SLURM = re.compile(r"/(?:machine\.slice|(?![^/]*slurm)[^/]*\.service)(?:/|$)")


def _holds_jobs(group: str) -> bool:
    """May jobs of Slurm be in a control group? Cron's, which users can fill, holds none. True where the kernel names no group."""
    return _BESIDE_SLURM.search(group) is None


def _group(refused: Event) -> str:
    """The path of the control group; empty where the kernel's line has none."""
    return str(refused.entities.get("cgroup") or "")
