"""Runs whose GPU failed during them so that only a reset brings it back, and which then reached their time limit.

A program that uses such a GPU waits in its driver or ends. That it stood still, its output shows by its times, its GPUs, or
processes that SIGKILL did not end; a program that printed on did not need that GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from correlator.facts.gpu_drains import is_unusable
from correlator.facts.jobs.kinds import COMM_ERROR
from correlator.facts.slow_runs import STALLED
from correlator.facts.standstills import LONGER, MINUTES, idle_since, written, wrote_after
from correlator.facts.storage_hangs import WITH_STORAGE_S as WITH_FAULT_S
from correlator.facts.storage_hangs import unkilled
from correlator.facts.world import World
from correlator.model.attributes import CODE
from correlator.model.nouns import Fact, Run

#: A standstill that made a run miss its time limit takes this long, and this share of the run, at least: as a wait for
#: storage (edges/conditions/storage.py).
STOOD_S, SHARE = 60.0, 0.05
#: The last step that was reported may lie this long before a GPU failed (seconds; E63's window).
STOPS_BEFORE_S = 30.0
#: Output may go on for this long after a GPU failed: other ranks, buffers (seconds).
WRITES_ON_S = 60.0


@dataclass(frozen=True)
class Stood:
    """``left``: seconds from a GPU's failure to the run's end, ``share`` of its time. ``shown``: it stood still from then on."""

    left: float
    share: float
    shown: bool


def stood_by(world: World, fault: Fact, run: Run) -> Stood | str:
    """How long a run may have stood still by a GPU that failed; a text, for people, why it did not."""
    if run.start is None or run.end is None or not is_unusable(fault):
        return f"the GPU can be used after Xid {fault.attrs.get(CODE)}"
    if fault.start < run.start - fault.sigma:
        return "it had failed before the run began"
    left = run.end - fault.start
    share = left / max(1.0, run.end - run.start)
    if left < STOOD_S or share < SHARE:
        return f"only {left:.0f} s of its {run.end - run.start:.0f} s were left"
    late = (fault.end or fault.start) + WRITES_ON_S
    if wrote_after(world, run, late):
        return f"its output went on after {fault.host} had reported the fault"
    return Stood(left, share, _is_shown(world, fault, run, late))


def _is_shown(world: World, fault: Fact, run: Run, late: float) -> bool:
    if unkilled(world, run) is not None:
        return True
    stops = world.facts_of(STALLED.name, COMM_ERROR.name)
    if any(
        f.run == run.key and f.start - fault.start >= -STOPS_BEFORE_S and f.start <= (run.end or 0.0) - STOOD_S
        for f in stops
    ):
        return True
    idle = idle_since(world, run)
    if idle is not None and abs(idle - fault.start) <= WITH_FAULT_S:
        return True
    output, end = written(world, run), run.end or 0.0
    if output.last is None or output.last > late or len(output.times) < MINUTES:
        return False
    return fault.start - output.last <= LONGER * output.longest_gap < end - output.last
