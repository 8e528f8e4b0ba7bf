"""Merges what was concluded about a time window into the conclusions before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from correlator.conclusions import Pass
from correlator.engine import Weighed
from correlator.evidence.exposure import between
from correlator.facts.jobs.kinds import COMM_ERROR
from correlator.facts.world import World
from correlator.incidents.incident import Incident
from correlator.incidents.incidents import repeats_s
from correlator.live.arrivals import Change
from correlator.live.frozen import roots_of
from correlator.live.lookup import (
    EventJobs,
    Index,
    Repeated,
    Spans,
    Times,
    chosen,
    in_order,
    kept,
    of_runs,
    with_strays,
)
from correlator.live.state import LiveConclusions, TickChange, Touched, index_of
from correlator.model.append_only_list import AppendOnlyList
from correlator.model.attributes import TIMEOUT
from correlator.model.fact_index import FactsByKind
from correlator.model.kinds import REPORTED_WITHIN_S
from correlator.model.nouns import Event, Fact, Run
from correlator.model.thinned import first_at
from correlator.verdicts.verdict import Verdict


def longest_logged_timeout(facts: Mapping[str, Sequence[Fact]] | FactsByKind) -> float:
    """The longest timeout that a program logged when it gave up, seconds. ``facts``: by kind."""
    logged = [f.attrs.get(TIMEOUT) for f in facts.get(COMM_ERROR.name, ())]
    return max((float(timeout or 0.0) for timeout in logged), default=0.0)


@dataclass
class Merge:
    """Puts the conclusions about a window in place of those before: what lies at or after ``border`` (epoch seconds), and
    the incidents ``live`` (ids) whatever their time.

    ``reach`` is how far causes may precede effects, seconds.
    """

    before: LiveConclusions
    change: Change
    border: float
    reach: float
    live: set[str]
    index: Index = field(init=False)
    #: Facts that are replaced or gone, and those that are new or differ.
    changed_facts: tuple[list[Fact], list[Fact]] = field(init=False, default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        self.index = index_of(self.before)

    def restated(self, lately: Spans) -> Any:
        """Which incidents of the window replace the ones before; the others stay unchanged."""
        return (lately.last(self.reach) >= self.border) | lately.among(self.live)

    def first_restated(self, weighed: Weighed, lately: Spans) -> float:
        """The earliest start of what is replaced, or weighed for it. ``lately`` is the extent in time of the incidents
        ``weighed``.

        A cause may precede it by ``reach``: a window that begins later lacks causes and would blame what is left in it.
        """
        border, restated, world = self.border, self.restated(lately), weighed.world
        ended = {r.key for r in world.runs if r.end is not None and r.end >= border}
        moments = [float(lately.first[restated].min(initial=np.inf))]
        moments += [f.start for f in world.facts if f.run in ended or (f.end is not None and f.end >= border)]
        stories = [*compress(weighed.stories, restated)]
        judged = ended.union(v.run.key for s in stories for v in [*s.verdicts, *s.left_open])
        chains = (c for v in weighed.verdicts if v.run.key in judged for c in v.others)
        moments += [m for s in stories for m in self._complained(s.root)]
        return min([*moments, *(h.cause.start for c in chains for h in c.hops)])

    def _complained(self, root: Fact) -> list[float]:
        """When the devices failed whose later lines may be the root of an incident.

        Without the earlier lines, it would become another incident.
        """
        if not repeats_s(root.kind):
            return []
        spans = self.index.spans
        around = np.flatnonzero((spans.first <= root.start) & (spans.over >= root.start))
        stories = self.before.memory.basis.stories
        roots = (stories[n].root for n in around.tolist())
        return [
            r.start
            for r in roots
            if (r.kind, r.host, r.device) == (root.kind, root.host, root.device) and r.start <= root.start
        ]

    def facts(self, world: World) -> tuple[list[Fact], Times]:
        """All facts, in no order, and their extent in time."""
        then, now = self.index.facts, Times.of(world.facts)
        old, new = then.last < self.border, now.last >= self.border
        pieces, continued = self._known_twice(world, then, now, old)
        old[continued], new[pieces] = False, False
        fresh = chosen(world.facts, new)
        known = self.before.result.facts
        self.changed_facts = chosen(known, ~old), fresh
        return [*kept(known, old), *fresh], then.but(old, now, new)

    def _known_twice(self, world: World, then: Times, now: Times, old: Any) -> tuple[list[int], list[int]]:
        """Facts that were over before the border and are also in the window: of which of the window's only a piece is
        known, since not all of their events are carried into it; and which of those before are continued by new events.
        """
        lasting = np.flatnonzero((now.start < self.border) & (now.last >= self.border))
        begun = np.append(np.sort(now.start[lasting]), np.inf)
        around = begun[np.searchsorted(begun, then.start)] - then.start <= REPORTED_WITHIN_S
        of_fact: dict[tuple[str, str | None, str | None, str], int] = {}
        for n in np.flatnonzero(old & around).tolist():
            fact = self.before.result.facts[n]
            of_fact |= dict.fromkeys(((fact.kind, fact.host, fact.device, e.id) for e in fact.events), n)
        pieces, continued = [], []
        for n in lasting.tolist() if of_fact else ():
            fact = world.facts[n]
            known = [of_fact.get((fact.kind, fact.host, fact.device, e.id)) for e in fact.events]
            if known and None not in known:
                pieces.append(n)
            else:
                continued += [place for place in known if place is not None]
        return pieces, continued

    def merged(
        self,
        found: Pass,
        weighed: Weighed,
        lately: Spans,
        facts: list[Fact],
        kinds: FactsByKind,
        times: Times,
        others: list[Run],
        former: list[Run],
    ) -> tuple[LiveConclusions, list[Verdict]]:
        """Merges results before the border with new ones after it, and returns the verdicts whose documents are to be
        written.

        ``found`` is what the pass over the window yields, without documents, and ``weighed`` what it was concluded from.
        Replaced incidents have empty documents. ``kinds``: the ``facts`` by kind. ``others`` are the runs outside the
        window; ``former`` are those inside it, as known before.
        """
        known, memory, border, index = self.before.result, self.before.memory, self.border, self.index
        before, basis = memory.basis, found.basis  # of all passes so far, and of the one over the window
        runs, numbers = _with_runs(index, others, former, found.result.runs)
        again = self.restated(lately)
        stays = ~index.spans.among(self.live.union(lately.names[again]))
        spans = index.spans.only(stays) + lately.only(again)
        stories = [*kept(before.stories, stays), *chosen(basis.stories, again)]
        count = int(stays.sum())
        documents = [*kept(known.incidents, stays), *({} for _ in range(count, len(stories)))]
        order = _by_start(spans, count)
        if order is not None:
            spans, stories, documents = spans.in_order(order), in_order(stories, order), in_order(documents, order)
        places = [*range(count, len(stories))] if order is None else np.flatnonzero(order >= count).tolist()
        gone = {known.incidents[n]["id"]: (known.incidents[n], before.stories[n]) for n in np.flatnonzero(~stays)}
        restated = [*compress(basis.stories, again), *(s for _, s in gone.values() if s.id in self.live)]
        verdicts, wanted, judged = self._verdicts(weighed, former, restated)
        events, event_jobs, repeated = self._all_events(found.result.events, basis.strays)
        logged_timeout = memory.logged_timeout
        if any(fact.kind == COMM_ERROR.name for facts_there in self.changed_facts for fact in facts_there):
            logged_timeout = longest_logged_timeout(kinds)
        result = replace(found.result, events=events, runs=runs, incidents=documents, facts=facts, verdicts=verdicts)
        basis = replace(
            basis, stories=stories, looks=[*between(before.looks, -np.inf, border), *between(basis.looks, border, np.inf)],
            unstamped=before.unstamped | self.change.unstamped, accounted=before.accounted,
        )  # fmt: skip
        memory = replace(
            memory, basis=basis, open_verdicts=memory.open_verdicts | judged, index=Index(event_jobs, repeated, *numbers, spans, times),
            logged_timeout=logged_timeout, longest=memory.longest if logged_timeout == memory.logged_timeout else None,
        )  # fmt: skip
        change = TickChange(
            border, (former, found.result.runs), self.change.states, Touched(places, gone, judged), self.changed_facts, found.lines, weighed
        )  # fmt: skip
        return LiveConclusions(result, memory, change), wanted

    def in_words(self, merged: LiveConclusions, weighed: Weighed, verdicts: Collection[Verdict]) -> LiveConclusions:
        """The conclusions with the documents of what is replaced."""
        touched, result, basis = merged.change.touched, merged.result, merged.memory.basis
        assert touched is not None
        fresh = weighed.incident_documents(basis.stories[n] for n in touched.incidents)
        for place, document in zip(touched.incidents, fresh, strict=True):
            result.incidents[place] = document
        result.verdicts.update(weighed.verdict_documents(verdicts))
        before = self.before.memory
        horizons = {**before.horizons, **weighed.horizons(verdicts)}
        roots = before.basis.roots.but(roots_of(d for d, _ in touched.gone.values()), roots_of(fresh))
        result.lemons = roots.suspects(len(basis.site.hosts) if basis.site else 0)
        open_incidents = before.open_incidents.union(d["id"] for d in fresh)
        merged.memory = replace(merged.memory, basis=replace(basis, roots=roots), open_incidents=open_incidents, horizons=horizons)  # fmt: skip
        return merged

    def _verdicts(self, weighed: Weighed, former: list[Run], restated: list[Incident]) -> tuple[dict[str, Any], list[Verdict], set[str]]:  # fmt: skip
        """The verdicts that stay, those that are replaced, and the runs whose verdict may change.

        ``restated`` are the incidents concluded anew.
        """
        before, jobs, runs = self.before.result.verdicts, self.change.jobs, weighed.world.runs
        anew = {r.key for r in runs if r.end is None or r.end >= self.border or r.job_id in jobs}
        anew |= {v.run.key for s in restated for v in [*s.verdicts, *s.left_open]}
        wanted = [v for v in weighed.verdicts if v.run.key in anew or v.run.key not in before]
        anew |= {r.key for r in former} - {r.key for r in runs}
        verdicts = dict(before)
        for key in anew:
            verdicts.pop(key, None)
        return verdicts, wanted, anew.union(v.run.key for v in wanted)

    def _all_events(
        self, found: Sequence[Event], strays: Sequence[Event]
    ) -> tuple[AppendOnlyList[Event], EventJobs, Repeated]:
        """All events and their part of the index."""
        index, border = self.index, self.border
        cut, start = (first_at(some, border) for some in (self.before.result.events, found))
        fresh, known = found[start:], self.before.result.events
        events = (known if isinstance(known, AppendOnlyList) else AppendOnlyList(known)).but(cut, fresh)
        behind = strays[first_at(strays, border) :]
        repeated = index.repeated.but(border, Repeated.of(with_strays(fresh, behind)))
        return events, index.event_jobs.but(cut, fresh), repeated


def _by_start(spans: Spans, kept: int) -> Any:
    """The sorted order of incidents whose first ``kept`` and remaining ones are each sorted; None if nothing moves."""
    start, names = spans.start, spans.names
    if kept in (0, len(start)) or start[kept] > start[kept - 1]:
        return None
    first = int(np.searchsorted(start[:kept], start[kept]))  # what comes before stays
    rest = list(zip(start[first:].tolist(), names[first:].tolist(), strict=True))
    return np.concatenate([np.arange(first), first + np.array(sorted(range(len(rest)), key=rest.__getitem__))])


def _with_runs(index: Index, others: list[Run], former: list[Run], again: list[Run]) -> tuple[list[Run], tuple[Any, Any]]:  # fmt: skip
    """All runs by job and their part of the index. ``others`` and ``again`` are sorted by job, and so is the result."""
    jobs, ends = index.run_jobs, index.run_ends
    if former:
        stays = ~np.isin(jobs, [r.job_id for r in former])
        jobs, ends = jobs[stays], ends[stays]
    new_jobs, new_ends = of_runs(again)
    if not again:
        return others, (jobs, ends)
    first = int(np.searchsorted(jobs, new_jobs[0]))
    all_jobs, all_ends = np.concatenate([jobs, new_jobs]), np.concatenate([ends, new_ends])
    order = np.argsort(all_jobs[first:], kind="stable")
    all_jobs[first:], all_ends[first:] = all_jobs[first:][order], all_ends[first:][order]
    return [*others[:first], *in_order([*others[first:], *again], order)], (all_jobs, all_ends)
