"""The open store as seen by the modules of DuckDB's store (archive, segments, copies, held timestamps).

``store.duckdb.store`` imports those modules and opens a store; so they depend on this class and never on ``DuckStore``.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

import duckdb

from store.changes import Change
from store.duckdb.querying import Asks

#: The name of the database's file in a store's folder.
DATABASE = "faultline.duckdb"


class OpenStore(Asks):
    """An open store: queries, transactions, and the log of their changes."""

    #: The folder of the store; None in memory.
    folder: Path | None
    read_only: bool
    #: Held while days are closed or dropped, a copy is made, or the file shrinks: one at a time.
    upkeep: threading.RLock
    #: The connection that opened the database.
    _connection: duckdb.DuckDBPyConnection

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one reading thread."""
        return self._connection.cursor()

    def opened(self) -> tuple[duckdb.DuckDBPyConnection, object | None]:
        """A cursor, and the connection that it is of: another one after the database was opened anew."""
        connection = self._connection  # read once: another thread may open the database anew
        return connection.cursor(), connection

    @abstractmethod
    def transaction(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A transaction: all or nothing; one writer at a time. Yields the engine's own connection: for code of the
        store only."""

    @abstractmethod
    def note(self, table: str, change: Change) -> None:
        """Records, inside a transaction, its changes to a table of ``raw``. Readers that follow new rows rely on it, so
        all code that changes rows there must call it; ``DuckWriter`` does."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """Excludes other writers meanwhile."""

    @abstractmethod
    def fact(self, name: str) -> str | None:
        """The value of an entry of ``model.facts``; None if there is none."""

    @abstractmethod
    def set_fact(self, name: str, value: str) -> None:
        """Sets an entry of ``model.facts``, in a transaction of its own."""

    @abstractmethod
    def begin_instance(self) -> None:
        """Gives the store a new instance ID: batches are renumbered from here on, and earlier marks are too old."""

    @abstractmethod
    def checkpoint(self, least: int = 0) -> None:
        """Writes the log into the database file if it has at least ``least`` bytes. Raises ``EngineError``."""

    @abstractmethod
    def close(self) -> None:
        """Closes the database; it answers no queries after that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Opener(Protocol):
    """Opens the store in a folder; ``DuckStore`` is one."""

    def __call__(self, folder: Path, *, read_only: bool = False) -> OpenStore:
        """Raises ``StoreError``."""
        ...
