"""Until when later lines can still change a verdict.

Every edge says how long after its effect a cause may come (the lower end of its window), and every kind of fact within
which time its lines are complete (``Kind.reported_within_s``). What can lead into a run's kind of end therefore has a last moment,
and lines of later moments change nothing. Nothing at all is changed by lines that come more than ``REPORTED_WITHIN_S`` after it:
ticks look no further back. Two things last longer: a cause that still goes on, and a requeue that Slurm has not carried
out yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from correlator.edges.conditions.declaration import OfRun
from correlator.edges.conditions.registry import conditions
from correlator.evidence.weigh import Weigher, describe_cause
from correlator.facts.jobs.detector import COMPLETES_S
from correlator.facts.jobs.kinds import RUN_FAILED, RUN_NODE_FAIL, RUN_REQUEUED
from correlator.facts.registry import kind_of
from correlator.facts.world import World
from correlator.model.attributes import WORDS
from correlator.model.kinds import REPORTED_WITHIN_S
from correlator.model.nouns import Edge, Fact, Run
from correlator.verdicts.verdict import Verdict

#: A run's own last lines, its steps and what slurmctld logs about its end come within this (seconds): output is
#: attributed to a run for 65 s after its end, an order to end it for 60 s.
LAST_LINES_S = 120.0

#: Accounting has whole seconds, and runs end with the fact that ended them to this precision (live/window.py).
SLACK_S = 5.0

#: A run that ended this long (seconds) before the last line is final by every rule; nothing is computed for it.
LONG_AGO_S = 7 * 3600.0

#: Nodes of one run that are awaited at most. More of them are a job of the whole cluster, of which some node is always
#: silent.
AWAITED_NODES = 128


@dataclass(slots=True)  # treated as immutable: there is one for each verdict
class Horizon:
    """``end`` of the run, and ``until`` when (epoch seconds) something must happen to change its verdict.

    ``what`` may still be reported. ``lasting``: a cause that goes on, whose end may change the verdict. ``hosts``: nodes
    whose next lines may explain what no line explains yet.
    """

    end: float
    until: float
    what: str
    lasting: str = ""
    hosts: frozenset[str] = frozenset()


class _Awaits(NamedTuple):
    """An edge into a run's end. ``within_s``: the latest report of any of its causes, seconds after it; ``could_be``: what
    must hold of the run."""

    edge: Edge
    within_s: float
    could_be: Sequence[OfRun]


class Horizons:
    """Finds horizons in one world. ``edges``: all of them, also those without a cause among the facts."""

    def __init__(self, world: World, weigher: Weigher, edges: Iterable[Edge]) -> None:
        self.world, self.weigher = world, weigher
        self._into: Mapping[str, Sequence[_Awaits]] = _by_effect(edges)
        self._lasts: dict[int, float] = {}

    def of(self, verdict: Verdict) -> Horizon | None:
        """The horizon of a verdict; None if its run ended long ago."""
        run, end = verdict.run, verdict.end
        ended = run.end if run.end is not None else end.start
        if ended < self.world.last - LONG_AGO_S:
            return None
        until = max(ended, end.start) + self._after(run, end)
        if end.kind == RUN_REQUEUED.name:
            until = max(until, self._requeued(run, ended))
        causes = [hop.cause for hop in verdict.chain.hops] if verdict.chain else []
        for cause in causes:
            until = max(until, self._last_of(cause) + REPORTED_WITHIN_S)
        lasting = next((f for f in causes if _may_end_otherwise(f)), None)
        return Horizon(
            ended, until, kind_of(end.kind).awaited,
            describe_cause(self.world, lasting) if lasting is not None else "", _awaited(verdict),
        )  # fmt: skip

    def _after(self, run: Run, end: Fact) -> float:
        """How long after a run's end something may happen that explains it, or that shows what explains it, seconds."""
        if self.weigher.into(end)[0] or run.job_id in self.world.het_components:
            return (
                REPORTED_WITHIN_S + SLACK_S
            )  # a possible cause is known: its own causes, and what became of other runs, count
        after = LAST_LINES_S
        for edge, within_s, could_be in self._into.get(end.kind, ()):
            if could_be and not all(may(run, end) for may in could_be):
                continue
            if within_s < REPORTED_WITHIN_S:
                within_s += max(0.0, -self.weigher.window(edge, end)[0])
            after = max(after, within_s + SLACK_S)
            if after >= REPORTED_WITHIN_S:
                return REPORTED_WITHIN_S + SLACK_S
        return after

    def _last_of(self, cause: Fact) -> float:
        """The last moment of a cause. Many runs have the same cause, with hundreds of events."""
        known = self._lasts.get(id(cause))
        if known is None:
            moments = (cause.start, cause.end or cause.start, *(event.last for event in cause.events))
            known = self._lasts[id(cause)] = max(moments)
        return known

    def _requeued(self, run: Run, end: float) -> float:
        """When Slurm has logged why a run was requeued: before it begins again, at the latest after half an hour."""
        again = [r.start for r in self.world.runs_of_job.get(run.job_id, ()) if r.start is not None and r.start > end]
        return min([*again, end + COMPLETES_S])


def _by_effect(edges: Iterable[Edge]) -> Mapping[str, Sequence[_Awaits]]:
    """The edges into each kind of effect, the one whose reports may come latest first: it usually decides for all."""
    found: defaultdict[str, list[_Awaits]] = defaultdict(list)
    for edge in edges:
        within_s = max(kind_of(cause).reported_within_s for cause in edge.cause)
        required = [conditions()[name] for name in edge.requires]
        could_be = [one.of_run for one in required if one.of_run is not None]
        for kind in edge.effect:
            found[kind].append(_Awaits(edge, within_s, could_be))
    for some in found.values():
        some.sort(key=lambda one: -one.within_s)
    return found


def _may_end_otherwise(cause: Fact) -> bool:
    """Does a cause go on, and may its end, or what its host logs then, show another one or give it another name?"""
    kind = kind_of(cause.kind)
    return cause.end is None and (kind.flaps or (kind.awaits is not None and bool(kind.awaits(cause))))


def _awaited(verdict: Verdict) -> frozenset[str]:
    """The nodes of a run that ended for an unknown reason, if a node may be that reason."""
    if verdict.category != "unknown" or not 0 < len(verdict.run.nodes) <= AWAITED_NODES:
        return frozenset()
    kind = verdict.end.kind
    lost = kind in (RUN_NODE_FAIL.name, RUN_REQUEUED.name) or (
        kind == RUN_FAILED.name and bool(verdict.end.attrs[WORDS]["peers"])
    )
    return frozenset(verdict.run.nodes) if lost else frozenset()
