"""The protocol between Faultline and a store. An engine is a class that implements it; the current one is in
``store.duckdb``.

Reading: ``ask`` (named questions of ``store.questions``, or any Core select over ``store.tables``), and ``run_kql``.
Writing: ``append`` for the rows of a step, ``write`` for everything else, each one transaction. Both apply to a whole
store; a person's view of it has only ``Asks``. Where each part is:

- a step: ``Door.append``, with its ledger entries (``FileEntry``); the ranges of streams that it covers are rows of
  ``intake.streams``, written by its ``also`` and read by ``store.questions.intake.streams``
- amended lines: ``Writer.amend`` and ``amend_by``; lines that a sender falsely claimed: ``store.disowned``
- the patch of the model: ``Writer.replace``, ``insert`` and ``change`` on tables of ``model``, in one ``Door.write``
- kept state: the tables of ``kept`` (``store.questions.kept``, ``triage``, ``notices``, ``drain_decisions``), changed by
  ``Door.write``; named values: ``Door.fact`` and ``set_fact``
- the change cursor: ``Mark`` of ``store.changes``, with ``Door.changes``, ``stored_since`` and ``listeners``
- named questions: ``Asks.ask`` and ``ask_frame``; their plan: ``Door.explain``
- KQL: ``Asks.run_kql``, ``explain_kql`` and ``kql_columns``, each for a ``KqlQuery``
- maintenance: ``Door.close_days``, ``close_settled``, ``drop_before``, ``seal``, ``add_filters``, ``checkpoint``, ``shrink``,
  ``others_tidy`` and ``reopen_if_broken``; ``Engine.compact`` and ``sizes``
- backup, restore, verify: ``Door.backup`` and ``verify``; ``Engine.restore``, ``read_copy`` and ``verify_copy``
- migrate: ``Door.migrate`` for an open store, ``Engine.migrate`` for a folder
- the lease: ``Door.lease``; health: ``Door.health``, ``lost`` and ``info``

``Engine`` (``store.engine``) is what is done with the files of a store that is not open. What an engine must provide
beyond standard SQL is listed in ``store.functions`` and ``store.tables`` (derived tables). ``tests/store/test_door*.py``
are one suite for every engine.

Errors are those of ``store.errors``; an engine's own errors never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import polars as pl
import sqlalchemy as sa
from sqlalchemy.sql.dml import UpdateBase

from store.changes import Changes, Mark

#: Replaces the text of a line that may concern other people, for a reader with a restricted view.
WITHHELD = "(text not shown: it may speak of other people's jobs)"
#: The type of a query.
Question = sa.Select[*tuple[Any, ...]] | sa.CompoundSelect[*tuple[Any, ...]]
#: What a KQL query is answered with.
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
#: Rows that one transaction added, as inserted: tables of ``raw`` and frames.
Added = Sequence[tuple[str, pl.DataFrame]]


@dataclass(frozen=True)
class FileEntry:
    """The ledger entry of one ingested file.

    ``digest`` covers the first ``consumed`` bytes of its content, which end at a line end and hold ``lines`` lines.
    ``tail`` is the unterminated line after them, if there was one: stored too, and replaced once it is longer.
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
    """Receives rows as they are added, so that it need not query for them."""

    def on_added(self, added: Added) -> None:
        """Called as soon as rows are stored, once per transaction; other writers wait meanwhile."""

    def digest(self) -> None:
        """Called by the thread that stored them, once others may write."""


class Answers(Protocol):
    """Answers queries with rows: a store, a person's view of one, a page's reader, a transaction."""

    def ask(self, question: Question) -> list[dict[str, Any]]:
        """Rows as dicts, by the names of the question's columns."""


class KqlQuery(Protocol[Answer_co]):
    """A KQL query (``queries.kql.Query``): the language compiles it to the engine's SQL and bounds what it may cost.

    Only a store calls these, each time with a new connection of its engine that has no transaction and that nobody else
    uses meanwhile. They may raise the engine's own errors.
    """

    def run_on(self, connection: Any, database: object | None = None) -> Answer_co:
        """The answer. ``database``: an object that is the same for all connections of one database, and of no other, until
        it is closed; None if the store knows none."""

    def explain_on(self, connection: Any) -> str:
        """What would run."""

    def columns_on(self, connection: Any) -> list[tuple[str, str]]:
        """The columns of the answer."""


