"""The store: tables, queries over them, and the engine behind the protocol.

``door`` defines the protocol of an engine, ``tables`` the schema, ``questions`` the named queries, ``errors`` the
exceptions; everything that applies to every engine is beside them. ``store.duckdb`` is the only engine so far.

The engine is chosen here: all other code uses the protocol. ``open_store(path)`` returns a ``store.door.Door``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.door import Door

__all__ = ["is_store", "open_store", "restore", "set_log_aside"]


def open_store(path: Path | str | None, *, read_only: bool = False) -> Door:
    """Opens (or creates) the store in folder ``path``; None keeps it in memory. Raises ``StoreHeld`` or
    ``StoreError``."""
    from store.duckdb.store import DuckStore  # DuckDB and Polars are imported only when a store is used

    return DuckStore(None if path is None else Path(path), read_only=read_only)


def is_store(folder: Path) -> bool:
    """Whether a folder contains a store."""
    from store.duckdb.open_store import DATABASE

    return (folder / DATABASE).exists()


def restore(copy: Path, into: Path) -> None:
    """Restores a copy made by ``Door.backup`` into an empty or new folder. Raises ``StoreError``."""
    from store.duckdb.copies import restore as put_back
    from store.duckdb.store import DuckStore

    put_back(copy, into, DuckStore)


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
