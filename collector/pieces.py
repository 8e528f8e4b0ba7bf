"""A piece of the spool on its way through the pipeline, and the pipeline's counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from collector.decoding import Job, Outcome
from collector.segment_file import Position, Record
from collector.sequence import StreamKey
from collector.workers import Worker, WorkerDied, WorkerFault


@dataclass
class Piece:
    """Consecutive records up to ``end``; ``records`` excludes those already stored. ``size``: their
    bytes, unpacked, where very short lines count as more."""

    end: Position
    size: int = 0
    records: list[Record] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    keys: list[StreamKey] = field(default_factory=list)
    opaque: list[tuple[str, datetime]] = field(default_factory=list)
    worker: Worker | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    #: Rows by table name, and the statistics for the inventory.
    tables: list[tuple[str, pl.DataFrame]] = field(default_factory=list)
    stats: list[pl.DataFrame] = field(default_factory=list)
    done: bool = False

    def take(self, outcomes: list[Outcome]) -> None:
        """Takes the piece's result, or some of its parts. Unpacks them at once: the store is busy with others now; later it
        would wait."""
        self.outcomes += outcomes
        self.done = not outcomes or not outcomes[-1].more
        for outcome in outcomes:
            self.tables += [(name, packed.frame()) for name, packed in outcome.tables]
            self.stats += [packed.frame() for packed in outcome.stats]
            outcome.tables, outcome.stats = [], []

    def forget(self) -> None:
        """Expects no answer any more, and drops the parts of one that is not complete."""
        self.worker = None
        if not self.done:
            self.outcomes, self.tables, self.stats = [], [], []

    @property
    def lines(self) -> int:
        """The lines found in it so far."""
        return sum(outcome.lines for outcome in self.outcomes)


def held(pieces: Iterable[Piece]) -> int:
    """Bytes of ``pieces``, as :class:`Piece` counts them."""
    return sum(piece.size for piece in pieces)


def expected(pieces: Sequence[Piece]) -> float:
    """Estimated number of lines of ``pieces``, based on those already parsed; 0 if none is."""
    done = [piece for piece in pieces if piece.done]
    return sum(piece.lines for piece in done) * held(pieces) / max(1, held(done))


def unanswered(pieces: Iterable[Piece], worker: Worker) -> int:
    """How many of ``pieces`` a worker has yet to parse."""
    return sum(piece.worker is worker and not piece.done for piece in pieces)


@dataclass
class Counts:
    """Counters since the start, for metrics and benchmarks."""

    lines: int = 0
    batches: int = 0
    duplicates: int = 0
    poison: int = 0


def isolate_failures(worker: Worker, jobs: Sequence[Job], at: int = 0) -> list[Outcome]:
    """Parses jobs of which one fails: they are halved until the failing one is isolated, which is poison then. ``at``:
    the position of the first job in its piece."""
    if not jobs:
        return []
    reason = ""
    for _attempt in range(2 if len(jobs) == 1 else 1):
        try:
            worker.give(jobs)
            outcomes: list[Outcome] = [worker.take()]
            while outcomes[-1].more:
                outcomes.append(worker.take())
            for outcome in outcomes:
                outcome.poison = [(at + place, why) for place, why in outcome.poison]
            return outcomes
        except (WorkerDied, WorkerFault) as error:
            reason = str(error)
    if len(jobs) == 1:
        return [Outcome(poison=[(at, reason[-500:])])]
    middle = len(jobs) // 2
    return isolate_failures(worker, jobs[:middle], at) + isolate_failures(worker, jobs[middle:], at + middle)
