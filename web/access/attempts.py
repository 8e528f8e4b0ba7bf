"""Passwords are not to be found by trying, and nobody is to be kept out by somebody else's trying.

Wrong passwords are counted three ways, each within ``WITHIN_S``:

- of a name from one sender: after ``MOST_OF_PAIR`` this name waits there;
- of a name from everywhere: after ``MOST_OF_NAME`` it may be tried once in ``PACE_S``. Who signed in with this browser before
  is not held up by that: the browser has a cookie that says so, and a count of its own;
- from one sender, whatever the names: after ``MOST_OF_SENDER`` it is slowed down (``web.access.passwords``), and not refused, for
  behind one address may sit a whole site.

A sender is an IPv4 address or the /64 of an IPv6 address.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

from web.access.addresses import of_one

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_OF_PAIR, MOST_OF_NAME, MOST_OF_SENDER, WITHIN_S = 8, 40, 60, 300.0
#: A name that is tried from everywhere may be tried so often: 5,760 passwords a day, whoever tries.
PACE_S = 15.0
#: So many of each kind are remembered; the one that failed longest ago is forgotten first.
REMEMBERED = 10_000
#: What was typed as a name counts up to here: names of a megabyte would fill the memory.
NAME_CHARS = 200


class Attempts:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pairs = _Failures(MOST_OF_PAIR)
        self._names = _Failures(MOST_OF_NAME)
        self._senders = _Failures(MOST_OF_SENDER)
        self._browsers = _Failures(MOST_OF_PAIR)
        #: Name -> when it was last let through while it was paced.
        self._paced: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, name: str, address: str, browser: str | None = None) -> float:
        """Seconds until this name may be tried from there; 0 lets it be tried now."""
        name, sender = name[:NAME_CHARS], of_one(address)
        with self._lock:
            now = self._clock()
            if self._is_known(browser, now):
                return 0.0
            wait = self._pairs.full_for((name, sender), now)
            if not wait and self._names.full_for((name,), now):
                wait = max(0.0, self._paced.get(name, float("-inf")) + PACE_S - now)
                if not wait:
                    _remember(self._paced, name, now)
            return wait

    def failed(self, name: str, address: str, browser: str | None = None) -> None:
        name, sender = name[:NAME_CHARS], of_one(address)
        with self._lock:
            now = self._clock()
            if self._is_known(browser, now):
                assert browser is not None
                self._browsers.add((browser,), now)
                return
            self._pairs.add((name, sender), now)
            self._names.add((name,), now)
            self._senders.add((sender,), now)

    def succeeded(self, name: str, address: str) -> None:
        """Who typed wrongly and then rightly begins anew; what others tried of the name still counts."""
        with self._lock:
            self._pairs.forget((name[:NAME_CHARS], of_one(address)))

    def is_slow(self, address: str) -> bool:
        """Whether so much was tried from there that it gets one turn after the other."""
        with self._lock:
            return self._senders.full_for((of_one(address),), self._clock()) > 0

    def is_known(self, browser: str | None) -> bool:
        """Whether a browser's cookie still helps it: a stolen one has as many tries as anybody."""
        with self._lock:
            return self._is_known(browser, self._clock())

    def _is_known(self, browser: str | None, now: float) -> bool:
        return browser is not None and not self._browsers.full_for((browser,), now)


class _Failures:
    """When something failed, the last ``most`` times."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._moments: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def add(self, key: tuple[str, ...], now: float) -> None:
        moments = self._moments.get(key)
        _remember(self._moments, key, moments if moments is not None else deque(maxlen=self.most))
        self._moments[key].append(now)

    def forget(self, key: tuple[str, ...]) -> None:
        self._moments.pop(key, None)

    def full_for(self, key: tuple[str, ...], now: float) -> float:
        """For how many seconds more there will have been ``most`` failures within ``WITHIN_S``."""
        moments = self._moments.get(key)
        return max(0.0, moments[0] + WITHIN_S - now) if moments and len(moments) == self.most else 0.0


def _remember(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > REMEMBERED:
        kept.popitem(last=False)
