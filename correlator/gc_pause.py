"""The interpreter while conclusions are made: no collector of cyclic garbage, and short turns for other threads.

A pass makes hundreds of thousands of small objects that all stay alive and form no cycles; looking through them again
and again costs a third of its time (measured: benchmarks/correlation.py). Reference counts free everything meanwhile.
"""

from __future__ import annotations

import atexit
import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: So long (seconds) a thread waits for the interpreter while conclusions are made. Python's own 5 ms are waited for again
#: after each read, write and statement: several times by whoever acknowledges lines, and by the thread that stores.
TURN_S = 0.0005


@contextmanager
def paused() -> Iterator[None]:
    """For the whole process; put back as it was, also after an error."""
    enabled, turn = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(min(turn, TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(turn)
        if enabled:
            gc.enable()


def clear_away() -> None:
    """Collects young garbage, that of other threads, before conclusions are made and all is set aside.

    Not the oldest generation: before the first conclusions are set aside that is the whole process, and looking through it
    stops all threads, acknowledgements too, for a fifth of a second (measured). The collector does so when it has to.
    """
    gc.collect(1)


#: All that was set aside is looked through this often (seconds): it stops all threads, acknowledgements too, for 0.2 to 0.4 s.
EVERYTHING_EVERY_S = 3600.0
_looked_through = time.monotonic()


def set_aside(everything: bool) -> None:
    """Takes what is in memory now out of the collector's sight, that of the whole process: what was concluded stays, and
    looking through it would stop all threads for half a second now and then (10 million lines known).

    A tick makes no cycles (measured), so nothing is looked through after it, which would take 15 ms of 300. References
    still count, so that whatever is replaced is freed; a cycle set aside that is or turns garbage waits for a call with
    ``everything``, after a full pass, that is due: an hour or two.
    """
    global _looked_through
    if everything and time.monotonic() - _looked_through > EVERYTHING_EVERY_S:
        gc.unfreeze()
        gc.collect()
        _looked_through = time.monotonic()
    gc.freeze()


atexit.register(gc.unfreeze)  # extension modules take what is left when the process ends for a leak, and say so
