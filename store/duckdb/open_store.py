"""What the parts of DuckDB's store (archive, segments, copies, held stamps) may do with the open store.

``store.duckdb.store`` imports those parts and is what opens a store; so they know this class and never ``DuckStore``.
"""

from __future__ import annotations

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
    """An open store: questions, transactions, and the log of what they changed."""

    #: Where the store lies; None in memory.
    folder: Path | None
    #: Held by who closes days or drops them: one at a time.
    upkeep: AbstractContextManager[bool]

    @abstractmethod
    def transaction(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """All or nothing; one writer at a time. Gives the engine's own connection: for code of the store only."""

    @abstractmethod
    def note(self, table: str, change: Change) -> None:
        """Inside a transaction: what it did to a table of ``raw``. Whoever follows what is new rests on it, so all that changes rows
        there has to say so; ``DuckWriter`` does."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile."""

    @abstractmethod
    def fact(self, name: str) -> str | None:
        """The value of an entry of ``model.facts``; None where there is none."""

    @abstractmethod
    def set_fact(self, name: str, value: str) -> None:
        """Sets an entry of ``model.facts``, in a transaction of its own."""

    @abstractmethod
    def begin_instance(self) -> None:
        """Gives the store another name: its batches are numbered anew from here on, and marks of before are too old."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Writes what the log holds into the database's file. Raises ``EngineError``."""

    @abstractmethod
    def close(self) -> None:
        """Closes the database; no question is answered after it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Opener(Protocol):
    """Opens the store in a folder; ``DuckStore`` is one."""

    def __call__(self, folder: Path, *, read_only: bool = False) -> OpenStore:
        """Raises ``StoreError``."""
        ...
