"""Indexes over the conclusions, which a tick updates instead of rebuilding."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, compress
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.gather.events import COALESCE_S
from correlator.incidents.incident import AFTERMATH_S, Incident, facts_of
from correlator.incidents.incidents import repeats_s
from correlator.model.attributes import HOSTS
from correlator.model.fact_index import number_of
from correlator.model.nouns import Event, Fact, Run

T = TypeVar("T")

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Moments = np.ndarray[Any, np.dtype[np.float64]]
Names = np.ndarray[Any, np.dtype[np.object_]]
Choice = np.ndarray[Any, np.dtype[np.bool_]]

#: No job has this id.
NO_JOB = -(2**63)

#: The gap (seconds) kept before a moment so that the preceding one is distinct from it.
NEXT_S = 0.001


@dataclass(frozen=True)
class Spans:
    """The extent in time of incidents, as parallel arrays (epoch seconds).

    ``names`` are their ids and ``first`` their first moments. ``over`` is the last moment at which an ended fact or run
    of the incident ended. ``lasting`` is the latest start of those that have not ended (minus infinity if all have).
    ``first_line`` and ``last_line`` are the times of its lines; ``start`` is the time by which incidents are sorted.
    The mappings are by id, only for incidents that have any: ``hosts`` and ``jobs`` of what still lasts, and ``downs``,
    the nodes that were set DOWN and when.
    """

    names: Names
    first: Moments
    over: Moments
    lasting: Moments
    first_line: Moments
    last_line: Moments
    start: Moments
    hosts: dict[str, frozenset[str]]
    jobs: dict[str, frozenset[int]]
    downs: dict[str, tuple[tuple[str | None, float], ...]]

    @staticmethod
    def of(stories: Sequence[Incident]) -> Spans:
        rows: list[tuple[float, ...]] = []
        hosts: dict[str, frozenset[str]] = {}
        jobs: dict[str, frozenset[int]] = {}
        downs: dict[str, tuple[tuple[str | None, float], ...]] = {}
        for story in stories:
            facts = facts_of(story)
            judged = [*story.verdicts, *story.left_open]
            ends = [v.end for v in judged]
            over = [max(f.start, f.end) for f in chain(facts, ends) if f.end is not None]
            over.append(story.root.start + repeats_s(story.root.kind))
            begun = max((f.start for f in chain(facts, ends) if f.end is None), default=-np.inf)
            line_times = [e.time for f in facts for e in f.events] or [story.root.start]
            rows.append(
                (
                    min(f.start for f in chain(facts, ends)),
                    max(over),
                    begun,
                    min(line_times),
                    max(line_times),
                    story.start,
                )
            )
            lasting = [f for f in facts if f.end is None]
            if lasting:
                hosts[story.id] = frozenset(h for f in lasting for h in (f.host, *f.attrs.get(HOSTS, ())) if h)
                jobs[story.id] = frozenset(v.run.job_id for v in judged)
            down = tuple((f.host, f.start) for f in facts if f.kind == NODE_DOWN.name)
            if down:
                downs[story.id] = down
        table = np.array(rows, np.float64).reshape(len(rows), 6)
        first, ended, lasting_since, first_line, last_line, start = table.T.copy()
        names = np.array([s.id for s in stories], object)
        return Spans(names, first, ended, lasting_since, first_line, last_line, start, hosts, jobs, downs)

    def last(self, reach: float) -> Moments:
        """The last moment at which something could still join each incident without a line that names it.

        What still lasts may have effects for ``reach`` seconds after its start. After that it changes only when a line
        reports its end.
        """
        return np.maximum(self.over, self.lasting + reach)

    def among(self, some: Collection[str]) -> Choice:
        if not some:
            return np.zeros(len(self.names), np.bool_)
        return np.fromiter(map(some.__contains__, self.names), np.bool_, len(self.names))

    def within(self, stretches: Sequence[tuple[float, float]]) -> Choice:
        """Which incidents have, or may have, lines in one of the given time ranges."""
        found = np.zeros(len(self.names), np.bool_)
        for low, high in stretches:
            found |= (self.first_line <= high) & (self.last_line >= low)
        return found

    def in_order(self, order: Numbers) -> Spans:
        return self._rows(order, self.hosts, self.jobs, self.downs)

    def only(self, which: Choice) -> Spans:
        if which.all():
            return self
        gone = set(self.names[~which])
        hosts, jobs, downs = (
            {k: v for k, v in members.items() if k not in gone} for members in (self.hosts, self.jobs, self.downs)
        )
        return self._rows(which, hosts, jobs, downs)  # type: ignore[arg-type]

    def _rows(self, which: Choice | Numbers, hosts: dict[str, frozenset[str]], jobs: dict[str, frozenset[int]], downs: dict[str, tuple[tuple[str | None, float], ...]]) -> Spans:  # fmt: skip
        return Spans(
            self.names[which], self.first[which], self.over[which], self.lasting[which], self.first_line[which],
            self.last_line[which], self.start[which], hosts, jobs, downs,
        )  # fmt: skip

    def __add__(self, more: Spans) -> Spans:
        def both(name: str) -> Any:
            return np.concatenate([getattr(self, name), getattr(more, name)])

        return Spans(
            both("names"), both("first"), both("over"), both("lasting"), both("first_line"), both("last_line"), both("start"),
            self.hosts | more.hosts, self.jobs | more.jobs, self.downs | more.downs,
        )  # fmt: skip


@dataclass(frozen=True)
class Times:
    """The extent in time of facts, as parallel arrays (epoch seconds).

    ``kind`` is the number of its kind (``number_of``); ``last`` is how long each went on: infinity if it still lasts, its start if it belongs to a run and has no known
    end. ``until`` is its end: infinity if none is known, minus infinity if it belongs to a run.
    """

    start: Moments
    last: Moments
    until: Moments
    kind: Numbers

    @staticmethod
    def of(facts: Sequence[Fact]) -> Times:
        rows = [
            (f.start, inf if f.run is None else f.start, inf if f.run is None else -inf) if f.end is None
            else (f.start, max(f.start, f.end), f.end if f.run is None else -inf) for f in facts
        ]  # fmt: skip
        kinds = np.fromiter((number_of(f.kind) for f in facts), np.int64, len(facts))
        start, last, until = np.array(rows, np.float64).reshape(len(rows), 3).T.copy()
        return Times(start, last, until, kinds)

    def but(self, which: Choice, more: Times, choice: Choice) -> Times:
        """The chosen facts of this one followed by the chosen facts of ``more``."""
        return Times(*(
            np.concatenate([getattr(self, name)[which], getattr(more, name)[choice]]) for name in ("start", "last", "until", "kind")
        ))  # fmt: skip


@dataclass(frozen=True)
class Repeated:
    """The extent in time of events with more than one line, in order.

    ``time`` and ``last`` are the first and last moment of each; ``further`` is the number of its ``also`` entries.
    """

    time: Moments
    last: Moments
    further: Moments

    @staticmethod
    def of(events: Iterable[Event]) -> Repeated:
        rows = [(e.time, e.last, float(len(e.also))) for e in events if e.also or e.last > e.time]
        return Repeated(*np.array(rows, np.float64).reshape(len(rows), 3).T.copy())

    def untouched_until(self, earliest: float) -> float:
        """A moment before ``earliest``, the time of the first new line, that is not inside the span of any event.

        Each entry of an event's ``also`` lies at most ``COALESCE_S`` from the next.
        """
        spread = COALESCE_S * self.further
        low, high = self.time - spread, self.time + spread
        cut = earliest - COALESCE_S - NEXT_S
        while (lower := float(low[(low < cut) & (cut <= high + COALESCE_S)].min(initial=cut))) < cut:
            cut = lower - NEXT_S
        return cut

    @property
    def latest(self) -> float:
        """No line of these events is later than this moment; minus infinity if there are no events."""
        return float(np.maximum(self.last, self.time + COALESCE_S * self.further).max(initial=-inf))

    def but(self, border: float, more: Repeated) -> Repeated:
        """The events before ``border``, followed by ``more``, which lie after it."""
        cut = int(np.searchsorted(self.time, border))
        return Repeated(*(
            np.concatenate([getattr(self, name)[:cut], getattr(more, name)]) for name in ("time", "last", "further")
        ))  # fmt: skip


@dataclass(frozen=True)
class EventJobs:
    """The jobs of those events that have one, with their places in the list of all events, as parallel arrays."""

    places: Numbers
    jobs: Numbers

    @staticmethod
    def of(events: Sequence[Event], first: int = 0) -> EventJobs:
        """``first``: the place of the first of these events."""
        named = np.array([NO_JOB if (job := e.job_id) is None else job for e in events], np.int64)
        places = np.flatnonzero(named != NO_JOB)
        return EventJobs(places + first, named[places])

    def but(self, cut: int, more: Sequence[Event]) -> EventJobs:
        """The first ``cut`` events, then ``more``."""
        fresh, stays = EventJobs.of(more, cut), int(np.searchsorted(self.places, cut))
        return EventJobs(*(np.concatenate([old[:stays], new]) for old, new in ((self.places, fresh.places), (self.jobs, fresh.jobs))))  # fmt: skip

    def of_jobs(self, jobs: Collection[int], first: int = 0) -> list[int]:
        """The places of events of these jobs, from the place ``first`` on."""
        begin = int(np.searchsorted(self.places, first))
        wanted = np.isin(self.jobs[begin:], np.fromiter(jobs, np.int64, len(jobs)))
        found: list[int] = self.places[begin:][wanted].tolist()
        return found


@dataclass(frozen=True)
class Index:
    """Lookups over a cluster's conclusions, in the order of their lists.

    ``event_jobs`` has the jobs of events and ``repeated`` covers the events with more than one line.
    ``run_jobs`` and ``run_ends`` are the job and the end of each run (infinity: no end known). ``spans`` and ``facts``
    hold the extent in time of incidents and facts.
    """

    event_jobs: EventJobs
    repeated: Repeated
    run_jobs: Numbers
    run_ends: Moments
    spans: Spans
    facts: Times

    @staticmethod
    def of(
        events: Sequence[Event], runs: list[Run], stories: Sequence[Incident], facts: Sequence[Fact],
        strays: Sequence[Event] = (),
    ) -> Index:  # fmt: skip
        """``strays``: events that count for nothing, whose lines must be read together nevertheless."""
        repeated = Repeated.of(with_strays(events, strays))
        return Index(EventJobs.of(events), repeated, *of_runs(runs), Spans.of(stories), Times.of(facts))

    def last_runs(self, runs: Sequence[Run], jobs: Collection[int]) -> dict[int, Run]:
        """The last known run of each of these jobs. ``runs`` are the runs that this index was built from."""
        wanted = np.fromiter(jobs, np.int64, len(jobs))
        places = np.searchsorted(self.run_jobs, wanted, side="right") - 1
        wanted, places = wanted[places >= 0], places[places >= 0]
        found = self.run_jobs[places] == wanted
        return {int(job): runs[place] for job, place in zip(wanted[found], places[found], strict=True)}

    def speaking_of(self, before: Run, after: Run) -> set[str]:
        """Incidents whose documents may change because a run changed.

        An incident counts and names the runs that went through it, and names the GPUs of a lost node.
        """
        if before.start is None or after.start is None:
            return set()
        spans = self.spans
        low, high = sorted((before.start, after.start))
        met = np.maximum(spans.over, spans.lasting) + AFTERMATH_S >= low
        if (before.key, before.nodes) == (after.key, after.nodes):
            met &= (spans.first <= high) & (high > low)
        found = set(spans.names[met])
        if before.gpus != after.gpus:
            found |= {i for i, downs in spans.downs.items() if any(h in after.nodes and t >= low for h, t in downs)}
        return found

    def without(self, runs: list[Run], jobs: Collection[int]) -> tuple[list[Run], list[Run]]:
        """The runs of all other jobs, and the runs of these jobs."""
        gone = np.isin(self.run_jobs, np.fromiter(jobs, np.int64, len(jobs)))
        return (kept(runs, ~gone), chosen(runs, gone)) if gone.any() else (runs, [])


def kept(items: list[T], which: Choice) -> list[T]:
    """The chosen ones of a long list of which few at its end are not."""
    others = np.flatnonzero(~which)
    first = int(others[0]) if len(others) else len(items)
    return items[:first] + list(compress(items[first:], which[first:].tolist()))


def chosen(items: Sequence[T], which: Choice) -> list[T]:
    """The chosen ones of a long list, if they are few."""
    return [items[n] for n in np.flatnonzero(which).tolist()]


def in_order(items: list[T], order: Numbers) -> list[T]:
    """A long list whose beginning stays as it is."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    first = int(moved[0]) if len(moved) else len(order)
    return [*items[:first], *(items[n] for n in order[first:].tolist())]


def with_strays(events: Iterable[Event], strays: Sequence[Event]) -> Iterable[Event]:
    """Both, by time."""
    return merge(events, strays, key=attrgetter("time")) if strays else events


def of_runs(runs: list[Run]) -> tuple[Numbers, Moments]:
    jobs = np.fromiter((r.job_id for r in runs), np.int64, len(runs))
    return jobs, np.fromiter((np.inf if r.end is None else r.end for r in runs), np.float64, len(runs))
