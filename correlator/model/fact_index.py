"""Facts by kind and time: finds those that may have begun in a range without examining all of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, count
from typing import Any

import numpy as np

from correlator.model.attrs import attr
from correlator.model.nouns import Fact


def by_kind(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Facts by their kind, in the order given."""
    found: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        found[fact.kind].append(fact)
    return dict(found)


#: A number for each kind that occurred in this process.
_NUMBERS: defaultdict[str, int] = defaultdict(count().__next__)


def number_of(kind: str) -> int:
    """The number of a kind in ``FactsByKind``."""
    return _NUMBERS[kind]  # in one step, whatever other threads do


class FactsByKind:
    """The same for very many facts of which few kinds are asked for: those of a kind are picked when they are."""

    def __init__(self, facts: Sequence[Fact], numbers: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> None:
        """``numbers`` are those of the facts' kinds (``number_of``), ``starts`` when each began."""
        self._facts, self._numbers, self._starts = facts, numbers, starts

    def get(self, kind: str, default: Sequence[Fact] = ()) -> Sequence[Fact]:
        """The facts of a kind in the order given; ``default`` if there are none."""
        return [self._facts[n] for n in np.flatnonzero(self._numbers == number_of(kind)).tolist()] or default

    def starts(self, kind: str) -> list[float]:
        """When the facts of a kind began, in order."""
        found: list[float] = np.sort(self._starts[self._numbers == number_of(kind)]).tolist()
        return found


class FactsInTime:
    """An index over lists of facts that are sorted by ``start``. ``anchors`` are attributes that hold a moment too."""

    def __init__(self, by_kind: Mapping[Any, list[Fact]], anchors: Iterable[str] = ()) -> None:
        self._facts = by_kind
        self._anchors = tuple(map(attr, anchors))
        self._made: dict[Hashable, tuple[list[float], list[float]]] = {}

    def _last_moment(self, fact: Fact) -> float:
        last = fact.start if fact.end is None or fact.end < fact.start else fact.end
        for anchor in self._anchors:
            value = fact.attrs.get(anchor)
            if value is not None and isinstance(value, (int, float)) and value > last:
                last = float(value)
        return last

    def between(self, kind: Hashable, early: float, late: float) -> list[Fact]:
        """Facts that began before ``late`` and have a moment at or after ``early``, in time order.

        May include a few more, never fewer.
        """
        facts = self._facts.get(kind)
        if not facts:
            return []
        if kind not in self._made:
            # The running maximum rises along the list: everything before the place where it reaches ``early`` is over.
            self._made[kind] = ([f.start for f in facts], list(accumulate(map(self._last_moment, facts), max)))
        starts, lasts = self._made[kind]
        return facts[bisect_left(lasts, early) : bisect_right(starts, late)]
