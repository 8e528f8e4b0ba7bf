"""The pipeline's transactions, one after the other, in a thread of their own: while the store takes one, the next is
prepared.

A transaction is retried until it commits, however long the store needs. Its creator has counted it already
(``Ledger.apply``) and prepares the next one on top; if it cannot be stored after all, both are discarded and rebuilt
from the spool.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from queue import SimpleQueue

import polars as pl
import structlog

from collector.carry import Carry
from collector.ledger import Ledger, Step
from collector.pieces import Counts, Piece
from collector.priority import lower_priority
from collector.supervised import Supervised
from store.door import Door
from store.errors import StoreError
from store.line_order import SEGMENT_ROWS

log = structlog.get_logger()

RETRY_S = (0.5, 1.0, 2.0, 5.0)


@dataclass
class Transaction:
    """``pieces`` as rows: ``sealed`` segments of lines in order, ``tables`` with everything else, and in ``rest`` the
    lines that wait for more. ``learned``: it carries the cluster's name."""

    step: Step
    pieces: list[Piece]
    tables: dict[str, pl.DataFrame]
    sealed: list[pl.DataFrame]
    rest: pl.DataFrame | None = None
    learned: bool = False


class Storing:
    """Holds at most one transaction in progress. One thread calls ``begin`` and ``end``."""

    def __init__(self, store: Door, ledger: Ledger, carry: Carry, counts: Counts, stopping: threading.Event) -> None:
        self.store, self.ledger, self.carry, self.counts = store, ledger, carry, counts
        #: Why nothing is stored at the moment, in words; None if all is well.
        self.trouble: str | None = None
        self._stopping = stopping
        self._given: SimpleQueue[tuple[Transaction, Future[None]] | None] = SimpleQueue()
        self._thread = Supervised("storing", self._run, self._failed)
        self._is_started = False
        self._under_way: tuple[Transaction, Future[None]] | None = None

    def begin(self, made: Transaction) -> None:
        assert self._under_way is None
        if not self._is_started:
            self._thread.start()
            self._is_started = True
        if (ended := self.ended) is not None:
            raise StoreError(ended)
        self._under_way = made, Future()
        self._given.put(self._under_way)

    @property
    def ended(self) -> str | None:
        """Why nothing will be stored until the service restarts; None while the thread lives."""
        return (self._thread.trouble or "the thread that stores has ended") if self._thread.is_dead else None

    @property
    def made(self) -> Transaction | None:
        """The transaction that is in progress or committed; None after ``end``."""
        return self._under_way[0] if self._under_way is not None else None

    def wait(self, patience_s: float | None = None) -> bool:
        """Whether nothing is in progress any more, after at most ``patience_s`` seconds (None: waits until then)."""
        if self._under_way is None:
            return True
        wait_for([self._under_way[1]], patience_s)
        return self._under_way[1].done()

    def end(self) -> Transaction | None:
        """Waits and returns the committed transaction, None if there was none. Raises the error that it failed with."""
        if self._under_way is None:
            return None
        (made, future), self._under_way = self._under_way, None
        future.result()
        self.trouble = None
        return made

    def forget(self) -> None:
        """Waits; the store knows whether the transaction committed."""
        self.wait()
        self._under_way = None

    def close(self) -> None:
        """Waits for the transaction in progress."""
        if self._is_started:
            self._given.put(None)
            self._thread.join()

    def _run(self) -> None:
        lower_priority()
        while self._next():
            self._thread.well()

    def _next(self) -> bool:
        """Waits for a transaction and stores it; False if there will be none. While it waits, nothing of the one before is
        held: a few rows of it would keep all of its memory, hundreds of megabytes."""
        if (given := self._given.get()) is None:
            return False
        made, done = given
        try:
            self._store(made)
        except Exception as error:  # for the caller of ``end``; anything else is the thread's (``_failed``)
            done.set_exception(error)
        else:
            done.set_result(None)
            self._close_segments(made)
        return True

    def _close_segments(self, made: Transaction) -> None:
        """Puts lines that were stored as they came into segments as soon as they fill one: until then every text search
        reads them. Here, since rounds of concluding may be minutes apart under load. A failure does no harm: they wait."""
        if "logs" in made.tables:
            try:
                self.store.seal(least=SEGMENT_ROWS)
            except StoreError as error:
                log.warning("segments not closed", error=str(error).splitlines()[0])

    def _failed(self, error: BaseException) -> None:
        """Waiters must not wait for ever: the store knows the transaction's outcome."""
        if (under_way := self._under_way) is not None and not under_way[1].done():
            under_way[1].set_exception(StoreError(f"the thread that stores failed: {type(error).__name__}: {error}"))

    def _store(self, made: Transaction) -> None:
        attempt = 0
        while True:
            try:
                if made.rest is not None:
                    made.step.carried = f"{made.step.name}.rows"
                    self.carry.write(made.step.carried, made.rest)
                self._insert(made)
                break
            except (OSError, StoreError) as error:
                self._report(error)
                if self._recovered(made.step, attempt):
                    break
                attempt += 1
                if self._stopping.is_set():
                    raise

    def _insert(self, made: Transaction) -> None:
        self.store.append(made.tables, sealed=made.sealed, also=lambda writer: self.ledger.write(writer, made.step))

    def _report(self, error: Exception) -> None:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        if self.trouble is None:
            log.error("the store cannot be written; what arrives waits in the spool", error=text)
        self.trouble = f"the store cannot be written ({text}); what arrives waits in the spool"

    def _recovered(self, step: Step, attempt: int) -> bool:
        """Waits, reopens the store if necessary, and checks whether the transaction committed after all."""
        self._stopping.wait(RETRY_S[min(attempt, len(RETRY_S) - 1)])
        try:
            self.store.reopen_if_broken()
            return self.ledger.last_step()[0] == step.name
        except (OSError, StoreError) as error:
            self._report(error)
            return False
