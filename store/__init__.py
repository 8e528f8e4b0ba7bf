"""Tables and engines. ``store.open_store(path)`` gives the embedded DuckDB store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

__all__ = ["open_store"]


def open_store(path: Path | str | None, *, read_only: bool = False) -> DuckStore:
    """Opens (or makes) the store in folder ``path``; None keeps it in memory. Raises ``StoreHeld`` or ``StoreError``."""
    from store.duckdb_store import DuckStore  # DuckDB and Polars load only when a store is used

    return DuckStore(None if path is None else Path(path), read_only=read_only)
