"""The door: everything that Faultline asks of a store. An engine is a class that does this; today's is in ``store.duckdb``.

Read: ``ask`` (named questions of ``store.questions``, or any Core select over ``store.tables``). Write: ``append`` for rows of a
step, ``write`` for all else, each one transaction. Both hold for a whole store; a person's view of it (``store.duckdb.visible``) has
``Asks`` only. What an engine must spell beside standard SQL is listed in ``store.functions`` and ``store.tables`` (derived
tables). ``tests/store/test_door.py`` is the same suite for every engine.

Errors are those of ``store.errors``; no error of an engine's own passes the door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import polars as pl
import sqlalchemy as sa
from sqlalchemy.sql.dml import UpdateBase

from store.changes import Changes, Mark

#: Stands for the text of a line that may speak of others, where one person reads.
WITHHELD = "(text not shown: it may speak of other people's jobs)"
#: What can be asked.
Question = sa.Select[*tuple[Any, ...]] | sa.CompoundSelect[*tuple[Any, ...]]
#: Rows that one transaction added, as they were inserted: tables of ``raw`` and frames.
Added = Sequence[tuple[str, pl.DataFrame]]


@dataclass(frozen=True)
class FileEntry:
    """The ledger's line about one ingested file.

    ``digest`` is over the first ``consumed`` bytes of its content, which end at a line end and hold ``lines`` lines.
    ``tail`` is the unterminated line behind them, if there was one: stored too, and replaced when it has grown.
    """

    path: str
    cluster: str | None
    host: str | None
    kind: str
    source: str | None
    reason: str
    consumed: int
    digest: str
    lines: int
    events: int
    unparsed: int
    warnings: tuple[str, ...]
    tail: str | None = None
    replaces_tail: bool = False
    tail_line: int = 0


class Listener(Protocol):
    """Who is given rows as they are added, so that they need not be asked for."""

    def on_added(self, added: Added) -> None:
        """Called as soon as they are stored, transaction by transaction; other writers wait meanwhile."""

    def digest(self) -> None:
        """Called by whoever stored them once others may write."""


class Answers(Protocol):
    """What answers questions with rows: a store, a person's view of one, a page's reader, a transaction."""

    def ask(self, question: Question) -> list[dict[str, Any]]:
        """Rows as dicts, by the names of the question's columns."""


class Asks(Protocol):
    """A store or a person's view of one. Any thread may ask; an answer is of one moment."""

    def ask(self, question: Question) -> list[dict[str, Any]]:
        """Rows as dicts, by the names of the question's columns. Times are naive UTC. Raises ``EngineError``; ``NoSuchTable``
        where an older version made the store, or the reader may not see the table."""

    def ask_frame(self, question: Question) -> pl.DataFrame:
        """The same as a frame: for many rows."""

    def cursor(self) -> Any:
        """What ``queries.kql`` runs a compiled query on: a connection of its own, with the engine's own words and errors."""

    def info(self) -> Mapping[str, Any]:
        """What the store holds: ``lines``, ``first`` and ``last`` time, ``bytes`` (``archived``: of which in files of closed days),
        ``folder``. Empty for a person's view: that is the site's."""

    def seen_by(self, user: str) -> Asks:
        """The same store as this user may see it: their rows only."""


