"""Runs by time: those that were going on in a range are found without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from correlator.model import Run


class RunsInTime:
    """An index over runs. A run without an end goes on for ever; one without a start was never going on."""

    def __init__(self, runs: Sequence[Run]) -> None:
        place = {id(run): number for number, run in enumerate(runs)}
        self._order = place
        self._runs = sorted((r for r in runs if r.start is not None), key=lambda r: (r.start, place[id(r)]))
        self._starts = [r.start or 0.0 for r in self._runs]
        # The running maximum grows along the list: all before the place where it reaches a moment were over by then.
        self._ends = list(accumulate((float("inf") if r.end is None else r.end for r in self._runs), max))

    def overlapping(self, start: float, end: float) -> list[Run]:
        """Runs that began by ``end`` and were not over before ``start``, in the order in which they were given."""
        near = self._runs[bisect_left(self._ends, start) : bisect_right(self._starts, end)]
        return sorted((r for r in near if r.end is None or r.end >= start), key=lambda r: self._order[id(r)])
