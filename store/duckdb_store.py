"""The embedded store: one DuckDB file in one process.

One writer (guarded by a lock), any number of readers on their own cursors. All rows of one piece of input and the
ledger entry that says "this was read" go into one transaction, so that a crash stores all of it or nothing.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import polars as pl
import pyarrow as pa

from parsers.record import TABLES, conform
from store import archive, damage, mark
from store.schema import VERSION, VERSION_FACT, newer_than_known, statements

DATABASE = "faultline.duckdb"
SERVICE_FILE = "service.json"
_VIEWS = pl.CompatLevel.newest()
#: What the engine may use of the machine's memory; beyond it sorts and joins spill to disk, and then a query is refused.
#: FAULTLINE_MEMORY sets another size. Parsers, the correlator and the page cache need the rest.
MEMORY = "60%"


class StoreError(Exception):
    """The store cannot do what was asked; the text says what, where and what to do."""


class StoreHeld(StoreError):  # noqa: N818  (a state, told to a person)
    """Another process holds the store. ``address`` is its service's address, if it left one."""

    def __init__(self, folder: Path, address: str | None) -> None:
        self.address = address
        hint = (
            f"ask the service at {address} (--server {address})" if address else "stop it or use another --data folder"
        )
        super().__init__(f"{folder}: the store is held by another process; {hint}")


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


#: Rows that one transaction added, as they were inserted: tables of ``raw`` and frames.
Added = Sequence[tuple[str, pl.DataFrame]]


class Listener(Protocol):
    """Who is told of rows that were added, so that they need not be asked for."""

    def hear(self, added: Added) -> None:
        """Called as soon as they are stored, transaction by transaction; other writers wait meanwhile."""

    def digest(self) -> None:
        """Called by whoever stored them once others may write."""


