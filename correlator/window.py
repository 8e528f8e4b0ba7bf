"""Concluding anew about a stretch of time only, and putting the answer into what was concluded before.

What happened at one moment can change verdicts and incidents that reach up to ``margin`` before it, and those look back
as far as the longest causal window. So a change at time t asks for conclusions about [t - margin - reach, ...) from: the
rows of that stretch, all rows of the runs that were going on, and the events of everything that was still lasting when
the stretch begins. What ended before t - margin stays as it was. Where that would not be enough (another setting,
another clock, another base rate), ``Window.again`` says so by returning None, and the caller concludes about everything.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from correlator import clocks, expressions, lemons
from correlator import events as event_rows
from correlator import runs as run_rows
from correlator.arrivals import Change
from correlator.conditions import derived_values
from correlator.engine import Conclusions, Index, conclude_world, gather_world
from correlator.estimate import narrow_slurmd_timeout
from correlator.events import COALESCE_S, moment_of
from correlator.evidence import BaseRates
from correlator.facts import World, conclude
from correlator.incidents import SAME_DEVICE_S, Incident, events_of
from correlator.model import Edge, Event, Fact, Run

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: Detectors join what lies at most 300 s apart (bursts, flaps, boots), and telemetry counts for 900 s around a fault.
MARGIN_S = 900.0

#: A window longer than this belongs to things that are still lasting (a drain, a hanging run): they are carried, not searched.
LONGEST_S = 6 * 3600.0


class Recent:
    """A store seen from ``since`` on: log lines and samples before it are not there, nor are those without a time."""

    def __init__(self, store: DuckStore, since: datetime) -> None:
        self._store = store
        stamp = f"TIMESTAMP '{since.isoformat(sep=' ')}'"
        self._parts = {
            "raw.log_view": f"(SELECT * FROM raw.log_view WHERE time >= {stamp})",
            "raw.metrics": f"(SELECT * FROM raw.metrics WHERE time >= {stamp})",
            "raw.node_states": f"(SELECT * FROM raw.node_states WHERE time >= {stamp})",
        }
        self._names = re.compile("|".join(re.escape(name) + r"\b" for name in self._parts))

    def _only(self, sql: str) -> str:
        return self._names.sub(lambda match: self._parts[match[0]], sql)

    def rows(self, sql: str, parameters: object = None) -> list[dict[str, Any]]:
        return self._store.rows(self._only(sql), parameters)

    def frame(self, sql: str, parameters: object = None) -> pl.DataFrame:
        return self._store.frame(self._only(sql), parameters)


def last_moment(fact: Fact) -> float:
    """Until when a fact went on; one that has no end told is as old as its beginning."""
    return fact.start if fact.end is None else max(fact.start, fact.end)


def span(story: Incident, reach: float) -> tuple[float, float]:
    """First moment of an incident and the last at which something could still join it unasked.

    What is still lasting may have effects for ``reach`` seconds after its beginning. Later it changes only when a line
    speaks of its end (``Window._touched``).
    """
    facts = [story.root, *story.members, *story.flaps, *(v.end for v in story.verdicts)]
    last = max(f.start + reach if f.end is None else max(f.start, f.end) for f in facts)
    return min(f.start for f in facts), max(last, story.root.start + SAME_DEVICE_S.get(story.root.kind, 0.0))


def longest_window(known: Conclusions, edges: Iterable[Edge]) -> float:
    """The longest causal window between different things, seconds: so long after an effect its cause may lie back."""
    if known.site is None:
        return 0.0
    values = derived_values(known.site.values_for(None), None)
    printed = max(
        (float(f.attrs.get("timeout") or 0.0) for f in known.facts if f.kind == "job.comm_error"), default=0.0
    )
    values["PrintedTimeout"] = expressions.Value(0.0, max(printed, 1800.0))
    highs = [expressions.window(e.window, values)[1] for e in edges if e.scope != "same run"]
    return max((h for h in highs if h <= LONGEST_S), default=0.0)


class Window:
    """One change to one cluster's conclusions."""

    def __init__(
        self,
        store: DuckStore,
        before: Conclusions,
        edges: list[Edge],
        settings: Mapping[str, object] | None,
        change: Change,
    ) -> None:
        self.store, self.before, self.edges, self.settings, self.change = store, before, edges, settings, change
        skew = max((abs(o.seconds) for o in before.clocks), default=0.0)
        #: From here on results are replaced.
        self.border = change.earliest - skew - MARGIN_S
        lasting = [
            e.time for e in index_of(before).repeated if e.time < self.border and e.last >= self.border - COALESCE_S
        ]
        just = before.events[bisect_left(before.events, self.border - COALESCE_S, key=attrgetter("time")) :][:1]
        self.border = min([self.border, *lasting, *(e.time for e in just)])
        self.reach = longest_window(before, edges) + MARGIN_S
        spans = {s.id: span(s, self.reach) for s in before.stories}
        self.live = {s.id for s in before.stories if spans[s.id][1] >= self.border or self._touched(s)}
        #: From here on rows are read.
        self.since = min([self.border - self.reach, *(spans[name][0] - MARGIN_S for name in self.live)])

    def _touched(self, story: Incident) -> bool:
        """Does something still last in it on a host that a change may have ended it on?"""
        facts = [f for f in [story.root, *story.members, *story.flaps] if f.end is None]
        if not facts:
            return False
        hosts = {h for f in facts for h in (f.host, *f.attrs.get("hosts", ())) if h}
        return bool(hosts & self.change.ending) or any(v.run.job_id in self.change.jobs for v in story.verdicts)

    @property
    def whole(self) -> bool:
        """Is the stretch so long that concluding about everything costs no more?"""
        events = self.before.events
        inside = len(events) - bisect_left(events, self.since, key=attrgetter("time"))
        return self.since <= self.before.first or inside > 0.7 * len(events)

    def again(self) -> Conclusions | None:
        """The conclusions with the change in them; None where everything must be concluded anew."""
        before = self.before
        if not self.change.voices <= before.voices:
            return None  # what was in doubt for want of a host's log is not any more
        jobs = self.change.jobs | {r.job_id for r in before.runs if r.end is None or r.end >= self.since}
        recent = Recent(self.store, moment_of(self.since) or datetime.min)
        new = self._events(recent)
        carried = self._carried(jobs)
        off = before.clocks
        if any(o.end >= self.since for o in off) or clocks.offsets(sorted([*new, *carried], key=event_rows.order)):
            return None  # a clock that is off now: every new pair of lines may tell it better
        new = clocks.correct(new, off)
        told = {(e.host, e.kind, e.device): e for e in carried if e.time < self.since <= e.last}
        fresh = [e for e in new if not _piece_of(e, told.get((e.host, e.kind, e.device)))]
        events = sorted({e.id: e for e in [*carried, *fresh]}.values(), key=event_rows.order)
        runs = self._runs(jobs, events)
        states = self._states(recent)
        hosts = before.site.hosts if before.site else frozenset()
        world = gather_world(recent, before.cluster, self.settings, events, runs, states, off, hosts, before)
        if world.events and world.first < before.first:
            return None  # older than anything known: base rates and what lies at the beginning change
        world.first, world.last = min(before.first, world.first), max(before.last, world.last)
        world.progress = _joined(before.progress, world.progress, self.since)
        conclude(world)
        facts = self._all_facts(world)
        overall = World(world.site, [], [], facts=facts)
        narrow_slurmd_timeout(overall)
        rates = BaseRates(facts, len(world.site.hosts), world.first)
        if before.site is None or not _same_site(world, before):
            return None
        return self._merged(conclude_world(world, self.edges, rates), facts, jobs)

    def _events(self, recent: Recent) -> list[Event]:
        """The events of the stretch: those that nothing new can be a copy of as they are, the rest from their lines."""
        before, cluster = self.before, self.before.cluster
        unstamped = self.change.jobs & (before.unstamped | self.change.unstamped)
        if unstamped or before.clocks:
            lines = event_rows.stamped(recent, cluster)
            if unstamped:
                lines = pl.concat([lines, event_rows.unstamped(self.store, cluster, unstamped)])
            return event_rows.coalesce(lines)
        cut = max(self.since, self._untouched_until())
        first, behind = (bisect_left(before.events, t, key=attrgetter("time")) for t in (self.since, cut))
        lines = event_rows.stamped(Recent(self.store, moment_of(cut) or datetime.min), cluster)
        return [*before.events[first:behind], *event_rows.coalesce(lines)]

    def _untouched_until(self) -> float:
        """A moment before everything new that no event's lines lie around. Each further place of an event (``also``) lies
        at most ``COALESCE_S`` from the next."""
        spread = [
            (e.time - COALESCE_S * len(e.also), e.time + COALESCE_S * len(e.also))
            for e in index_of(self.before).repeated
        ]
        cut = self.change.earliest - COALESCE_S - 0.001
        while (lower := min([cut, *(low for low, high in spread if low < cut <= high + COALESCE_S)])) < cut:
            cut = lower - 0.001
        return cut

    def _carried(self, jobs: Iterable[int]) -> list[Event]:
        """Events before the stretch that what lies in it needs: of things still lasting, and of the runs' own lines."""
        wanted = set(jobs)
        found = {
            e.id: e for f in self.before.facts if f.run is None and f.start < self.since
            and (f.end is None or f.end >= self.since) for e in f.events
        }  # fmt: skip
        for story in self.before.stories:
            if story.id in self.live:
                found.update((e.id, e) for e in events_of(story))
        for place in np.flatnonzero(np.isin(index_of(self.before).jobs, list(wanted))):
            event = self.before.events[place]
            if event.time < self.since or self._placed(event):
                found[event.id] = event
        untold = self.change.jobs
        return [e for e in found.values() if e.time < self.since or (self._placed(e) and e.job_id not in untold)]

    def _placed(self, event: Event) -> bool:
        """Is it output without a stamp, which no reading by time finds? (A stamp whose year was inferred is a stamp.)"""
        return (
            event.time_quality == "inferred"
            and event.job_id in self.before.unstamped
            and event.source in ("job_stdout", "job_stderr")
        )

    def _runs(self, jobs: Iterable[int], events: list[Event]) -> list[Run]:
        """Runs of these jobs: those of which nothing new was said as they are."""
        told = self.change.jobs
        if self.before.clocks:
            told = frozenset(jobs)
        known = set(jobs) - told
        where = "WHERE cluster IS NOT DISTINCT FROM ? AND job_id IN (SELECT unnest(?::BIGINT[]))"
        rows = self.store.rows(f"SELECT * FROM raw.jobs {where}", [self.before.cluster, sorted(told)])
        steps = self.store.rows(f"SELECT * FROM raw.steps {where}", [self.before.cluster, sorted(told)])
        again = run_rows.assemble(rows, steps, [e for e in events if e.job_id in told])
        return sorted([*(r for r in self.before.runs if r.job_id in known), *again], key=attrgetter("job_id"))

    def _states(self, recent: Recent) -> list[dict[str, Any]]:
        from correlator.engine import node_states

        return node_states(recent, self.before.cluster)

    def _all_facts(self, world: World) -> list[Fact]:
        old = [f for f in self.before.facts if last_moment(f) < self.border and not (f.end is None and f.run is None)]
        new = [f for f in world.facts if last_moment(f) >= self.border or (f.end is None and f.run is None)]
        return sorted([*old, *new], key=lambda f: f.key)

    def _merged(self, found: Conclusions, facts: list[Fact], jobs: Iterable[int]) -> Conclusions:
        """Before the border what was said, behind it what is said now."""
        before, border = self.before, self.border
        again = set(jobs)
        runs = sorted(
            [*(r for r in before.runs if r.job_id not in again), *found.runs],
            key=attrgetter("job_id"),
        )
        kept = [(s, d) for s, d in zip(before.stories, before.incidents, strict=True) if s.id not in self.live]
        taken = [
            (s, d)
            for s, d in zip(found.stories, found.incidents, strict=True)
            if span(s, self.reach)[1] >= border or s.id in self.live
        ]
        names = {s.id for s, _ in taken}
        stories = sorted([*((s, d) for s, d in kept if s.id not in names), *taken], key=lambda p: (p[0].start, p[0].id))
        anew = {r.key for r in found.runs if r.end is None or r.end >= border or r.job_id in self.change.jobs}
        anew |= {v.run.key for s, _ in taken for v in s.verdicts}
        anew |= {v.run.key for s in before.stories if s.id in self.live for v in s.verdicts}
        verdicts = {k: v for k, v in before.verdicts.items() if k not in anew}
        verdicts.update((k, v) for k, v in found.verdicts.items() if k in anew or k not in before.verdicts)
        known = {r.key for r in runs}
        documents = [d for _, d in stories]
        cut, start = (bisect_left(c.events, border, key=attrgetter("time")) for c in (before, found))
        events = [*before.events[:cut], *found.events[start:]]
        hosts = found.site.hosts if found.site else frozenset()
        index = index_of(before)
        repeated = [
            *(e for e in index.repeated if e.time < border),
            *(e for e in found.events[start:] if e.last > e.time),
        ]
        return replace(
            found, events=events, runs=runs, incidents=documents, stories=[s for s, _ in stories], facts=facts,
            verdicts={r.key: verdicts[r.key] for r in runs if r.key in verdicts and r.key in known},
            lemons=lemons.suspects(documents, len(hosts)), border=border,
            unstamped=before.unstamped | self.change.unstamped, again=frozenset(again), states_differ=self.change.states,
            index=Index(np.concatenate([index.jobs[:cut], _jobs_of(found.events[start:])]), repeated),
        )  # fmt: skip


