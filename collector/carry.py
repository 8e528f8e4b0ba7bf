"""Lines whose segment is not full yet: accepted, safe on disk, and in the store a moment later.

The store takes whole segments at a third of the cost per line of any other number (``store.line_order``), but spooled
data never comes in such numbers. So under load a transaction stores whole segments, moves the watermark past all parsed
lines, and names the file that holds the rest. After a kill, the next start continues from that file.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import polars as pl
import structlog

from store.files import flush_folder

log = structlog.get_logger()


#: Where the next file is written, over the last obsolete one: fresh page cache memory costs several times as much.
_DRAFT = "carried.draft"


class Carry:
    """``rows``: lines in the store's form, None if there are none. The folder ``folder`` holds one file at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows: pl.DataFrame | None = None

    def load(self, name: str | None) -> None:
        """Loads the lines of the file that the store names, None for none. Every other file belongs to a transaction
        that never committed.

        A file that cannot be read is renamed so that nothing removes it, and reported.
        """
        self.rows = None
        if name is not None:
            path = self._folder / name
            try:
                self.rows = pl.read_ipc(io.BytesIO(path.read_bytes()))  # not mapped: files are overwritten
            except (OSError, pl.exceptions.PolarsError) as error:
                aside = path.with_suffix(".unreadable")
                with contextlib.suppress(FileNotFoundError):
                    path.rename(aside)
                log.error("lines that waited for their segment cannot be read", file=str(aside), error=str(error))
        self.keep_only(name)

    def write(self, name: str, rows: pl.DataFrame) -> None:
        """Writes the file to disk, before the transaction that names it. Raises ``OSError``."""
        draft = self._folder / _DRAFT
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb", buffering=0) as file:
            rows.write_ipc(file)
            os.ftruncate(file.fileno(), os.lseek(file.fileno(), 0, os.SEEK_CUR))
            os.fsync(file.fileno())
        draft.rename(self._folder / name)
        flush_folder(self._folder)

    def keep_only(self, name: str | None) -> None:
        """Removes the previous file after the transaction."""
        for path in self._folder.glob("*.rows"):
            if path.name != name:
                with contextlib.suppress(OSError):
                    path.rename(self._folder / _DRAFT)
