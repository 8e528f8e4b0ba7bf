"""Updates ``model`` from one state of conclusions to the next, touching only the rows that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import numpy as np
import polars as pl

from correlator import engine
from correlator.evidence.forgeries import QUARTER_S, Forgery
from correlator.gather import event_table
from correlator.incidents import lemons
from correlator.incidents.incident import events_by_id
from correlator.live.changes import everything
from correlator.live.frozen import Frozen, frozen_texts
from correlator.live.state import LiveConclusions, index_of
from correlator.model import fact_table
from correlator.model.moments import moment_of
from correlator.model.nouns import Event, Run
from correlator.model.thinned import first_at
from store import disowned
from store.questions import changes
from store.tables import CONCLUDED_FACTS, EVENTS, FACTS, INCIDENTS, RUNS

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.door import Door, Writer

P = ParamSpec("P")

_WHOLE = attrgetter(*(f.name for f in fields(Event)))


@dataclass(frozen=True)
class Rows:
    """The changes to a table of ``model``: keys of rows that are gone or differ, and the rows that are new or differ.

    ``between`` is the time range of the stale rows, if known.
    """

    stale: list[str]
    fresh: pl.DataFrame
    between: tuple[datetime | None, datetime | None] | None = None


class Patch:
    """The difference between one state of conclusions about a cluster and the next.

    The rows of events, which are the most, are computed at once, when ``after`` may still lack its documents. Those of
    incidents and runs are computed by ``set_incidents`` and ``set_runs`` from ``after`` as it is then.
    """

    def __init__(self, before: LiveConclusions, after: LiveConclusions) -> None:
        self.before, self.after = before, after
        self.events = _events(before, after)
        self.incidents: Rows | None = None
        self.runs: Rows | None = None
        self.facts: Rows | None = None

    def set_incidents(self, detected: Mapping[str, datetime], texts: Mapping[int, str]) -> None:
        """Computes the rows of incidents. ``detected`` and ``texts``: see ``engine.incident_table``."""
        self.incidents = _incidents(self.after, detected, texts)

    def set_runs(self, texts: Mapping[int, str]) -> None:
        """Computes the rows of runs. ``texts``: see ``engine.run_table``."""
        self.runs = _runs(self.before, self.after, texts)

    def set_facts(self) -> None:
        """Computes the rows of facts."""
        self.facts = _facts(self.after)


def store_events(writer: Writer, patch: Patch) -> None:
    """Stores the events inside the caller's transaction."""
    _store(writer, EVENTS, patch.after.cluster, patch.events)


def store_incidents(writer: Writer, patches: Iterable[Patch]) -> None:
    """Stores the incidents inside the caller's transaction."""
    for patch in patches:
        assert patch.incidents is not None
        _store(writer, INCIDENTS, patch.after.cluster, patch.incidents)


def store_runs(writer: Writer, patches: Sequence[Patch], everything: Iterable[LiveConclusions]) -> None:  # fmt: skip
    """Stores runs, facts, node states and the known lemons inside the caller's transaction.

    ``everything`` is the state of all clusters.
    """
    for patch in patches:
        assert patch.runs is not None and patch.facts is not None
        _store(writer, RUNS, patch.after.cluster, patch.runs)
        _store(writer, CONCLUDED_FACTS, patch.after.cluster, patch.facts)
        if patch.after.change.states_differ:
            _states(writer, patch.after)
    results = [c.result for c in everything]
    if any(p.before.result.lemons != p.after.result.lemons for p in patches):
        _remember(writer, lemons.FACT, lemons.written((c.cluster, c.lemons) for c in results))
    if any(p.before.result.disowned != p.after.result.disowned for p in patches):
        _remember(writer, disowned.FACT, engine.disowned_fact(results))


def _remember(writer: Writer, name: str, value: str) -> None:
    writer.replace(FACTS, ("name",), pl.DataFrame({"name": [name], "value": [value]}))


def _store(writer: Writer, table: sa.Table, cluster: str | None, rows: Rows) -> None:
    if rows.stale:
        writer.change(changes.stale_rows(table, cluster, rows.stale, rows.between))
    writer.insert(table, rows.fresh)


