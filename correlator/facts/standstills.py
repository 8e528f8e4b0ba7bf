"""Runs that stood still long before their time limit, whatever their output says: it stopped, or their GPUs did.

Nothing but a deadlock of the program, a process that somebody stopped, or storage that does not answer makes a program
silent that wrote regularly; nor is every silent program idle: a buffer that is never flushed looks the same. GPUs that
worked and then do nothing show that their program waits. The reverse does not hold: ranks that wait for each other in
NCCL keep their GPUs busy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import chain, pairwise

from correlator.facts.world import World
from correlator.model.nouns import Run
from parsers.job_states import same_end

#: Output in this many different minutes shows how regularly a run wrote.
MINUTES = 5

#: A silence counts if it is this long, and this many times as long as any before: checkpoints and evaluations take
#: minutes.
SILENT_S, LONGER = 600.0, 3.0

#: A run that wrote for this share of the silence wrote regularly; many write at their beginning only.
SHORTER = 0.25

#: Slurm's own lines at a run's end, and what programs write when they are ended, are within this of it (seconds).
ENDING_S = 30.0


@dataclass(frozen=True)
class Written:
    """When the programs of one run wrote to its output (epoch seconds, ascending).

    ``last`` is the latest moment at which the last line can have been written; None if nothing tells. ``stamped``: the
    lines have these times themselves, so they were not written earlier either.
    """

    times: tuple[float, ...]
    last: float | None
    stamped: bool

    @property
    def longest_gap(self) -> float:
        return max((later - earlier for earlier, later in pairwise(self.times)), default=0.0)

    def after(self, low: float, high: float) -> float | None:
        """The last moment between two at which the run certainly wrote; None if there is none."""
        place = bisect_left(self.times, high)
        return self.times[place - 1] if self.stamped and place > bisect_right(self.times, low) else None


def written(world: World, run: Run) -> Written:
    """When a run that reached its time limit wrote output."""
    found = world.output_of(run)
    end = float("inf") if run.end is None else run.end - ENDING_S
    stamps = tuple(t for t in found.stamps if run.covers(t) and t < end)
    read_by = tuple(t for t in found.read_by if run.covers(t, ENDING_S))
    times = stamps or read_by
    last = max([*stamps[-1:], *read_by[-1:]], default=None)
    return Written(times, None if found.undated else last, bool(stamps))


def silence(world: World, run: Run) -> float | None:
    """Since when a run that had written regularly was silent until its time limit; None if it was not."""
    if run.start is None or run.end is None or run.end - run.start < SILENT_S:
        return None
    output = written(world, run)
    if output.last is None or len(output.times) < MINUTES:
        return None
    silent, wrote = run.end - output.last, output.last - output.times[0]
    regular = wrote >= max(SILENT_S, SHORTER * silent)
    return output.last if regular and silent >= max(SILENT_S, LONGER * output.longest_gap) else None


#: Samples of GPUs are read at least this often, mostly (seconds).
SAMPLED_S = 120.0

#: Output of this long after the last minute in which a GPU worked was written after its work ended (seconds).
AFTER_WORK_S = SAMPLED_S + 60.0


def idle_since(world: World, run: Run) -> float | None:
    """Since when the GPUs of a run, which had worked, did nothing until its time limit, while its nodes moved no data
    either; None if nothing shows that, or if its output went on.

    The GPUs of whole nodes are measured: of a run without GPUs, or with other runs beside it, they tell nothing.
    """
    if not run.gpus or run.end is None or run.start is None or run.end - run.start < SILENT_S:
        return None
    found = world.work(world.timed_out).get(run.key)
    if found is None or not found.everywhere or found.measured < run.end - SAMPLED_S:
        return None
    since = max(found.until, found.moved or 0.0)
    still, worked = run.end - since, found.until - found.since
    regular = worked >= max(SILENT_S, SHORTER * still)
    if not regular or still < max(SILENT_S, LONGER * found.pause):
        return None
    return None if wrote_after(world, run, since + AFTER_WORK_S) or _shared(world, run, found.since) else since


def wrote_after(world: World, run: Run, since: float) -> bool:
    """Did a run that reached its time limit certainly write output after ``since``?

    It did by the times of its lines. Of lines without times some were read after ``since`` and others later: those were
    not there yet before.
    """
    found = world.output_of(run)
    end = float("inf") if run.end is None else run.end - ENDING_S
    if any(since < t < end for t in found.stamps):
        return True
    read = [t for t in found.read_by if since < t and run.covers(t, ENDING_S)]
    return bool(read) and read[-1] - read[0] >= SAMPLED_S


def _shared(world: World, run: Run, since: float) -> bool:
    """Had another run one of a run's nodes after ``since``? The work of GPUs there may have been its."""
    end, nodes = run.end or float("inf"), set(run.nodes)
    beside = chain((r for node in run.nodes for r in world.runs_on.get(node, ())), world.earlier_runs)
    return any(
        other is not run and other.start is not None and other.start < end and (other.end is None or other.end > since)
        and not nodes.isdisjoint(other.nodes)
        for other in beside
    )  # fmt: skip


#: Runs that stopped writing within this of each other stopped together: each writes at its own pace (seconds).
TOGETHER_S = 180.0

#: Only runs that end within this of each other are compared: a tick judges no earlier ones again (seconds).
ENDS_WITHIN_S = 600.0


def stopped_together(world: World, run: Run, since: float) -> list[Run]:
    """Runs of other users on other nodes that stopped writing when this one did, and also reached their time limits."""
    end = run.end or 0.0
    return [
        other for other in world.bad_in_time.overlapping(since, end + ENDS_WITHIN_S)
        if other.end is not None and abs(other.end - end) <= ENDS_WITHIN_S and same_end(other.state) == "TIMEOUT"
        and other.row.get("user") not in (None, run.row.get("user")) and not set(other.nodes) & set(run.nodes)
        and (stopped := silence(world, other)) is not None and abs(stopped - since) <= TOGETHER_S
    ]  # fmt: skip
