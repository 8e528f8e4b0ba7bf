"""Spool -> worker processes -> store: every batch once, in order of arrival.

A piece is some megabytes of consecutive batches. Workers decode and parse pieces side by side; their rows are inserted
in order, in one transaction with the position after the piece, the keys of its batches and the inventory. Under load,
whole segments of lines are inserted and the rest is carried over to the next transaction (``collector.carry``), which
is prepared while the store takes this one (``collector.storing``). A failing store is retried until it works. Failing
content is halved until the failing batch is isolated, which is set aside.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from multiprocessing.connection import wait
from operator import attrgetter
from pathlib import Path

import polars as pl
import structlog

from collector import decoding
from collector.carry import Carry
from collector.handed_out import HandedOut
from collector.identity.identity import Identity
from collector.ledger import Ledger, Step
from collector.merging import cut, fitting, numbered_on
from collector.outcomes import describe
from collector.pieces import Counts, Piece, expected, held, isolate_failures, unanswered
from collector.priority import lower_priority
from collector.quarantine import Quarantine
from collector.segment_file import Position, Record
from collector.spool import NOTHING_LEFT, Spool
from collector.storing import Storing, Transaction
from collector.supervised import Supervised
from collector.workers import Worker, WorkerDied, WorkerFault
from store.door import Door
from store.errors import StoreError
from store.line_frames import coded
from store.line_order import SEGMENT_ROWS, in_order

log = structlog.get_logger()

#: Bytes of a piece (``Record.weight``); about 48 k lines of syslog, and at most 262 k lines besides those of its last
#: batch. A piece costs a worker some milliseconds whatever its size,
#: and 13 times its bytes of memory besides the worker's 250 MB; its rows take three times its bytes in the service.
#: With 8 MiB, ingest was no faster (three alternating runs), and service and two workers took 2.16 GB for 5 M lines
#: instead of 1.93.
PIECE_BYTES = 5 * 1024 * 1024
#: Pieces per worker: one in work, the other waiting, so that it stays busy while the store takes segments.
DEPTH = 2
#: Workers continue until this many pieces, or this many of their bytes, are held, parsed or not, besides those in a
#: transaction: three bytes of memory for each. Twice as many bytes if lines are so long that these would fill no
#: segment.
MOST_PIECES = 6
MOST_BYTES = 4 * PIECE_BYTES
#: How often the storing thread is checked for completion.
STORING_S = 0.02
#: A lone batch waits this long for others: commits cost milliseconds each.
LINGER_S = 0.1
#: Under load, lines wait until they fill segments: this many lines, or one segment and the oldest has waited
#: ``SEGMENT_S``. They are stored as they are when the oldest has waited ``MERGE_S`` in vain, or when nothing more has
#: arrived for ``QUIET_S``.
MERGE_LINES = 2 * SEGMENT_ROWS
SEGMENT_S, MERGE_S = 1.0, 2.0
QUIET_S = 0.25
#: Fewer lines than this do not wait, unless segments were filled within the last ``BUSY_S``.
FEW_LINES = SEGMENT_ROWS // 8
BUSY_S = 3.0
#: How often old keys are forgotten.
TIDY_S = 600.0
#: Pause after an unexpected error.
RETRY_S = 5.0
#: How often a repeated error is logged, in seconds.
LOG_AGAIN_S = 60.0
#: Most hosts whose clock the log reports as ahead; the sources page shows all.
MOST_AHEAD = 200


def in_words(error: Exception) -> str:
    """An error for people: which resource ran out, and where; the error itself otherwise."""
    if isinstance(error, MemoryError):
        return "out of memory; what arrives waits in the spool"
    if isinstance(error, OSError) and error.errno in NOTHING_LEFT:
        return f"{NOTHING_LEFT[error.errno]}; what arrives waits in the spool"
    return f"{type(error).__name__}: {error}"


def _missing(known: Position | None, spool: Spool) -> str | None:
    """What the store lost compared with the spool, in words. A restored store (a damaged log, an old copy) may lack
    what the spool no longer holds. Nothing is deleted from the spool before it is stored, so it must begin no later
    than where the store ends."""
    first = spool.committed.segment
    if (known is not None and known.segment >= first) or (known is None and first == 1):
        return None
    upto = "nothing of this spool" if known is None else f"this spool up to file {known.segment}"
    return (
        f"the store has {upto}, and {spool.folder} begins with file {first}: what lay between was stored, and is not there any "
        "more (a store set back to a checkpoint or a copy, or another one). Lines that the spool still holds are stored now"
    )


class Pipeline:
    """Runs in its own thread between ``start`` and ``stop``. ``on_stored(lines)`` is called after each commit."""

    def __init__(self, store: Door, spool: Spool, *, workers: int = 1, patterns: Sequence[Path] = (), identity: Identity | None = None,
                 quarantine: Path | None = None, on_stored: Callable[[int], None] | None = None) -> None:  # fmt: skip
        self.store, self.spool = store, spool
        #: Decides which cluster and node rows belong to.
        self.identity = identity or Identity(store)
        self.identity.begin()
        #: Hosts whose timestamps were reported as ahead.
        self._ahead: set[str] = set()
        self.ledger = Ledger(store, spool.id)
        self.quarantine = Quarantine(quarantine or spool.folder.parent / "quarantine")
        self.counts = Counts()
        #: An unexpected error, until something is stored again.
        self._fault: str | None = None
        self._fault_logged_at = -LOG_AGAIN_S
        #: Nothing in progress is trusted since then; the store may refuse the reset, too (``_reset``).
        self._must_reset = False
        self._on_stored = on_stored
        self._workers = [Worker(decoding.worker, patterns) for _ in range(max(1, workers))]
        #: Why a worker failed on a piece, until everything in progress has been isolated.
        self._failed: str | None = None
        self._pieces: deque[Piece] = deque()
        #: Lines that wait for their segment, after everything handed to the store.
        self._carry = Carry(spool.folder)
        self._stopping = threading.Event()
        self._storing = Storing(store, self.ledger, self._carry, self.counts, self._stopping)
        #: Transactions that are prepared and not stored.
        self._unstored = 0
        #: When the oldest parsed and uninserted line arrived (0: there is none), when the last data arrived, and when a
        #: segment was last filled.
        self._waits_since = self._came = 0.0
        self._filled = -BUSY_S
        self._tidied = time.monotonic()
        self._handed_out = HandedOut(self.ledger, self.counts)
        #: The positions after what was handed to workers, and after what was handed to the store.
        self._at = self._taken = self.ledger.watermark() or Position(0, 0)
        self._carry.load(self.ledger.last_step()[1])
        #: What the spool handed to a store that no longer has it, in words; None if nothing is missing.
        self.missing = _missing(self.ledger.watermark(), spool)
        if self.missing is not None:
            log.error("lines may be missing in the store", reason=self.missing)
        spool.commit(self._at)
        self._thread = Supervised("pipeline", self._run, self._failed_for)

    def start(self) -> None:
        self._thread.start()

    def stop(self, drain_s: float = 0.0) -> None:
        """Ends after the work in progress; first waits up to ``drain_s`` seconds until the spool is empty."""
        self.drain(drain_s)
        self._stopping.set()
        self.spool.wake()
        if self._thread.is_alive():
            self._thread.join()
        for worker in self._workers:
            worker.stop()
        self._storing.close()

    @property
    def trouble(self) -> str | None:
        """Why nothing is stored at the moment, in words; None if all is well."""
        return self.ended or self._storing.trouble or self._fault or self._thread.trouble

    @property
    def ended(self) -> str | None:
        """Why nothing will be stored until the service restarts; None while the thread lives."""
        if not self._thread.is_dead:
            return self._storing.ended
        return self._thread.trouble or "the thread that stores has ended; start the service anew"

    def _failed_for(self, _error: BaseException) -> None:
        self._must_reset = True

    def drain(self, timeout_s: float) -> bool:
        """Waits until everything on disk is in the store."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self._is_empty():
                return True
            time.sleep(0.01)
        return self._is_empty()

    @property
    def is_busy(self) -> bool:
        """Whether enough data arrives to fill segments: whatever can wait should."""
        return time.monotonic() - self._filled < BUSY_S

    def _is_empty(self) -> bool:
        if self._unstored or self._carry.rows is not None:
            return False
        return self.spool.committed >= self.spool.synced or not self.spool.waiting_bytes

    # -- the loop ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        lower_priority()
        # Started here, not by the caller: workers run at lower priority, too, and the kernel ends a worker with the
        # thread that started it.
        for worker in self._workers:
            worker.start()
        while not self._stopping.is_set():
            try:
                if self._must_reset:
                    self._reset()
                self._round()
                if (self._fault or self._thread.trouble) and not self._pieces and self._is_empty():
                    self._fault = None  # nothing is left that could fail
                    self._thread.well()
            except Exception as error:  # the thread must survive: spooled data waits for it
                self._must_reset = True
                self._fault = in_words(error)
                self._log_fault(error)
                self._stopping.wait(RETRY_S)
        with contextlib.suppress(OSError, StoreError):  # the next start continues from what is there
            self._stored()
            if self._carry.rows is not None and self.trouble is None:  # whoever opens the store next must see them
                self._commit([], whole=False)

    def _log_fault(self, error: Exception) -> None:
        """Logs the error with its location, at most once a minute while it persists."""
        if time.monotonic() - self._fault_logged_at >= LOG_AGAIN_S:
            self._fault_logged_at = time.monotonic()
            log.error("pipeline", error=self._fault, exc_info=error)

    def _round(self) -> None:
        self._fill()
        if self._failed is not None:
            self._carefully(self._failed)
        if self._storing.wait(0.0):
            self._stored()
        if not self._pieces and self._carry.rows is None:
            if self._storing.wait(STORING_S) and not self.spool.wait(0.2):
                for worker in self._workers:
                    worker.release()
            return
        if self._pieces:
            self._collect(0.0 if self._parsed()[1] >= MERGE_LINES else 0.05)
            if self._failed is not None:
                self._carefully(self._failed)
        done, lines = self._parsed()
        now = time.monotonic()
        if done and not self._waits_since:
            self._waits_since = now
        waited = now - self._waits_since if self._waits_since else 0.0
        all_done = len(done) == len(self._pieces)
        # Nothing joins the pieces that are there: waiting for more would be in vain.
        is_full = all_done and held(self._pieces) >= MOST_BYTES and not self._has_room()
        if lines >= MERGE_LINES or (lines >= SEGMENT_ROWS and (is_full or waited > SEGMENT_S)):
            sizes = [piece.lines for piece in done]
            self._commit(done[: fitting(sizes, lines - sum(sizes))], whole=True)
            self._filled = now
        elif waited > MERGE_S or is_full or (all_done and self._must_not_wait(lines, now)):
            self._commit(done, whole=False)
        elif all_done:
            self.spool.wait(0.02)

    def _parsed(self) -> tuple[list[Piece], int]:
        """The pieces that can be stored, and the number of their lines and the carried ones."""
        done = list(takewhile(attrgetter("done"), self._pieces))
        carried = self._carry.rows.height if self._carry.rows is not None else 0
        return done, carried + sum(piece.lines for piece in done)

    def _has_room(self) -> bool:
        """Whether another piece may be handed out."""
        size = held(self._pieces)
        if size < MOST_BYTES:
            return len(self._pieces) < MOST_PIECES
        return size < 2 * MOST_BYTES and 0 < expected(self._pieces) < SEGMENT_ROWS

    def _must_not_wait(self, lines: int, now: float) -> bool:
        """Whether to store now: everything that arrived is parsed and nothing more is coming for the moment."""
        few = lines < FEW_LINES and not self.is_busy
        return few or now - self._came > QUIET_S

    def _collect(self, patience_s: float) -> bool:
        """Takes the available answers; waits a moment if there is none. False if none is outstanding."""
        first: dict[int, Piece] = {}
        for piece in self._pieces:
            if piece.worker is not None and not piece.done:
                first.setdefault(id(piece.worker), piece)
        pipes = {piece.worker.connection: piece for piece in first.values() if piece.worker is not None}
        waiting = [pipe for pipe in pipes if pipe is not None]
        ready = wait(waiting, patience_s) if waiting else list(pipes)
        for pipe in ready:
            piece = pipes[pipe]  # type: ignore[index]
            assert piece.worker is not None
            try:
                piece.take([piece.worker.take()])
            except (WorkerDied, WorkerFault) as error:
                self._failed = str(error)
                break
        return bool(pipes)

    def _reset(self) -> None:
        """Returns to what is committed: nothing in progress is trusted."""
        self._storing.forget()
        self.store.reopen_if_broken()
        self._unstored = 0
        for worker in self._workers:
            worker.stop()
        self._failed = None
        self._pieces.clear()
        self._handed_out.clear()
        self.ledger.load()
        self._at = self._taken = self.ledger.watermark() or Position(0, 0)
        self._carry.load(self.ledger.last_step()[1])
        self._waits_since = time.monotonic()
        self._must_reset = False

    # -- giving out ----------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        for worker in self._workers:
            while self._has_room() and unanswered(self._pieces, worker) < DEPTH:
                piece = self._next_piece()
                if piece is None:
                    return
                self._pieces.append(piece)
                piece.done = not piece.jobs
                if piece.jobs:
                    piece.worker = worker
                    try:
                        worker.give(piece.jobs)
                    except WorkerDied as error:
                        self._failed = str(error)
                        return

    def _next_piece(self) -> Piece | None:
        piece = Piece(self._at)
        for record in self._ready():
            if piece.records and piece.size + record.weight > 2 * PIECE_BYTES:
                break  # a batch of very many lines is parsed alone
            piece.end = record.end
            if self._handed_out.add(record, piece):
                piece.size += record.weight
            if piece.size >= PIECE_BYTES:
                break
        if piece.end == self._at:
            return None
        self._at, self._came = piece.end, time.monotonic()
        return piece

    def _ready(self) -> list[Record]:
        """Records after those already handed out; a few of them wait a little for more."""
        found = list(self.spool.read(self._at, PIECE_BYTES))
        if (
            found
            and not self._pieces
            and self._carry.rows is None
            and sum(r.payload_bytes for r in found) < PIECE_BYTES // 16
        ):
            time.sleep(LINGER_S)
            found = list(self.spool.read(self._at, PIECE_BYTES))
        return found

    # -- a piece that fails --------------------------------------------------------------------------------------

    def _carefully(self, reason: str) -> None:
        """Halves everything in progress until the failing batch is isolated, and sets that aside."""
        log.warning("a piece of the spool failed; taking it apart", reason=reason)
        self._failed = None
        for worker in self._workers:
            worker.stop()
        for piece in self._pieces:
            piece.forget()
        while self._pieces and not self._stopping.is_set():
            piece = self._pieces[0]
            if not piece.done:
                piece.take(isolate_failures(self._workers[0], piece.jobs))
            self._commit([piece], whole=False)

    # -- storing -------------------------------------------------------------------------------------------------

    def _commit(self, pieces: list[Piece], *, whole: bool) -> None:
        """Stores pieces in one transaction, after the one in progress. ``whole``: only whole segments of lines, and the
        rest is carried over; otherwise everything, and it is stored on return."""
        made = self._made(pieces, whole=whole)
        self._go_on_until_stored()
        self._storing.begin(made)
        if not whole or made.learned:
            self._stored()

    def _made(self, pieces: list[Piece], *, whole: bool) -> Transaction:
        """Removes pieces from those in progress and counts them: what is prepared next follows them."""
        step = Step(pieces[-1].end if pieces else self._taken)
        for piece in pieces:
            describe(piece, step, self.ledger, self.quarantine)
        tables = self._counted(pieces, step)
        learned = self.identity.learn(tables)
        for name, data in tables.items():
            tables[name] = self.identity.place(name, data)
        sealed, rest = self._cut(tables, whole)
        made = Transaction(step, pieces, tables, list(map(in_order, sealed)), rest, learned)
        for piece in pieces:
            self._pieces.popleft()
            piece.tables, piece.stats = [], []
        self._unstored += 1
        self._taken = step.position
        self.ledger.apply(step)
        self._carry.rows = rest
        self._waits_since = time.monotonic() if rest is not None else 0.0
        return made

    def _go_on_until_stored(self) -> None:
        """Hands out pieces and takes answers while the store is busy; otherwise workers would idle while segments are
        written. Errors are raised only once the transaction's outcome is known."""
        while not self._storing.wait(0.0) and self._failed is None and not self._stopping.is_set():
            self._fill()
            if self._failed is not None or not self._collect(STORING_S):
                self._storing.wait(STORING_S)
        self._stored()

    def _stored(self) -> None:
        """Waits for the transaction in progress, and does what follows its commit."""
        made = self._storing.end()
        if made is None:
            return
        self._fault = None
        self._thread.well()
        stored = [*made.sealed, *([made.tables["logs"]] if "logs" in made.tables else ())]
        self.counts.lines += sum(map(len, stored))
        self.identity.stored(stored, others=not made.tables.keys() <= {"logs"}, learned=made.learned)
        self._carry.keep_only(made.step.carried)
        self.spool.commit(made.step.position)
        self._done_with(made)
        self._unstored -= 1  # last: whoever drains also waits for what follows a commit
        if self._on_stored is not None and (made.tables or made.sealed or made.step.blind):
            self._on_stored(sum(map(len, stored)))

    def _done_with(self, made: Transaction) -> None:
        for identity in made.step.replayed:
            self.quarantine.drop(identity)
        for piece in made.pieces:
            self._handed_out.stored(piece)
        self.counts.batches += sum(len(piece.records) for piece in made.pieces)
        self.counts.poison += len(made.step.quarantine)
        self._tidy()

    def _cut(self, tables: dict[str, pl.DataFrame], whole: bool) -> tuple[list[pl.DataFrame], pl.DataFrame | None]:
        """Takes from ``tables`` the lines that fill segments, segment by segment, and (``whole``) keeps those that wait
        for more."""
        parts = [data for data in (self._carry.rows, tables.pop("logs", None)) if data is not None]
        if not parts:
            return [], None
        logs = self.identity.place("logs", pl.concat(map(coded, parts)))
        sealed, rest = cut(logs)
        if rest is not None and not whole:
            tables["logs"], rest = rest, None
        return sealed, rest

    def _counted(self, pieces: list[Piece], step: Step) -> dict[str, pl.DataFrame]:
        """The rows as they are stored: lines are counted, and numbered after those of their stream."""
        tables: dict[str, list[pl.DataFrame]] = {}
        for piece in pieces:
            for name, data in piece.tables:
                tables.setdefault(name, []).append(data)
        stats = [counted for piece in pieces for counted in piece.stats]
        if stats:
            tables["logs"] = numbered_on(tables["logs"], self.ledger.lines)
            counted = decoding.summed(stats)
            self.ledger.count(step, counted)
            self._log_stamps_ahead(counted.filter(pl.col("ahead") > 0))
        return {name: pl.concat(parts) for name, parts in tables.items()}

    def _log_stamps_ahead(self, stats: pl.DataFrame) -> None:
        """Logs once per host that its timestamps are held back (parsers.future)."""
        for host, file in stats.select("host", "file").iter_rows():
            name = host or file or "?"
            if name not in self._ahead and len(self._ahead) < MOST_AHEAD:
                self._ahead.add(name)
                log.warning(
                    "stamps that lie after the moment at which their lines came are held; correct the clock that is wrong",
                    sender=name, stream=file,
                )  # fmt: skip

    def _tidy(self) -> None:
        """With nothing in progress, what was handed out is what the ledger knows; occasionally removes old keys."""
        if self._pieces:
            return
        self._handed_out.forget_streams()
        if time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()
            self.ledger.prune(datetime.now(UTC).replace(tzinfo=None))
