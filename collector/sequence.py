"""Tracks which batches of a sender are stored: keys and ranges of sequence numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

#: With more holes than this, the oldest are assumed never to arrive and are closed.
MAX_RANGES = 1000
_KEY = re.compile(r"([A-Za-z0-9._:@%+-]{1,128})/([A-Za-z0-9._:@%+-]{1,128})/([A-Za-z0-9._:@%+-]{1,128})/(\d{1,18})")


class StreamKey(NamedTuple):
    """Batches ``first`` to ``last`` of a sender's stream; a wire batch has first == last."""

    agent: str
    stream: str
    epoch: str
    first: int
    last: int

    @property
    def name(self) -> tuple[str, str, str]:
        return (self.agent, self.stream, self.epoch)

    def __str__(self) -> str:
        numbers = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.agent}/{self.stream}/{self.epoch}/{numbers}"


def read_key(text: str) -> StreamKey | None:
    """``agent/stream/epoch/sequence`` -> its parts; None for any other text (an opaque key)."""
    found = _KEY.fullmatch(text)
    return StreamKey(found[1], found[2], found[3], int(found[4]), int(found[4])) if found else None


@dataclass
class Ranges:
    """A set of numbers as sorted, disjoint, non-adjacent ranges."""

    items: list[tuple[int, int]] = field(default_factory=list)

    def covers(self, first: int, last: int) -> bool:
        at = bisect_right(self.items, (first, 1 << 62)) - 1
        return at >= 0 and self.items[at][0] <= first and last <= self.items[at][1]

    def add(self, first: int, last: int) -> None:
        low = bisect_right(self.items, (first, -1))
        while low and self.items[low - 1][1] >= first - 1:
            low -= 1
        high = low
        while high < len(self.items) and self.items[high][0] <= last + 1:
            first, last = min(first, self.items[high][0]), max(last, self.items[high][1])
            high += 1
        self.items[low:high] = [(first, last)]
        while len(self.items) > MAX_RANGES:
            (start, _), (_, end) = self.items[0], self.items[1]
            self.items[:2] = [(start, end)]

    def within(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """The ranges that overlap ``first`` to ``last``."""
        return tuple((a, b) for a, b in self.items if a <= last and first <= b)

    def copy(self) -> Ranges:
        return Ranges(list(self.items))

    def __str__(self) -> str:
        return ",".join(f"{a}-{b}" for a, b in self.items)

    @classmethod
    def read(cls, text: str) -> Ranges:
        pairs = (part.split("-") for part in text.split(",") if part)
        return cls([(int(a), int(b)) for a, b in pairs])

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        made = cls()
        for number in numbers:
            made.add(number, number)
        return made
