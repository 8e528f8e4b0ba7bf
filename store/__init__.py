"""The store: tables, queries over them, and the engine behind the protocol.

``door`` defines the protocol of an engine, ``tables`` the schema, ``questions`` the named queries, ``errors`` the
exceptions; everything that applies to every engine is beside them. ``store.duckdb`` is the only engine so far.

The engine is chosen here: all other code uses the protocol. ``open_store(path)`` returns a ``store.door.Door``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.door import Compacted, Copy, Door, Migrated

__all__ = [
    "ENGINES",
    "compact",
    "is_mostly_free",
    "is_store",
    "migrate",
    "open_compacted",
    "open_store",
    "read_copy",
    "restore",
    "set_log_aside",
    "sizes",
    "verify_copy",
]

#: The engines of this version.
ENGINES = ("duckdb",)
#: Opening compacts a store with at most this much in use, which takes about five seconds.
QUICKLY_COMPACTED = 256 * 2**20


def open_store(path: Path | str | None, *, read_only: bool = False) -> Door:
    """Opens (or creates) the store in folder ``path``; None keeps it in memory. Raises ``StoreHeld`` or
    ``StoreError``."""
    from store.duckdb.store import DuckStore  # DuckDB and Polars are imported only when a store is used

    return DuckStore(None if path is None else Path(path), read_only=read_only)


def open_compacted(path: Path) -> Door:
    """Opens (or creates) a store, and compacts it if more than half of its file is free and it takes seconds. Raises like
    ``open_store``."""
    import structlog

    from store.duckdb.store import DuckStore
    from store.errors import StoreError

    store = DuckStore(path)
    if not is_mostly_free(store, QUICKLY_COMPACTED):
        return store
    store.close()
    try:
        done = compact(path)
        structlog.get_logger().info("the store was compacted", folder=str(path), before=done.before, after=done.after)
    except StoreError as error:
        structlog.get_logger().warning("the store was not compacted", error=str(error))
    return DuckStore(path)


def is_mostly_free(store: Door, most: int | None = None) -> bool:
    """Whether ``compact`` would free more than it leaves, and (``most``) leave at most so many bytes."""
    from store.duckdb.compacting import is_worth_it
    from store.duckdb.open_store import OpenStore

    return isinstance(store, OpenStore) and is_worth_it(store, most)


def compact(folder: Path) -> Compacted:
    """Writes a store's file anew, without what is free in it. Raises ``StoreError``; the store is then as it was."""
    from store.duckdb.compacting import compact as write_anew
    from store.duckdb.store import DuckStore

    return write_anew(folder, DuckStore)


def migrate(folder: Path) -> Migrated:
    """Gives a store everything that this version has, or makes one in an empty folder. Raises ``StoreHeld`` or
    ``StoreError``; a newer store is left as it is."""
    from store.duckdb.migrating import migrate as bring_up
    from store.duckdb.store import DuckStore

    return bring_up(folder, DuckStore)


def sizes(store: Door) -> dict[str, Any]:
    """What a store holds and how many bytes it takes; see ``store.duckdb.sizes``."""
    from store.duckdb.open_store import OpenStore
    from store.duckdb.sizes import of_store

    assert isinstance(store, OpenStore)
    return of_store(store)


def is_store(folder: Path) -> bool:
    """Whether a folder contains a store."""
    from store.duckdb.open_store import DATABASE

    return (folder / DATABASE).exists()


def restore(copy: Path, into: Path) -> None:
    """Restores a copy made by ``Door.backup`` into an empty or new folder. Raises ``StoreError``."""
    from store.duckdb.copies import restore as put_back
    from store.duckdb.store import DuckStore

    put_back(copy, into, DuckStore)


def read_copy(folder: Path) -> Copy:
    """A copy made by ``Door.backup``. Raises ``StoreError`` for a folder without a finished one."""
    from store.duckdb import copies

    return copies.read(folder)


def verify_copy(copy: Copy) -> list[str]:
    """How a copy differs from what was written; empty if it does not. Changes nothing in it."""
    from store.duckdb import copies

    return copies.verify(copy)


def set_log_aside(folder: Path) -> Path | None:
    """Moves an unreadable write-ahead log out of the way, so that the store opens without it; returns its new path,
    None if there is no log. Raises ``OSError``; ``StoreError`` if another process has the store open."""
    from store.duckdb import damage
    from store.duckdb.open_store import DATABASE
    from store.errors import StoreError

    try:
        return damage.set_aside(folder / DATABASE)
    except BlockingIOError as error:
        raise StoreError(f"{folder}: the store is held by another process; stop it first") from error
