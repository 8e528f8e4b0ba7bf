"""Spool -> worker processes -> store: every batch once, in the order in which it came.

A piece is some megabytes of consecutive batches. Workers decode and parse pieces side by side; their rows are inserted
in order, in one transaction with the position behind the piece, the keys of its batches and the inventory. While much
arrives, whole segments of lines are inserted and the rest is carried over to the next transaction (``collector.carry``).
What fails is tried again until it works (the store) or taken apart until the batch that fails is alone, and set aside
(the content).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path

import duckdb
import polars as pl
import structlog

from collector import decoding
from collector.carry import Carry
from collector.decoding import Job, Outcome
from collector.hostnames import HostNames
from collector.ingest import settle
from collector.ledger import Ledger, Step
from collector.merging import cut, fitting, numbered_on
from collector.pieces import Counts, Piece, apart
from collector.quarantine import Quarantine
from collector.receivers.base import moment_of
from collector.segment_file import Position, Record
from collector.sequence import Ranges, StreamKey
from collector.spool import Spool
from collector.workers import Worker, WorkerDied, WorkerFault
from store.duckdb_store import DuckStore, StoreError, coded, insert
from store.segments import SEGMENT_ROWS, insert_sealed

log = structlog.get_logger()

#: Bytes of a piece, unpacked; about 38 k lines of syslog. Larger ones cost a little less a line and more memory: a worker
#: needs 30 times as much besides its 300 MB, and two workers and the service are to stay below 2 GB.
PIECE_BYTES = 4 * 1024 * 1024
#: Pieces given to one worker: one in work, the others waiting, so that it has enough to do while the store takes segments.
DEPTH = 3
#: While segments are stored, workers go on, until so many pieces lie here, parsed or not: about 15 MB each.
MOST_PIECES = 10
#: Whether they are stored is looked at so often.
STORING_S = 0.02
#: A lone batch waits this long for company: commits cost milliseconds each.
LINGER_S = 0.1
#: While much arrives, lines wait for each other until they fill segments: so many lines, or one segment and the oldest
#: has waited ``SEGMENT_S``. They are stored as they are when the oldest has waited ``MERGE_S`` in vain, or when nothing
#: more has come for ``QUIET_S``.
MERGE_LINES = 2 * SEGMENT_ROWS
SEGMENT_S, MERGE_S = 1.0, 2.0
QUIET_S = 0.25
#: Fewer lines than this do not wait, unless segments were filled within the last ``BUSY_S``.
FEW_LINES = SEGMENT_ROWS // 8
BUSY_S = 3.0
#: Old keys are forgotten this often.
TIDY_S = 600.0
RETRY_S = (0.5, 1.0, 2.0, 5.0)


class Pipeline:
    """Runs in a thread of its own between ``start`` and ``stop``. ``on_stored(lines)`` is called after each commit."""

    def __init__(self, store: DuckStore, spool: Spool, *, workers: int = 1, patterns: Sequence[Path] = (), cluster: str | None = None,
                 quarantine: Path | None = None, on_stored: Callable[[int], None] | None = None) -> None:  # fmt: skip
        self.store, self.spool, self.cluster = store, spool, cluster
        self.names = HostNames.read(store)
        self.ledger = Ledger(store, spool.id)
        self.quarantine = Quarantine(quarantine or spool.folder.parent / "quarantine")
        self.counts = Counts()
        #: Why nothing is stored at the moment, in words; None if all is well.
        self.trouble: str | None = None
        #: Rows were stored that wait for a boot time or for their cluster's name (``collector.ingest.settle``).
        self.unsettled = True  # the store may know the name already
        self._on_stored = on_stored
        self._workers = [Worker(decoding.worker, patterns) for _ in range(max(1, workers))]
        #: Why a worker failed over a piece, until all that is under way was taken apart.
        self._failed: str | None = None
        self._storing = ThreadPoolExecutor(1, thread_name_prefix="storing")
        self._pieces: deque[Piece] = deque()
        self._carry = Carry(spool.folder)
        #: When the oldest line came that is parsed and not inserted (0: there is none), when something came last; and
        #: when a segment was filled last.
        self._waits_since = self._came = 0.0
        self._filled = -BUSY_S
        self._tidied = time.monotonic()
        self._given: dict[tuple[str, str, str], Ranges] = {}
        self._given_opaque: set[str] = set()
        self._at = self.ledger.watermark() or Position(0, 0)
        self._carry.load(self.ledger.last_step()[1])
        spool.commit(self._at)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, drain_s: float = 0.0) -> None:
        """Ends after what is under way; ``drain_s`` waits first until the spool is empty."""
        self.drain(drain_s)
        self._stopping.set()
        self.spool.wake()
        if self._thread.is_alive():
            self._thread.join()
        for worker in self._workers:
            worker.stop()
        self._storing.shutdown()

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
        """So much arrives that it fills segments: whatever can wait should."""
        return time.monotonic() - self._filled < BUSY_S

    def _is_empty(self) -> bool:
        return self._carry.rows is None and (self.spool.committed >= self.spool.synced or not self.spool.waiting_bytes)

    # -- the loop ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # Started here, not by whoever starts us: the kernel ends a worker with the thread that made it.
        for worker in self._workers:
            worker.start()
        while not self._stopping.is_set():
            try:
                self._round()
            except Exception as error:  # the thread must live: what is spooled waits for it
                self.trouble = f"{type(error).__name__}: {error}"
                log.exception("pipeline", error=self.trouble)
                self._reset()
                self._stopping.wait(RETRY_S[-1])
        if self._carry.rows is not None and self.trouble is None:  # whoever opens the store next is to see them
            with contextlib.suppress(duckdb.Error, OSError, StoreError):  # the next start goes on from their file
                self._commit([], whole=False)

    def _round(self) -> None:
        self._fill()
        if self._failed is not None:
            self._carefully(self._failed)
        if not self._pieces and self._carry.rows is None:
            self.spool.wait(0.2)
            return
        if self._pieces:
            self._collect(0.05)
            if self._failed is not None:
                self._carefully(self._failed)
        done: list[Piece] = []
        for piece in self._pieces:
            if not piece.done:
                break
            done.append(piece)
        lines = sum(outcome.lines for piece in done for outcome in piece.outcomes)
        now = time.monotonic()
        if done and not self._waits_since:
            self._waits_since = now
        if self._carry.rows is not None:
            lines += self._carry.rows.height
        waited = now - self._waits_since if self._waits_since else 0.0
        all_done = len(done) == len(self._pieces)
        if lines >= MERGE_LINES or (lines >= SEGMENT_ROWS and waited > SEGMENT_S):
            sizes = [sum(outcome.lines for outcome in piece.outcomes) for piece in done]
            self._commit(done[: fitting(sizes, lines - sum(sizes))], whole=True)
            self._filled = now
        elif waited > MERGE_S or (all_done and self._must_not_wait(lines, now)):
            self._commit(done, whole=False)
        elif all_done:
            self.spool.wait(0.02)

    def _must_not_wait(self, lines: int, now: float) -> bool:
        """Everything that came is parsed: whether that is all for the moment."""
        few = lines < FEW_LINES and not self.is_busy
        return few or now - self._came > QUIET_S

    def _collect(self, patience_s: float) -> bool:
        """Takes the answers that are there; waits a moment if there is none. False if nobody owes one."""
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
                piece.outcomes, piece.done = [piece.worker.take()], True
            except (WorkerDied, WorkerFault) as error:
                self._failed = str(error)
                break
        return bool(pipes)

    def _reset(self) -> None:
        """Back to what is committed: nothing under way is trusted."""
        for worker in self._workers:
            worker.stop()
        self._failed = None
        self._pieces.clear()
        self._given.clear()
        self._given_opaque.clear()
        self.ledger.load()
        self._at = self.ledger.watermark() or Position(0, 0)
        self._carry.load(self.ledger.last_step()[1])
        self._waits_since = time.monotonic()

    # -- giving out ----------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        for worker in self._workers:
            while sum(1 for piece in self._pieces if piece.worker is worker and not piece.done) < DEPTH:
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
        piece, size = Piece(self._at), 0
        for record in self._ready():
            piece.end = record.end
            if self._wanted(record, piece):
                size += record.unpacked_bytes
            if size >= PIECE_BYTES:
                break
        if piece.end == self._at:
            return None
        self._at, self._came = piece.end, time.monotonic()
        return piece

    def _ready(self) -> list[Record]:
        """Records behind what was given out; few of them wait a little for more."""
        found = list(self.spool.read(self._at, PIECE_BYTES))
        if (
            found
            and not self._pieces
            and self._carry.rows is None
            and sum(r.payload_bytes for r in found) < PIECE_BYTES // 8
        ):
            time.sleep(LINGER_S)
            found = list(self.spool.read(self._at, PIECE_BYTES))
        return found

    def _wanted(self, record: Record, piece: Piece) -> bool:
        """Puts a record into the piece unless its key is stored or under way."""
        key = record.meta.get("key")
        stored: tuple[tuple[int, int], ...] = ()
        if isinstance(key, list):
            named = StreamKey(str(key[0]), str(key[1]), str(key[2]), int(key[3]), int(key[4]))
            ranges = self._given.get(named.name)
            if ranges is None:
                ranges = self._given[named.name] = self.ledger.streams.get(named.name, Ranges()).copy()
            if ranges.covers(named.first, named.last):
                self.counts.duplicates += 1
                return False
            # A span may hold some that came before: its entries are told apart when it is read.
            stored = ranges.within(named.first, named.last)
            ranges.add(named.first, named.last)
            piece.keys.append(named)
        elif isinstance(key, str):
            if key in self.ledger.keys or key in self._given_opaque:
                self.counts.duplicates += 1
                return False
            self._given_opaque.add(key)
            piece.opaque.append((key, moment_of(int(record.meta["received"]))))
        piece.records.append(record)
        piece.jobs.append(
            Job(record.path, record.payload_offset, record.payload_bytes, record.payload_crc, record.meta, stored)
        )
        return True

    # -- a piece that fails --------------------------------------------------------------------------------------

    def _carefully(self, reason: str) -> None:
        """Takes everything under way apart: halves until the batch that fails stands alone, which is set aside."""
        log.warning("a piece of the spool failed; taking it apart", reason=reason)
        self._failed = None
        for worker in self._workers:
            worker.stop()
        for piece in self._pieces:
            piece.worker = None
        while self._pieces and not self._stopping.is_set():
            piece = self._pieces[0]
            if not piece.done:
                piece.outcomes, piece.done = apart(self._workers[0], piece.jobs), True
            self._commit([piece], whole=False)

    # -- storing -------------------------------------------------------------------------------------------------

    def _commit(self, pieces: list[Piece], *, whole: bool) -> None:
        """Stores pieces in one transaction, however long the store takes to be able to. ``whole``: only whole segments of
        lines, and the rest is carried over; else all there are."""
        step = Step(pieces[-1].end if pieces else self.spool.committed)
        for piece in pieces:
            self._describe(piece, step)
        tables = self._counted([outcome for piece in pieces for outcome in piece.outcomes], step)
        learned = self._learn_cluster(tables)
        for name, data in tables.items():
            tables[name] = self._placed(data)
        sealed, rest = self._cut(tables, whole)
        store = self._store_beside if whole else self._store
        rest = store(tables, sealed, rest, step)
        self.trouble = None
        stored = [*sealed, *([tables["logs"]] if "logs" in tables else ())]
        for logs in stored:
            # Until the cluster's name is known its lines wait for no round: when it is learned, all are named.
            late = self.cluster is not None and logs["cluster"].null_count()
            self.unsettled = self.unsettled or bool(late or logs["time"].null_count())
            self.counts.lines += logs.height
        self.unsettled = self.unsettled or learned or not tables.keys() <= {"logs"}
        if learned:
            self.names = settle(self.store)  # at once: what was stored before the name was known is of the same cluster
        self.ledger.apply(step)
        self._carry.rows = rest
        self._carry.keep_only(step.carried)
        self.spool.commit(step.position)
        self._waits_since = time.monotonic() if rest is not None else 0.0
        self._done_with(pieces, step)
        if self._on_stored is not None and (tables or sealed or step.blind):
            self._on_stored(sum(map(len, stored)))

    def _done_with(self, pieces: list[Piece], step: Step) -> None:
        for identity in step.replayed:
            self.quarantine.drop(identity)
        for piece in pieces:
            self._given_opaque.difference_update(key for key, _ in piece.opaque)
            self._pieces.popleft()
        self.counts.batches += sum(len(piece.records) for piece in pieces)
        self.counts.poison += len(step.quarantine)
        self._tidy()

    def _cut(self, tables: dict[str, pl.DataFrame], whole: bool) -> tuple[list[pl.DataFrame], pl.DataFrame | None]:
        """Takes from ``tables`` the lines that fill segments, segment by segment, and (``whole``) those that wait for more."""
        parts = [data for data in (self._carry.rows, tables.pop("logs", None)) if data is not None]
        if not parts:
            return [], None
        logs = self._placed(pl.concat(map(coded, parts)))
        sealed, rest = cut(logs)
        if rest is not None and not whole:
            tables["logs"], rest = rest, None
        return sealed, rest

    def _store_beside(self, tables: dict[str, pl.DataFrame], sealed: list[pl.DataFrame], rest: pl.DataFrame | None, step: Step) -> pl.DataFrame | None:  # fmt: skip
        """As ``_store``, in a thread of its own: meanwhile this one gives out pieces and takes answers, or else workers would
        wait for as long as segments take. Whatever goes wrong here, what became of the transaction is known before that."""
        storing = self._storing.submit(self._store, tables, sealed, rest, step)
        try:
            while not storing.done() and self._failed is None and not self._stopping.is_set():
                if len(self._pieces) < MOST_PIECES:
                    self._fill()
                if self._failed is not None or not self._collect(STORING_S):
                    wait_for([storing], STORING_S)
        finally:
            wait_for([storing])
        return storing.result()

    def _store(self, tables: dict[str, pl.DataFrame], sealed: list[pl.DataFrame], rest: pl.DataFrame | None, step: Step) -> pl.DataFrame | None:  # fmt: skip
        """Gives the rest back as it is to be kept."""
        attempt = 0
        while True:
            begun = time.perf_counter()
            try:
                if rest is not None:
                    step.carried = f"{step.name}.rows"
                    self._carry.write(step.carried, rest)
                self._insert(tables, sealed, step)
                break
            except (duckdb.Error, OSError, StoreError) as error:
                self._report(error)
                if self._recovered(step, attempt):
                    break
                attempt += 1
                if self._stopping.is_set():
                    raise
        self.counts.commit_s += time.perf_counter() - begun
        self.counts.commits += 1
        return rest

    def _describe(self, piece: Piece, step: Step) -> None:
        """Adds what a piece says besides its rows."""
        now = datetime.now(UTC).replace(tzinfo=None)
        step.keys += piece.keys
        step.opaque += piece.opaque
        bad = {place for outcome in piece.outcomes for place, _ in outcome.poison}
        for outcome in piece.outcomes:
            for place, reason in outcome.poison:
                step.quarantine.append(self.quarantine.put(piece.records[place], self.spool.id, reason, now))
                log.error("batch set aside", id=step.quarantine[-1]["id"], reason=reason)
            for told in outcome.blind:
                moments = {n: None if told[n] is None else moment_of(told[n]) for n in ("start", "end", "received")}
                step.blind.append({**told, **moments})
            for said in outcome.status:
                if said["host"]:
                    self.ledger.met(
                        step, said["host"], said["cluster"], moment_of(said["received"]), boot_id=said["boot_id"],
                        boot_time=moment_of(said["boot_time"]) if said["boot_time"] else None, status=said["status"],
                    )  # fmt: skip
        step.replayed += [
            str(r.meta["replay"]) for place, r in enumerate(piece.records) if r.meta.get("replay") and place not in bad
        ]

    def _counted(self, outcomes: list[Outcome], step: Step) -> dict[str, pl.DataFrame]:
        """The rows as they are stored; lines are numbered on from what their stream has, and counted."""
        tables: dict[str, list[pl.DataFrame]] = {}
        for outcome in outcomes:
            for name, data in outcome.tables.items():
                tables.setdefault(name, []).append(data.frame())
        stats = [outcome.stats.frame() for outcome in outcomes if outcome.stats is not None]
        if stats:
            tables["logs"] = numbered_on(tables["logs"], self.ledger.lines)
            self.ledger.count(step, decoding.summed(stats))
        return {name: pl.concat(parts) for name, parts in tables.items()}

    def _learn_cluster(self, tables: dict[str, pl.DataFrame]) -> bool:
        """The cluster's name, once accounting or configuration says it; a service of several clusters learns none."""
        if self.cluster is not None:
            return False
        parts = [tables[name]["cluster"] for name in ("jobs", "settings", "logs") if name in tables]
        names = set(pl.concat(parts).drop_nulls().unique().to_list()) if parts else set()
        if len(names) != 1:
            return False
        others = self.store.rows(
            "SELECT 1 FROM raw.jobs WHERE cluster IS NOT NULL AND cluster <> ? LIMIT 1", list(names)
        )
        if others:
            return False
        (self.cluster,) = names
        return True

    def _placed(self, data: pl.DataFrame) -> pl.DataFrame:
        """With the cluster's name where a row has none, once it is known, and hosts by their nodes' names."""
        data = self.names.normal(data)
        if self.cluster is None or "cluster" not in data.columns or not data["cluster"].null_count():
            return data
        return data.with_columns(pl.col("cluster").fill_null(self.cluster))

    def _insert(self, tables: dict[str, pl.DataFrame], sealed: list[pl.DataFrame], step: Step) -> None:
        with self.store.transaction() as connection:
            # One by one: two at once are compressed on two threads, which costs a third more CPU, and the memory of two.
            for segment in sealed:
                insert_sealed(connection, segment, filters=False)
            for name, data in tables.items():
                insert(connection, f"raw.{name}", data)
            self.ledger.write(connection, step)

    def _report(self, error: Exception) -> None:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        if self.trouble is None:
            log.error("the store cannot be written; what arrives waits in the spool", error=text)
        self.trouble = f"the store cannot be written ({text}); what arrives waits in the spool"

    def _recovered(self, step: Step, attempt: int) -> bool:
        """Waits, opens the store anew where it must be, and looks whether the transaction went through after all."""
        self._stopping.wait(RETRY_S[min(attempt, len(RETRY_S) - 1)])
        try:
            self.store.reopen_if_broken()
            return self.ledger.last_step()[0] == step.name
        except (duckdb.Error, OSError, StoreError) as error:
            self._report(error)
            return False

    def _tidy(self) -> None:
        """With nothing under way, what was given out is what the ledger knows; now and then, old keys go."""
        if self._pieces:
            return
        self._given.clear()
        if time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()
            self.ledger.prune(datetime.now(UTC).replace(tzinfo=None))
