"""When a commit writes the write-ahead log into the database file."""

from __future__ import annotations

from pathlib import Path

import duckdb

from store.duckdb.damage import wal_of
from store.duckdb.open_store import DATABASE

#: The log grows to this size between checkpoints during ingest; after a crash it is replayed in about a second.
DURING_INGEST = "256MB"


def is_due(folder: Path | None, least: int) -> bool:
    """Whether the log of the store in a folder has at least this many bytes."""
    if folder is None or not least:
        return True
    log = wal_of(folder / DATABASE)
    return log.exists() and log.stat().st_size >= least


class Checkpoints:
    """The settings of one open database."""

    def __init__(self) -> None:
        #: The length of the log at which a commit writes a checkpoint; None if it was not asked yet.
        self._size: str | None = None

    def let_log_grow(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._size = None
        cursor.execute(f"SET GLOBAL checkpoint_threshold = '{DURING_INGEST}'")

    def put_off(self, cursor: duckdb.DuckDBPyConnection) -> str:
        """No commit of this cursor's connection writes a checkpoint until ``resume`` gets the size that is returned."""
        if self._size is None:  # the question takes as long as both changes
            ((size,),) = cursor.execute("SELECT current_setting('wal_autocheckpoint')").fetchall()
            self._size = str(size)
        size = self._size
        cursor.execute("SET wal_autocheckpoint = '1TB'")
        return size

    def resume(self, cursor: duckdb.DuckDBPyConnection, size: str) -> None:
        cursor.execute(f"SET wal_autocheckpoint = '{size}'")
