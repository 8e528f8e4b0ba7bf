"""Runs by time: finds and counts those that were active in a range without examining all of them."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from math import inf
from operator import attrgetter

from correlator.model.nouns import Run

_start, _end, _others = attrgetter("start"), attrgetter("end"), attrgetter("job_id", "attempt", "key")


class RunsInTime:
    """An index over runs. A run without an end goes on for ever; one without a start was never active."""

    def __init__(self, runs: Sequence[Run]) -> None:
        # Runs come by job: two sorts compare fewer tuples than one by all four.
        self._runs = sorted((r for r in runs if r.start is not None), key=_others)
        self._runs.sort(key=_start)
        self._starts = list(map(_start, self._runs))
        ends = [
            inf if end is None else end if end > start else start
            for start, end in zip(self._starts, map(_end, self._runs), strict=True)
        ]
        # The running maximum rises along the list: everything before the place where it reaches a moment was over by
        # then.
        self._latest = list(itertools.accumulate(ends, max))
        self._ends = sorted(ends)

    def overlapping(self, start: float, end: float) -> Iterator[Run]:
        """Runs that began by ``end`` and were not over before ``start``, the earliest first."""
        listed = itertools.islice(self._runs, bisect_left(self._latest, start), bisect_right(self._starts, end))
        return (run for run in listed if run.end is None or run.end >= start)

    def count(self, start: float, end: float) -> int:
        """The number of ``overlapping`` runs."""
        return bisect_right(self._starts, end) - bisect_left(self._ends, start)
