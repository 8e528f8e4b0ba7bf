"""Copies of a store: made consistently while it is open, verified file by file and table by table, restored into an
empty folder.

Writers wait while the database's file is copied. The files of closed days never change, and the digests of the tables
are computed over a snapshot: others write meanwhile. The note with all digests is written last, in one rename: a copy
without it is not finished, whatever ended it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import sqlalchemy as sa

from store.changes import Change
from store.door import Copy
from store.duckdb import archive, opening
from store.duckdb.dialect import spelled
from store.duckdb.open_store import DATABASE, Opener, OpenStore
from store.duckdb.querying import store_errors
from store.duckdb.schema import VERSION_FACT, facts_of
from store.duckdb.writing import insert
from store.errors import StoreError
from store.files import digest_of, flush_folder
from store.line_frames import plain
from store.tables import CARRIED, LOGS

#: Beside the copied files: what was copied, with digests.
NOTE = "backup.json"
_NOTE_DRAFT = f".{NOTE}.draft"
#: In a copy: what was received and is not in the database.
SPOOL = "spool"
#: The folder, in the one that is restored into, in which the store is made. The database leaves it last.
RESTORING = "restoring"
#: What file systems put into their root folder.
_OF_FILE_SYSTEMS = "lost+found"

#: Opening and closing the engine's file in this process would drop the engine's lock on it, hence a child process. It
#: never writes to a file that exists.
_COPY = """import hashlib, json, os, sys
done = []
for source, target in json.load(sys.stdin):
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with open(source, "rb") as read, os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as made:
        while data := read.read(1 << 20):
            digest.update(data)
            size += made.write(data)
        made.flush()
        os.fsync(made.fileno())
    done.append((size, digest.hexdigest()))
