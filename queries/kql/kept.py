"""A cache of results by text: the most recently used texts, bounded in number and in total length."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

Made = TypeVar("Made")
#: The total length of the cached texts. Their results are up to a hundred times as large; without a bound any user
#: could fill the memory with queries of 100,000 characters, each slightly different.
MOST_CHARACTERS = 500_000
MOST_TEXTS = 512


class Kept(Generic[Made]):
    """Thread-safe. ``longest``: a longer text is not cached at all."""

    def __init__(self, longest: int = 20_000) -> None:
        self._longest, self._lock = longest, Lock()
        self._made: OrderedDict[str, Made] = OrderedDict()
        self.characters = 0

    def get(self, key: str | None) -> Made | None:
        with self._lock:
            if key is None or key not in self._made:
                return None
            self._made.move_to_end(key)
            return self._made[key]

    def put(self, key: str | None, made: Made) -> None:
        """Does nothing without a key."""
        if key is None or len(key) > self._longest:
            return
        with self._lock:
            if key not in self._made:
                self.characters += len(key)
            self._made[key] = made
            while len(self._made) > MOST_TEXTS or self.characters > MOST_CHARACTERS:
                oldest, _ = self._made.popitem(last=False)
                self.characters -= len(oldest)