class DuckStore:
    """An open store. ``folder`` None means in memory (tests, ``faultline demo`` uses a temporary folder instead)."""

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._write_lock = threading.RLock()
        #: Held by who closes days or drops them: one at a time.
        self.upkeep = threading.RLock()
        #: Told of what is added (``announce``), as long as somebody else holds on to them.
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        #: What the transaction under way announced; whether some of it is being committed and was not told yet.
        self._announced: list[tuple[str, pl.DataFrame]] = []
        self.telling = False
        #: Goes on counting when rows of ``raw`` that were there already are changed (``rewrite``), and when that is committed.
        self.rewritten = 0
        self._rewrites = False
        #: So many rows of ``raw.logs`` were put elsewhere as they are (``move``), and so many by the transaction under way.
        self.moved = 0
        self._moves = 0
        #: So many transactions were committed since the store was made (``store.mark``).
        self._count = 0
        self._marking = mark.Marking(folder / DATABASE) if folder is not None and not read_only else None
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
            damage.remove_left((folder / f"{DATABASE}.tmp").glob("duckdb_temp*"), "queries")
        if not read_only:
            for statement in statements():
                self._connection.execute(statement)
            archive.sweep(self)
            with self.transaction() as connection:
                archive.make_views(self, connection)
            if self.fact(VERSION_FACT) is None:
                self.set_fact(VERSION_FACT, str(VERSION))

    def _open(self, target: str) -> None:
        folder, read_only = self.folder, self.read_only
        if folder is not None and (reason := damage.unreadable_start(folder / DATABASE)) is not None:
            raise StoreError(damage.told(folder / DATABASE, reason))
        aside = mark.kept_aside(folder / DATABASE) if folder is not None and not read_only else None
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
        if (newer := newer_than_known(self._connection)) is not None:
            self._connection.close()
            raise StoreError(
                f"{folder}: a store of schema {newer}, and this version knows {VERSION}: a newer Faultline wrote it; install that "
                "one, or use another --data folder. Nothing was changed"
            )
        if not read_only:
            self._count_from(aside)
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

    def _count_from(self, aside: Path | None) -> None:
        """Goes on counting transactions where the store is; says so where it was further."""
        known = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'model' AND table_name = 'facts'"
        made = self._connection.execute(known).fetchone() != (0,)
        fact = self.fact(mark.FACT) if made else None
        self._count = int(fact) if fact is not None else 0
        if self.folder is not None:
            told = mark.compare(self.folder / DATABASE, self._count, aside)
            if self._marking is not None and (told is None or self.lost):  # else it is told again at the next start
                self._marking.write(self._count)

    @property
    def lost(self) -> list[str]:
        """What a damaged log cost, in words, until somebody removed the note of it."""
        return mark.lost(self.folder, DATABASE)

    def _refuse_damaged(self, error: duckdb.Error) -> None:
        """Raises ``StoreError`` with what to do if it is the write-ahead log that cannot be read."""
        if self.folder is not None and (reason := damage.about_log(error)) is not None:
            raise StoreError(damage.told(self.folder / DATABASE, reason)) from error

    def reopen_if_broken(self) -> None:
        """DuckDB gives up a database whose file it could not write; opened anew it goes on from its last commit.

        Raises ``StoreError`` (or ``StoreHeld``) when it cannot be opened yet.
        """
        with self._write_lock:
            try:
                self._connection.execute("SELECT 1")
            except duckdb.Error:
                if self.folder is None:
                    raise
                with suppress(duckdb.Error):
                    self._connection.close()
                self._open(str(self.folder / DATABASE))

    # -- reading -------------------------------------------------------------------------------------------------

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor of its own for one thread of reading."""
        return self._connection.cursor()

    def rows(self, sql: str, parameters: object = None) -> list[dict[str, Any]]:
        cursor = self.cursor()
        cursor.execute(sql, parameters) if parameters is not None else cursor.execute(sql)
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def frame(self, sql: str, parameters: object = None) -> pl.DataFrame:
        cursor = self.cursor()
        table = cursor.sql(sql, params=parameters).to_arrow_table()
        data = pl.from_arrow(table)
        assert isinstance(data, pl.DataFrame)
        return data

    def fact(self, name: str) -> str | None:
        row = self.cursor().execute("SELECT value FROM model.facts WHERE name = ?", [name]).fetchone()
        return None if row is None else str(row[0])

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
        """All or nothing; one writer at a time."""
        with self._write_lock:
            connection = self._connection
            connection.execute("BEGIN")
            self._announced, self._rewrites, self._moves = [], False, 0
            try:
                yield connection
                self._count_on(connection)
            except BaseException:
                with suppress(duckdb.Error):  # a database that gave up refuses even this
                    connection.execute("ROLLBACK")
                raise
            listeners = self._commit(connection)
        for listener in listeners:
            listener.digest()

    def _count_on(self, connection: duckdb.DuckDBPyConnection) -> None:
        if self._marking is not None:
            connection.execute("DELETE FROM model.facts WHERE name = ?", [mark.FACT])
            connection.execute("INSERT INTO model.facts VALUES (?, ?)", [mark.FACT, str(self._count + 1)])

    def _commit(self, connection: duckdb.DuckDBPyConnection) -> list[Listener]:
        """Those that were told of what was added."""
        added, self._announced = self._announced, []
        listeners = list(self.listeners) if added else []
        self.telling = bool(listeners or self._moves)
        try:
            connection.execute("COMMIT")
            self._count += 1
            if self._marking is not None:
                self._marking.write(self._count)
            self.rewritten += self._rewrites
            self.moved += self._moves
            for listener in listeners:
                listener.hear(added)
        finally:
            self.telling = False
        return listeners

    def announce(self, added: Iterable[tuple[str, pl.DataFrame]]) -> None:
        """Inside a transaction: rows that it adds to tables of ``raw``, in the order in which they are inserted. Rows that
        nobody announces are missed by nobody: who listens counts, and asks the database where the numbers differ."""
        if self.listeners:
            self._announced += added

    def rewrite(self) -> None:
        """Inside a transaction that changes rows of ``raw`` which were there already: what was heard of them holds no more."""
        self._rewrites = True
        self.rewritten += 1

    def move(self, rows: int) -> None:
        """Inside a transaction that deletes so many rows of ``raw.logs`` and adds the same again: nothing is said that was not
        said before, and whoever counts by row ids has to know."""
        self._moves += rows

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes meanwhile."""
        with self._write_lock:
            yield

    def set_fact(self, name: str, value: str) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM model.facts WHERE name = ?", [name])
            connection.execute("INSERT INTO model.facts VALUES (?, ?)", [name, value])

    def add(self, tables: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = ()) -> None:
        """Stores observations and the ledger entries they came with, in one transaction."""
        with self.transaction() as connection:
            for entry in files:
                if entry.replaces_tail:
                    connection.execute(
                        "DELETE FROM raw.logs WHERE file = ? AND line = ? AND cluster IS NOT DISTINCT FROM ?",
                        [entry.path, entry.tail_line, entry.cluster],
                    )
            for name, data in tables.items():
                if data.height:
                    self.announce([(name, _add(connection, name, data))])
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

    def close(self) -> None:
        with self._write_lock:
            self._connection.close()
            if self._marking is not None:
                self._marking.close()

    def __enter__(self) -> DuckStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def insert(connection: duckdb.DuckDBPyConnection, table: str, data: pl.DataFrame) -> None:
    """Arrow in, by column name. ``table`` is one of ours, never user text."""
    connection.register("incoming", as_arrow(data))
    try:
        columns = ", ".join(f'"{name}"' for name in data.columns)
        connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming")
    finally:
        # In an aborted transaction even this is refused; the rollback and the next register() clear it.
        with suppress(duckdb.Error):
            connection.unregister("incoming")


