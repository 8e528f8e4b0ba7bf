"""The facts that an edge may link to an effect: near enough in time, and with a place in common that its scope demands.

In a storm thousands of facts of one kind lie in one window, and as many effects ask for them. Without the places each pair
would be tested, and a pass would take time with the square of the faults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from correlator.edges.scopes import PlacesOf, scopes
from correlator.facts.world import World
from correlator.model.attributes import HOSTS, RUNS, TOKEN, UNDER
from correlator.model.fact_index import FactsInTime
from correlator.model.nouns import Edge, Fact

_key = attrgetter("key")

#: So few facts of a kind are tested faster than they are looked up.
FEW = 4


class Candidates:
    """An index over the facts of one world."""

    def __init__(self, world: World, facts: Mapping[str, list[Fact]], edges: Iterable[Edge]) -> None:
        """``facts``: by kind, each in order of time."""
        self._world, self._facts, self._scopes = world, facts, scopes()
        on_place: dict[tuple[str, str | None], list[Fact]] = defaultdict(list)
        #: The hosts that facts of a kind are on: those of most runs have none.
        self._hosts: dict[str, set[str]] = defaultdict(set)
        for fact in world.facts:
            kind, host, run = fact.kind, fact.host, fact.run
            if host is not None:
                on_place[(kind, host)].append(fact)
                self._hosts[kind].add(host)
            if run is not None and run != host:
                on_place[(kind, run)].append(fact)
        anchors = {edge.anchor for edge in edges}
        self._when, self._on_place = FactsInTime(facts, anchors), FactsInTime(on_place, anchors)
        self._touching: dict[tuple[str, str], list[Fact]] = {}
        self._touched, self._known_kinds = FactsInTime(self._touching, anchors), set[str]()

    def kinds_for(self, edge: Edge, kinds: Sequence[str], effect: Fact, asked: Places) -> Sequence[str]:
        """Those of the cause kinds of an edge that are on hosts that its scope demands; all, if it demands none."""
        if (on_hosts := self._scopes[edge.scope].on_hosts) is None:
            return kinds
        hosts = asked.of(on_hosts, self._world, effect)
        return [kind for kind in kinds if not self._hosts[kind].isdisjoint(hosts)] if hosts else ()

    def among(self, edge: Edge, kind: str, effect: Fact, early: float, late: float, asked: Places) -> list[Fact]:
        """Facts of a kind that began before ``late`` and had a moment at or after ``early`` (epoch seconds).

        May include a few that are not in scope, never fewer than are. ``asked`` keeps the places of one effect.
        """
        scope = self._scopes[edge.scope]
        if scope.own_run:
            return self._on_place.between((kind, effect.run), early, late)
        if scope.on_hosts:
            hosts = asked.of(scope.on_hosts, self._world, effect) or ()
            found = [f for host in hosts for f in self._on_place.between((kind, host), early, late)]
            return sorted(found, key=_key) if len(found) > 1 and len(hosts) > 1 else found
        if scope.touching is None or len(self._facts.get(kind, ())) <= FEW:
            return self._when.between(kind, early, late)
        places = asked.of(scope.touching, self._world, effect)
        if places is None:
            return self._when.between(kind, early, late)
        self._know(kind)
        if len(places) == 1:
            return self._touched.between((kind, places[0]), early, late)
        touched = {id(f): f for place in places for f in self._touched.between((kind, place), early, late)}
        return sorted(touched.values(), key=_key)

    def _know(self, kind: str) -> None:
        if kind in self._known_kinds:
            return
        self._known_kinds.add(kind)
        for fact in self._facts.get(kind, ()):
            for place in places_of(fact):
                self._touching.setdefault((kind, place), []).append(fact)


class Places:
    """The places that the scopes of edges demand of the causes of one effect. Several scopes ask the same: it is answered
    once."""

    def __init__(self) -> None:
        self._known: dict[PlacesOf, list[str] | None] = {}

    def of(self, ask: PlacesOf, world: World, effect: Fact) -> list[str] | None:
        """None: any place."""
        if ask not in self._known:
            places = ask(world, effect)
            self._known[ask] = None if places is None else sorted(set(places))
        return self._known[ask]


def places_of(fact: Fact) -> set[str]:
    """What a fact touches: its host, its run, and the nodes, runs and switch that its attributes name."""
    attrs = fact.attrs
    places = {fact.host, fact.run, attrs.get(TOKEN), *attrs.get(HOSTS, ()), *attrs.get(UNDER, ()), *attrs.get(RUNS, ())}
    return {str(place) for place in places if place}
