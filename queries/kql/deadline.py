"""Stops a running statement when its time is over."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from contextlib import suppress
from types import TracebackType

import duckdb

#: An interrupt that arrives just before the engine starts is lost: it is repeated at this interval.
AGAIN_S = 0.02


class _Watch:
    """One thread for all statements: starting one for each costs more than a small statement.

    It sleeps until the earliest moment, and a statement that ends in time never wakes it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Deadline]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def add(self, moment: float, deadline: Deadline) -> None:
        with self._changed:
            heapq.heappush(self._due, (moment, next(self._numbers), deadline))
            if self._thread is None or not self._thread.is_alive():  # never started, or lost in a fork
                self._thread = threading.Thread(target=self._run, daemon=True, name="query deadlines")
                self._thread.start()
            elif self._due[0][2] is deadline:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                deadline = heapq.heappop(self._due)[2]
            if deadline.strike():
                self.add(time.monotonic() + AGAIN_S, deadline)


_WATCH = _Watch()


class Deadline:
    """A context for one statement: interrupts its connection from ``moment`` (of ``time.monotonic``) on, unless None."""

    def __init__(self, con: duckdb.DuckDBPyConnection, moment: float | None) -> None:
        self.fired = False
        self._con: duckdb.DuckDBPyConnection | None = con
        self._moment = moment
        self._lock = threading.Lock()

    def __enter__(self) -> Deadline:
        if self._moment is not None:
            _WATCH.add(self._moment, self)
        return self

    def strike(self) -> bool:
        """Interrupts the statement; False when it has ended."""
        with self._lock:
            if self._con is None:
                return False
            self.fired = True
            with suppress(duckdb.Error):
                self._con.interrupt()
            return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:  # so that no interrupt hits the next statement
            self._con = None
