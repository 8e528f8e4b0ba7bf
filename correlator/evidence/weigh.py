"""Which fact caused which: edges tried between facts, weighed against coincidence.

For an effect, every edge whose effect kind fits is tried against every fact of its cause kinds in scope. What passes is
a ``Hop`` with a strength; what fails is a ``Rejection`` with the reason, because an operator wants to read why not.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from correlator.edges.conditions.links import name_of
from correlator.edges.scopes import WhyOutside
from correlator.evidence.candidates import Candidates, Places
from correlator.evidence.chains import Chain, Evidence, Rejection
from correlator.evidence.edge_fit import EdgeFit, outside, sigma_of
from correlator.evidence.exposure import Exposed
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import brief_of, kind_of
from correlator.facts.world import World, run_of
from correlator.model.attributes import TIMEOUT
from correlator.model.fact_index import FactsByKind, by_kind
from correlator.model.nouns import Edge, Fact, Hop
from correlator.site.first_seen import first_seen, hour_of

#: A chain longer than this explains nothing any more.
MAX_DEPTH = 5

#: Exposure (entity-seconds) that the prior of a base rate is worth, and how many events it holds: one per entity in 30
#: days (Gamma prior; replaced by the store's own counts as it grows).
PRIOR_EXPOSURE_S, PRIOR_EVENTS = 30 * 86400.0, 1.0

#: One lucky coincidence must not outweigh everything: the likelihood ratio of a cause is capped here.
MAX_RATIO = 30.0

#: How far outside its window (in units of sigma) a cause is still listed as a rejected rival; at least this many
#: seconds.
NEAR_MISS_S = 600.0

#: What came later after an effect than this is not listed as a rival.
AFTER_S = 300.0


#: Base rates are those learned up to the last full hour before an effect: later facts explain nothing before it, and
#: conclusions do not move with every new event (``hour_of``).


class BaseRates:
    """How often facts of each kind had happened, without having caused anything, by the time of an effect.

    Rates are per entity and second.
    """

    def __init__(
        self,
        facts: Mapping[str, Sequence[Fact]] | FactsByKind,
        seen: Iterable[float],
        first: float,
        innocent: Mapping[str, float] | None = None,
    ) -> None:
        """``facts``: by kind. ``seen``: when (epoch seconds) each entity that could have had such facts was first seen;
        ``first``: when anything was.

        A new entity changes no conclusion about the time before it. ``innocent``: kind -> the share of such facts that
        caused nothing, from edge files; 1 for all other kinds.
        """
        self.seen, self.first, self.innocent = sorted(seen), first, innocent or {}
        self._facts = facts
        self._starts: dict[str, list[float]] = {}  # sorted; of few of all kinds, and there may be very many facts

    def of(self, kind: str, time: float) -> float:
        """The Gamma-Poisson mean of the count before the hour of ``time`` and the prior."""
        count, exposure = self.counted(kind, time)
        return rate_of(self.innocent.get(kind, 1.0) * count, exposure)

    def counted(self, kind: str, time: float) -> tuple[int, float]:
        """Facts of a kind before the hour of ``time``, and the entity-seconds in which they were counted."""
        until = hour_of(time)
        hosts = max(1, bisect_left(self.seen, until))
        if kind not in self._starts:
            facts = self._facts
            starts = facts.starts(kind) if isinstance(facts, FactsByKind) else sorted(f.start for f in facts.get(kind, ()))  # fmt: skip
            self._starts[kind] = starts
        return bisect_left(self._starts[kind], until), hosts * max(0.0, until - self.first)


def rate_of(events: float, exposure: float) -> float:
    """The rate per entity and second for ``count`` facts in ``exposure`` entity-seconds."""
    return (events + PRIOR_EVENTS) / (exposure + PRIOR_EXPOSURE_S)


#: An edge to try, and those of its cause kinds that have facts.
_Tried = tuple[Edge, list[str]]


class Weigher:
    """Tries edges; keeps the hops into each fact, so that shared effects are computed once."""

    def __init__(self, world: World, edges: list[Edge], rates: BaseRates | None = None) -> None:
        self.world = world
        self.rates = rates or BaseRates(
            by_kind(world.facts), first_seen(world.events, world.runs).values(), world.first
        )
        self.by_kind = by_kind(world.facts)
        #: By effect kind, the edges with a possible cause among the facts: usually few of all.
        self.by_effect: dict[str, list[_Tried]] = defaultdict(list)
        self.blocking: dict[str, list[_Tried]] = defaultdict(list)
        for edge in edges:
            causes = [kind for kind in edge.cause if kind in self.by_kind]
            for effect in edge.effect if causes else ():
                (self.blocking if edge.blocks else self.by_effect)[effect].append((edge, causes))
        self._fit = EdgeFit(world)
        #: The window of an edge for an effect.
        self.window = self._fit.window
        #: The settings that the window of an edge rests on, by its id.
        self._settings: dict[str, list[str]] = {}
        self._blocked: dict[int, Hop | None] = {}
        self._best: dict[int, list[Hop]] | None = None
        self._candidates = Candidates(world, self.by_kind, edges)
        self._hops: dict[int, tuple[list[Hop], list[Rejection]]] = {}
        self.exposed = Exposed(world, edges, self._fit.holds, self._fit.window)

    def evidence(self, effect: Fact, without: Collection[int] = ()) -> Evidence:
        """All chains into an effect, as if the facts of which the id() is in ``without`` were not there."""
        found = Evidence(effect)
        seen: set[int] = set()
        self._walk(effect, (), found, seen, without)
        found.chains.sort(key=lambda c: (-c.weight, c.root.key))
        return found

    def blocked(self, fact: Fact) -> Hop | None:
        """The blocking edge that takes the blame from ``fact``, with what it follows from; None if there is none."""
        if id(fact) not in self._blocked:
            hops, _ = self._tried(fact, self.blocking.get(fact.kind, ()))
            self._blocked[id(fact)] = hops[0] if hops else None
        return self._blocked[id(fact)]

    def _walk(
        self, effect: Fact, below: tuple[Hop, ...], found: Evidence, seen: set[int], without: Collection[int]
    ) -> bool:
        hops, rejections = self.into(effect)
        if without:
            hops = [hop for hop in hops if id(hop.cause) not in without]
        if rejections:
            found.rejections += [r for r in rejections if r not in found.rejections]
        if len(below) >= MAX_DEPTH or id(effect) in seen:
            return False
        explained = False
        for hop in hops:
            path = (hop, *below)
            deeper = self._walk(hop.cause, path, found, seen | {id(effect)}, without)
            if not deeper:
                found.chains.append(Chain(hop.cause, path, weight_of(path)))
            explained = True
        if hops and below and (doubt := _doubt(hops)):
            # Runs that ran on beside it are evidence against all its possible causes: its cause may be another, unknown
            # one.
            found.chains.append(Chain(effect, below, doubt * weight_of(below), doubted=True))
        return explained

    def follows(self, cause: Fact) -> list[Hop]:
        """The facts (other than ends of runs) that ``cause`` explains better than any other fact does."""
        if self._best is None:
            self._best = defaultdict(list)
            for fact in self.world.facts:
                if not fact.kind.startswith("run."):
                    hops, _ = self.into(fact)
                    if hops:
                        self._best[id(hops[0].cause)].append(hops[0])
        return self._best.get(id(cause), [])

    def into(self, effect: Fact) -> tuple[list[Hop], list[Rejection]]:
        """Possible causes of ``effect``, strongest first, and what was tried and rejected; computed once."""
        known = self._hops.get(id(effect))
        if known is not None:
            return known
        self._hops[id(effect)] = found = self._tried(effect, self.by_effect.get(effect.kind, ()))
        return found

    def _tried(self, effect: Fact, edges: Sequence[_Tried]) -> tuple[list[Hop], list[Rejection]]:
        hops: list[Hop] = []
        rejections: list[Rejection] = []
        places = Places()
        for edge, some in edges:
            kinds = self._candidates.kinds_for(edge, some, effect, places)
            if not kinds:
                continue  # as nearly always
            low, high, settled = self.window(edge, effect)
            early, late = listed_from(effect, high), effect.start - low + high + 2 * NEAR_MISS_S
            scope = self._fit.scopes[edge.scope]
            holds, outside_of = scope.test, scope.outside
            for kind in kinds:
                for cause in self._candidates.among(edge, kind, effect, early, late, places):
                    if cause is effect:
                        continue
                    if holds(self.world, cause, effect):
                        result = self._try(edge, cause, effect, (low, high), settled)
                    elif outside_of is None:
                        continue
                    else:
                        result = self._outside(edge, cause, effect, (low, high), settled, outside_of)
                    if isinstance(result, Hop):
                        hops.append(result)
                    elif result is not None:
                        rejections.append(result)
        return _best_per_cause(hops) if hops else hops, rejections

    def _outside(
        self, edge: Edge, cause: Fact, effect: Fact, window: tuple[float, float], settled: bool, outside_of: WhyOutside
    ) -> Rejection | None:
        """Why a cause that would fit otherwise is rejected: the scope does not hold, and can tell why."""
        why = outside_of(self.world, cause, effect)
        if why is None or not isinstance(self._try(edge, cause, effect, window, settled), Hop):
            return None
        return Rejection(edge, cause, effect, why)

    def _try(
        self, edge: Edge, cause: Fact, effect: Fact, window: tuple[float, float], settled: bool
    ) -> Hop | Rejection | None:
        low, high = window
        sigma = sigma_of(cause, effect)
        beyond, lag_low, lag_high = outside(edge, cause, effect, low, high)
        lag = min(max((low + high) / 2, lag_low), lag_high)
        if beyond > 3 * sigma:
            if beyond > NEAR_MISS_S + high or lag_high < -AFTER_S:
                return None
            side = "after" if lag_high < low else "before"
            if lag_high < 0 and low >= -5:
                why = f"it came {-lag_high:.1f} s after the effect"
            else:
                beside = "before the effect" if side == "before" else "before it"
                why = f"it came {lag:.1f} s {beside}, {low:.0f} to {high:.0f} s allowed"
            return Rejection(edge, cause, effect, why, by_time=True, beyond=beyond)
        for name in edge.requires:
            reason = self._fit.conditions[name](self.world, cause, effect)
            if reason is not None:
                return Rejection(edge, cause, effect, reason)
        if late := self._fit.too_late(edge, cause, effect, low):
            return Rejection(edge, cause, effect, late)
        fit = 1.0 if beyond <= 0 else math.exp(-0.5 * (beyond / sigma) ** 2)
        span = min(high - low, 2 * sigma + 600.0) + 2 * sigma
        coincidence = 1.0 - math.exp(-self.rates.of(cause.kind, effect.start) * span / density(edge, lag, low, high))
        if (names := self._settings.get(edge.id)) is None:
            names = self._settings[edge.id] = _setting_names(edge)
        because = self.world.site.describe(names, effect.run) if names else ""
        if "PrintedTimeout" in edge.because and effect.attrs.get(TIMEOUT):
            because = ", ".join(x for x in (f"the program's own timeout of {effect.attrs[TIMEOUT]:g} s", because) if x)
        others = self.exposed.of(edge, cause, effect)
        prior = min(1.0, edge.prior * others.factor) if others else edge.prior
        strength = prior * fit * (1.0 if settled else 0.9)
        return Hop(edge, cause, effect, lag, window, because, strength, max(coincidence, 1e-6), others)


def listed_from(effect: Fact, high: float) -> float:
    """A cause that was over before this moment (epoch seconds) is not even a rejected rival.

    ``high`` is the end of its edge's window.
    """
    return effect.start - 2 * high - 2 * NEAR_MISS_S


#: Under "early", delays decay with a quarter of the window; no delay counts more than four times an even spread or less
#: than a quarter of it, because windows are estimates themselves.
EARLY_SHARE, DENSITY_BOUND = 0.25, 4.0


def density(edge: Edge, lag: float, low: float, high: float) -> float:
    """How much more probable this lag is than under an even spread over the window."""
    if edge.density == "even" or high <= low:
        return 1.0
    place = min(max((lag - low) / (high - low), 0.0), 1.0)
    relative = math.exp(-place / EARLY_SHARE) / (EARLY_SHARE * (1.0 - math.exp(-1.0 / EARLY_SHARE)))
    return min(max(relative, 1.0 / DENSITY_BOUND), DENSITY_BOUND)


def _setting_names(edge: Edge) -> list[str]:
    names = set(edge.because) - {"IbRetryBudget", "PrintedTimeout"}
    if "IbRetryBudget" in edge.because:
        names |= {"NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"}
    return sorted(names)


def _doubt(hops: Sequence[Hop]) -> float:
    """The probability that none of these caused it, given the other runs; 0 if no run is evidence against one of them."""
    if any(hop.others is None or not hop.others.survivors for hop in hops):
        return 0.0
    return math.prod(1.0 - hop.strength for hop in hops)


def _best_per_cause(hops: list[Hop]) -> list[Hop]:
    best: dict[int, Hop] = {}
    for hop in hops:
        known = best.get(id(hop.cause))
        if known is None or (hop.strength, hop.edge.id) > (known.strength, known.edge.id):
            best[id(hop.cause)] = hop
    return sorted(best.values(), key=lambda h: (-h.strength, h.cause.key))


def weight_of(path: tuple[Hop, ...]) -> float:
    """The strength of all hops, times the odds against the root being there by chance."""
    strength = math.prod(h.strength for h in path)
    return strength * min(MAX_RATIO, 1.0 / path[0].coincidence)


def describe_cause(world: World, fact: Fact) -> str:
    """A short name of a fact for rivals and chains: "eth0 of gpu02 without link for 60.0 s"."""
    what = brief_of(fact)
    run = run_of(world, fact)
    where = name_of(fact) if fact.host else (f"job {run.key}" if run else "")
    tail = f" for {fact.duration:.1f} s" if kind_of(fact.kind).timed and fact.duration is not None else ""
    return f"{what} ({where}){tail}" if where else what


LEAK = 0.08  # none of these: a node failed, or it was requeued


#: Timestamps of accounting and of the first lines of a log may differ by this much.
EDGE_OF_LOGS_S = 60.0


def before_all_logs(weigher: Weigher, fact: Fact) -> bool:
    """Is it a node DOWN that only a run's end implies, from before the first collected line of anything?"""
    return fact.kind == NODE_DOWN.name and not fact.events and fact.start < weigher.rates.first - EDGE_OF_LOGS_S
