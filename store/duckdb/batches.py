"""The change log inside the store: each transaction increments a counter, and one that changes rows of ``raw`` records
how (``store.changes``).

Two rows of ``model.facts`` hold the number: ``transactions``, which earlier versions increment too, and ``batch``,
which they do not. If the two differ, an earlier version wrote in between and no entry describes its changes: a new
instance begins, as for a store without a log, for one that lost commits (``store.duckdb.commit_mark``), and for a
restored copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import duckdb

from store.changes import Change, ChangeLog
from store.duckdb.commit_mark import FACT as TRANSACTIONS

BATCH, INSTANCE = "batch", "instance"
#: SQL of the last batch, as a reader sees it.
COUNT = f"SELECT coalesce(max(value::BIGINT), 0) FROM model.facts WHERE name = '{BATCH}'"


def number_of(facts: Mapping[str, str]) -> int:
    """How many transactions were committed since the store was created."""
    return int(facts.get(TRANSACTIONS, 0))


def known(connection: duckdb.DuckDBPyConnection, facts: Mapping[str, str]) -> ChangeLog | None:
    """The existing log if it can continue; None if a new instance must begin."""
    if INSTANCE not in facts or facts.get(BATCH) != facts.get(TRANSACTIONS):
        return None
    instance, floor = facts[INSTANCE].split(" ")
    entries: dict[int, dict[str, Change]] = {}
    for batch, table, *numbers in connection.execute("SELECT * FROM raw.batches ORDER BY batch").fetchall():
        entries.setdefault(batch, {})[table] = Change(*numbers)
    return ChangeLog(instance, int(floor), list(entries.items()))


def begin(connection: duckdb.DuckDBPyConnection, batch: int) -> ChangeLog:
    """Begins a new instance whose changes are known after ``batch``, inside the caller's transaction."""
    log = ChangeLog(uuid.uuid4().hex, batch)
    connection.execute("DELETE FROM raw.batches")
    connection.execute("DELETE FROM model.facts WHERE name IN (?, ?)", [BATCH, INSTANCE])
    _name(connection, log)
    return log


def count_on(connection: duckdb.DuckDBPyConnection, log: ChangeLog, batch: int, changed: Mapping[str, Change]) -> None:
    """Records, at the end of a transaction, its number and its changes."""
    facts = [TRANSACTIONS, BATCH]
    done = connection.execute("UPDATE model.facts SET value = ? WHERE name IN (?, ?)", [str(batch), *facts]).fetchone()
    if done != (2,):
        connection.execute("DELETE FROM model.facts WHERE name IN (?, ?)", facts)
        connection.execute(
            "INSERT INTO model.facts VALUES (?, ?), (?, ?)", [facts[0], str(batch), facts[1], str(batch)]
        )
    if not changed:
        return
    values = [value for table, change in changed.items() for value in (batch, table, *change)]
    connection.execute(f"INSERT INTO raw.batches VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * len(changed))}", values)
    log.add(batch, changed)
    if log.shorten():
        connection.execute("DELETE FROM raw.batches WHERE batch <= ?", [log.floor])
        connection.execute("DELETE FROM model.facts WHERE name = ?", [INSTANCE])
        _name(connection, log)


def _name(connection: duckdb.DuckDBPyConnection, log: ChangeLog) -> None:
    connection.execute("INSERT INTO model.facts VALUES (?, ?)", [INSTANCE, f"{log.instance} {log.floor}"])