def _incidents(after: LiveConclusions, detected: Mapping[str, datetime], texts: Mapping[int, str]) -> Rows:
    touched = after.change.touched or everything(after)
    fresh = [after.result.incidents[n] for n in touched.incidents]
    table = engine.incident_table([replace(after.result, incidents=fresh)], detected, texts)
    return Rows(list(touched.gone), table, _between([story.start for _, story in touched.gone.values()]))


def _runs(before: LiveConclusions, after: LiveConclusions, texts: Mapping[int, str]) -> Rows:
    """The rows of runs that differ: only runs that were built again, or whose verdict changed, can."""
    old, new = ({r.key: r for r in runs} for runs in after.change.again)
    judged = (after.change.touched or everything(after)).verdicts
    if far := judged - new.keys():
        new |= {r.key: r for r in after.result.runs if r.key in far}
        old |= {r.key: r for r in before.result.runs if r.key in far}
    same = {key for key, run in new.items() if key in old and key not in judged and _same_run(old[key], run)}
    fresh = [run for key, run in new.items() if key not in same]
    verdicts = [after.result.verdicts.get(run.key) for run in fresh]
    read = frozen_texts(verdicts)
    texts = {**texts, **{id(v): read[v.name] for v in verdicts if isinstance(v, Frozen)}} if read else texts
    return Rows([key for key in old if key not in same], engine.run_table([replace(after.result, runs=fresh)], texts))


def _facts(after: LiveConclusions) -> Rows:
    """The rows of facts that differ."""
    old, new = (fact_table.rows(facts, after.cluster) for facts in after.change.facts)
    stale = old.keys() - new.keys()
    between = _between([fact.start for fact in after.change.facts[0]]) if stale else None
    return Rows([*stale], fact_table.table({i: new[i] for i in new if i not in old}), between)


def _same_run(one: Run, other: Run) -> bool:
    return one is other or (one.state, one.nodes, one.attempt, one.row) == (other.state, other.nodes, other.attempt, other.row)  # fmt: skip


def _events(before: LiveConclusions, after: LiveConclusions) -> Rows:
    """The rows of events that differ: only events after the border, or whose incident changed, can."""
    lines = _lines(after)
    was, now = _homes(before, after, lines.values())
    moved = {e for e in was.keys() | now.keys() if was.get(e) != now.get(e)}
    then, result = before.result, after.result
    old, new = ({e.id: e for e in c.events[first_at(c.events, after.change.border) :]} for c in (then, result))  # fmt: skip
    if far := {e for e in moved if e not in new}:
        for conclusions, near in ((then, old), (result, new)):
            near.update(
                (i, e) for i in far & lines.keys() if (e := _event(conclusions.events, i, lines[i])) is not None
            )
    same = {i for i in (old.keys() & new.keys()) - moved if old[i] is new[i] or _WHOLE(old[i]) == _WHOLE(new[i])}
    stale = [e for i, e in old.items() if i not in same]
    differing = [e for i, e in new.items() if i not in same] if same else list(new.values())
    fresh = event_table.table(differing, now, after.cluster, after.change.lines)
    if then.forgeries or result.forgeries:
        gone, made = _forged(before, after)
        stale += gone
        fresh = pl.concat([fresh, engine.forged_table(result, made)]) if made else fresh
    return Rows([e.id for e in stale], fresh, _between([e.time for e in stale]))


def _between(times: Sequence[float]) -> tuple[datetime | None, datetime | None] | None:
    """The range of some times (epoch seconds); None if there are none."""
    return (moment_of(min(times) - 1.0), moment_of(max(times) + 1.0)) if times else None


def _forged(before: LiveConclusions, after: LiveConclusions) -> tuple[list[Event], list[Forgery]]:
    """The events about false lines that are gone or differ, and those that are new or differ."""
    since = after.change.border - QUARTER_S
    old, new = ({f.event.id: f for f in c.result.forgeries if f.event.time >= since} for c in (before, after))
    same = {i for i in old.keys() & new.keys() if old[i] is new[i] or _WHOLE(old[i].event) == _WHOLE(new[i].event)}
    return [f.event for i, f in old.items() if i not in same], [f for i, f in new.items() if i not in same]


