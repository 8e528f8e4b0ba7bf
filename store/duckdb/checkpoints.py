"""When a commit writes the write-ahead log into the database file."""

from __future__ import annotations

import duckdb

#: The log grows to this size between checkpoints during ingest; after a crash it is replayed in about a second.
DURING_INGEST = "256MB"


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
