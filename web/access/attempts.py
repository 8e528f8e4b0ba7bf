"""Limits password attempts, so that no password is found by trying and no user is locked out by others' attempts.

Wrong passwords are counted three ways, each within ``WITHIN_S``:

- for a name from one sender: after ``MOST_OF_PAIR`` the name must wait there;
- for a name from everywhere: after ``MOST_OF_NAME`` it may be tried once in ``PACE_S``. A browser that signed in as
  this
name before is exempt: it has a cookie that proves it, and its own count;
- from one sender, for any name: after ``MOST_OF_SENDER`` it is slowed down (``web.access.passwords``), but not refused,
because a whole site may share one address.

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
#: A name that is tried from everywhere may be tried this often: 5,760 passwords a day, from all senders together.
PACE_S = 15.0
#: The maximum number of entries of each kind; the one that failed longest ago is dropped first.
REMEMBERED = 10_000
#: Names are truncated to this length: names of a megabyte would fill the memory.
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
        """Seconds until this name may be tried from there; 0 means now."""
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
        """Resets the user's own count after a success; other senders' attempts on the name still count."""
        with self._lock:
            self._pairs.forget((name[:NAME_CHARS], of_one(address)))

    def is_slow(self, address: str) -> bool:
        """Were there so many attempts from there that it must wait its turn?"""
        with self._lock:
            return self._senders.full_for((of_one(address),), self._clock()) > 0

    def is_known(self, browser: str | None) -> bool:
        """Does a browser's cookie still exempt it? A stolen one has as many attempts as any other browser."""
        with self._lock:
            return self._is_known(browser, self._clock())

    def _is_known(self, browser: str | None, now: float) -> bool:
        return browser is not None and not self._browsers.full_for((browser,), now)


class _Failures:
    """The times of the last ``most`` failures."""

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
        """The seconds for which there will still be ``most`` failures within ``WITHIN_S``."""
        moments = self._moments.get(key)
        return max(0.0, moments[0] + WITHIN_S - now) if moments and len(moments) == self.most else 0.0


def _remember(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > REMEMBERED:
        kept.popitem(last=False)
