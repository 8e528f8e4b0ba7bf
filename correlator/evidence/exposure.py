"""Counter-evidence: other runs that were exposed to a cause when its effect came, and ran on.

A switch, a rail, a storage target or a node is shared. If it had ended one run, it would have ended others at the same
moment: those that it reached and whose end the same edges would explain, by scope, window and every requirement. Some
did end by it (*hit*), some ran on (*survived*). An edge's prior is worth ``prior_runs`` such runs, so that the
knowledge about this one cause is a Beta distribution with the mean

    (prior_runs * prior + hit) / (prior_runs + hit + survived)

The weight of the explanation changes by the odds of this mean against those of the prior. That is the Bayes factor of
the other runs between "it ended this run" and "it was there and did not".

The run itself counts among them: a cause that it survived before does not end it.

A run that could not have shown the effect is no evidence: it runs on one node beside a lost rail, has retries of its
own that last longer, uses further planes, began after the cause, or ended before the effect could be seen or by another
cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Protocol

from correlator.edges.scopes import Scope, scopes
from correlator.facts.links.kinds import LINK_OUTAGE, PLANE_OUTAGE, SWITCH_OUTAGE
from correlator.facts.registry import kind_of
from correlator.facts.world import World
from correlator.gather.presence import WhoWasThere, changed_answers
from correlator.model.attributes import PROMOTED, TOKEN
from correlator.model.nouns import Edge, Fact, Others, Run
from correlator.model.run_index import RunsInTime

#: A run that was still active this long after an effect was not ended by its cause: a rank that gives up takes
#: KillWait, 30 s, to end the others, and accounting has whole seconds.
RAN_ON_S = 60.0

#: Other runs that die of the same cause do so within this after the effect; a tick looks 900 s back
#: (``reach.MARGIN_S``).
HIT_WITHIN_S = 600.0

#: What a run survived within this before the cause is evidence against it; a tick looks further back than this before
#: any cause.
EARLIER_S = 1800.0

#: A switch takes its links within this (correlation.md, E15): of one switch that fails twice, these belong to one
#: failure.
ONE_FAILURE_S = 15.0

#: At most this many exposed runs are examined for an effect. More would hardly move the mean, and a file system has
#: thousands.
LOOKED_AT = 100

#: A prior counts as no more certain than this here: even "always" must be open to evidence.
SUREST_PRIOR = 0.98

#: A run kept its pace if it reported at least this often before and after the other one lost its own.
PACES = 3


@dataclass(frozen=True)
class Look:
    """One comparison with other runs: on ``hosts``, between the cause (``since``) and ``until``, for an effect ``at``.

    If one of these runs changes later, the conclusion about the effect may change.
    """

    at: float
    since: float
    until: float
    hosts: frozenset[str]
    #: Those of ``hosts`` without a log of their own: once they have one, they may no longer count.
    unlogged: frozenset[str]

    def sees(self, run: Run | None) -> tuple[object, ...]:
        """The properties of a run that count here; runs for which they are equal are equivalent."""
        if run is None or run.start is None or self.hosts.isdisjoint(run.nodes) or run.start > self.until:
            return ()
        if run.end is not None and run.end < self.since:
            return ()
        early = run.end is not None and run.end <= self.until
        return (run.key, run.nodes, max(run.start, self.since), (run.end, run.state) if early else None)


class Seen(Protocol):
    """A comparison with runs for an effect ``at``; ``sees`` returns the properties of a run that count in it."""

    @property
    def at(self) -> float: ...

    @property
    def unlogged(self) -> frozenset[str]: ...

    def sees(self, run: Run | None) -> tuple[object, ...]: ...


def other_now(
    looks: Sequence[Seen],
    before: Sequence[Run],
    after: Sequence[Run],
    border: float,
    elsewhere: Callable[[float], Iterable[Run]] = lambda since: (),
) -> float:
    """The earliest effect before ``border`` that must be compared again, because runs changed from ``before`` to
    ``after``. ``elsewhere`` returns the other runs that ended after a moment.

    Infinity if there is none.
    """
    looks = [look for look in looks if look.at < border]
    if not looks:
        return float("inf")
    known, now = ({r.key: r for r in runs if r.start is not None and r.start < border} for runs in (before, after))
    late = border + RAN_ON_S
    changed = [
        (one, other) for key in known.keys() | now.keys()
        if _what(one := known.get(key), late) != _what(other := now.get(key), late)
    ]  # fmt: skip
    moved = [
        look.at for look in looks
        if not isinstance(look, WhoWasThere) and any(look.sees(one) != look.sees(other) for one, other in changed)
    ]  # fmt: skip
    who = [look for look in looks if isinstance(look, WhoWasThere)] if changed else []
    return min([*moved, *changed_answers(who, changed, before, after, elsewhere)], default=float("inf"))


def lacks(looks: Iterable[Seen], places: Collection[str]) -> bool:
    """Does one of these conclusions lack one of the sources or hosts ``places``?"""
    return bool(places) and any(not look.unlogged.isdisjoint(places) for look in looks)


def between(looks: Iterable[Seen], low: float, high: float) -> list[Seen]:
    """The questions about effects from ``low`` to before ``high``."""
    found: list[Seen] = []
    for look in looks:
        found += look.between(low, high) if isinstance(look, WhoWasThere) else [look] if low <= look.at < high else []
    return found


def _what(run: Run | None, late: float) -> tuple[object, ...]:
    """The properties of a run that may count; an end after ``late`` does not."""
    if run is None:
        return ()
    return (
        run.nodes,
        run.start,
        run.row.get("user"),
        run.gpus,
        (run.end, run.state) if run.end is not None and run.end <= late else None,
    )


def factor_of(edge: Edge, hit: int, survived: int) -> float:
    """The odds of the Beta mean against those of the prior."""
    prior = min(edge.prior, SUREST_PRIOR)
    dies, lives = edge.prior_runs * prior, edge.prior_runs * (1.0 - prior)
    return (dies + hit) / dies * lives / (lives + survived)


class Exposed:
    """Finds the other exposed runs.

    ``holds(edge, cause, effect)`` returns whether an edge would explain an effect, ``window(edge, effect)`` how long
    after its cause that may come.
    """

    def __init__(
        self,
        world: World,
        edges: Iterable[Edge],
        holds: Callable[[Edge, Fact, Fact], bool],
        window: Callable[[Edge, Fact], tuple[float, float, bool]],
    ) -> None:
        self.world, self.holds, self.window = world, holds, window
        self.looks: list[Seen] = []
        #: The earliest effect for which the data do not yet show what became of the other runs; None if there is none.
        self.uncovered: float | None = None
        self._edges: dict[str, list[Edge]] = defaultdict(list)
        self._causes: set[str] = set()
        self._same: dict[tuple[str, str | None, str | None], list[Fact]] | None = None
        for edge in edges:
            if edge.shared:
                self._causes.update(edge.cause)
                for kind in edge.effect:
                    self._edges[kind].append(edge)
        self._groups: dict[int, list[Fact]] | None = None
        self._runs: dict[tuple[int, str], tuple[frozenset[str], RunsInTime]] = {}
        self._troubles: dict[str, list[Fact]] | None = None
        #: By failure and run.
        self._hits: defaultdict[int, dict[str, float]] = defaultdict(dict)

    def of(self, edge: Edge, cause: Fact, effect: Fact) -> Others | None:
        """What became of the other runs that ``cause`` reached; None if it could not have ended any other."""
        if not edge.shared:
            return None
        group, scope = self._group(cause), scopes()[edge.scope]
        if len(group) == 1 and not scope.reaches_alone:
            return None
        hosts, runs = self._reached(scope, group)
        self.looks.append(
            Look(effect.start, cause.start, effect.start + RAN_ON_S, hosts, hosts - self.world.reporting_hosts)
        )
        own = self.world.run[effect.run].job_id if effect.run in self.world.run else None
        near = [r for r in runs.overlapping(cause.start, effect.start) if r.job_id != own]
        hit, survived = [], []
        some = near[:: 1 + len(near) // LOOKED_AT]
        known = self._hits[id(group[0])]
        within, over = effect.start + HIT_WITHIN_S, effect.start + RAN_ON_S
        for run in some:
            if effect.run is None and effect.host in run.nodes:
                continue  # it shares the very node
            if (first := known.get(run.key)) is None:
                first = known[run.key] = self._first_hit(group, run)
            if first <= within:
                hit.append(run.key)
            elif run.end is not None and run.end <= over:
                continue  # it did not run on: whether it would have shown the effect does not matter
            elif run.start is not None and run.start <= cause.start and self._would_show(group, run, effect, hosts):
                survived += [run.key] if self._ran_on(run, effect.start) else []
        before = self._went_through(edge, cause, effect)
        if not hit and not survived and not before:
            return None
        factor = factor_of(edge, len(hit), len(survived) + before)
        return Others(tuple(hit), tuple(survived), _where(scope, group), factor, len(some), len(near), before)

    def _went_through(self, edge: Edge, cause: Fact, effect: Fact) -> int:
        """How often the run survived the same cause shortly before, where the edge would have explained its end.

        Such a run does not use that rail, or has longer retries than is known.
        """
        run = self.world.run.get(effect.run or "")
        if run is None or run.start is None or kind_of(effect.kind).pace:
            return 0
        if self._same is None:
            self._same = defaultdict(list)
            for fact in self.world.facts:
                if fact.kind in self._causes:
                    self._same[fact.kind, fact.host, fact.device].append(fact)
        late, first = effect.start - cause.start, max(run.start, cause.start - EARLIER_S)
        return sum(
            first <= f.start and f.start + late + RAN_ON_S <= effect.start
            and self.holds(edge, f, replace(effect, start=f.start + late))
            for f in self._same[cause.kind, cause.host, cause.device]
        )  # fmt: skip

    def _ran_on(self, run: Run, at: float) -> bool:
        over = at + RAN_ON_S
        if run.end is None and self.world.last < over:
            self.uncovered = at if self.uncovered is None else min(at, self.uncovered)
            return False
        return run.end is None or run.end > over

    def _would_show(self, group: Sequence[Fact], run: Run, effect: Fact, hosts: frozenset[str]) -> bool:
        """If the run had shown the same effect at the same moment, would the same cause explain it?"""
        if effect.run is not None:
            if kind_of(effect.kind).pace and not self._kept_pace(run, effect):
                return False
            shown = [_shown(effect, run.key, None)]
        else:
            shown = [_shown(effect, None, host) for host in run.nodes if host in hosts]
        return any(
            self.holds(edge, cause, self._by_then(edge, cause, fact))
            for fact in shown for cause in _on(group, run) for edge in self._edges[effect.kind] if cause.kind in edge.cause
        )  # fmt: skip

    def _by_then(self, edge: Edge, cause: Fact, fact: Fact) -> Fact:
        """The effect at the latest moment of the edge's window: a run with shorter retries would have shown it earlier."""
        latest = cause.start + self.window(edge, fact)[1]
        return fact if fact.start <= latest else replace(fact, start=latest)

    def _kept_pace(self, run: Run, effect: Fact) -> bool:
        points = self.world.progress.get((run.job_id, run.attempt), ())
        until = float("inf") if effect.end is None else effect.end
        before, during = sum(t < effect.start for t, _ in points), sum(effect.start <= t <= until for t, _ in points)
        return before >= PACES and during >= PACES

    def _first_hit(self, group: Sequence[Fact], run: Run) -> float:
        """When the first fact of the run, or loss of one of its nodes, began that the same cause explains; infinity if
        there is none."""
        if self._troubles is None:
            self._troubles = defaultdict(list)
            for fact in self.world.facts:
                place = fact.run or fact.host
                if place is not None and fact.kind in self._edges:
                    self._troubles[place].append(fact)
        troubles = [f for place in (run.key, *run.nodes) if place in self._troubles for f in self._troubles[place]]
        if not troubles:
            return inf
        causes = _on(group, run)
        return next((
            fact.start for fact in sorted(troubles, key=_start) if (fact.run is not None or _ended_with(run, fact)) and any(
                self.holds(edge, cause, fact) for cause in causes for edge in self._edges[fact.kind] if cause.kind in edge.cause
            )
        ), inf)  # fmt: skip

    def _reached(self, scope: Scope, group: Sequence[Fact]) -> tuple[frozenset[str], RunsInTime]:
        key = (id(group[0]), scope.name)
        if key not in self._runs:
            hosts = frozenset(h for f in group if scope.reaches for h in scope.reaches(self.world, f))
            some = {r.key: r for h in sorted(hosts) for r in self.world.runs_on.get(h, ())}
            self._runs[key] = (hosts, RunsInTime(list(some.values())))
        return self._runs[key]

    def _group(self, cause: Fact) -> list[Fact]:
        """All facts of one failure: a switch and the links lost with it, the switches that a spine took down."""
        if self._groups is None:
            self._groups = {}
            for members in self._failures():
                self._groups.update(dict.fromkeys(map(id, members), members))
        return self._groups.get(id(cause)) or [cause]

    def _failures(self) -> list[list[Fact]]:
        upper: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.world.facts_of(SWITCH_OUTAGE.name, PLANE_OUTAGE.name):
            upper[str(fact.host or fact.attrs.get(TOKEN))].append(fact)
        found: dict[int, list[Fact]] = {}
        for fact in self.world.facts_of(PLANE_OUTAGE.name, SWITCH_OUTAGE.name, LINK_OUTAGE.name):
            if fact.kind == LINK_OUTAGE.name and not fact.attrs.get(PROMOTED):
                continue
            top = fact
            for _ in range(2):  # link, switch, spine
                near = [
                    f for f in upper.get(str(top.attrs.get(PROMOTED)), ()) if abs(f.start - fact.start) <= ONE_FAILURE_S
                ]
                top = near[0] if near else top
            found.setdefault(id(top), []).append(fact)
        return list(found.values())


_start = attrgetter("start")


def _shown(effect: Fact, run: str | None, host: str | None) -> Fact:
    """An effect as another run or host would have shown it."""
    return Fact(effect.kind, effect.start, effect.end, effect.sigma, host, effect.device, run, effect.attrs)


def _on(group: Sequence[Fact], run: Run) -> list[Fact]:
    """The facts of one failure that reached the run: the links of its own nodes, and facts on no node."""
    own = [f for f in group if f.host in run.nodes]
    return own or [f for f in group if f.kind != LINK_OUTAGE.name or len(group) == 1]


#: A run ends with its node in one transaction of slurmctld's; accounting has whole seconds.
WITH_NODE_S = 5.0


def _ended_with(run: Run, down: Fact) -> bool:
    """Did the run end with its node? A run without a known end did not outlive it: the line, or accounting, is missing."""
    return run.end is None or abs(run.end - down.start) <= WITH_NODE_S


def _where(scope: Scope, group: Sequence[Fact]) -> str:
    top = group[0]
    if reach := kind_of(top.kind).reach:
        return reach(top)
    return scope.reached or f"on {top.host}"
