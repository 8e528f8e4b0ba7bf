"""Runs that stood still until their time limit, if no chain leads to the infrastructure: what shows it, and what their users read."""

from __future__ import annotations

from typing import NamedTuple

from correlator.edges.conditions.retries import RETRIED
from correlator.edges.conditions.storage import MOST_OF_IT, SHORT_S
from correlator.evidence.chains import Chain
from correlator.facts.gpu_hangs import Stood, stood_by
from correlator.facts.gpu_holders import may_hold_as_well, not_held
from correlator.facts.gpus import XID
from correlator.facts.slow_runs import GPUS, SIGN, STALLED, STEPS
from correlator.facts.standstills import silence, stopped_together, wrote_after
from correlator.facts.storage import STORAGE_OUTAGE
from correlator.facts.storage_hangs import hung_tasks, unkilled, wait_of, went_on
from correlator.facts.world import World
from correlator.model.attributes import CODE, LOST, WORDS
from correlator.model.nouns import Event, Fact, Run

#: A run that slows down and stays slow, or whose ranks lost each other, is as often held back by a node, a link or the
#: storage as by itself.
SLOWED_SURE = 0.5
#: A deadlock is the program's own fault; output that was lost in a buffer looks the same.
STALLED_SURE = 0.6
#: Processes in D state wait for storage or a driver; the run may have been too long all the same.
STUCK_SURE = 0.6

#: A GPU that failed is one of those that a run may have held.
BESIDE_GPU_SURE = 0.5

#: A run whose last line is this young had not stood still for long when it was ended (seconds); many write once a minute.
WROTE_S = 120.0

HEADLINE = "Your job stood still before it reached its time limit."
ADVICE = (
    "More time (--time) alone would not help: find out at what it stopped (the end of its output; py-spy or gdb in a run that hangs) "
    "and whether its file system answers."
)
STUCK_HEADLINE = "Your job waited for storage or a driver when its time limit came."
STUCK_ADVICE = (
    "Tell the operators of the cluster on which node it waited. Whether more time (--time) would help is not known."
)
_UNSTATED = "what held it up, if anything did, nothing that was collected tells"


class StoodStill(NamedTuple):
    """Category, confidence, reason and evidence of the verdict, and what its user reads."""

    category: str
    confidence: float
    reason: str
    events: list[Event]

    @property
    def words(self) -> tuple[str, str]:
        """Headline and advice."""
        return (HEADLINE, ADVICE) if self.category == "app.timeout" else (STUCK_HEADLINE, STUCK_ADVICE)

    @property
    def at_most(self) -> float:
        """The highest confidence, however often such verdicts are right."""
        return 1.0


class MayHaveStood(StoodStill):
    """The same if it is open whether the run stood still: its user reads what anybody reads about a time limit."""

    @property
    def words(self) -> tuple[str, str]:
        return ("", "")


class BesideGpu(MayHaveStood):
    """The same if it is also open whether it had the GPU that failed."""

    @property
    def at_most(self) -> float:
        return BESIDE_GPU_SURE


def stood_still(world: World, run: Run, end: Fact, chains: list[Chain], lines: list[Event]) -> StoodStill | None:
    """What a TIMEOUT after a standstill rests on, the surest sign first; None if nothing shows a standstill. ``lines`` are
    Slurm's about the limit."""
    stalled = next((c.root for c in chains if c.root.kind == STALLED.name), None)
    if stalled is not None and stalled.attrs[SIGN] == STEPS:
        why = f"its output tells of no step in the last {stalled.attrs[LOST] / 60.0:.0f} min before its time limit; {_UNSTATED}"
        return StoodStill("app.timeout", STALLED_SURE, why, lines)
    if hung := [e for e in end.attrs[WORDS]["peers"] if RETRIED.search(e.message)]:
        why = "its ranks had lost each other and it stood still until its time limit; what parted them, nothing that was collected tells"
        return StoodStill("app.timeout", SLOWED_SURE, why, [*hung[:3], *lines])
    if (stuck := _in_the_kernel(world, run, lines)) is not None:
        return stuck
    if (beside := _beside_storage(world, run, lines)) is not None:
        return beside
    if (beside := _beside_gpu(world, run, lines)) is not None:
        return beside
    if silent := _silent(world, run):
        return StoodStill("app.timeout", STALLED_SURE, silent, lines)
    if stalled is not None and stalled.attrs[SIGN] == GPUS:
        why = f"its GPUs, which had worked, did nothing in the last {stalled.attrs[LOST] / 60.0:.0f} min before its time limit; {_UNSTATED}"
        return StoodStill("app.timeout", STALLED_SURE, why, lines)
    return None


