"""The protocol of an engine: what can be done with the files of a store that is not open. ``store.door`` is the
protocol of an open one.

A second engine is one object that implements this, and one more entry of ``store.ENGINES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from store.door import Compacted, Copy, Door, Migrated


class Engine(Protocol):
    """Makes, opens and looks after stores of one kind. ``store`` calls it for the folders where ``is_store`` is true."""

    def is_store(self, folder: Path) -> bool:
        """Whether a folder contains a store of this engine, or a copy that ``Door.backup`` made of one."""

    def open(self, folder: Path | None, *, read_only: bool = False) -> Door:
        """Opens (or creates) the store in a folder; None keeps it in memory. Raises ``StoreHeld`` or ``StoreError``."""

    def migrate(self, folder: Path) -> Migrated:
        """Gives a store everything that this version has, or makes one in an empty folder. Raises ``StoreHeld`` or
        ``StoreError``; a newer store is left as it is."""

    def compact(self, folder: Path) -> Compacted:
        """Writes a store's files anew, without what is free in them. Raises ``StoreError``; the store is then as it
        was."""

    def is_mostly_free(self, store: Door, most: int | None = None) -> bool:
        """Whether ``compact`` would free more than it leaves, and (``most``) leave at most so many bytes."""

    def sizes(self, store: Door) -> Mapping[str, Any]:
        """What a store holds and how many bytes it takes."""

    def restore(self, copy: Path, into: Path) -> None:
        """Restores a copy into an empty or new folder. Raises ``StoreError``."""

    def read_copy(self, folder: Path) -> Copy:
        """The record of a copy. Raises ``StoreError`` for a folder without a finished one."""

    def verify_copy(self, copy: Copy) -> list[str]:
        """How a copy differs from its record; empty if it does not. Changes nothing in it."""

    def set_log_aside(self, folder: Path) -> Path | None:
        """Moves an unreadable log out of the way, so that the store opens without it; returns its new path, None if
        there is no log. Raises ``OSError``; ``StoreError`` if another process has the store open."""
