"""Returns memory that the engine keeps for later to the system.

The engine keeps every page of its file that it wrote or read until it has its limit, 60 % of the machine's memory. The
system keeps the same bytes in a cache of its own, which it gives up when somebody needs the memory. And what a statement
freed stays with the engine's allocator: a count of distinct texts leaves 500 MB behind (DuckDB 2.0).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import duckdb

#: Pages that are kept: those of some millions of lines. Statements that run meanwhile may take their memory from here.
KEPT = 256 << 20
#: Returning less is not worth the while.
LEAST = 128 << 20
#: Names of ``duckdb_memory()``: pages that can be read again; and those with the rest of what does not belong to a statement.
_PAGES = ("BASE_TABLE", "OVERFLOW_STRINGS", "EXTERNAL_FILE_CACHE")
_LASTING = (
    *_PAGES,
    "IN_MEMORY_TABLE",
    "METADATA",
    "ART_INDEX",
    "ALLOCATOR",
    "TRANSACTION",
    "EXTENSION",
    "OBJECT_CACHE",
)
#: A statement that holds so many bytes is waited for: with less memory for the moment, it might find none.
_BUSY = 32 << 20


class Memory:
    """The memory of one open database. ``limit``: its setting ``memory_limit``."""

    def __init__(self, limit: str) -> None:
        self.limit = limit
        self._left = 0

    def release(self, cursor: duckdb.DuckDBPyConnection) -> int:
        """Returns all but ``KEPT`` bytes of pages, and what the allocator has, if that may be ``LEAST`` bytes or more.
        Returns how many bytes of pages that were; those in use stay. Call it while nobody writes."""
        used, pages, of_statements = _held(cursor)
        if of_statements > _BUSY or (pages < KEPT + LEAST and _resident() < self._left + LEAST):
            return 0
        try:
            if pages > KEPT:
                with suppress(duckdb.OutOfMemoryException):  # too many are in use: what could be returned is
                    cursor.execute("SET memory_limit = ?", [f"{(used - pages + KEPT) >> 10}KiB"])
        finally:
            cursor.execute("SET memory_limit = ?", [self.limit])  # the allocator returns what it has with any limit
        self._left = _resident()
        return max(0, pages - _held(cursor)[1])


def _held(cursor: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """The engine's memory, that of pages, and that of statements, bytes."""
    held = dict(cursor.execute("SELECT tag, memory_usage_bytes FROM duckdb_memory()").fetchall())
    used = sum(held.values())
    return used, sum(held.get(tag, 0) for tag in _PAGES), used - sum(held.get(tag, 0) for tag in _LASTING)


def _resident() -> int:
    """The memory of this process, bytes; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
