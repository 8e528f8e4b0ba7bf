"""The store: tables, questions about them, and the engine behind the door.

Owns what is kept: ``door`` says what an engine does, ``tables`` what it holds, ``questions`` what is asked of it, ``errors`` what it
raises; what holds for every engine lies beside them. ``store.duckdb`` is the one engine so far.

This is where it is chosen: everybody else names the protocol. ``open_store(path)`` gives a ``store.door.Door``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.door import Door

__all__ = ["is_store", "open_store", "restore", "set_log_aside"]


def open_store(path: Path | str | None, *, read_only: bool = False) -> Door:
    """Opens (or makes) the store in folder ``path``; None keeps it in memory. Raises ``StoreHeld`` or ``StoreError``."""
    from store.duckdb.store import DuckStore  # DuckDB and Polars load only when a store is used

    return DuckStore(None if path is None else Path(path), read_only=read_only)


def is_store(folder: Path) -> bool:
    """Whether a store lies in a folder."""
    from store.duckdb.store import DATABASE

    return (folder / DATABASE).exists()


def restore(copy: Path, into: Path) -> None:
    """Puts a copy that ``Door.backup`` made into an empty or new folder. Raises ``StoreError``."""
    from store.duckdb.copies import restore as put_back
    from store.duckdb.store import DuckStore

    put_back(copy, into, DuckStore)


def set_log_aside(folder: Path) -> Path | None:
    """Puts a log of changes that cannot be read beside the store, which opens without it then; where it lies now, None if there is no
    log. Raises ``OSError``; ``StoreError`` where another process has the store open."""
    from store.duckdb import damage
    from store.duckdb.store import DATABASE
    from store.errors import StoreError

    try:
        return damage.set_aside(folder / DATABASE)
    except BlockingIOError as error:
        raise StoreError(f"{folder}: the store is held by another process; stop it first") from error
