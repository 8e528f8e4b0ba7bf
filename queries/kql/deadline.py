"""Stops a running statement when its time is over."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import duckdb

#: An interrupt that comes just before the engine starts is lost: it is sent again so often.
AGAIN_S = 0.02


class Deadline:
    """Around one statement: interrupts its connection from ``moment`` (of ``time.monotonic``) on; None never does."""

    def __init__(self, con: duckdb.DuckDBPyConnection, moment: float | None) -> None:
        self.fired = False
        self._con, self._moment = con, moment
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Deadline:
        if self._moment is not None:
            self._thread = threading.Thread(
                target=self._watch, args=(self._moment,), daemon=True, name="query deadline"
            )
            self._thread.start()
        return self

    def _watch(self, moment: float) -> None:
        if self._done.wait(max(0.0, moment - time.monotonic())):
            return
        self.fired = True
        while not self._done.is_set():
            self._con.interrupt()
            self._done.wait(AGAIN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()  # so that no interrupt meets the next statement
