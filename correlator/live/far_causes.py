"""Causes from before a tick's window: recalled from the conclusions before, not concluded anew.

A window reaches back as far as most edges (``reach.longest_window``), but not as far as all of them: storage may have
been lost days before the time limit of a run, and a cause is listed as a rejected rival for twice its edge's window. To
read all rows since then would make a full pass of every tick in which a run reaches its limit. The facts of that time
cannot change any more, so those that an edge may link to an effect in the window are weighed as they were concluded. If
one of them explains something, the window begins anew before it (``Merge.first_restated``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from correlator.edges.scopes import scopes
from correlator.edges.window_values import derived_values
from correlator.evidence.weigh import listed_from
from correlator.facts.world import World
from correlator.live.lookup import Times, chosen
from correlator.model.attributes import TIMEOUT
from correlator.model.fact_index import number_of
from correlator.model.nouns import Edge, Fact
from correlator.site import windows
from correlator.site.site import JOB_SETTINGS
from correlator.site.windows import Value

#: Values that windows derive from the settings of a job (``derived_values``).
OF_JOBS = frozenset({*JOB_SETTINGS, "IbRetryBudget"})
#: All that the windows of two effects can differ by.
OF_EFFECTS = OF_JOBS | {"PrintedTimeout"}

_start = attrgetter("start")


class Asked(NamedTuple):
    """An effect in the window whose causes by ``edge`` may have begun before it, but are not over before ``early``."""

    edge: Edge
    effect: Fact
    early: float


def far_causes(
    world: World, known: Sequence[Fact], times: Times, edges: Iterable[Edge], since: float, reach: float
) -> list[Fact]:
    """The facts from before ``since`` (epoch seconds) that edges may link to facts of ``world``, and what else is known
    of their hosts and devices at that time: requirements of edges ask for it.

    ``known`` are the facts concluded before, ``times`` their extent. Facts that lasted until ``since`` are not among the
    result: a window knows those by their events. Nor are causes of what began less than ``reach`` (seconds) after
    ``since``: it is read for the sake of what followed, and judged by no tick with this window.
    """
    asked = list(_asked(world, edges, since, reach))
    if not asked:
        return []
    earliest = min(one.early for one in asked)
    over = times.last < since
    kinds: dict[str, list[Fact]] = {kind: [] for one in asked for kind in one.edge.cause}
    of_kinds = np.isin(times.kind, [number_of(kind) for kind in kinds])
    for fact in chosen(known, over & (times.last >= earliest) & of_kinds):
        kinds[fact.kind].append(fact)
    for kind, found in kinds.items():
        if found:
            read = {fact.key for fact in world.facts_of(kind)}
            kinds[kind] = [fact for fact in found if fact.key not in read]
    causes = {f.key: f for one in asked for kind in one.edge.cause for f in kinds[kind] if _may_link(world, one, f)}
    if not causes:
        return []
    about: defaultdict[str, list[Fact]] = defaultdict(list)
    for cause in causes.values():
        for subject in filter(None, {cause.host, cause.device}):
            about[subject].append(cause)
    meanwhile = np.zeros(len(known), bool)
    for start, end in _together(causes.values()):
        meanwhile |= (times.start <= end) & (times.last >= start)
    of_no_run = times.until > -np.inf
    around = [f for f in chosen(known, over & meanwhile & of_no_run) if f.host in about or f.device in about]
    beside = [f for f in around if _beside(f, about)]
    read = {fact.key for kind in {f.kind for f in beside} for fact in world.facts_of(kind)}
    return [*causes.values(), *(f for f in beside if f.key not in causes and f.key not in read)]


def _asked(world: World, edges: Iterable[Edge], since: float, reach: float) -> Iterator[Asked]:
    job_settings = world.site.job_settings
    highs: dict[tuple[str, str | None, object], float] = {}
    highs_of_all: dict[str, float] = {}  # several edges share a window
    values: dict[tuple[str | None, object], Mapping[str, Value]] = {}
    values_of_all = derived_values(world.site.values_for(None), None)
    late: dict[tuple[str, ...], list[Fact]] = {}
    for edge in edges:
        if scopes()[edge.scope].own_run:  # the run's own lines are read however old they are
            continue
        if edge.effect not in late:
            effects = [f for f in world.facts_of(*edge.effect) if f.start - reach >= since]
            late[edge.effect] = sorted(effects, key=_start)
        if not (effects := late[edge.effect]):
            continue
        names = windows.names(edge.window)
        if names.isdisjoint(OF_EFFECTS):  # the same for all of them, and mostly short
            if edge.window not in highs_of_all:
                highs_of_all[edge.window] = windows.window(edge.window, values_of_all)[1]
            for effect in effects:
                if (early := listed_from(effect, highs_of_all[edge.window])) >= since:
                    break  # the others are later
                yield Asked(edge, effect, early)
            continue
        for effect in effects:
            own = effect.run if effect.run in job_settings and not names.isdisjoint(OF_JOBS) else None
            timeout = effect.attrs.get(TIMEOUT) if "PrintedTimeout" in names else None
            if (edge.id, own, timeout) not in highs:
                if (own, timeout) not in values:
                    values[own, timeout] = derived_values(world.site.values_for(own), effect if timeout else None)
                highs[edge.id, own, timeout] = windows.window(edge.window, values[own, timeout])[1]
            early = listed_from(effect, highs[edge.id, own, timeout])
            if early < since:
                yield Asked(edge, effect, early)


def _may_link(world: World, one: Asked, cause: Fact) -> bool:
    edge, effect = one.edge, one.effect
    last = cause.start if cause.end is None else max(cause.start, cause.end)
    if last < one.early:
        return False
    scope = scopes()[edge.scope]
    return scope.test(world, cause, effect) or (
        scope.outside is not None and scope.outside(world, cause, effect) is not None
    )


def _together(facts: Iterable[Fact]) -> list[tuple[float, float]]:
    """The ranges of time that the facts cover, epoch seconds."""
    found: list[tuple[float, float]] = []
    for start, end in sorted((f.start, f.start if f.end is None else f.end) for f in facts):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _beside(fact: Fact, about: Mapping[str, Sequence[Fact]]) -> bool:
    """Is it about the host or the device of one of the causes, at the same time? ``about``: the causes, by host and by
    device."""
    last = fact.start if fact.end is None else max(fact.start, fact.end)
    return any(
        fact.start <= (cause.start if cause.end is None else cause.end) and last >= cause.start
        and ((fact.host is not None and fact.host == cause.host) or (fact.device is not None and fact.device == cause.device))
        for subject in (fact.host, fact.device) for cause in about.get(subject or "", ())
    )  # fmt: skip