class Asks(Protocol):
    """A store or a person's view of one. Any thread may query; an answer is a consistent snapshot."""

    def ask(self, question: Question) -> list[dict[str, Any]]:
        """Rows as dicts, by the names of the question's columns. Times are naive UTC. Raises ``EngineError``;
        ``NoSuchTable`` if an older version created the store, or the reader may not see the table."""

    def ask_frame(self, question: Question, *, many: bool = False) -> pl.DataFrame:
        """The same as a frame. ``many``: of so many rows that the engine is not to hold them twice."""

    def run_kql(self, query: KqlQuery[Answer]) -> Answer:
        """The answer to a KQL query. Raises the errors of KQL, and ``EngineError`` like ``ask``."""

    def explain_kql(self, query: KqlQuery[Any]) -> str:
        """What would run for a KQL query, and the engine's plan of it, for people. Raises like ``run_kql``."""

    def kql_columns(self, query: KqlQuery[Any]) -> list[tuple[str, str]]:
        """Names and types of the columns that the answer would have. Raises like ``run_kql``."""

    def info(self) -> Mapping[str, Any]:
        """Figures about the store: ``lines``, ``first`` and ``last`` time, ``bytes`` (``archived``: the part in files
        of closed days), ``folder``, and ``unfiltered``: lines that every text search reads, because no text filter covers
        them (yet). Empty for a person's view: the figures cover the whole site."""

    def seen_by(self, user: str) -> Asks:
        """The same store with only the rows that this user may see."""


