"""Runs that failed by themselves after somebody or something outside of the program had stopped it, or ordered it to end.

An operator's ``scontrol suspend`` stops all its processes: what measures time in it, or waits for it, takes that for a hang.
Slurm orders the tasks of a run that it preempts to end, and lets them go on for a time of grace (GraceTime): a program that
heeds that ends with a code of its own, and the run counts as failed.
"""

from __future__ import annotations

import re

from correlator.facts.world import World
from correlator.model.attributes import OUTPUT, WORDS
from correlator.model.nouns import Event, Fact, Run
from correlator.verdicts.verdict import quoted
from parsers.documents.fields import integer
from parsers.writers import USERS

#: What runs on after a suspension fails of it at once, or when a wait of its own is over (seconds).
AT_ONCE_S, WAITED_S = 5.0, 60.0
_OF_TIME = re.compile(
    r"time-?d? ?out|watchdog|heart-?beat|\bhang\b|\bhung\b|stall|no progress|deadline|lease|expired|keep-?alive|unresponsive|lost contact",
    re.IGNORECASE,
)

#: A run that is preempted with a time of grace ends within that; sites give minutes (seconds).
GRACE_S = 600.0
#: The exit code of the command ``timeout`` (coreutils), with which a script ends its own srun.
OF_TIMEOUT = 124
#: slurmstepd's words in the output where it was ordered to end the tasks of a step, for no reason that it names
#: (slurm src/slurmd/slurmstepd/req.c).
_ORDERED = re.compile(
    r"^slurmstepd[\w.-]*: error: \*\*\* STEP \S+ ON \S+ CANCELLED AT \S+(?: DUE to SIGNAL Terminated)? \*\*\*$"
)


def ended_from_outside(world: World, run: Run, end: Fact) -> tuple[str, list[Event]] | None:
    """What had stopped a run that failed, or ordered it to end, in words, and the lines that show it."""
    return _suspended(world, run, end) or _ordered_to_end(world, run, end)


def _suspended(world: World, run: Run, end: Fact) -> tuple[str, list[Event]] | None:
    acts = [
        e for e in world.by_job.get(run.job_id, ()) if e.kind == "slurm.job_suspended" and e.source == "slurmctld"
        and e.authority not in USERS and (run.start or 0.0) <= e.time <= end.start + 1.0
    ]  # fmt: skip
    if not acts:
        return None
    resumed = next((e for e in reversed(acts) if e.entities.get("action") == "resume"), None)
    since = next((e for e in reversed(acts) if e is not resumed and (resumed is None or e.time <= resumed.time)), None)
    if since is None:
        return None
    if resumed is None:
        return f"somebody had suspended it (scontrol suspend) {end.start - since.time:.0f} s before its end", [since]
    after = max(0.0, end.start - resumed.time)
    words = [*end.attrs[WORDS]["own"], *end.attrs[WORDS]["peers"], *end.attrs[OUTPUT]]
    if after > (WAITED_S if any(_OF_TIME.search(e.message) for e in words) else AT_ONCE_S):
        return None
    for_s = resumed.time - since.time
    return (
        f"somebody had suspended it (scontrol suspend) for {for_s:.0f} s, and it ended {after:.0f} s after it went on: its own error, or what its program took for a hang",
        [since, resumed],
    )


def _ordered_to_end(world: World, run: Run, end: Fact) -> tuple[str, list[Event]] | None:
    """Slurm ordered its tasks to end before they reported any error; slurmctld's log has no request for that."""
    output: list[Event] = sorted(end.attrs[OUTPUT], key=_place)
    order = next((e for e in output if e.kind == "job.cancelled" and _ORDERED.search(e.message)), None)
    if order is None or not 0.0 <= end.start - order.time <= GRACE_S or not _preempts(world):
        return None
    if integer(run.row.get("exit_code")) == OF_TIMEOUT:
        return None
    errors = [*end.attrs[WORDS]["own"], *end.attrs[WORDS]["aftermath"]]
    if any(_place(e) < _place(order) for e in errors):
        return None  # srun ends the other tasks after one that failed
    if not any(e.source == "slurmctld" for e in world.by_job.get(run.job_id, ())):
        return None  # its log would have the request of a person
    reason = (
        f"Slurm ordered its tasks to end before it failed, and slurmctld logged no request for that: {quoted(order).rstrip('.')}; "
        "by preemption with a time of grace (PreemptTime of scontrol show job), or by a signal that its own script sent to srun"
    )
    return reason, [order]


def _place(event: Event) -> tuple[float, int]:
    return event.time, event.line or 0


def _preempts(world: World) -> bool:
    """Does the configuration that was collected let Slurm preempt jobs?"""
    settings = world.inventory.settings if world.inventory else ()
    return any(
        row.get("scope") == "cluster" and row.get("name") == "PreemptType" and str(row.get("value")) not in ("", "preempt/none", "(null)")
        for row in settings
    )  # fmt: skip
