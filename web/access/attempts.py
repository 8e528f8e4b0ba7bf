"""Passwords are not to be found by trying: who failed several times waits."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

#: So many wrong passwords within so many seconds: for one name from one address, so that nobody can lock out another from
#: elsewhere, and from one address for all names together.
MOST_OF_NAME, MOST_OF_ADDRESS, WITHIN_S = 8, 60, 300.0
#: What is remembered at most; the oldest is forgotten first.
REMEMBERED = 10_000


class Attempts:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def wait_s(self, name: str, address: str) -> float:
        """Seconds until this name may be tried again from there; 0 where it may."""
        return max(self._wait_of((name, address), MOST_OF_NAME), self._wait_of((address,), MOST_OF_ADDRESS))

    def failed(self, name: str, address: str) -> None:
        now = self._clock()
        for key, most in (((name, address), MOST_OF_NAME), ((address,), MOST_OF_ADDRESS)):
            self._failed.setdefault(key, deque(maxlen=most)).append(now)
            self._failed.move_to_end(key)
        while len(self._failed) > REMEMBERED:
            self._failed.popitem(last=False)

    def _wait_of(self, key: tuple[str, ...], most: int) -> float:
        moments = self._failed.get(key)
        if moments is None or len(moments) < most:
            return 0.0
        return max(0.0, moments[0] + WITHIN_S - self._clock())
