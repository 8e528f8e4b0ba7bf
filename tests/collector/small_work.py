"""Work for a worker process that parses nothing. It stands alone: a worker that imported the tests' own module would spend
seconds of CPU on what these need not."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def in_parts(patterns: object) -> Callable[[int], Iterator[float]]:
    return lambda request: (1 / (3 - part) for part in range(request))


def large(patterns: object) -> Callable[[object], bytes]:
    return lambda request: bytes(4 << 20)
