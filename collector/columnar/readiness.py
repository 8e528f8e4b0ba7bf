"""Machine code for the event loop, which must not wait until it is loaded, let alone made."""

from __future__ import annotations

import threading
from collections.abc import Callable

from parsers.compiled import release


class Readiness:
    """Whether what ``prepare`` calls may be called. The first who asks has it prepared, in a thread of its own."""

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
        """Returns when all is prepared."""
        bool(self)
        self._ready.wait()

    def _run(self) -> None:
        self._prepare()
        release()
        self._ready.set()
