"""Copies of a store: made consistently while it is open, verified table by table, restored into an empty folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from store.door import Copy
from store.duckdb import archive
from store.duckdb.open_store import DATABASE, Opener, OpenStore
from store.errors import StoreError
from store.tables import STORED

#: Beside the copied files: digests of the tables at the time of the copy.
NOTE = "backup.json"
#: Opening and closing the engine's file in this process would drop the engine's lock on it, hence a child process.
_COPY = "import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])"


def backup(store: OpenStore, folder: Path) -> Copy:
    """Makes a consistent copy in an empty or new folder. Writers wait. Raises ``StoreError``."""
    if store.folder is None:
        raise StoreError("a store in memory has no files to copy; give it a --data folder")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise StoreError(f"{folder}: is not empty; give another folder for the copy")
    with store.upkeep, store.alone():
        store.checkpoint()
        copy = Copy(folder, digests(store))
        try:
            for file in _files(store):
                target = folder / file.relative_to(store.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run([sys.executable, "-c", _COPY, file, target], check=True, capture_output=True)
            (folder / NOTE).write_text(json.dumps(copy.tables, indent=1), encoding="utf-8")
        except (OSError, subprocess.CalledProcessError) as error:
            raise StoreError(f"{folder}: the copy was not made: {error}; make room and try again") from error
    return copy


def _files(store: OpenStore) -> list[Path]:
    """The files of a store: the database, its log, and the registered files of the archive."""
    assert store.folder is not None
    kept = store.rows("SELECT file FROM raw.archive WHERE state = ? ORDER BY file", [archive.KEPT])
    parts = [store.folder / f"{DATABASE}{end}" for end in ("", ".wal", ".mark")]
    return [path for path in parts if path.exists()] + [store.folder / archive.FOLDER / row["file"] for row in kept]


def digests(store: OpenStore) -> dict[str, tuple[int, str]]:
    """For each stored table, its number of rows and an order-independent digest."""
    there = {
        f"{row['s']}.{row['t']}" for row in store.rows("SELECT schema_name AS s, table_name AS t FROM duckdb_tables()")
    }
    found = {}
    for name in (f"{table.schema}.{table.name}" for table in STORED):
        if name in there:
            (row,) = store.rows(f"SELECT count(*) AS n, sum(hash(t)::HUGEINT) AS d FROM {name} AS t")
            found[name] = (int(row["n"]), str(row["d"]))
    return found


def read(folder: Path) -> Copy:
    """The note of a copy. Raises ``StoreError`` if there is none."""
    try:
        tables = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        return Copy(folder, {name: (int(rows), str(digest)) for name, (rows, digest) in tables.items()})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{folder}: holds no copy of a store ({NOTE} cannot be read: {error})") from error


def verify(copy: Copy, opener: Opener) -> list[str]:
    """How the files of a copy differ from its note; empty if they do not. Opens them read-only."""
    try:
        with opener(copy.folder, read_only=True) as store:
            now = digests(store)
            wrong = archive.damaged(store, thorough=True)
    except StoreError as error:
        return [str(error)]
    for name in sorted(copy.tables.keys() | now.keys()):
        was, found = copy.tables.get(name), now.get(name)
        if was != found:
            wrong.append(f"{copy.folder}: {name} has {_rows(found)}, and had {_rows(was)} when it was copied")
    return wrong


def _rows(table: tuple[int, str] | None) -> str:
    return "no table" if table is None else f"{table[0]:,} rows of digest {table[1]}"


def restore(folder: Path, into: Path, opener: Opener) -> None:
    """Restores a complete copy into an empty or new folder. Raises ``StoreError``; ``into`` then holds no store."""
    if wrong := verify(read(folder), opener):
        raise StoreError(f"{folder}: the copy is not what was written; nothing was restored. {wrong[0]}")
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise StoreError(f"{into}: is not empty; restore into a new folder")
    try:
        shutil.copytree(folder, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns(NOTE))
    except (OSError, shutil.Error) as error:
        raise StoreError(f"{into}: the copy was not restored: {error}") from error
    with opener(into) as store:  # views contain the path of the archive
        store.begin_instance()  # batch numbers are reused
