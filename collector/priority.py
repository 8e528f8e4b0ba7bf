"""Scheduling priorities for busy machines: threads that answer requests run before those that store and compute.

A page requested during ingest needs some 20 ms of a core, and found four threads and two parser processes waiting for
two cores: it was four times as long in the run queue as running (measured). So everything that nobody waits for runs
at lower priority: parsing, storing, correlating, and the engines' own threads. Acknowledging does not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

#: Nice steps between the two. With 7, a page gets five times the share of a contended core; without requests, the
#: others have all of it.
BEHIND = 7
_NICEST, _LEAST_NICE = 19, -20


def go_first() -> None:
    """Raises the priority of the answering thread and those that it starts from now on, where permitted (root, or
    ``LimitNICE=`` of systemd), so that lower-priority work is no nicer than the process was. For the start of a
    service.
    """
    if threading.current_thread() is threading.main_thread():
        _nicer(-BEHIND)


def lower_priority() -> None:
    """Lowers the priority of this thread, and of the threads and processes that it starts from now on, below those that
    answer.

    Permanent: without privileges, niceness cannot be lowered again.
    """
    _nicer(BEHIND)


def _nicer(steps: int) -> None:
    """Sets the niceness of this thread, ``steps`` relative to the main thread. On Linux only, where niceness is per
    thread."""
    if sys.platform == "linux":
        nice = os.getpriority(os.PRIO_PROCESS, os.getpid()) + steps
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(_LEAST_NICE, min(nice, _NICEST)))
