"""The collector of cyclic garbage, paused while conclusions are made.

A pass makes hundreds of thousands of small objects that all stay alive and form no cycles; looking through them again
and again costs a third of its time (measured: benchmarks/correlation.py). Reference counts free everything meanwhile.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """For the whole process; put back as it was, also after an error."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def clear_away() -> None:
    """Collects young garbage, that of other threads, before conclusions are made and all is set aside.

    Not the oldest generation: before the first conclusions are set aside that is the whole process, and looking through it
    stops all threads, acknowledgements too, for a fifth of a second (measured). The collector does so when it has to.
    """
    gc.collect(1)


def set_aside(everything: bool) -> None:
    """Takes what is in memory now out of the collector's sight, that of the whole process: what was concluded stays, and
    looking through it would stop all threads for half a second now and then (10 million lines known).

    A tick makes no cycles (measured), so nothing is looked through after it, which would take 15 ms of 300. References
    still count, so that whatever is replaced is freed; a cycle set aside that is or turns garbage waits for the next call
    with ``everything``, after a full pass (an hour at most).
    """
    if everything:
        gc.unfreeze()
        gc.collect()
    gc.freeze()


atexit.register(gc.unfreeze)  # extension modules take what is left when the process ends for a leak, and say so
