"""Tunes the interpreter while conclusions are made: cyclic garbage collection is off, thread switches are frequent.

A pass creates hundreds of thousands of small objects that all stay alive and form no cycles. Scanning them repeatedly
costs a third of its time (measured: benchmarks/correlation.py). Reference counts free everything meanwhile.
"""

from __future__ import annotations

import atexit
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: The thread switch interval (seconds) while conclusions are made. Python's default of 5 ms delays each read, write and
#: statement of other threads: several times per acknowledgement of lines, and for the thread that stores.
TURN_S = 0.0005


_lock = threading.Lock()
#: How many pauses there are at present, in all threads; and the settings before the first of them.
_pauses = 0
_before = (True, 0.005)


@contextmanager
def paused() -> Iterator[None]:
    """Applies to the whole process; the settings are restored after the last of overlapping pauses, also after an error."""
    global _pauses, _before
    with _lock:
        if not _pauses:
            _before = gc.isenabled(), sys.getswitchinterval()
            gc.disable()
            sys.setswitchinterval(min(_before[1], TURN_S))
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses:
                sys.setswitchinterval(_before[1])
                if _before[0]:
                    gc.enable()


def clear_away() -> None:
    """Collects young garbage, that of other threads, before conclusions are made and everything is frozen.

    The oldest generation is left out: before the first conclusions are frozen it is the whole process, and scanning it
    stops all threads, acknowledgements too, for a fifth of a second (measured). The collector scans it when it has to.
    """
    gc.collect(1)


@contextmanager
def long_lived() -> Iterator[None]:
    """What is made meanwhile stays alive until a tick uses it: the collector scans none of it, now or later. Young garbage
    of other threads is collected first, or it would be frozen as well."""
    clear_away()
    with paused():
        yield
        gc.freeze()


#: Frozen objects are scanned this often (seconds): it stops all threads, acknowledgements too, for 0.2 to 0.4 s.
EVERYTHING_EVERY_S = 3600.0
_looked_through = time.monotonic()


#: With fewer new objects than this, their garbage is collected after a tick: it takes a millisecond at most. After a burst
#: of lines it would take three, so that of one burst in ``BURSTS_EVERY_S`` (seconds) is collected, and none of one of more
#: than ``MANY_OBJECTS``: the statements of some ten queries wait for ``EVERYTHING_EVERY_S`` then.
FEW_OBJECTS, MANY_OBJECTS = 3_000, 30_000
BURSTS_EVERY_S = 60.0
_collected = time.monotonic()


def set_aside() -> None:
    """Freezes all objects in memory, so that the collector does not scan them.

    Conclusions stay alive, and scanning them would stop all threads for half a second now and then (10 million lines
    known). Reference counts still free whatever is replaced: conclusions and what makes them hold no cycles (a test holds
    them to it), only the statements of SQLAlchemy do. After a burst no collection follows, which would take 15 ms of 300.
    A frozen cycle that is or becomes garbage waits for a call that is due: an hour.
    """
    global _looked_through, _collected
    now, new = time.monotonic(), gc.get_count()[0]
    if now - _looked_through > EVERYTHING_EVERY_S:
        gc.unfreeze()
        gc.collect()
        _looked_through = _collected = time.monotonic()
    elif new < (MANY_OBJECTS if now - _collected > BURSTS_EVERY_S else FEW_OBJECTS):
        gc.collect(0)
        _collected = now
    gc.freeze()


atexit.register(gc.unfreeze)  # extension modules report objects left at exit as a leak