def index_of(known: Conclusions) -> Index:
    """Made once after everything was concluded anew; ``Window`` keeps it up."""
    if known.index is None:
        known.index = Index(_jobs_of(known.events), [e for e in known.events if e.also])
    return known.index


def _jobs_of(events: list[Event]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter((-1 if e.job_id is None else e.job_id for e in events), np.int64, len(events))


def _piece_of(event: Event, whole: Event | None) -> bool:
    """The rest of a long row of repeated lines that began before the stretch and is carried as one."""
    return whole is not None and event.id != whole.id and event.time <= whole.last + COALESCE_S


def _joined(old: Mapping[Any, list[Any]], new: Mapping[Any, list[Any]], since: float) -> dict[Any, list[Any]]:
    keys = sorted({*old, *new})
    return {
        k: [*(p for p in old.get(k, ()) if p[0] < since), *(p for p in new.get(k, ()) if p[0] >= since)] for k in keys
    }


def _same_site(world: World, before: Conclusions) -> bool:
    now, then = world.site, before.site
    return then is not None and (now.settings, now.job_settings, now.links, now.cables, now.members, now.leaf_of, len(now.hosts)) == (
        then.settings, then.job_settings, then.links, then.cables, then.members, then.leaf_of, len(then.hosts))  # fmt: skip
