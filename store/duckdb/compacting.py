"""Compacting: the database file is written anew, without the blocks that deleted rows left.

The engine uses freed blocks again, but returns to the disk only those at the end of its file. After days moved to the
archive, or a large part was dropped, the file stays as long as it was, or until ``store.duckdb.shrinking`` has moved its
end. A compacted copy is written beside it, compared
with it table by table, and takes its name in one rename. A process that is killed leaves the old file or the new one,
each whole; the next process that opens the store removes an unfinished copy.

Only for a store that nobody has open: readers of this process would go on with the old file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import duckdb

from store.door import Compacted
from store.duckdb import batches, commit_mark
from store.duckdb.damage import wal_of
from store.duckdb.dialect import packed_as_now
from store.duckdb.open_store import DATABASE, Opener, OpenStore
from store.duckdb.querying import store_errors
from store.errors import StoreError, StoreHeld
from store.files import flush_folder, service_address

#: The name of an unfinished copy, in the store's folder, and of the engine's log beside it.
DRAFT = f"{DATABASE}.compacting"
#: Room on the disk beyond what is in use: for the copy's own log.
SPARE_BYTES = 512 * 2**20
#: Compacting is worth it if at least this share of the file, and this many bytes, are free.
WORTH_SHARE, WORTH_BYTES = 0.5, 64 * 2**20
_LINES = "raw.logs"


def is_worth_it(store: OpenStore, most: int | None = None) -> bool:
    """Whether compacting frees much; with at most ``most`` bytes in use, which are what it takes time for."""
    if store.folder is None or store.read_only:
        return False
    size, used = (store.folder / DATABASE).stat().st_size, _used(store)
    return size - used >= max(WORTH_BYTES, WORTH_SHARE * size) and (most is None or used <= most)


def compact(folder: Path, opener: Opener) -> Compacted:
    """Compacts the store in a folder. Raises ``StoreError``; the store is then as it was."""
    database, draft = folder / DATABASE, folder / DRAFT
    with opener(folder) as store:
        store.checkpoint()
        size = database.stat().st_size
        _refuse_without_room(folder, _used(store))
        try:
            _copy(store, draft)
        except (StoreError, OSError) as error:
            _remove(draft)
            raise StoreError(f"{folder}: was not compacted, and is as it was: {error}") from error
        mark = commit_mark.read(database)
    try:
        _put_in_place(folder, mark)
    except OSError as error:
        raise StoreError(f"{folder}: was not compacted, and is as it was: {error.strerror or error}") from error
    finally:
        _remove(draft)
    opener(folder).close()  # creates the views, and a new instance: rows have other places now
    return Compacted(size, database.stat().st_size)


def _used(store: OpenStore) -> int:
    (found,) = store.rows("SELECT used_blocks * block_size AS used FROM pragma_database_size()")
    return int(found["used"])


def _refuse_without_room(folder: Path, used: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < used + SPARE_BYTES:
        raise StoreError(
            f"{folder}: compacting needs {used + SPARE_BYTES:,} bytes for a copy, and {free:,} are free; make room and try again"
        )


def _copy(store: OpenStore, draft: Path) -> None:
    """Writes all tables to a new file, and compares them. Raises ``EngineError`` and ``StoreError``."""
    _remove(draft)
    cursor = store.cursor()
    with store.alone(), store_errors():
        cursor.execute(f"ATTACH '{str(draft).replace(chr(39), 2 * chr(39))}' AS compacted")
        try:
            for schema, name, sql in cursor.execute(
                "SELECT schema_name, table_name, sql FROM duckdb_tables() WHERE database_name = current_database() AND NOT temporary"
            ).fetchall():
                _copy_table(cursor, f"{schema}.{name}", schema, sql)
            # Rows have other places: whoever follows new ones must read everything again.
            cursor.execute("DELETE FROM compacted.raw.batches")
            cursor.execute("DELETE FROM compacted.model.facts WHERE name IN (?, ?)", [batches.BATCH, batches.INSTANCE])
            cursor.execute("CHECKPOINT compacted")
        finally:
            cursor.execute("DETACH compacted")
    if wal_of(draft).exists() and wal_of(draft).stat().st_size:
        raise StoreError(f"{draft}: the copy's log was not written into it")


def _copy_table(cursor: duckdb.DuckDBPyConnection, table: str, schema: str, sql: str) -> None:
    begins = f"CREATE TABLE {table}("
    if not sql.startswith(begins):
        raise StoreError(f"the table {table} cannot be copied: {sql[:60]!r}")
    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS compacted.{schema}")
    cursor.execute(f"CREATE TABLE compacted.{table}( {packed_as_now(sql[len(begins) :], schema)}")
    # Segments first, which fill row groups of their own; then the lines that are in none.
    for part in ("block <> 0", "block = 0 OR block IS NULL") if table == _LINES else ("true",):
        cursor.execute(f"INSERT INTO compacted.{table} SELECT * FROM {table} WHERE {part}")
    if (copied := _digest(cursor, f"compacted.{table}")) != (wanted := _digest(cursor, table)):
        raise StoreError(f"the copy of {table} has {copied[0]:,} rows of digest {copied[1]}, not {wanted}")


def _digest(cursor: duckdb.DuckDBPyConnection, table: str) -> tuple[int, str]:
    """The number of rows, and an order-independent digest of them."""
    ((rows, digest),) = cursor.execute(f"SELECT count(*), sum(hash(t)::HUGEINT) FROM {table} AS t").fetchall()
    return int(rows), str(digest)


def _put_in_place(folder: Path, mark: commit_mark.Mark | None) -> None:
    """Gives the copy the database's name, unless another process wrote meanwhile. Raises ``OSError``."""
    database = folder / DATABASE
    with database.open("rb+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the same lock as the engine's
        except BlockingIOError as error:
            raise StoreHeld(folder, service_address(folder)) from error
        wal = wal_of(database)
        if commit_mark.read(database) != mark or (wal.exists() and wal.stat().st_size):
            raise StoreError(f"{folder}: another process wrote meanwhile; it is as that left it: try again")
        draft, was = folder / DRAFT, database.stat()
        draft.chmod(was.st_mode & 0o777)
        os.chown(draft, was.st_uid, was.st_gid)  # root may do this for the service's user
        flush_folder(draft)  # works for files too
        draft.replace(database)
        flush_folder(folder)


def _remove(draft: Path) -> None:
    for path in (draft, wal_of(draft)):
        path.unlink(missing_ok=True)


def unfinished(folder: Path) -> list[Path]:
    """The copy of a process that was killed."""
    return [folder / DRAFT, wal_of(folder / DRAFT)]
