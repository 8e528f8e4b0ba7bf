"""Who goes first where every core is busy: whoever waits for an answer, before what fills the store and concludes.

A page that is asked for while lines come in needs some 20 ms of a core, and found four threads and two parser processes
waiting for two cores: it spent four times as long in the kernel's queue as at work (measured). So everything that nobody
waits for stands back: parsing, storing, concluding, and the engines' own threads. What acknowledges does not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

#: Steps of niceness between the two. With 7 a page gets five times the share of a core that both want; where nobody asks
#: for pages, the others have all of it.
BEHIND = 7
_NICEST, _LEAST_NICE = 19, -20


def go_first() -> None:
    """Where that is allowed (to root, or by ``LimitNICE=`` of systemd): the thread that answers, and those that it starts
    from now on, go before others, so that what stands back is no nicer than the process was. For the start of a service.
    """
    if threading.current_thread() is threading.main_thread():
        _nicer(-BEHIND)


def lower_priority() -> None:
    """Lets the threads that answer go before this one, and before those and the processes that it starts from now on.

    For life: without privileges nobody is made less nice again.
    """
    _nicer(BEHIND)


def _nicer(steps: int) -> None:
    """Sets how nice this thread is, ``steps`` from the main thread. On Linux only, where niceness is a thread's own."""
    if sys.platform == "linux":
        nice = os.getpriority(os.PRIO_PROCESS, os.getpid()) + steps
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(_LEAST_NICE, min(nice, _NICEST)))
