"""Threads that must live.

A thread's work that fails is begun anew, after a pause; one that fails again and again ends the process (``give_up``, set by
the service), so that whoever watches over the service starts it anew, whole. What a thread says in its last moments must not
need what is used up: no file handle, no memory to speak of.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

log = structlog.get_logger()

#: So many failures within so many seconds are no accident any more.
MOST_FAILURES, WITHIN_S = 10, 600.0
#: Before the work is begun anew, seconds.
PAUSE_S = 1.0
#: With what the process ends (EX_SOFTWARE of sysexits.h).
EXIT_CODE = 70


def nothing_more(_text: str) -> None:
    """Outside of a service (commands, tests) a thread that gave up is only said to have: ``Supervised.trouble``."""


#: Called with the reason when a thread cannot be kept alive.
give_up: Callable[[str], None] = nothing_more


def end_process(text: str) -> None:
    """Ends this process at once, as a kill would: what is spooled is on disk, and what was not acknowledged comes again."""
    with contextlib.suppress(BaseException):
        os.write(2, f"faultline: {text}; the service ends, to be started anew\n".encode())
    os._exit(EXIT_CODE)


class Supervised:
    """A thread that runs ``work`` until that returns. ``failed`` is told each error, in the thread, before the next try."""

    def __init__(
        self, name: str, work: Callable[[], None], failed: Callable[[BaseException], None] | None = None
    ) -> None:
        self.name, self._work, self._failed = name, work, failed
        #: Why it is not running, in words; None while all is well.
        self.trouble: str | None = None
        self._ended = False
        self._failures: deque[float] = deque(maxlen=MOST_FAILURES)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_dead(self) -> bool:
        """It was started, is gone, and nobody asked it to end."""
        return self._thread.ident is not None and not self._thread.is_alive() and not self._ended

    def _run(self) -> None:
        while True:
            try:
                self._work()
                self._ended = True
                return
            except (
                BaseException
            ) as error:  # memory, handles, our own mistakes: whatever it is, others rely on this thread
                now = time.monotonic()
                self._failures.append(now)
                reason = f"{type(error).__name__}: {error}"
                with contextlib.suppress(BaseException):
                    self.trouble = f"the thread {self.name!r} failed: {reason}"
                    log.error("a thread failed and is started anew", thread=self.name, error=reason)
                with contextlib.suppress(BaseException):
                    if self._failed is not None:
                        self._failed(error)
                if len(self._failures) == MOST_FAILURES and now - self._failures[0] < WITHIN_S:
                    self.trouble = f"the thread {self.name!r} failed {MOST_FAILURES} times: {reason}"
                    give_up(self.trouble)
                    return
                time.sleep(PAUSE_S)

    def well(self) -> None:
        """The work goes on: what was told of it is over."""
        self.trouble = None
