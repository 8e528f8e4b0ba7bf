"""Watches the memory of statements that run beside the store, and interrupts one that exceeds its share.

The memory of such a statement rises from chunk to chunk (groups of ``summarize``, the smaller side of a join, a sort),
and between two chunks it can be interrupted. The engine counts memory for all its connections together. So the guard
measures the growth of the process since the statement began, without the pages of tables that the engine caches as long
as there is room.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType

import duckdb

from queries.kql.wall.memory import STRIKE, anonymous, memory_budget

#: How often memory is checked, seconds; a statement that ends sooner is not checked.
LOOK_S = 0.02
#: The share of a statement's memory up to which it is not asked what the process gained: 50 MB of 1 GB.
UNSEEN = 0.05
_KEPT = "BASE_TABLE", "METADATA", "EXTERNAL_FILE_CACHE", "OBJECT_CACHE", "ART_INDEX", "IN_MEMORY_TABLE", "TRANSACTION"


def taken(con: duckdb.DuckDBPyConnection) -> int:
    """Bytes of this process that are not pages of tables."""
    with con.cursor() as beside:
        held = beside.execute(
            "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag IN ?", [list(_KEPT)]
        ).fetchone()
    return anonymous() - int(held[0] or 0 if held else 0)


class _Guard:
    """One thread for all statements; it sleeps while none runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[Guarded] = set()
        self._thread: threading.Thread | None = None

    def add(self, one: Guarded) -> None:
        with self._changed:
            self._running.add(one)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="query memory")
                self._thread.start()
            elif len(self._running) == 1:
                self._changed.notify()

    def remove(self, one: Guarded) -> None:
        with self._changed:
            self._running.discard(one)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._running:
                    self._changed.wait()
            time.sleep(LOOK_S)
            with self._changed:
                running = list(self._running)
            for one in running:
                with suppress(duckdb.Error, OSError):
                    one.look()


_GUARD = _Guard()


class Guarded:
    """A context for one statement of ``con``, which may take ``share`` bytes (None: the limit of a query)."""

    def __init__(self, con: duckdb.DuckDBPyConnection, share: int | None = None) -> None:
        self.struck = False
        self.budget = memory_budget()
        self._share = share or self.budget
        self._con: duckdb.DuckDBPyConnection | None = con
        self._lock = threading.Lock()
        self._began = 0.0
        self._whole = 0
        self._before: int | None = None  # without pages of tables

    def __enter__(self) -> Guarded:
        self._began = time.monotonic()
        _GUARD.add(self)
        return self

    def look(self) -> None:
        """Interrupts the statement when it exceeds its share.

        The engine is queried for the pages of tables only if the process has gained memory, because the query costs as
        much as a small statement. What the process gained before the first query counts as the statement's.
        """
        with self._lock:
            if self._con is None or time.monotonic() - self._began < LOOK_S:
                return
            if not self._whole:
                self._whole = anonymous()
                return
            most, growth = STRIKE * self._share, anonymous() - self._whole
            if self._before is None:
                if growth <= UNSEEN * self._share:
                    return
                self._before = taken(self._con) - growth
            if growth > most and taken(self._con) - self._before > most:
                self.struck = True
            if self.struck:
                self._con.interrupt()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._con = None
        _GUARD.remove(self)
