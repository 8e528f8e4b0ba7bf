"""The store: tables, questions about them, and the engine behind the door.

``open_store(path)`` gives the embedded DuckDB store as a ``store.door.Door``. Other packages ask it questions of
``store.questions`` and know the errors of ``store.errors``; what speaks DuckDB stays in here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.duckdb.store import DuckStore

__all__ = ["open_store", "restore"]


def open_store(path: Path | str | None, *, read_only: bool = False) -> DuckStore:
    """Opens (or makes) the store in folder ``path``; None keeps it in memory. Raises ``StoreHeld`` or ``StoreError``."""
    from store.duckdb.store import DuckStore  # DuckDB and Polars load only when a store is used

    return DuckStore(None if path is None else Path(path), read_only=read_only)


def restore(copy: Path, into: Path) -> None:
    """Puts a copy that ``Door.backup`` made into an empty or new folder. Raises ``StoreError``."""
    from store.duckdb.copies import restore as put_back

    put_back(copy, into)
