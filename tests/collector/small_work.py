"""Work for a worker process that parses nothing. It stands alone: a worker that imported the tests' own module would spend
seconds of CPU on what these need not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator


def in_parts(patterns: object) -> Callable[[int], Iterator[float]]:
    return lambda request: (1 / (3 - part) for part in range(request))


def large(patterns: object) -> Callable[[object], bytes]:
    return lambda request: bytes(4 << 20)


def dying(patterns: object) -> Callable[[object], None]:
    """Every request ends the process."""
    return lambda request: os._exit(1)
