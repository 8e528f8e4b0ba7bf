"""The embedded store: one DuckDB file in one process.

One writer (guarded by a lock), any number of readers on their own cursors. All rows of one piece of input and the
ledger entry that says "this was read" go into one transaction, so that a crash stores all of it or nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import sqlalchemy as sa
from sqlalchemy.sql.elements import ClauseElement

from parsers.record import TABLES, conform
from store.changes import NOTHING, Change, ChangeLog, Changes, Mark
from store.door import Added, Closed, Copy, Dropped, FileEntry, Health, Listener, Question, Sealed, Writer
from store.duckdb import (
    archive,
    batches,
    commit_mark,
    copies,
    damage,
    following,
    held_stamps,
    intake_schema,
    segments,
    visible,
)
from store.duckdb.arrow import as_arrow
from store.duckdb.dialect import spelled
from store.duckdb.following import Follower
from store.duckdb.open_store import DATABASE, OpenStore
from store.duckdb.querying import store_errors, translated
from store.duckdb.schema import VERSION, VERSION_FACT, newer_than_known, statements
from store.duckdb.writing import DuckWriter, insert
from store.errors import StoreError, StoreHeld
from store.files import SERVICE_FILE, remove_left, service_address
from store.functions import KEPT_UNTIL_COMMIT
from store.line_frames import CODED, coded, logs_for_storage, plain
from store.line_order import SEGMENT_ROWS, in_order
from store.tables import FILES, LOGS, METADATA

__all__ = [
    "CODED", "DATABASE", "SERVICE_FILE", "Added", "DuckStore", "FileEntry", "Listener", "StoreError", "StoreHeld", "as_arrow", "coded",
    "insert", "logs_for_storage", "plain", "service_address",
]  # fmt: skip

#: What the engine may use of the machine's memory; beyond it sorts and joins spill to disk, and then a query is refused.
#: FAULTLINE_MEMORY sets another size. Parsers, the correlator and the page cache need the rest.
MEMORY = "60%"
#: The write-ahead log grows to this between checkpoints while lines come in; it is read again in about a second after a crash.
CHECKPOINT = "256MB"


class DuckStore(OpenStore):
    """An open store. ``folder`` None means in memory (tests, ``faultline demo`` uses a temporary folder instead)."""

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._write_lock = threading.RLock()
        self.upkeep = threading.RLock()
        #: Told of what is added (``announce``), as long as somebody else holds on to them.
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        #: What the transaction under way announced; whether some of it is being committed and was not told yet.
        self._announced: list[tuple[str, pl.DataFrame]] = []
        self.is_notifying = False
        #: What the transaction under way did to tables of ``raw`` (``note``).
        self._changed: dict[str, Change] = {}
        #: So many transactions were committed since the store was made (``store.duckdb.commit_mark``).
        self._count = 0
        #: What they changed; None: another instance begins with the next one.
        self._log: ChangeLog | None = None
        self._follower: Follower | None = None
        self._facts: dict[str, str] = {}
        #: Answers that are kept until the next commit, by question, and how many commits there were when they were asked for.
        self._answers: tuple[int, dict[ClauseElement, list[dict[str, Any]]]] = (0, {})
        self._marking = commit_mark.Marking(folder / DATABASE) if folder is not None and not read_only else None
        self._takes_in = False
        target = ":memory:"
        if folder is not None:
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True)
            target = str(folder / DATABASE)
            if read_only and not Path(target).exists():
                raise StoreError(f"{folder}: no store here; run 'faultline ingest PATH --data {folder}' first")
        self._open(target)
        if read_only and archive.moved(self):  # views name files by their places: whoever may write puts them right
            self._connection.close()
            DuckStore(folder).close()
            self._open(target)
        if (
            not read_only and folder is not None
        ):  # what the engine spilled to disk for queries of a process that was killed
            remove_left((folder / f"{DATABASE}.tmp").glob("duckdb_temp*"), "queries")
        if not read_only:
            self.migrate()

    def _open(self, target: str) -> None:
        folder, read_only = self.folder, self.read_only
        if folder is not None and (reason := damage.unreadable_start(folder / DATABASE)) is not None:
            raise StoreError(damage.report_damage(folder / DATABASE, reason))
        aside = commit_mark.kept_aside(folder / DATABASE) if folder is not None and not read_only else None
        try:
            # The file stays readable by other processes only while nobody writes: DuckDB's own lock is the guard.
            self._connection = duckdb.connect(target, read_only=read_only)
        except duckdb.IOException as error:
            if "lock" in str(error).lower() and folder is not None:
                raise StoreHeld(folder, service_address(folder)) from error
            self._refuse_damaged(error)
            raise StoreError(f"{folder}: cannot open the store: {str(error).splitlines()[0]}") from error
        except duckdb.Error as error:
            self._refuse_damaged(error)
            raise StoreError(
                f"{folder}: not a store that this version can read: {str(error).splitlines()[0]}"
            ) from error
        self._connection.execute("SET TimeZone = 'UTC'")
        self._answers = (0, {})  # numbers of commits that were lost are given again
        if self._takes_in:
            self._let_log_grow()
        if folder is not None and (newer := newer_than_known(self._connection)) is not None:
            self._connection.close()
            raise StoreError(
                f"{folder}: a store of schema {newer}, and this version knows {VERSION}: a newer Faultline wrote it; install that "
                "one, or use another --data folder. Nothing was changed"
            )
        if folder is not None:  # one in memory begins with its first transaction
            self._go_on(aside)
        ((locked,),) = self._connection.execute("SELECT current_setting('lock_configuration')").fetchall()
        if locked:  # another part of this process opened it before, and asked (queries.kql.run.harden)
            return
        if folder is not None:
            # Queries shut the database off from all files but these.
            self._connection.execute("SET GLOBAL allowed_directories = ?", [[str(archive.folder_of(self))]])
            self._connection.execute("SET GLOBAL parquet_metadata_cache = true")
        self._connection.execute("SET preserve_insertion_order = true")
        try:
            self._connection.execute("SET memory_limit = ?", [os.environ.get("FAULTLINE_MEMORY", MEMORY)])
        except duckdb.Error as error:
            self._connection.close()
            raise StoreError(
                f"FAULTLINE_MEMORY={os.environ.get('FAULTLINE_MEMORY')}: give a size such as 8GB or 60%"
            ) from error

    def _go_on(self, aside: Path | None) -> None:
        """Goes on counting transactions where the store is; says so where it was further."""
        known = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'model' AND table_name = 'facts'"
        made = self._connection.execute(known).fetchone() != (0,)
        facts = dict(self._connection.execute("SELECT name, value FROM model.facts").fetchall()) if made else {}
        self._count = batches.number_of(facts)
        if self.read_only:  # the log is read by who asks for it
            self._facts = facts
            return
        self._log = batches.known(self._connection, facts)
        if self.folder is not None:
            reported = commit_mark.compare(self.folder / DATABASE, self._count, aside)
            if reported is not None:
                self._log = None
            if self._marking is not None and (reported is None or self.lost):  # else it is told again at the next start
                self._marking.write(self._count)
        if self._log is not None:
            self._follow(self._log)

    def _follow(self, log: ChangeLog) -> None:
        self._log, self._follower = log, Follower(self.rows, log)

    def begin_instance(self) -> None:
        """Gives the store another name: its batches are numbered anew from here on, and marks of before are too old."""
        with self.transaction():
            self._log = None

    @property
    def lost(self) -> list[str]:
        """What a damaged log cost, in words, until somebody removed the note of it."""
        return commit_mark.lost(self.folder, DATABASE)

    def _refuse_damaged(self, error: duckdb.Error) -> None:
        """Raises ``StoreError`` with what to do if it is the write-ahead log that cannot be read."""
        if self.folder is not None and (reason := damage.about_log(error)) is not None:
            raise StoreError(damage.report_damage(self.folder / DATABASE, reason)) from error

    def reopen_if_broken(self) -> None:
        """DuckDB gives up a database whose file it could not write; opened anew it goes on from its last commit.

        Raises ``StoreError`` (or ``StoreHeld``) when it cannot be opened yet.
        """
        with self._write_lock:
            try:
                self._connection.execute("SELECT 1")
            except duckdb.Error as error:
                if self.folder is None:
                    raise translated(error) from error
                with suppress(duckdb.Error):
                    self._connection.close()
                self._open(str(self.folder / DATABASE))
                if self._log is None:  # it lost commits
                    self.begin_instance()

    # -- reading -------------------------------------------------------------------------------------------------

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor of its own for one thread of reading."""
        return self._connection.cursor()

    def ask(self, question: ClauseElement) -> list[dict[str, Any]]:
        """The rows of an answer as dicts; see ``store.door``. The answer to a question that is marked so
        (``store.functions.kept_until_commit``) is kept while nobody commits."""
        if not isinstance(question, sa.Select) or KEPT_UNTIL_COMMIT not in question.get_execution_options():
            return super().ask(question)
        count = self._count  # read before the rows: an answer may be newer than its number says, never older
        batch, answers = self._answers
        if batch != count:
            answers = {}
            self._answers = count, answers
        found = answers.get(question)
        if found is None:
            found = answers[question] = super().ask(question)
        return [dict(row) for row in found]

    def seen_by(self, user: str) -> visible.View:
        """The same store as this user may see it."""
        return visible.View(self, user)

    def name_cluster(self, cluster: str) -> None:
        """Gives all rows of ``raw`` that name no cluster this one."""
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
        """The engine's plan of a question, for people."""
        text, values = spelled(question)
        return "\n".join(str(row["explain_value"]) for row in self.rows(f"EXPLAIN {text}", values))

    def open_intake(self) -> None:
        """Makes the tables of the way in. Rows are moved into closed segments soon: compressing them in a checkpoint before that
        is work done twice, so the log may grow."""
        self._takes_in = True
        with self.transaction() as connection:
            for statement in intake_schema.STATEMENTS:
                connection.execute(statement)
        self._let_log_grow()

    def _let_log_grow(self) -> None:
        with store_errors():
            self.cursor().execute(f"SET GLOBAL checkpoint_threshold = '{CHECKPOINT}'")

    def changes(self, tables: Sequence[str], since: Mark | None = None) -> Changes:
        """What changed in these tables of ``raw`` after a mark; cheap where nothing did."""
        if self._follower is None:  # nobody writes: it stays as it is
            with store_errors():
                self._follow(batches.known(self.cursor(), self._facts) or ChangeLog("", self._count))
        assert self._follower is not None
        return self._follower.changes(self._count, tables, since)

    def stored_since(self, rows: sa.FromClause, changes: Changes) -> sa.ColumnElement[bool]:
        """A condition for questions: rows of a table of ``raw``, or of an alias of one, that were added."""
        return following.stored_since(rows, changes)

    @contextmanager
    def others_tidy(self) -> Iterator[None]:
        """Whoever commits when the log of changes is long enough writes it into the database's file, which takes half a second:
        meanwhile that is left to others' commits. For a writer for whom somebody waits."""
        with store_errors():
            connection = self.cursor()
            ((checkpoint_size,),) = connection.execute("SELECT current_setting('wal_autocheckpoint')").fetchall()
            connection.execute("SET wal_autocheckpoint = '1TB'")
        try:
            yield
        finally:
            connection.execute(f"SET wal_autocheckpoint = '{checkpoint_size}'")

    def info(self) -> dict[str, Any]:
        """What the store holds, for pages and ``check``: counts, first and last time, size in bytes (``archived``: of which
        in files of closed days)."""
        tiers = [
            self.rows("SELECT count(*) AS lines, min(time) AS first, max(time) AS last, 0 AS bytes FROM raw.logs")[0]
        ]
        tiers.append(archive.held(self))
        firsts = [t["first"] for t in tiers if t["first"] is not None]
        lasts = [t["last"] for t in tiers if t["last"] is not None]
        size, archived = 0, tiers[1]["bytes"]
        if self.folder is not None:
            size = sum(p.stat().st_size for p in self.folder.glob(DATABASE + "*") if p.is_file())
        return {
            "lines": tiers[0]["lines"] + tiers[1]["lines"], "first": min(firsts, default=None), "last": max(lasts, default=None),
            "bytes": size + archived, "archived": archived, "folder": str(self.folder or ":memory:"),
        }  # fmt: skip

    # -- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """All or nothing; one writer at a time. Gives the engine's own connection: for code of the store only."""
        with self._write_lock:
            connection = self._connection
            with store_errors():
                connection.execute("BEGIN")
            self._announced, self._changed = [], {}
            try:
                yield connection
                self._count_on(connection)
            except BaseException as error:
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
        if self._log is not None:
            self._log.take_back(self._count + 1)

    def _commit(self, connection: duckdb.DuckDBPyConnection) -> list[Listener]:
        """Those that were told of what was added."""
        added, self._announced = self._announced, []
        listeners = list(self.listeners) if added else []
        self.is_notifying = bool(listeners)
        try:
            try:
                connection.execute("COMMIT")
            except BaseException:
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
        """Inside a transaction: rows that it adds to tables of ``raw``, in the order in which they are inserted. Rows that
        nobody announces are missed by nobody: who listens counts, and asks the database where the numbers differ."""
        if self.listeners:
            self._announced += added

    def note(self, table: str, change: Change) -> None:
        """Inside a transaction: what it did to a table of ``raw``. Whoever follows what is new rests on it, so all that changes rows
        there has to say so; ``DuckWriter`` does."""
        if change != NOTHING:
            self._changed[table] = self._changed.get(table, NOTHING).and_then(change)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes meanwhile."""
        with self._write_lock:
            yield

    def set_fact(self, name: str, value: str) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM model.facts WHERE name = ?", [name])
            connection.execute("INSERT INTO model.facts VALUES (?, ?)", [name, value])

    @contextmanager
    def write(self) -> Iterator[Writer]:
        """Changes in one transaction; one writer at a time."""
        with self.transaction() as connection:
            yield DuckWriter(connection, self.note)

    def append(
        self, rows: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = (), *, sealed: Sequence[pl.DataFrame] = (),
        also: Callable[[Writer], None] | None = None,
    ) -> None:  # fmt: skip
        """One step of input in one transaction; see ``store.door``."""
        with self.transaction() as connection:
            # One by one: two at once are compressed on two threads, which costs a third more CPU, and the memory of two.
            for segment in sealed:
                segments.insert_sealed(connection, segment, filters=False)
                self.note(LOGS.name, Change(segment.height))
            self.announce(("logs", segment) for segment in sealed)
            self._append(connection, rows, files)
            if also is not None:
                also(DuckWriter(connection, self.note))

    def add(self, tables: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = ()) -> None:
        """Stores observations and the ledger entries they came with, in one transaction."""
        with self.transaction() as connection:
            self._append(connection, tables, files)

    def _append(
        self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pl.DataFrame], files: Sequence[FileEntry]
    ) -> None:
        for entry in files:
            if entry.replaces_tail:
                gone = connection.execute(
                    "DELETE FROM raw.logs WHERE file = ? AND line = ? AND cluster IS NOT DISTINCT FROM ?",
                    [entry.path, entry.tail_line, entry.cluster],
                ).fetchone()
                self.note(LOGS.name, Change(removed=int(gone[0]) if gone else 0))
        for name, data in tables.items():
            if data.height:
                self.announce([(name, _add(connection, name, data))])
                self.note(name, Change(data.height))
        for entry in files:
            connection.execute(
                "DELETE FROM raw.files WHERE path = ? AND cluster IS NOT DISTINCT FROM ?",
                [entry.path, entry.cluster],
            )
            connection.execute(
                "INSERT INTO raw.files VALUES (?,?,?,?,?,?,?,?,?,?,?,?, now()::TIMESTAMP, ?)",
                [entry.path, entry.cluster, entry.host, entry.kind, entry.source, entry.reason, entry.consumed,
                 entry.digest, entry.lines, entry.events, entry.unparsed, list(entry.warnings), entry.tail],
            )  # fmt: skip

    def replace_model(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Replaces whole tables of ``model``: conclusions are rebuilt, never patched by hand."""
        with self.transaction() as connection:
            for name, data in tables.items():
                connection.execute(f"DELETE FROM model.{name}")
                if data.height:
                    insert(connection, f"model.{name}", data)

    # -- looking after it ----------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Makes the tables and views of this version; a store of a newer one is refused before (``_open``)."""
        with store_errors():
            for statement in statements():
                self._connection.execute(statement)
        archive.sweep(self)
        with self.transaction() as connection:
            archive.make_views(self, connection)
        if self.fact(VERSION_FACT) is None:
            self.set_fact(VERSION_FACT, str(VERSION))
        if self.folder is not None:
            held_stamps.hold(self)

    def lease(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile; DuckDB's lock on the file keeps other processes out as long as it is open."""
        return self.alone()

    def close_days(self, today: date, *, hot_days: int) -> Closed:
        """Archives days that lie behind the hot ones. Raises ``OSError`` and ``StoreError``."""
        with store_errors():
            return archive.close_days(self, today, hot_days=hot_days)

    def drop_before(self, day: date) -> Dropped:
        """Drops what was seen before a day (UTC): all of it or nothing."""
        with store_errors():
            return archive.drop_before(self, day)

    def seal(self, *, least: int) -> Sealed:
        """Puts loose lines in order where at least so many wait."""
        with store_errors():
            return segments.seal(self, least=least)

    def add_filters(self) -> None:
        """Makes text filters of segments that were closed without."""
        with store_errors():
            segments.add_filters(self)

    def checkpoint(self) -> None:
        """Writes what the log holds into the database's file."""
        with store_errors():
            self.cursor().execute("CHECKPOINT")

    def health(self, *, thorough: bool = False) -> Health:
        """Counts, losses and damaged files; ``thorough`` reads all files."""
        damaged = archive.damaged(self, thorough=thorough)
        return Health(self.info(), self.lost, damaged, archive.held(self)["lines"])

    def backup(self, folder: Path) -> Copy:
        """A consistent copy into an empty or new folder; writers wait, readers do not. Raises ``StoreError``."""
        return copies.backup(self, folder)

    def verify(self, copy: Copy) -> list[str]:
        """How a copy differs from what was written down when it was made; empty if it does not."""
        return copies.verify(copy, DuckStore)

    def close(self) -> None:
        with self._write_lock:
            self._connection.close()
            if self._marking is not None:
                self._marking.close()


def _add(connection: duckdb.DuckDBPyConnection, name: str, data: pl.DataFrame) -> pl.DataFrame:
    """Inserts rows as they come, and gives them as they are stored. Lines that fill segments are put in order right away,
    which saves writing them twice."""
    data = logs_for_storage(data) if name == "logs" else conform(name, data)
    if name == "logs" and data.height >= SEGMENT_ROWS:
        segments.insert_sealed(connection, in_order(data))
    else:
        insert(connection, f"raw.{name}", data)
    return data
