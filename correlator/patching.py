"""Bringing ``model`` from one state of conclusions to the next, touching only the rows that differ."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from correlator import engine
from correlator.changes import everything
from correlator.engine import Conclusions
from correlator.events import moment_of
from correlator.incidents import facts_of
from correlator.index import index_of
from correlator.model import Event, Run

if TYPE_CHECKING:
    import duckdb

_WHOLE = attrgetter(*(f.name for f in fields(Event)))


def patch(
    connection: duckdb.DuckDBPyConnection, changes: list[tuple[Conclusions, Conclusions]], everything: Iterable[Conclusions],
    detected: Mapping[str, datetime], texts: Mapping[int, str],
) -> None:  # fmt: skip
    """Writes what differs between the first and the second of each pair, inside the caller's transaction.

    ``everything``: the state of all clusters; ``detected``: when each incident was first said; ``texts``: see
    ``engine.run_table``.
    """
    for before, after in changes:
        events = _events(connection, before, after)
        # The database takes the events, most of the rows, while the others are put together here.
        with ThreadPoolExecutor(1, thread_name_prefix="patching") as beside:
            storing = beside.submit(_insert, connection, "events", events)
            (gone, incidents), (stale, runs) = _incidents(after, detected), _runs(before, after, texts)
        storing.result()
        _delete(connection, "incidents", "incident_id", after.cluster, gone)
        _insert(connection, "incidents", incidents)
        _delete(connection, "runs", "run_key", after.cluster, stale)
        _insert(connection, "runs", runs)
        if after.states_differ:
            _states(connection, after)
    if any(before.lemons != after.lemons for before, after in changes):
        connection.execute("DELETE FROM model.facts WHERE name = 'lemons'")
        connection.execute("INSERT INTO model.facts VALUES ('lemons', ?)", [json.dumps(sorted({h for c in everything for h in c.lemons}))])  # fmt: skip


def _delete(connection: duckdb.DuckDBPyConnection, table: str, key: str, cluster: str | None, stale: list[str], where: str = "", bounds: Sequence[object] = ()) -> None:  # fmt: skip
    """``where`` narrows where the rows lie, so that zone maps skip the rest of a large table."""
    if stale:
        connection.execute(
            f"DELETE FROM model.{table} WHERE cluster IS NOT DISTINCT FROM ? AND {key} IN (SELECT unnest(?::VARCHAR[])) {where}", [cluster, stale, *bounds])  # fmt: skip


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    if rows.height:
        from store.duckdb_store import insert

        insert(connection, f"model.{table}", rows)


def _incidents(after: Conclusions, detected: Mapping[str, datetime]) -> tuple[list[str], pl.DataFrame]:
    """The ids of incidents that are no more or are told anew, and the rows of those that are told."""
    touched = after.touched or everything(after)
    fresh = [after.incidents[n] for n in touched.incidents]
    engine.date(fresh, detected)
    return list(touched.gone), engine.incident_table([replace(after, incidents=fresh)])


def _runs(before: Conclusions, after: Conclusions, texts: Mapping[int, str]) -> tuple[list[str], pl.DataFrame]:
    """The keys of runs that are no more or differ, and the rows of those that are. Only runs that were put together again
    can differ, and those whose verdict is another now."""
    old, new = ({r.key: r for r in runs} for runs in after.again)
    judged = (after.touched or everything(after)).verdicts
    if far := judged - new.keys():
        new |= {r.key: r for r in after.runs if r.key in far}
        old |= {r.key: r for r in before.runs if r.key in far}
    same = {key for key, run in new.items() if key in old and key not in judged and _same_run(old[key], run)}
    fresh = [run for key, run in new.items() if key not in same]
    return [key for key in old if key not in same], engine.run_table([replace(after, runs=fresh)], texts)


def _same_run(one: Run, other: Run) -> bool:
    return one is other or (one.state, one.nodes, one.attempt, one.row) == (other.state, other.nodes, other.attempt, other.row)  # fmt: skip


def _events(connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions) -> pl.DataFrame:
    """Deletes the rows of events that are no more or differ, and gives the rows of those that are. Only events behind the
    border can differ, and those whose incident is another now."""
    lines = _lines(after)
    was, now = _homes(before, after, lines.values())
    moved = {e for e in was.keys() | now.keys() if was.get(e) != now.get(e)}
    old, new = ({e.id: e for e in c.events[bisect_left(c.events, after.border, key=attrgetter("time")) :]} for c in (before, after))  # fmt: skip
    if far := moved - new.keys():
        for conclusions, near in ((before, old), (after, new)):
            near.update(
                (i, e) for i in far & lines.keys() if (e := _event(conclusions.events, i, lines[i])) is not None
            )
    same = {i for i, e in new.items() if i in old and i not in moved and (old[i] is e or _WHOLE(old[i]) == _WHOLE(e))}
    stale = [e for i, e in old.items() if i not in same]
    if stale:
        times = [e.time for e in stale]
        bounds = [moment_of(min(times) - 1.0), moment_of(max(times) + 1.0)]
        _delete(
            connection, "events", "event_id", after.cluster, [e.id for e in stale], "AND time BETWEEN ? AND ?", bounds
        )
    return engine.event_table(after, [e for i, e in new.items() if i not in same], now)


def _lines(after: Conclusions) -> dict[str, float]:
    """Event id -> its time: those of incidents that tell other events now."""
    touched = after.touched or everything(after)
    fresh = {after.incidents[n]["id"]: n for n in touched.incidents}
    same = {
        i for i, (document, _) in touched.gone.items() if i in fresh and after.incidents[fresh[i]]["events"] is document["events"]
    }  # fmt: skip
    stories = [*(s for i, (_, s) in touched.gone.items() if i not in same), *(after.stories[n] for i, n in fresh.items() if i not in same)]  # fmt: skip
    return {e.id: e.time for story in stories for fact in facts_of(story) for e in fact.events}


def _homes(before: Conclusions, after: Conclusions, lines: Iterable[float]) -> tuple[dict[str, str], dict[str, str]]:
    """Event id -> incident, before and after: of all events behind the border and of incidents that tell other events now,
    whose ``lines`` were said at these times.

    An event may belong to two incidents, so those count too that tell the same still and have lines at these times."""
    stretches = [(after.border, float("inf"))]
    for time in sorted((t for t in lines if t < after.border), reverse=True):
        if time < stretches[-1][0] - NEAR_S:
            stretches.append((time, time))
        stretches[-1] = (time, stretches[-1][1])
    was, now = (
        engine.homes(c.incidents[n] for n in np.flatnonzero(index_of(c).spans.within(stretches)).tolist()) for c in (before, after)
    )  # fmt: skip
    return was, now


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


def _states(connection: duckdb.DuckDBPyConnection, after: Conclusions) -> None:
    columns = "time, until, cluster, host, state, reason, actor, source"
    where = "WHERE cluster IS NOT DISTINCT FROM ?"
    counts = connection.execute(
        f"SELECT (SELECT count(*) FROM model.node_states {where}), (SELECT count(*) FROM (SELECT DISTINCT {columns} FROM raw.node_states {where} AND time IS NOT NULL))",
        [after.cluster, after.cluster]).fetchone()  # fmt: skip
    if counts and counts[0] != counts[1]:
        connection.execute(f"DELETE FROM model.node_states {where}", [after.cluster])
        connection.execute(
            f"INSERT INTO model.node_states ({columns}) SELECT DISTINCT {columns} FROM raw.node_states {where} AND time IS NOT NULL ORDER BY ALL",
            [after.cluster])  # fmt: skip
