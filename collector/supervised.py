"""Threads that must stay alive.

A thread's failed work is restarted after a pause. If it fails repeatedly, the process ends (``give_up``, set by the
service), so that the service manager restarts all of it. The last messages of a thread must not need an exhausted
resource: no file handle, hardly any memory.
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

#: This many failures within this many seconds are no accident.
MOST_FAILURES, WITHIN_S = 10, 600.0
#: Pause before the work restarts, in seconds.
PAUSE_S = 1.0
#: Exit code of the process (EX_SOFTWARE of sysexits.h).
EXIT_CODE = 70


def nothing_more(_text: str) -> None:
    """Outside a service (commands, tests), a thread that gave up only reports it: ``Supervised.trouble``."""


#: Called with the reason when a thread cannot be kept alive.
give_up: Callable[[str], None] = nothing_more


def end_process(text: str) -> None:
    """Ends this process at once, like a kill: spooled data is on disk, and unacknowledged data comes again."""
    with contextlib.suppress(BaseException):
        os.write(2, f"faultline: {text}; the service ends, to be started anew\n".encode())
    os._exit(EXIT_CODE)


class Supervised:
    """A thread that runs ``work`` until it returns. ``failed`` is called with each error, in the thread, before the
    next attempt."""

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
        """Whether it was started and is gone without having been stopped."""
        return self._thread.ident is not None and not self._thread.is_alive() and not self._ended

    def _run(self) -> None:
        while True:
            try:
                self._work()
                self._ended = True
                return
            except BaseException as error:  # memory, handles, bugs of ours: whatever it is, others rely on this thread
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
        """Clears the trouble: the work continues."""
        self.trouble = None