def as_arrow(data: pl.DataFrame) -> pa.Table:
    """Texts as Polars has them (views): nothing is copied on the way.

    The dictionary of a column of numbers (``coded``) goes along whole, unless it is longer than the column: Polars looks in
    every row for what of it occurs, which takes ten times as long as all else here.
    """
    return pa.table({column.name: _as_arrow(column) for column in data.get_columns()})


def _as_arrow(column: pl.Series) -> pa.Array:
    if isinstance(column.dtype, pl.Categorical):
        numbers = column.to_physical()  # before the dictionary, which others may lengthen meanwhile
        texts = column.dtype.categories.to_series()
        if len(texts) <= len(numbers):
            parts = (part.to_arrow(compat_level=_VIEWS) for part in (numbers, texts))
            return pa.DictionaryArray.from_arrays(*parts, safe=False)
    return column.to_arrow(compat_level=_VIEWS)


def _add(connection: duckdb.DuckDBPyConnection, name: str, data: pl.DataFrame) -> pl.DataFrame:
    """Inserts rows as they come, and gives them as they are stored. Lines that fill segments are put in order right away,
    which saves writing them twice."""
    from store import segments

    data = logs_for_storage(data) if name == "logs" else conform(name, data)
    if name == "logs" and data.height >= segments.SEGMENT_ROWS:
        segments.insert_sealed(connection, segments.in_order(data))
    else:
        insert(connection, f"raw.{name}", data)
    return data


def logs_for_storage(data: pl.DataFrame) -> pl.DataFrame:
    """Message becomes an offset into the raw line where it is its tail (nearly always). Rows that are so stay so."""
    if "msg_start" in data.columns:
        return data
    data = conform("logs", data)
    tail = pl.col("raw").str.ends_with(pl.col("message")) & (pl.col("message") != "")
    return data.with_columns(
        pl.when(tail)
        .then(pl.col("raw").str.len_chars() - pl.col("message").str.len_chars())
        .cast(pl.Int32)
        .alias("msg_start"),
        pl.when(tail).then(None).otherwise(pl.col("message").fill_null("")).alias("message"),
    ).select([*TABLES["logs"], "msg_start"])


#: Columns of lines whose values repeat in nearly every line.
CODED = ("time_quality", "host", "source", "format", "unit", "facility", "severity", "event", "file")


def coded(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines with ``CODED`` columns as numbers and a dictionary: a quarter of the bytes, and moved in a fraction of the time.

    A dictionary lives as long as a frame that uses it, and grows with all that is coded meanwhile: such a frame is not for
    keeping (``plain``).
    """
    return lines.with_columns(
        pl.col(name).cast(pl.Categorical(pl.Categories(f"faultline_{name}"))) for name in CODED if name in lines.columns
    )


def plain(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines with texts where ``coded`` put numbers."""
    return lines.with_columns(pl.col(name).cast(pl.String) for name in CODED if name in lines.columns)


def service_address(folder: Path) -> str | None:
    """The address that a running service left in its data folder, if that process still lives."""
    try:
        note = json.loads((folder / SERVICE_FILE).read_text())
        os.kill(int(note["pid"]), 0)
        return str(note["address"])
    except (OSError, ValueError, KeyError):
        return None