print(json.dumps(done))"""


def backup(store: OpenStore, folder: Path, spooled: Callable[[], Mapping[str, Path]] = dict) -> Copy:
    """Makes a consistent copy in an empty or new folder; see ``store.door``. Raises ``StoreError``; the folder is then
    empty again."""
    if store.folder is None:
        raise StoreError("a store in memory has no files to copy; give it a --data folder")
    _begin(folder)
    made: dict[str, tuple[int, str]] = {}
    try:
        with store.upkeep:
            snapshot = store.cursor()
            try:
                with store.alone(), store_errors():
                    if not store.read_only:
                        store.checkpoint()
                    snapshot.execute("BEGIN")
                    facts = facts_of(snapshot)  # a snapshot begins with its first read
                    beside = {f"{SPOOL}/{name}": path for name, path in spooled().items()}
                    carried = _named(snapshot, "intake.carried", "file IS NOT NULL")
                    made |= _copied(folder, _database(store.folder) | beside)
                with store_errors():
                    made |= _copied(folder, _archived(store.folder, snapshot))
                    tables = digests(snapshot)
            finally:
                snapshot.close()
        copy = Copy(
            folder, tables, made, engine=_engine(), schema=facts.get(VERSION_FACT, ""), made_at=_now(), absent=tuple(name for name in carried if f"{SPOOL}/{name}" not in made)
        )  # fmt: skip
        _write_note(copy)
    except BaseException as error:
        _clear(folder)
        if isinstance(error, OSError):
            raise StoreError(f"{folder}: the copy was not made: {error.strerror or error}") from error
        raise
    return copy


def _begin(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = sorted(path.name for path in folder.iterdir() if path.name != _OF_FILE_SYSTEMS)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made or read: {error.strerror}") from error
    if not found:
        return
    unfinished = DATABASE in found and NOTE not in found
    left = "holds a copy that was not finished; remove it, or give" if unfinished else "is not empty; give"
    raise StoreError(f"{folder}: {left} another folder for the copy")


def _clear(folder: Path) -> None:
    """Removes what a copy that failed left, in a folder that was empty."""
    for path in folder.iterdir():
        if path.name == _OF_FILE_SYSTEMS:
            continue
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _engine() -> str:
    return f"DuckDB {duckdb.__version__}"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _database(folder: Path) -> dict[str, Path]:
    """The database, its log and its mark: names in the copy, and the files."""
    names = (f"{DATABASE}{end}" for end in ("", ".wal", ".mark"))
    return {name: folder / name for name in names if (folder / name).exists()}


def _archived(folder: Path, snapshot: duckdb.DuckDBPyConnection) -> dict[str, Path]:
    """The files of closed days."""
    kept = _named(snapshot, "raw.archive", f"state = '{archive.KEPT}'")
    return {f"{archive.FOLDER}/{name}": folder / archive.FOLDER / name for name in kept}


def _named(snapshot: duckdb.DuckDBPyConnection, table: str, condition: str) -> list[str]:
    """The files that a table names; none if an older version made the store, or nothing needed the table yet."""
    if table not in _tables(snapshot):
        return []
    return [
        name for (name,) in snapshot.execute(f"SELECT file FROM {table} WHERE {condition} ORDER BY file").fetchall()
    ]


def _copied(folder: Path, files: Mapping[str, Path]) -> dict[str, tuple[int, str]]:
    """Copies files to their names in ``folder``; returns their sizes and digests. Raises ``StoreError``."""
    pairs = [(str(path), str(folder / name)) for name, path in files.items()]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COPY], input=json.dumps(pairs), capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise StoreError(f"{folder}: the copy was not made: {reason}; make room and try again")
    return {name: (size, digest) for name, (size, digest) in zip(files, json.loads(done.stdout), strict=True)}


def digests(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, str]]:
    """For each table, its number of rows and an order-independent digest. Raises the engine's errors."""
    found = {}
    for name in _tables(connection):
        ((rows, digest),) = connection.execute(f"SELECT count(*), sum(hash(t)::HUGEINT) FROM {name} AS t").fetchall()
        found[name] = (int(rows), str(digest))
    return found


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    found = connection.execute(
        """SELECT schema_name || '.' || table_name FROM duckdb_tables()
        WHERE database_name = current_database() AND NOT temporary ORDER BY ALL"""
    ).fetchall()
    return [name for (name,) in found]