def _in_the_kernel(world: World, run: Run, lines: list[Event]) -> StoodStill | None:
    """Processes of the run, or tasks of its nodes, that waited in the kernel (D state)."""
    given_up = unkilled(world, run)
    if given_up is not None and not wrote_after(world, run, (run.end or 0.0) - WROTE_S):
        why = (
            f"its processes on {given_up.host} waited in the kernel when its time limit came, for storage or a driver (SIGKILL did not end them); "
            "since when, and whether it would have ended in time without that, nothing that was collected tells"
        )
        return StoodStill("unknown", STUCK_SURE, why, [*given_up.events[:2], *lines])
    if hung := hung_tasks(world, run):
        task = next((str(e.entities["process"]) for e in hung if e.entities.get("process")), "a task")
        before = ((run.end or hung[0].time) - hung[0].time) / 60.0
        why = (
            f"it reached its time limit, and the kernel of {hung[0].host} had logged {before:.0f} min before that {task} did not go on; "
            "whether that held the job up, nothing that was collected tells"
        )
        return MayHaveStood("app.timeout", STALLED_SURE, why, [*hung, *lines])
    return None


def _beside_storage(world: World, run: Run, lines: list[Event]) -> StoodStill | None:
    """Storage that did not answer for most of a short run, and too shortly to be blamed for a time limit by itself."""
    for outage in world.facts_on(STORAGE_OUTAGE.name, run.nodes, listed=True):
        if run.start is None or run.end is None or outage.start > run.end or (outage.end or run.end) < run.start:
            continue
        wait = wait_of(world, outage, run)
        if wait is None or wait.share < MOST_OF_IT or wait.end - wait.begin < SHORT_S or went_on(world, run, wait):
            continue
        why = (
            f"it reached its time limit, and {outage.device} did not answer its node for {wait.end - wait.begin:.0f} of its "
            f"{run.end - run.start:.0f} s; whether it needed that storage, nothing that was collected tells"
        )
        return MayHaveStood("app.timeout", STALLED_SURE, why, [*outage.events[:2], *lines])
    return None


def _beside_gpu(world: World, run: Run, lines: list[Event]) -> StoodStill | None:
    """A GPU of its node that only a reset brings back, and which the run may have held, or another one there."""
    for fault in world.facts_on(XID.name, run.nodes):
        if not_held(world, run, fault) is not None or not isinstance(stood := stood_by(world, fault, run), Stood):
            continue
        others = may_hold_as_well(world, run, fault)
        if not others:
            continue
        why = (
            f"it reached its time limit, and a GPU of {fault.host} had failed {stood.left:.0f} s before (Xid {fault.attrs.get(CODE)}); whether job {run.key} held "
            f"it or job {min(o.key for o in others)}, and whether it stood still from then on, nothing that was collected tells"
        )
        return BesideGpu("app.timeout", BESIDE_GPU_SURE, why, [*fault.events[:2], *lines])
    return None


def _silent(world: World, run: Run) -> str:
    """How long a run's output had been silent when it reached its time limit, in words; empty if it wrote on."""
    since = silence(world, run)
    if since is None or run.end is None:
        return ""
    stopped = f"its output stopped {(run.end - since) / 60.0:.0f} min before its time limit"
    if others := stopped_together(world, run, since):
        users = len({str(other.row["user"]) for other in others})
        return (
            f"{stopped}, as did that of {len(others)} run{'s' if len(others) > 1 else ''} of {users} other user{'s' if users > 1 else ''} on other nodes "
            "in the same minutes: something that they share may have held all of them up, and nothing that was collected tells what"
        )
    return f"{stopped}; whether it hung, somebody stopped it or its output waits in a buffer, nothing that was collected tells"
