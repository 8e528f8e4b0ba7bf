"""The store: tables, queries over them, and the engine behind the protocols.

``door`` defines the protocol of an open store and ``engine`` that of an engine, ``tables`` the schema, ``questions`` the
named queries, ``errors`` the exceptions; everything that applies to every engine is beside them. ``store.duckdb`` is the
only engine so far.

The engine is chosen here: all other code uses the protocols. ``open_store(path)`` returns a ``store.door.Door``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.door import Compacted, Copy, Door, Migrated
    from store.engine import Engine

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


def _duckdb() -> Engine:
    from store.duckdb.engine import DuckEngine  # DuckDB and Polars are imported only when a store is used

    return DuckEngine()


#: The engines of this version, by the name that ``--engine`` takes. The first one makes new stores.
ENGINES: dict[str, Callable[[], Engine]] = {"duckdb": _duckdb}
#: Opening compacts a store with at most this much in use, which takes about five seconds.
QUICKLY_COMPACTED = 256 * 2**20


def engine_of(folder: Path | None) -> Engine:
    """The engine whose store, or copy of one, is in a folder; if none is there, the engine of new stores."""
    engines = [engine() for engine in ENGINES.values()]
    if folder is not None:
        with suppress(OSError):  # from a folder that cannot be read: whatever opens it says why
            return next((engine for engine in engines if engine.is_store(folder)), engines[0])
    return engines[0]


def open_store(path: Path | str | None, *, read_only: bool = False) -> Door:
    """Opens (or creates) the store in folder ``path``; None keeps it in memory. Raises ``StoreHeld`` or
    ``StoreError``."""
    folder = None if path is None else Path(path)
    return engine_of(folder).open(folder, read_only=read_only)


def open_compacted(path: Path) -> Door:
    """Opens (or creates) a store, and compacts it if more than half of its file is free and it takes seconds. Raises like
    ``open_store``."""
    import structlog

    from store.errors import StoreError

    store = open_store(path)
    if not is_mostly_free(store, QUICKLY_COMPACTED):
        return store
    store.close()
    try:
        done = compact(path)
        structlog.get_logger().info("the store was compacted", folder=str(path), before=done.before, after=done.after)
    except StoreError as error:
        structlog.get_logger().warning("the store was not compacted", error=str(error))
    return open_store(path)


# What follows is that of ``store.engine.Engine``, of the engine whose store it is.


def is_store(folder: Path) -> bool:
    """Whether a folder contains a store."""
    return any(engine().is_store(folder) for engine in ENGINES.values())


def is_mostly_free(store: Door, most: int | None = None) -> bool:
    """Whether ``compact`` would free more than it leaves, and (``most``) leave at most so many bytes."""
    return engine_of(store.folder).is_mostly_free(store, most)


def sizes(store: Door) -> Mapping[str, Any]:
    """What a store holds and how many bytes it takes; see ``store.duckdb.sizes``."""
    return engine_of(store.folder).sizes(store)


def compact(folder: Path) -> Compacted:
    """Writes a store's file anew, without what is free in it. Raises ``StoreError``; the store is then as it was."""
    return engine_of(folder).compact(folder)


def migrate(folder: Path) -> Migrated:
    """Gives a store everything that this version has, or makes one in an empty folder. Raises ``StoreHeld`` or
    ``StoreError``; a newer store is left as it is."""
    return engine_of(folder).migrate(folder)


def restore(copy: Path, into: Path) -> None:
    """Restores a copy made by ``Door.backup`` into an empty or new folder. Raises ``StoreError``."""
    engine_of(copy).restore(copy, into)


def read_copy(folder: Path) -> Copy:
    """A copy made by ``Door.backup``. Raises ``StoreError`` for a folder without a finished one."""
    return engine_of(folder).read_copy(folder)


def verify_copy(copy: Copy) -> list[str]:
    """How a copy differs from what was written; empty if it does not. Changes nothing in it."""
    return engine_of(copy.folder).verify_copy(copy)


def set_log_aside(folder: Path) -> Path | None:
    """Moves an unreadable write-ahead log out of the way, so that the store opens without it; returns its new path,
    None if there is no log. Raises ``OSError``; ``StoreError`` if another process has the store open."""
    return engine_of(folder).set_log_aside(folder)