class Writer(Protocol):
    """One transaction: all of it is stored, or nothing."""

    def ask(self, question: Question | UpdateBase) -> list[dict[str, Any]]:
        """Rows as the transaction sees them; also of a change that returns some."""

    def ask_frame(self, question: Question) -> pl.DataFrame:
        """The same as a frame."""

    def change(self, statement: UpdateBase) -> int:
        """Runs a Core insert, update or delete; gives the number of rows it changed."""

    def insert(self, table: sa.Table, data: pl.DataFrame) -> None:
        """Adds the rows of a frame, by column name; columns that it lacks are null or have their default."""

    def replace(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        """Adds the rows of a frame in place of those that have the same values in ``keys`` (none of them null)."""

    def amend(self, statement: UpdateBase) -> int:
        """As ``change``, for rows of ``raw`` that were there already: whoever follows new rows has to look at all again."""

    def amend_by(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        """Gives rows of ``raw`` that have the same values in ``keys`` (null is the same as null) those of the other columns of
        ``data``. The key ``place`` is where a row is (``store.functions.row_place``)."""


@dataclass(frozen=True)
class Health:
    """What a person should know of a store: what it holds (``info``, and so many lines in files of closed days), what a damaged log
    cost, what is wrong with files."""

    info: Mapping[str, Any]
    lost: Sequence[str]
    damaged: Sequence[str]
    archived_lines: int = 0

    @property
    def well(self) -> bool:
        """Nothing is lost or damaged."""
        return not self.lost and not self.damaged


@dataclass(frozen=True)
class Closed:
    """What ``Door.close_days`` archived."""

    days: int = 0
    files: int = 0
    lines: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Dropped:
    """What ``Door.drop_before`` dropped: lines, and files of closed days."""

    files: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Sealed:
    """What ``Door.seal`` put in order."""

    lines: int = 0
    segments: int = 0


@dataclass(frozen=True)
class Copy:
    """A backup: where it lies, and of each table how many rows it has and a digest over them that is of no order."""

    folder: Path
    tables: Mapping[str, tuple[int, str]]


@runtime_checkable
class Door(Asks, Protocol):
    """A whole store. ``folder``: where it lies, None for one in memory."""

    @property
    def folder(self) -> Path | None: ...

    @property
    def read_only(self) -> bool: ...

    # -- writing

    def append(
        self, rows: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = (), *, sealed: Sequence[pl.DataFrame] = (),
        also: Callable[[Writer], None] | None = None,
    ) -> None:  # fmt: skip
        """One step of input in one transaction: ``rows`` by table of ``raw``, ``sealed`` parts of lines that are in order and fill
        whole segments, the ledger's entries, and what ``also`` changes (positions of the spool, ranges of streams)."""

    def write(self) -> AbstractContextManager[Writer]:
        """Any other changes in one transaction; one writer at a time."""

    def name_cluster(self, cluster: str) -> None:
        """Gives all rows of ``raw`` that name no cluster this one."""

    def fact(self, name: str) -> str | None:
        """A named value of ``model.facts``, None if there is none."""

    def set_fact(self, name: str, value: str) -> None:
        """Sets a named value."""

    def open_intake(self) -> None:
        """Makes the tables of ``intake``, and prepares for rows that come in all the time."""

    # -- following what is new

    @property
    def listeners(self) -> MutableSet[Listener]:
        """Who is given new rows, as long as somebody else holds on to them."""

    @property
    def is_notifying(self) -> bool:
        """Whether rows are being committed of which the listeners were not told yet."""

    def changes(self, tables: Sequence[str], since: Mark | None = None) -> Changes:
        """What was added, amended, removed and moved in these tables of ``raw`` after a mark, or that it is too old; cheap where
        nothing changed."""

    def stored_since(self, rows: sa.FromClause, changes: Changes) -> sa.ColumnElement[bool]:
        """A condition for questions: rows of a table of ``raw``, or of an alias of one, that were added. Where others were removed or
        moved meanwhile it holds for some of those too, and lines that were moved into files of closed days it does not find: whoever
        needs the added rows alone reads all then. It holds for all rows where the mark was too old."""

    def others_tidy(self) -> AbstractContextManager[None]:
        """Meanwhile the engine's own upkeep is left to others' commits: for a writer for whom somebody waits."""

    # -- looking after it

    def reopen_if_broken(self) -> None:
        """Opens a store anew that its engine gave up. Raises ``StoreError`` where it cannot be opened yet."""

    def explain(self, question: Question) -> str:
        """The engine's plan of a question, for people."""

    def migrate(self) -> None:
        """Makes tables and views of this version. Raises ``StoreError`` for a store of a newer one, and leaves it as it is."""

    def lease(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile, in this process; other processes are kept out as long as the store is open."""

    def close_days(self, today: date, *, hot_days: int) -> Closed:
        """Archives days that lie behind the hot ones. Raises ``OSError`` and ``StoreError`` (``LinesChanged`` where lines went on changing
        meanwhile); what was archived before stays so."""

    def drop_before(self, day: date) -> Dropped:
        """Drops what was seen before a day (UTC): all of it or nothing."""

    def seal(self, *, least: int) -> Sealed:
        """Puts loose lines in order where at least so many wait."""

    def add_filters(self) -> None:
        """Makes what finds texts of lines that were stored in a hurry; nothing where there are none."""

    @property
    def lost(self) -> Sequence[str]:
        """What a damaged log cost, in words, until somebody removed the note of it."""

    def health(self, *, thorough: bool = False) -> Health:
        """Counts, losses and damaged files; ``thorough`` reads all files."""

    def backup(self, folder: Path) -> Copy:
        """A consistent copy into an empty or new folder; writers wait, readers do not. Raises ``StoreError``."""

    def verify(self, copy: Copy) -> list[str]:
        """How a copy differs from what was written down when it was made; empty if it does not."""

    def close(self) -> None:
        """Gives the store back."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None:
        """Closes it."""
