"""Machine code for the event loop, which must not wait for loading, let alone compiling."""

from __future__ import annotations

import threading
from collections.abc import Callable

from parsers.compiled import release


class Readiness:
    """Whether the functions that ``prepare`` calls may be called. The first query starts the preparation in its own
    thread."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._ready = threading.Event()
        self._asked = False

    def __bool__(self) -> bool:
        if not self._asked:
            self._asked = True
            threading.Thread(target=self._run, name="machine code", daemon=True).start()
        return self._ready.is_set()

    def wait(self) -> None:
        """Returns once everything is prepared."""
        bool(self)
        self._ready.wait()

    def _run(self) -> None:
        self._prepare()
        release()
        self._ready.set()
