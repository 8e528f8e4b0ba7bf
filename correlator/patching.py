"""Bringing ``model`` from one state of conclusions to the next, touching only the rows that differ."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator import engine
from correlator.engine import Conclusions
from correlator.model import Event

if TYPE_CHECKING:
    import duckdb

    from store.duckdb_store import DuckStore

_WHOLE = attrgetter(*(f.name for f in fields(Event)))


def patch(store: DuckStore, changes: list[tuple[Conclusions, Conclusions]], everything: Iterable[Conclusions]) -> None:
    """Writes what differs between the first and the second of each pair; ``everything``: the state of all clusters."""
    engine.date(store, [after for _, after in changes])
    with store.transaction() as connection:
        for before, after in changes:
            _incidents(connection, before, after)
            _runs(connection, before, after)
            _events(connection, before, after)
            _states(connection, after)
    store.set_fact("lemons", json.dumps(sorted({h for c in everything for h in c.lemons})))


def _swap(
    connection: duckdb.DuckDBPyConnection, table: str, key: str, after: Conclusions, old: Mapping[str, Any], new: Mapping[str, Any],
    rows: Callable[[set[str]], pl.DataFrame],
) -> None:  # fmt: skip
    stale = [k for k, v in old.items() if k not in new or not (v is new[k] or v == new[k])]
    fresh = {k for k, v in new.items() if k not in old or not (v is old[k] or v == old[k])}
    if stale:
        connection.execute(
            f"DELETE FROM model.{table} WHERE cluster IS NOT DISTINCT FROM ? AND {key} IN (SELECT unnest(?::VARCHAR[]))", [after.cluster, stale])  # fmt: skip
    if fresh:
        from store.duckdb_store import insert

        insert(connection, f"model.{table}", rows(fresh))


def _incidents(connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions) -> None:
    _swap(connection, "incidents", "incident_id", after, {i["id"]: i for i in before.incidents}, {i["id"]: i for i in after.incidents},
          lambda ids: engine.incident_table([replace(after, incidents=[i for i in after.incidents if i["id"] in ids])]))  # fmt: skip


def _runs(connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions) -> None:
    kept = {id(r) for r in before.runs} & {id(r) for r in after.runs}

    def told(conclusions: Conclusions) -> dict[str, Any]:
        found = {}
        for run in conclusions.runs:
            verdict = conclusions.verdicts.get(run.key)
            if id(run) not in kept or before.verdicts.get(run.key) is not after.verdicts.get(run.key):
                found[run.key] = (run.state, run.nodes, run.attempt, run.row, verdict)
        return found

    _swap(connection, "runs", "run_key", after, told(before), told(after),
          lambda keys: engine.run_table([replace(after, runs=[r for r in after.runs if r.key in keys])]))  # fmt: skip


def _events(connection: duckdb.DuckDBPyConnection, before: Conclusions, after: Conclusions) -> None:
    """Only events behind the border can differ, and those whose incident is another now."""
    home = [{e["id"]: i["id"] for i in c.incidents for e in i["events"]} for c in (before, after)]
    moved = {e for e in home[0].keys() | home[1].keys() if home[0].get(e) != home[1].get(e)}

    def told(conclusions: Conclusions, place: Mapping[str, str]) -> dict[str, Any]:
        first = bisect_left(conclusions.events, after.border, key=lambda e: e.time)
        near = [
            *conclusions.events[first:],
            *((e for e in conclusions.events[:first] if e.id in moved) if moved else ()),
        ]
        return {e.id: (_WHOLE(e), place.get(e.id)) for e in near}

    _swap(connection, "events", "event_id", after, told(before, home[0]), told(after, home[1]),
          lambda ids: engine.event_table(after, [e for e in after.events if e.id in ids]))  # fmt: skip


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