def _write_note(copy: Copy) -> None:
    about = {"made_at": copy.made_at, "engine": copy.engine, "schema": copy.schema, "files": dict(copy.files),
             "tables": dict(copy.tables), "absent": list(copy.absent)}  # fmt: skip
    draft = copy.folder / _NOTE_DRAFT
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(about, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    for folder in {(copy.folder / name).parent for name in copy.files}:
        flush_folder(folder)
    draft.rename(copy.folder / NOTE)
    flush_folder(copy.folder)


def read(folder: Path) -> Copy:
    """The note of a copy. Raises ``StoreError`` if there is none."""
    try:
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        tables, files = (
            {name: (int(n), str(d)) for name, (n, d) in note[part].items()} for part in ("tables", "files")
        )
        return Copy(folder, tables, files, engine=str(note["engine"]), schema=str(note["schema"]),
                    made_at=str(note["made_at"]), absent=tuple(map(str, note["absent"])))  # fmt: skip
    except FileNotFoundError as error:
        raise StoreError(f"{folder}: holds no finished copy of a store: there is no {NOTE}") from error
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise StoreError(f"{folder}: holds no copy of a store: {NOTE} cannot be read: {error}") from error


def verify(copy: Copy) -> list[str]:
    """How a copy differs from its note; empty if it does not. Changes nothing in it."""
    wrong = [*_strange(copy), *(text for name in sorted(copy.files) if (text := _file_differs(copy, name)))]
    try:
        connection = opening.connect(copy.folder, str(copy.folder / DATABASE), read_only=True)
    except StoreError as error:
        return [*wrong, str(error)]
    with connection:
        try:
            # Another version of the engine may compute other digests: then the files' have to do.
            now = digests(connection) if copy.engine == _engine() else dict(copy.tables)
        except duckdb.Error as error:
            return [*wrong, f"{copy.folder / DATABASE}: cannot be read: {str(error).splitlines()[0]}"]
    for name in sorted(copy.tables.keys() | now.keys()):
        was, found = copy.tables.get(name), now.get(name)
        if was != found:
            wrong.append(f"{copy.folder}: {name} has {_rows(found)}, and had {_rows(was)} when it was copied")
    return wrong


def _strange(copy: Copy) -> Iterable[str]:
    """Files that were not copied: the engine would read some of them."""
    for path in sorted(copy.folder.rglob("*")):
        name = path.relative_to(copy.folder).as_posix()
        if path.is_file() and name not in copy.files and name != NOTE and not name.startswith(_OF_FILE_SYSTEMS):
            yield f"{path}: is no part of the copy; move it away"


def _file_differs(copy: Copy, name: str) -> str | None:
    path, (size, digest) = copy.folder / name, copy.files[name]
    try:
        found = path.stat().st_size
        if found != size:
            return f"{path}: has {found:,} bytes, and had {size:,} when it was copied"
        return None if digest_of(path) == digest else f"{path}: its content is not what was copied"
    except OSError as error:
        return f"{path}: {'missing' if isinstance(error, FileNotFoundError) else error.strerror}"


def _rows(table: tuple[int, str] | None) -> str:
    return "no table" if table is None else f"{table[0]:,} rows of digest {table[1]}"


def restore(folder: Path, into: Path, opener: Opener) -> None:
    """Restores a complete copy into an empty or new folder. Raises ``StoreError``; ``into`` then holds no store."""
    copy = read(folder)
    if wrong := verify(copy):
        more = f" ({len(wrong)} differences)" if len(wrong) > 1 else ""
        raise StoreError(f"{folder}: the copy is not what was written{more}; nothing was restored. {wrong[0]}")
    _refuse_used(into)
    work = into / RESTORING
    try:
        for name in copy.files:
            target = work / name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(folder / name, target)
            target.chmod(0o600)
            flush_folder(target)  # works for files too
        with opener(work) as store:
            _take_in_carried(store, sorted(work.glob(f"{SPOOL}/*.rows")))
        for path in sorted(work.iterdir(), key=lambda path: path.name == DATABASE):  # with it, there is a store
            flush_folder(path)
            path.rename(into / path.name)
        work.rmdir()
        flush_folder(into)
    except BaseException as error:
        _clear(into)
        if isinstance(error, OSError):
            raise StoreError(f"{into}: the copy was not restored: {error.strerror or error}") from error
        raise
    with opener(into) as store:  # views contain the path of the archive
        store.begin_instance()  # batch numbers are reused


def _refuse_used(into: Path) -> None:
    try:
        into.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = sorted(path.name for path in into.iterdir() if path.name != _OF_FILE_SYSTEMS)
    except OSError as error:
        raise StoreError(f"{into}: cannot be made or read: {error.strerror}") from error
    if RESTORING in found:
        raise StoreError(f"{into}: holds what a restore left that was not finished; remove it and try again")
    if found:
        held = "holds a store" if DATABASE in found else f"is not empty ({found[0]})"
        raise StoreError(f"{into}: {held}, and nothing is written over; restore into a new folder")


def _take_in_carried(store: OpenStore, files: list[Path]) -> None:
    """Stores the lines that waited for their segment: whoever opens the store next must see them."""
    with store.transaction() as connection:
        for path in files:
            rows = plain(pl.read_ipc(io.BytesIO(path.read_bytes())))
            insert(connection, LOGS.fullname, rows)
            store.note(LOGS.name, Change(added=rows.height))
            connection.execute(*spelled(sa.update(CARRIED).where(CARRIED.c.file == path.name).values(file=None)))
    for path in files:
        path.unlink()
