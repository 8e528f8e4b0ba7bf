"""Bringing ``model`` from one state of conclusions to the next, touching only the rows that differ."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from correlator import engine
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
        _incidents(connection, before, after, detected)
        _runs(connection, before, after, texts)
        _events(connection, before, after)
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


def _incidents(
    connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions, detected: Mapping[str, datetime]
) -> None:
    old, new = ({i["id"]: i for i in c.incidents} for c in (before, after))
    stale = [name for name, document in old.items() if new.get(name) is not document]
    fresh = [document for name, document in new.items() if old.get(name) is not document]
    engine.date(fresh, detected)
    _delete(connection, "incidents", "incident_id", after.cluster, stale)
    _insert(connection, "incidents", engine.incident_table([replace(after, incidents=fresh)]))


def _runs(
    connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions, texts: Mapping[int, str]
) -> None:
    """Only runs that were put together again can differ, and those whose verdict is another now."""
    old, new = ({r.key: r for r in runs} for runs in after.again)
    judged = {key for key, verdict in after.verdicts.items() if before.verdicts.get(key) is not verdict}
    judged |= before.verdicts.keys() - after.verdicts.keys()
    if far := judged - new.keys():
        new |= {r.key: r for r in after.runs if r.key in far}
        old |= {r.key: r for r in before.runs if r.key in far}
    same = {key for key, run in new.items() if key in old and key not in judged and _same_run(old[key], run)}
    _delete(connection, "runs", "run_key", after.cluster, [key for key in old if key not in same])
    fresh = [run for key, run in new.items() if key not in same]
    _insert(connection, "runs", engine.run_table([replace(after, runs=fresh)], texts))


def _same_run(one: Run, other: Run) -> bool:
    return one is other or (one.state, one.nodes, one.attempt, one.row) == (other.state, other.nodes, other.attempt, other.row)  # fmt: skip


def _events(connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions) -> None:
    """Only events behind the border can differ, and those whose incident is another now."""
    was, now = _homes(before, after)
    moved = {e for e in was.keys() | now.keys() if was.get(e) != now.get(e)}
    old, new = ({e.id: e for e in c.events[bisect_left(c.events, after.border, key=attrgetter("time")) :]} for c in (before, after))  # fmt: skip
    if far := moved - new.keys():
        for conclusions, near in ((before, old), (after, new)):
            near.update((e.id, e) for e in conclusions.events if e.id in far)
    same = {i for i, e in new.items() if i in old and i not in moved and (old[i] is e or _WHOLE(old[i]) == _WHOLE(e))}
    stale = [e for i, e in old.items() if i not in same]
    if stale:
        times = [e.time for e in stale]
        bounds = [moment_of(min(times) - 1.0), moment_of(max(times) + 1.0)]
        _delete(
            connection, "events", "event_id", after.cluster, [e.id for e in stale], "AND time BETWEEN ? AND ?", bounds
        )
    _insert(connection, "events", engine.event_table(after, [e for i, e in new.items() if i not in same], now))


def _homes(before: Conclusions, after: Conclusions) -> tuple[dict[str, str], dict[str, str]]:
    """Event id -> incident, before and after: of all events behind the border and of incidents that tell other events now.

    An event may belong to two incidents, so those count too that tell the same still and reach into that time."""
    told = [{id(i["events"]) for i in c.incidents} for c in (before, after)]
    again = told[0] & told[1]
    low = after.border
    found: list[dict[str, str]] = []
    changed = [{n for n, i in enumerate(c.incidents) if id(i["events"]) not in again} for c in (before, after)]
    for conclusions, places in zip((before, after), changed, strict=True):
        facts = (f for n in places for f in facts_of(conclusions.stories[n]))
        low = min([low, *(e.time for f in facts for e in f.events)])
    for conclusions, places in zip((before, after), changed, strict=True):
        near = np.flatnonzero(index_of(conclusions).spans.told >= low).tolist()
        found.append(engine.homes(conclusions.incidents[n] for n in sorted(places.union(near))))
    return found[0], found[1]


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
