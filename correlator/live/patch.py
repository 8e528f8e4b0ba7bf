"""Bringing ``model`` from one state of conclusions to the next, touching only the rows that differ."""

from __future__ import annotations

from bisect import bisect_left
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
from correlator.incidents import lemons
from correlator.incidents.incident import events_by_id
from correlator.live.changes import everything
from correlator.live.state import LiveConclusions, index_of
from correlator.model.moments import moment_of
from correlator.model.nouns import Event, Run
from store import disowned
from store.questions import changes
from store.tables import EVENTS, FACTS, INCIDENTS, RUNS

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.door import Door, Writer

P = ParamSpec("P")

_WHOLE = attrgetter(*(f.name for f in fields(Event)))


@dataclass(frozen=True)
class Rows:
    """What changes in a table of ``model``: by key the rows that are no more or differ, and those that are new or differ.
    ``between``: the moments between which the former lie, where that is known."""

    stale: list[str]
    fresh: pl.DataFrame
    between: tuple[datetime | None, datetime | None] | None = None


class Patch:
    """What differs between one state of conclusions about a cluster and the next. The rows of events, most of all, are put
    together right away, for which the next may lack words still; those of incidents and runs by ``set_incidents`` and
    ``set_runs`` of what ``after`` is by then."""

    def __init__(self, before: LiveConclusions, after: LiveConclusions) -> None:
        self.before, self.after = before, after
        self.events = _events(before, after)
        self.incidents: Rows | None = None
        self.runs: Rows | None = None

    def set_incidents(self, detected: Mapping[str, datetime]) -> None:
        """``detected``: when each incident was first said."""
        self.incidents = _incidents(self.after, detected)

    def set_runs(self, texts: Mapping[int, str]) -> None:
        """``texts``: see ``engine.run_table``."""
        self.runs = _runs(self.before, self.after, texts)


def store_events(writer: Writer, patch: Patch) -> None:
    """Inside the caller's transaction."""
    _store(writer, EVENTS, patch.after.cluster, patch.events)


def store_incidents(writer: Writer, patches: Iterable[Patch]) -> None:
    """Inside the caller's transaction."""
    for patch in patches:
        assert patch.incidents is not None
        _store(writer, INCIDENTS, patch.after.cluster, patch.incidents)


def store_runs(writer: Writer, patches: Sequence[Patch], everything: Iterable[LiveConclusions]) -> None:  # fmt: skip
    """Runs, states of nodes and what is known of lemons, inside the caller's transaction. ``everything``: the state of all
    clusters."""
    for patch in patches:
        assert patch.runs is not None
        _store(writer, RUNS, patch.after.cluster, patch.runs)
        if patch.after.change.states_differ:
            _states(writer, patch.after)
    if any(p.before.lemons != p.after.lemons for p in patches):
        _remember(writer, lemons.FACT, lemons.written((c.cluster, c.lemons) for c in everything))
    if any(p.before.disowned != p.after.disowned for p in patches):
        _remember(writer, disowned.FACT, engine.disowned_fact(everything))


def _remember(writer: Writer, name: str, value: str) -> None:
    writer.replace(FACTS, ("name",), pl.DataFrame({"name": [name], "value": [value]}))


def _store(writer: Writer, table: sa.Table, cluster: str | None, rows: Rows) -> None:
    if rows.stale:
        writer.change(changes.stale_rows(table, cluster, rows.stale, rows.between))
    writer.insert(table, rows.fresh)


def _incidents(after: LiveConclusions, detected: Mapping[str, datetime]) -> Rows:
    touched = after.change.touched or everything(after)
    fresh = [after.incidents[n] for n in touched.incidents]
    engine.date(fresh, detected)
    return Rows(list(touched.gone), engine.incident_table([replace(after, incidents=fresh)]))


def _runs(before: LiveConclusions, after: LiveConclusions, texts: Mapping[int, str]) -> Rows:
    """Only runs that were put together again can differ, and those whose verdict is another now."""
    old, new = ({r.key: r for r in runs} for runs in after.change.again)
    judged = (after.change.touched or everything(after)).verdicts
    if far := judged - new.keys():
        new |= {r.key: r for r in after.runs if r.key in far}
        old |= {r.key: r for r in before.runs if r.key in far}
    same = {key for key, run in new.items() if key in old and key not in judged and _same_run(old[key], run)}
    fresh = [run for key, run in new.items() if key not in same]
    return Rows([key for key in old if key not in same], engine.run_table([replace(after, runs=fresh)], texts))


