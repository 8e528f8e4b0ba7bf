"""Bringing ``model`` from one state of conclusions to the next, touching only the rows that differ."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

import polars as pl

from correlator import engine
from correlator.engine import Conclusions
from correlator.events import moment_of
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
    told = before.verdicts.keys() | after.verdicts.keys()
    judged = {key for key in told if before.verdicts.get(key) is not after.verdicts.get(key)}
    old, new = ({r.key: r for r in c.runs if r.job_id in after.again or r.key in judged} for c in (before, after))
    same = {key for key, run in new.items() if key in old and key not in judged and _same_run(old[key], run)}
    _delete(connection, "runs", "run_key", after.cluster, [key for key in old if key not in same])
    fresh = [run for key, run in new.items() if key not in same]
    _insert(connection, "runs", engine.run_table([replace(after, runs=fresh)], texts))


def _same_run(one: Run, other: Run) -> bool:
    return (one.state, one.nodes, one.attempt, one.row) == (other.state, other.nodes, other.attempt, other.row)


def _events(connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions) -> None:
    """Only events behind the border can differ, and those whose incident is another now."""
    was, now = engine.homes(before), engine.homes(after)
    moved = {e for e in was.keys() | now.keys() if was.get(e) != now.get(e)}

    def near(conclusions: Conclusions) -> dict[str, Event]:
        first = bisect_left(conclusions.events, after.border, key=attrgetter("time"))
        rest = (e for e in conclusions.events[:first] if e.id in moved) if moved else ()
        return {e.id: e for e in itertools.chain(conclusions.events[first:], rest)}

    old, new = near(before), near(after)
    same = {i for i, e in new.items() if i in old and i not in moved and (old[i] is e or _WHOLE(old[i]) == _WHOLE(e))}
    stale = [e for i, e in old.items() if i not in same]
    if stale:
        times = [e.time for e in stale]
        bounds = [moment_of(min(times) - 1.0), moment_of(max(times) + 1.0)]
        _delete(
            connection, "events", "event_id", after.cluster, [e.id for e in stale], "AND time BETWEEN ? AND ?", bounds
        )
    _insert(connection, "events", engine.event_table(after, [e for i, e in new.items() if i not in same], now))


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
