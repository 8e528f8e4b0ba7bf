"""Runs that became slower or hung.

Seconds per step rose and stayed high (``job.slow``), or the run stood still until it was ended (``job.stalled``).
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TypedDict

from correlator.facts.standstills import SAMPLED_S, idle_since, silence, written
from correlator.facts.world import World
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Kind
from correlator.model.nouns import Fact, Run


class Slow(TypedDict):
    """``ratio`` of ``after`` to ``before`` (seconds a step), ``lost`` seconds; ``lasting``: to the run's end."""

    ratio: float
    before: float
    after: float
    lost: float
    lasting: bool


class Stalled(TypedDict):
    """What shows it (``sign``: ``STEPS``, ``OUTPUT`` or ``GPUS``): ``gap`` seconds between its reports, lines or samples,
    ``lost`` since the last one."""

    gap: float
    lost: float
    sign: str


SIGN: Attr[str] = attr("sign")
#: The signs of a standstill: reports of steps, lines of output without any, and GPUs that work.
STEPS, OUTPUT, GPUS = "steps", "output", "gpus"


def _slow_in_words(fact: Fact) -> str:
    pace = SLOW.attrs_of(fact)
    return f"steps took {pace['after']:.3g} s instead of {pace['before']:.3g} s"


def _stalled_in_words(fact: Fact) -> str:
    reports = STALLED.attrs_of(fact)
    if reports["sign"] == GPUS:
        return f"its GPUs did nothing for {reports['lost'] / 60:.0f} min, after they had worked"
    if reports["sign"] == OUTPUT:
        return f"it wrote nothing for {reports['lost'] / 60:.0f} min, after lines at most {reports['gap']:.0f} s apart"
    return f"no step was reported for {reports['lost'] / 60:.0f} min, after one every {reports['gap']:.3g} s"


SLOW = Kind(
    "job.slow", "job", "The steps of a run became slower and stayed slow.", Slow,
    brief="steps became slow", pace=True, measured=_slow_in_words, reported_within_s=0.0,
)  # fmt: skip

STALLED = Kind(
    "job.stalled", "job", "A run that reached its time limit had stood still for a long time: no step, no output, or no work of its GPUs.", Stalled,
    brief="stood still", pace=True, measured=_stalled_in_words, reported_within_s=0.0,
)  # fmt: skip

#: Slower than this against the run's own pace before is a slowdown; data loading and checkpoints vary less.
SLOWER = 1.25

#: At least this many samples in a row must be slow; with only one sample before the change, it must be at least this
#: large.
SUSTAINED, PLAIN = 3, 1.5


def slowdowns(world: World) -> list[Fact]:
    """``job.slow`` with attrs ratio, before, after (seconds per step), lost (seconds) and lasting (to the run's end)."""
    facts = []
    for run in world.runs if world.progress else ():
        points = [p for p in world.progress.get((run.job_id, run.attempt), ()) if run.covers(p[0], 60.0)]
        found = change(points)
        if found is not None:
            facts.append(_fact(run, points, *found))
    return facts


def change(points: list[tuple[float, float]]) -> tuple[int, int] | None:
    """The slow range [first, last], as indices of ``points``; None if the pace held.

    The pace before is the median of the points before the range, so a single outlier neither makes nor hides one.
    """
    for first in range(1, len(points) - SUSTAINED + 1):
        pace = median(p[1] for p in points[:first])
        limit = pace * (PLAIN if first < SUSTAINED else SLOWER)
        if all(p[1] >= limit for p in points[first : first + SUSTAINED]):
            last = first + SUSTAINED - 1
            while last + 1 < len(points) and points[last + 1][1] >= pace * SLOWER:
                last += 1
            return first, last
    return None


def _fact(run: Run, points: list[tuple[float, float]], first: int, last: int) -> Fact:
    before = median(p[1] for p in points[:first])
    after = median(p[1] for p in points[first : last + 1])
    # The slow steps lie between the last quick report and the first slow one.
    earliest, latest = points[first - 1][0], points[first][0]
    until = points[last][0]
    lasting = last == len(points) - 1
    if lasting and run.end is not None:
        until = max(until, run.end)
    attrs: Slow = {
        "ratio": after / before, "before": before, "after": after, "lost": (until - earliest) * (1 - before / after),
        "lasting": lasting,
    }  # fmt: skip
    onset = (earliest + latest) / 2
    return SLOW.fact(onset, until, (latest - earliest) / 2 + 1.0, run=run.key, attrs=attrs)


#: This many reports show a run's interval, and this many missing ones that it stopped. It takes at least this long: a
#: checkpoint or an evaluation of a model takes minutes.
REPORTS, MISSED, STOOD_S = 5, 10, 600.0


def stalls(world: World) -> list[Fact]:
    """``job.stalled``: a run that hit its time limit had stood still for long. Of several signs the first counts."""
    found = (
        _without_steps(world, run) or _without_output(world, run) or _without_work(world, run)
        for run in world.timed_out
    )
    return [fact for fact in found if fact is not None]


def _without_steps(world: World, run: Run) -> Fact | None:
    """It had reported its steps, and ceased."""
    points = world.progress.get((run.job_id, run.attempt), ()) if world.progress else ()
    times = [t for t, _ in points if run.covers(t, 60.0)]
    if run.end is None or len(times) < REPORTS:
        return None
    gap, silent = median(later - earlier for earlier, later in pairwise(times)), run.end - times[-1]
    return _stalled(run, times[-1], gap, STEPS) if silent >= max(STOOD_S, MISSED * gap) else None


def _without_output(world: World, run: Run) -> Fact | None:
    """It had written lines without a pace, and ceased."""
    since = silence(world, run)
    return None if since is None else _stalled(run, since, written(world, run).longest_gap, OUTPUT)


def _without_work(world: World, run: Run) -> Fact | None:
    """Its GPUs had worked, and ceased."""
    since = idle_since(world, run)
    return None if since is None else _stalled(run, since, SAMPLED_S, GPUS)


def _stalled(run: Run, last: float, gap: float, sign: str) -> Fact:
    """It stopped between the last sign of life and the one that did not come, ``gap`` seconds later."""
    end = run.end if run.end is not None else last
    attrs: Stalled = {"gap": gap, "lost": end - last, "sign": sign}
    return STALLED.fact(last + gap / 2, end, gap / 2 + 1.0, run=run.key, attrs=attrs)


KINDS = (SLOW, STALLED)
DETECTORS = [slowdowns, stalls]