def _same_run(one: Run, other: Run) -> bool:
    return one is other or (one.state, one.nodes, one.attempt, one.row) == (other.state, other.nodes, other.attempt, other.row)  # fmt: skip


def _events(before: LiveConclusions, after: LiveConclusions) -> Rows:
    """Only events behind the border can differ, and those whose incident is another now."""
    lines = _lines(after)
    was, now = _homes(before, after, lines.values())
    moved = {e for e in was.keys() | now.keys() if was.get(e) != now.get(e)}
    old, new = ({e.id: e for e in c.events[bisect_left(c.events, after.change.border, key=attrgetter("time")) :]} for c in (before, after))  # fmt: skip
    if far := moved - new.keys():
        for conclusions, near in ((before, old), (after, new)):
            near.update(
                (i, e) for i in far & lines.keys() if (e := _event(conclusions.events, i, lines[i])) is not None
            )
    same = {i for i in old.keys() & new.keys() - moved if old[i] is new[i] or _WHOLE(old[i]) == _WHOLE(new[i])}
    stale = [e for i, e in old.items() if i not in same]
    times = [e.time for e in stale]
    between = (moment_of(min(times) - 1.0), moment_of(max(times) + 1.0)) if times else None
    return Rows(
        [e.id for e in stale], engine.event_table(after, [e for i, e in new.items() if i not in same] if same else list(new.values()), now), between
    )  # fmt: skip


def _lines(after: LiveConclusions) -> dict[str, float]:
    """Event id -> its time: those of incidents that tell other events now."""
    touched = after.change.touched or everything(after)
    fresh = {after.stories[n].id: after.stories[n] for n in touched.incidents}
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
    """Event id -> incident, before and after: of all events behind the border and of incidents that tell other events now,
    whose ``lines`` were said at these times.

    An event may belong to two incidents, so those count too that tell the same still and have lines at these times."""
    stretches = [(after.change.border, float("inf"))]
    for time in sorted((t for t in lines if t < after.change.border), reverse=True):
        if time < stretches[-1][0] - NEAR_S:
            stretches.append((time, time))
        stretches[-1] = (time, stretches[-1][1])
    was, now = (
        [c.stories[n] for n in np.flatnonzero(index_of(c).spans.within(stretches)).tolist()] for c in (before, after)
    )
    return {e: s.id for s in was for e in events_by_id(s)}, {e: s.id for s in now for e in events_by_id(s)}


#: Lines so close together are looked at as one stretch of time.
NEAR_S = 600.0


def _event(events: Sequence[Event], name: str, time: float) -> Event | None:
    """The event of this id, where it is still known."""
    place = bisect_left(events, time, key=attrgetter("time"))
    while place < len(events) and events[place].time == time:
        if events[place].id == name:
            return events[place]
        place += 1
    return None


def _states(writer: Writer, after: LiveConclusions) -> None:
    """States of nodes are as they were stored; where some were added, all of a cluster's are put in anew."""
    (counts,) = writer.ask(changes.states_counted(after.cluster))
    if counts["concluded"] != counts["stored"]:
        writer.change(changes.no_states(after.cluster))
        writer.change(changes.states_as_stored(after.cluster))


class Storing:
    """The transaction of a tick. It begins with the events of whoever comes first and ends with ``commit``; left before that,
    nothing was stored. What the database takes, it takes beside, one after the other, while more is put together."""

    def __init__(self, store: Door) -> None:
        self._store = store
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="storing")
        self._tasks: list[Future[None]] = []
        self._transaction: AbstractContextManager[Writer] | None = None
        self._writer: Writer | None = None
        #: By cluster.
        self.patches: dict[str | None, Patch] = {}

    def begin(self, before: LiveConclusions, after: LiveConclusions) -> None:
        """``after`` may lack its documents still."""
        patch = self.patches[after.cluster] = Patch(before, after)
        self.submit(store_events, patch)

    def submit(self, work: Callable[Concatenate[Writer, P], None], *given: P.args, **named: P.kwargs) -> None:  # fmt: skip
        if self._transaction is None:
            self._transaction = self._store.write()
            self._writer = self._transaction.__enter__()
        assert self._writer is not None
        self._tasks.append(self._beside.submit(work, self._writer, *given, **named))

    def commit(self, meanwhile: Callable[[], None]) -> None:
        """``meanwhile`` is done beside: committing needs no turn of the interpreter."""
        for task in self._tasks:
            task.result()
        done = self._beside.submit(meanwhile)
        if self._transaction is not None:
            transaction, self._transaction = self._transaction, None
            transaction.__exit__(None, None, None)
        done.result()

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
