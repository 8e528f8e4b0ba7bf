"""Lines whose segment is not full yet: taken in for good, safe on disk, and in the store a moment later.

The store takes whole segments at a third of the cost of any other number of lines (``store.segments``), and what is
spooled never comes in such numbers. So under load a transaction stores whole segments, moves the watermark behind all
lines that were parsed, and names the file in which the rest lies. After a kill the next start goes on from that file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import polars as pl
import pyarrow as pa
import structlog

from store.duckdb_store import plain

log = structlog.get_logger()


class Carry:
    """``rows``: lines in the store's form, None if there are none. Files lie in ``folder``, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows: pl.DataFrame | None = None

    def load(self, name: str | None) -> None:
        """The lines of the file that the store names, None for none; every other file is of a transaction that was not.

        A file that cannot be read is set aside under a name that nothing removes, and told.
        """
        self.rows = None
        if name is not None:
            path = self._folder / name
            try:
                self.rows = pl.read_ipc(path)
            except (OSError, pl.exceptions.PolarsError) as error:
                aside = path.with_suffix(".unreadable")
                with contextlib.suppress(FileNotFoundError):
                    path.rename(aside)
                log.error("lines that waited for their segment cannot be read", file=str(aside), error=str(error))
        self.keep_only(name)

    def write(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Onto the disk, before the transaction that names the file. Gives the same rows, in memory of their own: they
        are kept longer than what they were part of. Raises ``OSError``."""
        path = self._folder / name
        # With bytes and no views: those would bring along everything that they lie in.
        table = plain(rows).to_arrow(compat_level=pl.CompatLevel.oldest())
        written = pa.BufferOutputStream()
        with pa.ipc.new_file(written, table.schema) as stream:
            stream.write_table(table)
        data = written.getvalue()
        with path.open("wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        own = pl.from_arrow(pa.ipc.open_file(data).read_all())
        assert isinstance(own, pl.DataFrame)
        return own

    def keep_only(self, name: str | None) -> None:
        """After the transaction: the file before is of no use."""
        for path in self._folder.glob("*.rows"):
            if path.name != name:
                with contextlib.suppress(OSError):
                    path.unlink()
