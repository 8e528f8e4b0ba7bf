"""The collector of cyclic garbage, paused while conclusions are made.

A pass makes hundreds of thousands of small objects that all stay alive and form no cycles; looking through them again
and again costs a third of its time (measured: benchmarks/correlation.py). Reference counts free everything meanwhile.
"""

from __future__ import annotations

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