def _lines(after: LiveConclusions) -> dict[str, float]:
    """Event id -> its time, for the events of incidents whose set of events changed."""
    touched = after.change.touched or everything(after)
    stories = after.memory.basis.stories
    fresh = {stories[n].id: stories[n] for n in touched.incidents}
    gone = {i: story for i, (_, story) in touched.gone.items()}
    same = {i for i in fresh.keys() & gone.keys() if events_by_id(fresh[i]).keys() == events_by_id(gone[i]).keys()}
    return {
        i: e.time
        for incidents in (gone, fresh)
        for n in incidents.keys() - same
        for i, e in events_by_id(incidents[n]).items()
    }


def _homes(
    before: LiveConclusions, after: LiveConclusions, lines: Iterable[float]
) -> tuple[dict[str, str], dict[str, str]]:
    """Event id -> incident, before and after, for events after the border and at the times ``lines``.

    An event may belong to two incidents, so unchanged incidents with lines at these times count as well.
    """
    stretches = [(after.change.border, float("inf"))]
    for time in sorted((t for t in lines if t < after.change.border), reverse=True):
        if time < stretches[-1][0] - NEAR_S:
            stretches.append((time, time))
        stretches[-1] = (time, stretches[-1][1])
    was, now = (
        [c.memory.basis.stories[n] for n in np.flatnonzero(index_of(c).spans.within(stretches)).tolist()]
        for c in (before, after)
    )
    return {e: s.id for s in was for e in events_by_id(s)}, {e: s.id for s in now for e in events_by_id(s)}


#: Lines that are at most this many seconds apart are looked up as one time range.
NEAR_S = 600.0


def _event(events: Sequence[Event], name: str, time: float) -> Event | None:
    """The event with this id; None if it is no longer known."""
    place = first_at(events, time)
    while place < len(events) and events[place].time == time:
        if events[place].id == name:
            return events[place]
        place += 1
    return None


def _states(writer: Writer, after: LiveConclusions) -> None:
    """Node states are copied as stored; if some were added, all of a cluster's states are replaced."""
    (counts,) = writer.ask(changes.states_counted(after.cluster))
    if counts["concluded"] != counts["stored"]:
        writer.change(changes.no_states(after.cluster))
        writer.change(changes.states_as_stored(after.cluster))


class Storing:
    """The transaction of a tick.

    It begins with the events of the first cluster to submit and ends with ``commit``; without a commit nothing is
    stored. The database works in one background thread, task after task, while the next rows are computed.
    """

    def __init__(self, store: Door) -> None:
        self._store = store
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="storing")
        self._tasks: list[Future[None]] = []
        self._transaction: AbstractContextManager[Writer] | None = None
        self._writer: Writer | None = None
        #: Patches by cluster.
        self.patches: dict[str | None, Patch] = {}

    def begin(self, before: LiveConclusions, after: LiveConclusions) -> None:
        """Begins to store the events of a cluster. ``after`` may still lack its documents."""
        patch = self.patches[after.cluster] = Patch(before, after)
        self.submit(store_events, patch)

    def submit(self, work: Callable[Concatenate[Writer, P], None], *given: P.args, **named: P.kwargs) -> None:  # fmt: skip
        if self._transaction is None:
            self._transaction = self._store.write()
            self._writer = self._transaction.__enter__()
        assert self._writer is not None
        self._tasks.append(self._beside.submit(work, self._writer, *given, **named))

    def commit(self) -> None:
        for task in self._tasks:
            task.result()
        if self._transaction is not None:
            transaction, self._transaction = self._transaction, None
            transaction.__exit__(None, None, None)

    def give_up(self) -> None:
        wait(self._tasks)
        if self._transaction is not None:
            transaction, self._transaction = self._transaction, None
            transaction.__exit__(_GivenUp, _GivenUp(), None)

    def __enter__(self) -> Storing:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()
        self._beside.shutdown()


class _GivenUp(Exception):  # noqa: N818  (no error: what was begun is not wanted any more)
    """Rolls a transaction back."""
