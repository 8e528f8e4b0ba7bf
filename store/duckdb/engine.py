"""DuckDB as an engine (``store.engine``): its entry in ``store.ENGINES``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store.door import Compacted, Copy, Door, Migrated
from store.duckdb import compacting, copies, damage, migrating, sizes
from store.duckdb.open_store import DATABASE, OpenStore
from store.duckdb.store import DuckStore
from store.errors import StoreError


class DuckEngine:
    """Stores of one DuckDB file in one process."""

    def is_store(self, folder: Path) -> bool:
        return (folder / DATABASE).exists()

    def open(self, folder: Path | None, *, read_only: bool = False) -> Door:
        return DuckStore(folder, read_only=read_only)

    def migrate(self, folder: Path) -> Migrated:
        return migrating.migrate(folder, DuckStore)

    def compact(self, folder: Path) -> Compacted:
        return compacting.compact(folder, DuckStore)

    def is_mostly_free(self, store: Door, most: int | None = None) -> bool:
        return isinstance(store, OpenStore) and compacting.is_worth_it(store, most)

    def sizes(self, store: Door) -> dict[str, Any]:
        assert isinstance(store, OpenStore)
        return sizes.of_store(store)

    def restore(self, copy: Path, into: Path) -> None:
        copies.restore(copy, into, DuckStore)

    def read_copy(self, folder: Path) -> Copy:
        return copies.read(folder)

    def verify_copy(self, copy: Copy) -> list[str]:
        return copies.verify(copy)

    def set_log_aside(self, folder: Path) -> Path | None:
        try:
            return damage.set_aside(folder / DATABASE)
        except BlockingIOError as error:
            raise StoreError(f"{folder}: the store is held by another process; stop it first") from error
