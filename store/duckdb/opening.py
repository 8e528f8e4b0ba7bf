"""Opening the database's file: what makes the store refuse it, and the settings of its connection."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from store.duckdb import compacting, damage
from store.duckdb.memory import Memory
from store.duckdb.open_store import DATABASE
from store.duckdb.schema import VERSION, facts_of, newer_than_known
from store.errors import StoreError, StoreHeld
from store.files import remove_left, service_address

#: The engine's share of the machine's memory; beyond it sorts and joins spill to disk, and then a query is refused.
#: FAULTLINE_MEMORY sets another size. Parsers, the correlator and the system's cache need the rest. What it does not need
#: any more, ``store.duckdb.memory`` returns.
MEMORY = "60%"


def refuse_unreadable(folder: Path) -> None:
    """Raises ``StoreError`` with instructions if the write-ahead log does not begin as one; the engine would ignore it."""
    if (reason := damage.unreadable_start(folder / DATABASE)) is not None:
        raise StoreError(damage.report_damage(folder / DATABASE, reason))


def remove_unfinished(folder: Path) -> None:
    """Removes what a killed process left: spill files of queries, a copy that was to be compact."""
    remove_left((folder / f"{DATABASE}.tmp").glob("duckdb_temp*"), "queries")
    remove_left(filter(Path.exists, compacting.unfinished(folder)), "compacting")


def connect(folder: Path | None, target: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the file, or to a database in memory. Raises ``StoreHeld`` or ``StoreError``."""
    try:
        # Other processes can read the file only while nobody writes: DuckDB's own lock guards it.
        return duckdb.connect(target, read_only=read_only)
    except duckdb.IOException as error:
        if "lock" in str(error).lower() and folder is not None:
            raise StoreHeld(folder, service_address(folder)) from error
        _refuse_damaged(folder, error)
        raise StoreError(f"{folder}: cannot open the store: {str(error).splitlines()[0]}") from error
    except duckdb.Error as error:
        _refuse_damaged(folder, error)
        raise StoreError(f"{folder}: not a store that this version can read: {str(error).splitlines()[0]}") from error


def _refuse_damaged(folder: Path | None, error: duckdb.Error) -> None:
    """Raises ``StoreError`` with instructions if the write-ahead log cannot be read."""
    if folder is not None and (reason := damage.about_log(error)) is not None:
        raise StoreError(damage.report_damage(folder / DATABASE, reason)) from error


def known_facts(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, str]:
    """The store's facts. Raises ``StoreError`` if a newer version wrote it, and closes it."""
    facts = facts_of(connection)
    if (newer := newer_than_known(facts)) is not None:
        connection.close()
        raise StoreError(
            f"{folder}: a store of schema {newer}, and this version knows {VERSION}: a newer Faultline wrote it; install that "
            "one, or use another --data folder. Nothing was changed"
        )
    return facts


def set_up(connection: duckdb.DuckDBPyConnection, *, read_only: bool, closed_days: Path | None) -> Memory:
    """The engine's settings. ``closed_days``: the only files that queries may read besides the database; None in memory.
    Returns what knows its limit of memory.

    Raises ``StoreError`` if FAULTLINE_MEMORY is no size, and closes the store.
    """
    ((locked,),) = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
    memory = Memory(os.environ.get("FAULTLINE_MEMORY", MEMORY))
    if locked:  # another part of this process opened it before, and queried it (queries.kql.run.harden)
        return memory
    if closed_days is not None and not read_only:
        # Tables that are wrong in memory must not be written when it is closed; ``close`` writes the others.
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    if closed_days is not None:
        # Queries restrict the database to these files.
        connection.execute("SET GLOBAL allowed_directories = ?", [[str(closed_days)]])
        connection.execute("SET GLOBAL parquet_metadata_cache = true")
    connection.execute("SET preserve_insertion_order = true")
    try:
        connection.execute("SET memory_limit = ?", [memory.limit])
    except duckdb.Error as error:
        connection.close()
        raise StoreError(
            f"FAULTLINE_MEMORY={os.environ.get('FAULTLINE_MEMORY')}: give a size such as 8GB or 60%"
        ) from error
    return memory
