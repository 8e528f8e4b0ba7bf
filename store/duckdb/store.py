"""The embedded store: one DuckDB file in one process.

One writer (guarded by a lock), any number of readers on their own cursors. All rows of one piece of input and the
ledger entry that records it go into one transaction, so that a crash stores all of it or nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import sqlalchemy as sa
from sqlalchemy.sql.elements import ClauseElement

from parsers.record import TABLES
from store import disowned
from store.changes import NOTHING, Change, ChangeLog, Changes, Mark
from store.door import Closed, Copy, Dropped, FileEntry, Health, Listener, Question, Sealed, Writer
from store.duckdb import (
    archive,
    batches,
    closing,
    commit_mark,
    copies,
    early,
    figures,
    following,
    held_stamps,
    intake_schema,
    ledger,
    opening,
    parsed,
    segments,
    shrinking,
    visible,
)
from store.duckdb.checkpoints import Checkpoints, is_due
from store.duckdb.dialect import spelled
from store.duckdb.following import Follower
from store.duckdb.incoming import forget
from store.duckdb.logs_view import has_claims, show_claims
from store.duckdb.open_store import DATABASE, OpenStore
from store.duckdb.querying import store_errors, translated
from store.duckdb.schema import VERSION, VERSION_FACT, facts_of, has_this_versions_views, statements
from store.duckdb.writing import DuckWriter, insert
from store.errors import StoreError
from store.functions import KEPT_UNTIL_COMMIT
from store.tables import FILES, LOGS, METADATA


class DuckStore(OpenStore):
    """An open store. ``folder`` None means in memory (tests, ``faultline demo`` uses a temporary folder instead)."""

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._write_lock = threading.RLock()
        self.upkeep = threading.RLock()
        #: Receive the rows added (``announce``); held by weak references.
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        #: Rows that the current transaction announced; and whether rows are being committed that listeners have not
        #: received.
        self._announced: list[tuple[str, pl.DataFrame]] = []
        self.is_notifying = False
        #: The current transaction's changes to tables of ``raw`` (``note``).
        self._changed: dict[str, Change] = {}
        #: Number of committed transactions since the store was created (``store.duckdb.commit_mark``).
        self._count = 0
        #: Their changes; None: another instance begins with the next one.
        self._log: ChangeLog | None = None
        self._follower: Follower | None = None
        self._facts: dict[str, str] = {}
        #: Answers cached until the next commit, by question, and the number of commits when they were computed.
        self._answers: tuple[int, dict[ClauseElement, list[dict[str, Any]]]] = (0, {})
        self._marking = commit_mark.Marking(folder / DATABASE) if folder is not None and not read_only else None
        self._takes_in = False
        #: The tables in memory may be wrong (``_doubt``).
        self._in_doubt = False
        target = ":memory:"
        is_new = folder is None or not (folder / DATABASE).exists()
        if folder is not None:
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True)
            target = str(folder / DATABASE)
            if read_only and not Path(target).exists():
                raise StoreError(f"{folder}: no store here; run 'faultline ingest PATH --data {folder}' first")
        self._open(target)
        # Views contain file paths and columns: a process that may write corrects them.
        if read_only and (archive.moved(self) or not has_this_versions_views(self._connection)):
            self._connection.close()
            DuckStore(folder).close()
            self._open(target)
        if not read_only and folder is not None:
            opening.remove_unfinished(folder)
        if not read_only:
            self.migrate()
            if folder is not None and not is_new:
                held_stamps.hold(self)

    def _open(self, target: str) -> None:
        folder, read_only = self.folder, self.read_only
        if folder is not None:
            opening.refuse_unreadable(folder)
        aside = commit_mark.kept_aside(folder / DATABASE) if folder is not None and not read_only else None
        self._connection = opening.connect(folder, target, read_only=read_only)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._answers = (0, {})  # numbers of lost commits are reused
        self._checkpoints = Checkpoints()
        if self._takes_in:
            self._let_log_grow()
        if folder is not None:  # one in memory begins with its first transaction
            self._go_on(opening.known_facts(self._connection, folder), aside)
        closed_days = archive.folder_of(self) if folder is not None else None
        self._memory = opening.set_up(self._connection, read_only=read_only, closed_days=closed_days)

    def _go_on(self, facts: dict[str, str], aside: Path | None) -> None:
        """Continues counting transactions from the store's number; reports a loss if the store had more."""
        self._count = batches.number_of(facts)
        if self.read_only:  # the reader reads the log
            self._facts = facts
            return
        self._log = batches.known(self._connection, facts)
        if self.folder is not None:
            reported = commit_mark.compare(self.folder / DATABASE, self._count, aside)
            if reported is not None:
                self._log = None
            if self._marking is not None and (reported is None or self.lost):  # else reported again at the next start
                self._marking.write(self._count)
        if self._log is not None:
            self._follow(self._log)

    def _follow(self, log: ChangeLog) -> None:
        self._log, self._follower = log, Follower(self.rows, log)

    def begin_instance(self) -> None:
        """Gives the store a new instance ID: batches are renumbered from here on, and earlier marks are too old."""
        with self.transaction():
            self._log = None

    @property
    def lost(self) -> list[str]:
        """What a damaged log lost, in words, until somebody removes the note."""
        return commit_mark.lost(self.folder, DATABASE)

    def reopen_if_broken(self) -> None:
        """Reopens a database that DuckDB gave up because it could not write its file; it continues from its last
        commit.

        Raises ``StoreError`` (or ``StoreHeld``) if it cannot be opened yet.
        """
        with self._write_lock:
            if self._in_doubt:
                self._reopen()
            try:
                self._connection.execute("SELECT 1")
            except duckdb.Error as error:
                if self.folder is None:
                    raise translated(error) from error
                self._reopen()

    def _reopen(self) -> None:
        assert self.folder is not None
        path = self.folder / DATABASE
        if not os.access(path, os.W_OK) and self._answers_at_all():
            raise StoreError(f"{self.folder}: the disk is read-only; nothing is stored until it can be written")
        with suppress(duckdb.Error):
            self._connection.close()
        try:
            self._open(str(path))
        except StoreError:
            self._read_on(path)
            raise
        self._in_doubt = False
        if self._log is None:  # it lost commits
            self.begin_instance()

    def _answers_at_all(self) -> bool:
        try:
            self._connection.execute("SELECT 1")
        except duckdb.Error:
            return False
        return True

    def _read_on(self, path: Path) -> None:
        """A file that cannot be written can often be read: pages and queries go on. The next writer tries again."""
        with suppress(duckdb.Error):
            connection = duckdb.connect(str(path), read_only=True)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET GLOBAL allowed_directories = ?", [[str(archive.folder_of(self))]])
            self._connection = connection
        self._in_doubt = True

    def _doubt(self, error: BaseException, committing: bool = False) -> None:
        """Notes that the tables in memory may be wrong. If the engine finds no memory while it appends rows, its rollback
        can leave them in some of the columns: all rows appended later then have texts of other rows. What is on disk is
        right, so the store is opened anew before anything else is written."""
        no_memory = isinstance(error, (duckdb.OutOfMemoryException, MemoryError)) or "allocat" in str(error)
        if self.folder is not None and (no_memory or (committing and isinstance(error, duckdb.Error))):
            self._in_doubt = True

    # -- reading -------------------------------------------------------------------------------------------------

    def ask(self, question: ClauseElement) -> list[dict[str, Any]]:
        """The rows of an answer as dicts; see ``store.door``. The answer to a question marked with
        ``store.functions.kept_until_commit`` is cached until the next commit."""
        if not isinstance(question, sa.Select) or KEPT_UNTIL_COMMIT not in question.get_execution_options():
            return super().ask(question)
        count = self._count  # read before the rows: an answer may be newer than its number, never older
        batch, answers = self._answers
        if batch != count:
            answers = {}
            self._answers = count, answers
        found = answers.get(question)
        if found is None:
            found = answers[question] = super().ask(question)
        return [dict(row) for row in found]

    def seen_by(self, user: str) -> visible.View:
        """The same store with only the rows that this user may see."""
        return visible.View(self, user)

    def name_cluster(self, cluster: str) -> None:
        """Gives this cluster to all rows of ``raw`` that have none."""
        with self.transaction() as connection:
            writer = DuckWriter(connection, self.note)
            for table in (*(METADATA.tables[f"raw.{name}"] for name in TABLES), FILES):
                writer.amend(sa.update(table).where(table.c.cluster.is_(None)).values(cluster=cluster))
            archive.name_cluster(self, connection, cluster)

    def fact(self, name: str) -> str | None:
        with store_errors():
            row = self.cursor().execute("SELECT value FROM model.facts WHERE name = ?", [name]).fetchone()
        return None if row is None else str(row[0])

    def explain(self, question: Question) -> str:
        """The engine's plan of a query, for people."""
        text, values = spelled(question)
        return "\n".join(str(row["explain_value"]) for row in self.rows(f"EXPLAIN {text}", values))

    def open_intake(self) -> None:
        """Creates the intake tables. Rows soon move into closed segments: a checkpoint before that would compress them
        in vain, so the log may grow."""
        self._takes_in = True
        with self.transaction() as connection:
            parsed.run(connection, intake_schema.STATEMENTS)
        self._let_log_grow()

    def _let_log_grow(self) -> None:
        with store_errors():
            self._checkpoints.let_log_grow(self.cursor())

    def changes(self, tables: Sequence[str], since: Mark | None = None) -> Changes:
        """The changes to these tables of ``raw`` after a mark; cheap if there are none."""
        if self._follower is None:  # nobody writes: nothing changes
            with store_errors():
                self._follow(batches.known(self.cursor(), self._facts) or ChangeLog("", self._count))
        assert self._follower is not None
        return self._follower.changes(self._count, tables, since)

    def stored_since(self, rows: sa.FromClause, changes: Changes) -> sa.ColumnElement[bool]:
        """A condition for queries: the added rows of a table of ``raw``, or of an alias of one."""
        return following.stored_since(rows, changes)

    @contextmanager
    def others_tidy(self) -> Iterator[None]:
        """Leaves checkpoints to others' commits meanwhile: the commit that finds the log long enough writes it into the
        database file, which takes half a second. For a writer that somebody waits for."""
        with store_errors():
            connection = self.cursor()
            size = self._checkpoints.put_off(connection)
        try:
            yield
        finally:
            self._checkpoints.resume(connection, size)

    def info(self) -> dict[str, Any]:
        """Figures for pages and ``check``: counts, first and last time, size in bytes (``archived``: the part in files
        of closed days)."""
        return figures.of_store(self)

    # -- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A transaction: all or nothing; one writer at a time. Yields the engine's own connection: for code of the
        store only."""
        with self._write_lock:
            if self._in_doubt:
                self._reopen()
            connection = self._connection
            with store_errors():
                connection.execute("BEGIN")
            self._announced, self._changed = [], {}
            try:
                yield connection
                self._count_on(connection)
            except BaseException as error:
                self._doubt(error)
                self._take_back()
                with suppress(duckdb.Error):  # a database that gave up refuses even this
                    connection.execute("ROLLBACK")
                if isinstance(error, duckdb.Error):
                    raise translated(error) from error
                raise
            with store_errors():
                listeners = self._commit(connection)
        for listener in listeners:
            listener.digest()

    def _count_on(self, connection: duckdb.DuckDBPyConnection) -> None:
        batch = self._count + 1
        if self._log is None:
            self._follow(batches.begin(connection, batch))
            self._changed = {}
        assert self._log is not None
        batches.count_on(connection, self._log, batch, self._changed)

    def _take_back(self) -> None:
        forget(self._connection)
        if self._log is not None:
            self._log.take_back(self._count + 1)

    def _commit(self, connection: duckdb.DuckDBPyConnection) -> list[Listener]:
        """Commits; returns the listeners that received the added rows."""
        added, self._announced = self._announced, []
        listeners = list(self.listeners) if added else []
        self.is_notifying = bool(listeners)
        try:
            try:
                connection.execute("COMMIT")
            except BaseException as error:
                self._doubt(error, committing=True)
                self._take_back()
                raise
            self._count += 1
            if self._marking is not None:
                self._marking.write(self._count)
            for listener in listeners:
                listener.on_added(added)
        finally:
            self.is_notifying = False
        return listeners

    def announce(self, added: Iterable[tuple[str, pl.DataFrame]]) -> None:
        """Announces, inside a transaction, rows that it adds to tables of ``raw``, in insertion order. Unannounced rows
        are not lost: listeners compare counts, and query the database if they differ."""
        if self.listeners:
            self._announced += added

    def note(self, table: str, change: Change) -> None:
        """Records, inside a transaction, its changes to a table of ``raw``. Readers that follow new rows rely on it, so
        all code that changes rows there must call it; ``DuckWriter`` does."""
        if change != NOTHING:
            self._changed[table] = self._changed.get(table, NOTHING).and_then(change)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Excludes other writers meanwhile."""
        with self._write_lock:
            yield

    def set_fact(self, name: str, value: str) -> None:
        with self.transaction() as connection:
            shown = has_claims(connection) if name == disowned.FACT else None
            connection.execute("DELETE FROM model.facts WHERE name = ?", [name])
            connection.execute("INSERT INTO model.facts VALUES (?, ?)", [name, value])
            if name == disowned.FACT:
                show_claims(connection, shown=shown)

    @contextmanager
    def write(self) -> Iterator[Writer]:
        """Changes in one transaction; one writer at a time."""
        with self.transaction() as connection:
            yield DuckWriter(connection, self.note, partial(early.name_hosts, self))

    def append(
        self, rows: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = (), *, sealed: Sequence[pl.DataFrame] = (),
        also: Callable[[Writer], None] | None = None,
    ) -> None:  # fmt: skip
        """One step of input in one transaction; see ``store.door``."""
        filters = [segments.filters_of(segment) for segment in sealed]  # nobody waits for the store meanwhile
        with self.transaction() as connection:
            # One by one: two at once are compressed on two threads, which costs a third more CPU, and twice the memory.
            for segment, made in zip(sealed, filters, strict=True):
                segments.insert_sealed(connection, segment, made)
                self.note(LOGS.name, Change(segment.height))
            self.announce(("logs", segment) for segment in sealed)
            self._append(connection, rows, files)
            if also is not None:
                also(DuckWriter(connection, self.note))

    def add(self, tables: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = ()) -> None:
        """Stores observations and their ledger entries, in one transaction."""
        with self.transaction() as connection:
            self._append(connection, tables, files)

    def _append(
        self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pl.DataFrame], files: Sequence[FileEntry]
    ) -> None:
        ledger.drop_tails(self, connection, files)
        for name, data in tables.items():
            if data.height:
                self.announce([(name, segments.add(connection, name, data))])
                self.note(name, Change(data.height))
        ledger.enter(connection, files)

    def replace_model(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Replaces whole tables of ``model``: conclusions are rebuilt, never patched by hand."""
        with self.transaction() as connection:
            for name, data in tables.items():
                connection.execute(f"DELETE FROM model.{name}")
                if data.height:
                    insert(connection, f"model.{name}", data)

    # -- looking after it ----------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Creates the tables and views of this version; ``_open`` has refused a store of a newer one. In one transaction:
        a process that is killed meanwhile leaves all of it or nothing, and a commit each would cost more than they do."""
        with self.transaction() as connection:
            parsed.run(connection, statements())
            archive.make_views(self, connection)
            if VERSION_FACT not in facts_of(connection):
                connection.execute("INSERT INTO model.facts VALUES (?, ?)", [VERSION_FACT, str(VERSION)])
        archive.sweep(self)

    def lease(self) -> AbstractContextManager[None]:
        """Excludes other writers meanwhile; DuckDB's lock on the open file excludes other processes."""
        return self.alone()

    def close_days(self, today: date, *, hot_days: int) -> Closed:
        """Archives days before the hot ones. Raises ``OSError`` and ``StoreError``."""
        with store_errors():
            done = archive.close_days(self, today, hot_days=hot_days)
            early.close_early(self, today - timedelta(days=hot_days))
            return done

    def close_settled(
        self, until: datetime, *, least: int, hot_days: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> Closed:
        """Archives lines that arrived before ``until``. Raises ``OSError`` and ``StoreError``."""
        with store_errors():
            return early.close_settled(self, until, least=least, hot_days=hot_days, is_wanted=is_wanted)

    def drop_before(self, day: date) -> Dropped:
        """Drops everything older than a day (UTC): all of it or nothing."""
        with store_errors():
            return archive.drop_before(self, day)

    def seal(self, *, least: int) -> Sealed:
        """Puts loose lines in order if at least ``least`` wait."""
        with store_errors():
            return segments.seal(self, least=least)

    def add_filters(self) -> None:
        """Builds text filters of segments that an earlier version stored without them."""
        with store_errors():
            segments.add_filters(self)

    def checkpoint(self, least: int = 0) -> None:
        """Writes the log into the database file if it has at least ``least`` bytes."""
        with self._write_lock, store_errors():
            if self._in_doubt:
                self._reopen()
            if is_due(self.folder, least):
                self.cursor().execute("CHECKPOINT")

    def shrink(self, *, share: float) -> int:
        """Gives the free part of the database file back to the disk; see ``store.door``."""
        with store_errors():
            return shrinking.shrink(self, share)

    def release_memory(self) -> None:
        """Returns memory that the engine keeps for later to the system."""
        if self.folder is not None:
            with self._write_lock, store_errors():
                self._memory.release(self.cursor())

    def health(self, *, thorough: bool = False) -> Health:
        """Counts, losses and damaged files; ``thorough`` reads all files."""
        damaged = archive.damaged(self, thorough=thorough)
        return Health(self.info(), self.lost, damaged, archive.held(self)["lines"])

    def backup(self, folder: Path, spooled: Callable[[], Mapping[str, Path]] = dict) -> Copy:
        """Makes a consistent copy in an empty or new folder; see ``store.door``. Raises ``StoreError``."""
        return copies.backup(self, folder, spooled)

    def verify(self, copy: Copy) -> list[str]:
        """How a copy differs from the record made with it; empty if it does not."""
        return copies.verify(copy)

    def close(self) -> None:
        with self._write_lock:
            if self.folder is not None and not self.read_only and not self._in_doubt:
                with suppress(duckdb.Error):  # the log stays, and is read when the store is opened
                    self._connection.execute("CHECKPOINT")
            closing.close(self._connection)
            if self._marking is not None:
                self._marking.close()