class Writer(Protocol):
    """One transaction: everything is stored, or nothing."""

    def ask(self, question: Question | UpdateBase) -> list[dict[str, Any]]:
        """Rows as the transaction sees them; also for a change that returns some."""

    def ask_frame(self, question: Question, *, many: bool = False) -> pl.DataFrame:
        """The same as a frame."""

    def change(self, statement: UpdateBase) -> int:
        """Runs a Core insert, update or delete; returns the number of rows it changed."""

    def insert(self, table: sa.Table, data: pl.DataFrame) -> None:
        """Adds the rows of a frame, by column name; columns that it lacks are null or get their default."""

    def replace(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        """Adds the rows of a frame, replacing those with the same values in ``keys`` (none of them null)."""

    def amend(self, statement: UpdateBase) -> int:
        """Like ``change``, for existing rows of ``raw``: readers that follow new rows must then read everything
        again."""

    def name_hosts(self, table: sa.Table, names: Sequence[tuple[str | None, str, str]]) -> int:
        """Gives rows of a table of ``raw`` the node that their host was learned to mean: (cluster, other name, node). Of
        lines, all whose day is not closed. Returns their number."""

    def amend_by(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        """Updates rows of ``raw`` with the same values in ``keys`` (null equals null) with the other columns of
        ``data``. The key ``place`` is a row's location (``store.functions.row_place``)."""


@dataclass(frozen=True)
class Health:
    """The health of a store for people: its figures (``info``, and the lines in files of closed days), losses through a
    damaged log, and problems of files."""

    info: Mapping[str, Any]
    lost: Sequence[str]
    damaged: Sequence[str]
    archived_lines: int = 0

    @property
    def well(self) -> bool:
        """Whether nothing is lost or damaged."""
        return not self.lost and not self.damaged


@dataclass(frozen=True)
class Closed:
    """What ``Door.close_days`` or ``Door.close_settled`` archived."""

    days: int = 0
    files: int = 0
    lines: int = 0
    bytes: int = 0

    def and_then(self, more: Closed) -> Closed:
        """Both together."""
        return Closed(self.days + more.days, self.files + more.files, self.lines + more.lines, self.bytes + more.bytes)


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
class Compacted:
    """The size of a store's database file before and after compacting, in bytes."""

    before: int
    after: int


@dataclass(frozen=True)
class Migrated:
    """The versions of a store's schema before (None: there was none) and after it was brought to this program's, and the
    tables, columns and views that were ``added``: "column raw.links.time"."""

    before: str | None
    after: str
    added: Sequence[str]


@dataclass(frozen=True)
class Copy:
    """A backup: its location, and for each table its number of rows and an order-independent digest of them.

    ``files``: size in bytes and SHA-256 of each copied file. ``engine``, ``schema``: of the store, with versions.
    ``made_at``: RFC 3339, UTC. ``absent``: files with lines that the store counts as its own, and that were not found.
    """

    folder: Path
    tables: Mapping[str, tuple[int, str]]
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    engine: str = ""
    schema: str = ""
    made_at: str = ""
    absent: Sequence[str] = ()


@runtime_checkable
class Door(Asks, Protocol):
    """A whole store. ``folder``: its location, None for one in memory."""

    @property
    def folder(self) -> Path | None: ...

    @property
    def read_only(self) -> bool: ...

    # -- writing

    def append(
        self, rows: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = (), *, sealed: Sequence[pl.DataFrame] = (),
        also: Callable[[Writer], None] | None = None,
    ) -> None:  # fmt: skip
        """Stores one step of input in one transaction: ``rows`` by table of ``raw``, ``sealed`` blocks of ordered lines
        that fill whole segments, the ledger's entries, and the changes of ``also`` (positions of the spool, ranges of
        streams)."""

    def write(self) -> AbstractContextManager[Writer]:
        """Any other changes in one transaction; one writer at a time."""

    def name_cluster(self, cluster: str) -> None:
        """Gives this cluster to all rows of ``raw`` that have none."""

    def fact(self, name: str) -> str | None:
        """A named value of ``model.facts``, None if there is none."""

    def set_fact(self, name: str, value: str) -> None:
        """Sets a named value."""

    def open_intake(self) -> None:
        """Creates the tables of ``intake``, and prepares for continuous input."""

    # -- following what is new

    @property
    def listeners(self) -> MutableSet[Listener]:
        """Objects that receive new rows, held by weak references."""

    @property
    def is_notifying(self) -> bool:
        """Whether rows are being committed that the listeners have not received yet."""

    def changes(self, tables: Sequence[str], since: Mark | None = None) -> Changes:
        """The rows added, amended, removed and moved in these tables of ``raw`` after a mark, or that the mark is too
        old; cheap if nothing changed."""

    def stored_since(self, rows: sa.FromClause, changes: Changes) -> sa.ColumnElement[bool]:
        """A condition for queries: the added rows of a table of ``raw``, or of an alias of one. If others were removed
        or moved meanwhile, it also selects some of those, and it misses lines that were moved into files of closed
        days: a caller that needs exactly the added rows then reads everything. It is true for all rows if the mark was
        too old."""

    def others_tidy(self) -> AbstractContextManager[None]:
        """Leaves the engine's own maintenance to other commits meanwhile: for a writer that somebody waits for."""

    # -- looking after it

    def reopen_if_broken(self) -> None:
        """Reopens a store that its engine gave up. Raises ``StoreError`` if it cannot be opened yet."""

    def explain(self, question: Question) -> str:
        """The engine's plan of a query, for people."""

    def migrate(self) -> None:
        """Creates the tables and views of this version. Raises ``StoreError`` for a store of a newer one, and leaves
        that unchanged."""

    def lease(self) -> AbstractContextManager[None]:
        """Excludes other writers of this process meanwhile; other processes are excluded for as long as the store is
        open."""

    def close_days(self, today: date, *, hot_days: int) -> Closed:
        """Archives days before the hot ones. Raises ``OSError`` and ``StoreError`` (``LinesChanged`` if lines kept
        changing meanwhile); what was archived before stays archived."""

    def close_settled(
        self, until: datetime, *, least: int, hot_days: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> Closed:
        """Archives the lines with a time that arrived before ``until`` (naive UTC), of each hot day with at least
        ``least`` of them, before the day is closed; what is learned about hosts and clusters later still counts for them.
        ``is_wanted`` is asked every few seconds: once it is false, what is not archived yet stays. Raises like ``close_days``."""

    def drop_before(self, day: date) -> Dropped:
        """Drops everything older than a day (UTC): all of it or nothing."""

    def seal(self, *, least: int) -> Sealed:
        """Puts loose lines in order if at least ``least`` wait."""

    def add_filters(self) -> None:
        """Builds text filters of lines that an earlier version stored without them; does nothing if there are none."""

    def checkpoint(self, least: int = 0) -> None:
        """Writes the engine's log into its data files, if it has at least ``least`` bytes: it takes twice the space until
        then, and is read when the store is opened."""

    def shrink(self, *, share: float) -> int:
        """Gives the free part of the data files back to the disk, if it is at least this share of them; returns how many
        bytes. Rows stay as they are; other writers wait for half a second at a time. Cheap if there is nothing to do.
        Raises ``StoreError``, also while a copy is made or days are closed: it does not wait for these.
        Call it where nobody remembers the places of lines (``store.functions.row_place``) meanwhile."""

    def release_memory(self) -> None:
        """Returns memory that the engine keeps for later to the system; call it every few seconds. Nothing is lost, and
        what runs meanwhile goes on."""

    @property
    def lost(self) -> Sequence[str]:
        """What a damaged log lost, in words, until somebody removes the note."""

    def health(self, *, thorough: bool = False) -> Health:
        """Counts, losses and damaged files; ``thorough`` reads all files."""

    def backup(self, folder: Path, spooled: Callable[[], Mapping[str, Path]] = dict) -> Copy:
        """Makes a consistent copy in an empty or new folder; writers wait while the database is copied, readers do not.
        ``spooled``: files with what was received and is not stored, by their names in a spool; asked when nobody
        writes. Raises ``StoreError``."""

    def verify(self, copy: Copy) -> list[str]:
        """How a copy differs from the record made with it; empty if it does not."""

    def close(self) -> None:
        """Releases the store."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None:
        """Closes it."""
