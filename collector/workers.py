"""Worker processes: requests go in, answers come out in the same order.

Workers have two tasks: to decode and parse pieces of the spool (``collector.pipeline`` owns its :class:`Worker` s,
since it uses several without waiting) and to parse pieces of files (:class:`ParserPool`)::

    with ParserPool(2, patterns) as pool:
        waiting = pool.submit(Piece(data, origin))
        rows = waiting.result()                     # a frame of LOGS, one row per line

A worker exits when its parent is gone for whatever reason: ``kill -9`` of the service leaves no process behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from collector.exchange import Exchange, Packed
from parsers import extensions
from parsers.record import Origin, empty

if TYPE_CHECKING:
    from parsers.engine import LineParser

#: One process per core: Polars' own threads would only compete. Memory that one piece used is needed again by the next:
#: returning it to the kernel in between costs a tenth of the time in page faults.
_ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:-1",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # glibc's maximum: more is refused, and the other settings are then undone
    "MALLOC_TOP_PAD_": str(64 << 20),
    "PYTHONSAFEPATH": "1",  # a process that spawn starts would import from the current folder, which may be anybody's
}
#: Always set, overriding the environment: a worker is one process among many, Polars itself wrote the second variable
#: when it was imported here, and an empty value of the third means no.
_ALWAYS = frozenset({"POLARS_MAX_THREADS", "_RJEM_MALLOC_CONF", "PYTHONSAFEPATH"})
#: A piece is parsed in a second or two; beyond this the worker hangs and is replaced.
PATIENCE_S = 120.0
#: A worker that was asked to exit is killed after this.
GOODBYE_S = 2.0
_PR_SET_PDEATHSIG = 1
#: A worker idle for this long returns the memory of its answers to the system.
IDLE_S = 5.0
#: After an answer of more bytes, a worker returns free memory at once: a body of a million short lines leaves 200 MB, and
#: an ordinary piece has an answer of 15 MB.
LARGE_ANSWER = 64 << 20
#: Allocations before a garbage collection. A piece makes some ten thousand objects that live until it is done: with
#: Python's 700, they would be scanned dozens of times.
GARBAGE = 100_000
_environment_lock = threading.Lock()

#: Called once in each worker with the site's pattern files; returns the function that answers requests. An iterator that it
#: returns is an answer in parts: each is sent, and taken, for itself.
Maker = Callable[[tuple[Path, ...]], Callable[[Any], Any]]


class WorkerDied(Exception):  # noqa: N818  (what happened)
    """The process ended or hung during a request; the text says which."""


class WorkerFault(Exception):  # noqa: N818
    """The function raised; the text is the end of its traceback."""


class Worker:
    """One process, started at the first request. One request at a time: ``give``, then ``take``."""

    def __init__(self, make: Maker, patterns: Sequence[Path] = ()) -> None:
        self._make, self._patterns = make, tuple(patterns)
        self.process: BaseProcess | None = None
        self._exchange: Exchange | None = None

    def start(self) -> None:
        """Starts the process, if none runs. The kernel ends it with the calling thread."""
        if self.process is not None and self.process.is_alive():  # another try, where not all workers could be started
            return
        self.stop()
        context = get_context("spawn")  # not forked: Polars' and DuckDB's threads do not survive a fork
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(extensions.Logged(), theirs, self._make, self._patterns, os.getpid()),
            name="faultline parser", daemon=True,
        )  # fmt: skip
        try:
            with _environment_lock, _environment():
                process.start()
        except OSError:  # out of processes or file handles: the next request tries again
            ours.close()
            raise
        finally:
            theirs.close()
        self._exchange, self.process = Exchange(ours), process

    @property
    def connection(self) -> Connection | None:
        """For waiting: readable when the answer is there or the process is gone."""
        return self._exchange.pipe if self._exchange is not None else None

    def give(self, request: Any) -> None:
        """Raises ``WorkerDied``."""
        if self._exchange is None:
            self.start()
        assert self._exchange is not None
        try:
            self._exchange.send(request)
        except OSError as error:
            self.stop()
            raise WorkerDied(f"a parser process could not be asked: {error}") from error

    def take(self, timeout_s: float = PATIENCE_S) -> Any:
        """The answer to the oldest ``give``. Raises ``WorkerDied`` or ``WorkerFault``."""
        assert self._exchange is not None
        try:
            if not self._exchange.pipe.poll(timeout_s):
                self.stop()
                raise WorkerDied(f"a parser process did not answer within {timeout_s:.0f} s")
            answer = self._exchange.receive()
        except (EOFError, OSError) as error:
            code = self.stop()
            raise WorkerDied(f"a parser process died over the batch (exit code {code})") from error
        if isinstance(answer, WorkerFault):
            raise answer
        return answer

    def release(self) -> None:
        """Returns the memory of answers that nobody reads any more to the system."""
        if self._exchange is not None:
            self._exchange.release()

    def stop(self) -> int | None:
        """Ends the process and returns its exit code; the next ``give`` starts another."""
        exchange, process = self._exchange, self.process
        self._exchange = self.process = None
        if exchange is not None:
            exchange.close()
        if process is None:
            return None
        process.join(GOODBYE_S)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """The environment of a new worker: existing variables are kept except ``_ALWAYS``."""
    ours = {name: value for name, value in _ENVIRONMENT.items() if name in _ALWAYS or name not in os.environ}
    before = {name: os.environ[name] for name in ours if name in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(before)


def _serve(_logged: None, pipe: Connection, make: Maker, patterns: tuple[Path, ...], parent: int) -> None:
    """The main loop of a worker: serves requests until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    _leave_with_parent(parent)
    answer_to = make(patterns)
    gc.collect()
    gc.freeze()  # loaded objects stay: scanning them repeatedly finds nothing
    gc.set_threshold(GARBAGE)
    asked: queue.SimpleQueue[tuple[Any] | None] = queue.SimpleQueue()
    exchange = Exchange(pipe)
    threading.Thread(target=_listen, args=(exchange, asked), daemon=True).start()
    while (request := _next(asked, exchange)) is not None:
        sent = 0
        for answer in _answers(answer_to, request):
            with contextlib.suppress(BrokenPipeError):
                sent += exchange.send(answer)
            del answer  # kept, its rows would be in memory besides the next ones
        del request  # kept, its lines would be in memory until the next one
        if sent > LARGE_ANSWER:
            _return_memory()


def _answers(answer_to: Callable[[Any], Any], request: tuple[Any]) -> Iterator[Any]:
    """The answer to a request, or its parts as they are made; an error is the last of them."""
    try:
        answer = answer_to(*request)
        if isinstance(answer, Iterator):
            yield from answer
        else:
            yield answer
    except Exception:
        yield WorkerFault(traceback.format_exc(limit=-3))


def _return_memory() -> None:
    """Returns what is free on the C library's heap to the system. What remains there is not where the next body's lines
    go, which would come on top of it."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)


def _next(asked: queue.SimpleQueue[tuple[Any] | None], exchange: Exchange) -> tuple[Any] | None:
    """The next request; None once nobody can send one."""
    exchange.release(IDLE_S)  # what a flood needed, a trickle does not
    try:
        return asked.get(timeout=IDLE_S)
    except queue.Empty:
        exchange.release()
        return asked.get()


def _listen(exchange: Exchange, asked: queue.SimpleQueue[tuple[Any] | None]) -> None:
    """Receives requests even while an answer is sent: otherwise both sides would wait for the other to read, for ever,
    once a request and an answer exceed the kernel's pipe buffer."""
    while True:
        try:
            asked.put((exchange.receive(),))
        except (EOFError, OSError):
            asked.put(None)
            return


def _leave_with_parent(parent: int) -> None:
    """Ends this process as soon as its parent is gone, even in the middle of a batch."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            return
    threading.Thread(target=_watch_parent, daemon=True).start()


def _watch_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)


# -- pieces of files -------------------------------------------------------------------------------------------------


class ParsingFailed(RuntimeError):  # noqa: N818  (what happened, shown to a person)
    """A batch could not be parsed: its worker died twice on it, or hit a bug of ours. The text says which."""


@dataclass(frozen=True)
class Piece:
    """Lines of one origin. ``data``: bytes to be split at line ends, or lines already split. ``first_line`` is the
    number of the first."""

    data: bytes | list[bytes]
    origin: Origin
    first_line: int = 1


@dataclass(frozen=True)
class Counts:
    """Counts of one piece: lines, lines that mean an event, lines without a known header."""

    lines: int
    events: int
    unparsed: int
    source: str | None = None


@dataclass(frozen=True)
class Counted:
    """Rows of several pieces, one after another, and the counts of each."""

    rows: pl.DataFrame
    counts: list[Counts]


class ParserPool:
    """Parses batches on ``workers`` processes; with 0, in this process on demand. Safe to use from several threads.

    ``patterns`` are the site's catalogue files or folders. ``parser``, if given, is used in this process. A worker that
    dies on a batch is replaced and the batch retried once; a batch that kills two workers is left to the caller, to
    store unparsed.
    """

    def __init__(
        self, workers: int | None = None, patterns: Sequence[Path] = (), parser: LineParser | None = None
    ) -> None:
        self.workers = (os.cpu_count() or 1) if workers is None else workers
        self._edition = 0
        self._here = _Parsers(tuple(patterns), parser)
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._all = [Worker(_pieces, patterns) for _ in range(self.workers)]
        for worker in self._all:
            self._free.put(worker)  # started on first use
        if self.workers:
            _load_extensions()
        self._closed = False
        self._threads = ThreadPoolExecutor(max(1, self.workers), thread_name_prefix="parser")

    def submit(self, *pieces: Piece) -> Future[pl.DataFrame]:
        """The rows of all ``pieces``, concatenated into one frame. The future may raise ``ParsingFailed``."""
        future: Future[pl.DataFrame] = self._submit(pieces, False)
        return future

    def submit_counted(self, *pieces: Piece) -> Future[Counted]:
        """Like :meth:`submit`, with the rows in the store's form and the counts of each piece."""
        future: Future[Counted] = self._submit(pieces, True)
        return future

    def parse(self, *pieces: Piece) -> pl.DataFrame:
        """Like :meth:`submit`, but waits for the result."""
        return self.submit(*pieces).result()

    def close(self) -> None:
        """Waits for the work in progress and ends the workers."""
        self._closed = True
        self._threads.shutdown(wait=True)
        for worker in self._all:
            worker.stop()

    def __enter__(self) -> ParserPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process IDs of the running workers."""
        return [worker.process.pid for worker in self._all if worker.process is not None and worker.process.pid]

    def _submit(self, pieces: tuple[Piece, ...], counted: bool) -> Future[Any]:
        if self._closed:
            raise RuntimeError("the parser pool is closed")
        if self.workers:
            return self._threads.submit(self._elsewhere, pieces, counted)
        done: Future[Any] = Future()
        try:
            found = self._here.parse(self._edition, pieces, counted)
            done.set_result(found if counted else found.rows)
        except Exception as error:  # as a process would report it: the caller gives up one file, not all of them
            failed = ParsingFailed(f"a fault in the parser: {traceback.format_exc(limit=-3)}")
            failed.__cause__ = error
            done.set_exception(failed)
        return done

    def _elsewhere(self, pieces: tuple[Piece, ...], counted: bool) -> pl.DataFrame | Counted:
        worker = self._free.get()
        try:
            try:
                rows, counts = self._asked(worker, pieces, counted)
            except WorkerDied:
                rows, counts = self._asked(worker, pieces, counted)
        except WorkerDied as error:
            where = ", ".join(sorted({piece.origin.path or "a stream" for piece in pieces}))
            raise ParsingFailed(f"{where}: two parser processes died over one batch: {error}") from error
        except WorkerFault as fault:
            raise ParsingFailed(f"a fault in the parser: {fault}") from fault
        finally:
            self._free.put(worker)
        return Counted(rows.frame(), counts) if counted else rows.frame()

    def _asked(self, worker: Worker, pieces: tuple[Piece, ...], counted: bool) -> tuple[Packed, list[Counts]]:
        worker.give((self._edition, pieces, counted))
        found: tuple[Packed, list[Counts]] = worker.take()
        return found


def _load_extensions() -> None:
    """Loads the extensions that parsers use, so that problems are logged here once and not by each worker."""
    from parsers import patterns
    from parsers.formats import all_formats

    all_formats()
    patterns.installed()


class _Parsers:
    """The parser of the newest edition of the catalogue; loaded on first use."""

    def __init__(self, patterns: tuple[Path, ...], parser: LineParser | None = None) -> None:
        self._patterns = patterns
        self._edition = 0
        self._lock = threading.Lock()
        self._parser = parser

    def parse(self, edition: int, pieces: tuple[Piece, ...], for_storage: bool) -> Counted:
        from parsers.engine import LineParser
        from parsers.patterns import load
        from store.line_frames import logs_for_storage

        with self._lock:
            if self._parser is None or edition > self._edition:
                self._parser, self._edition = LineParser(load(self._patterns)), edition
            parser = self._parser
        frames = []
        for piece in pieces:
            if isinstance(piece.data, bytes):
                frames.append(parser.parse_data(piece.data, piece.origin, piece.first_line))
            else:
                frames.append(parser.parse(piece.data, piece.origin, piece.first_line))
        counts = [counts_of(frame) for frame in frames]
        if for_storage:
            frames = [logs_for_storage(frame) for frame in frames if frame.height]
        return Counted(pl.concat(frames) if frames else empty("logs"), counts)


def counts_of(rows: pl.DataFrame) -> Counts:
    """The counts of some rows of LOGS."""
    events, unparsed = int((rows["event"] != "other").sum()), int((rows["format"] == "plain").sum())
    return Counts(rows.height, events, unparsed, _package_source(rows))


def _package_source(rows: pl.DataFrame) -> str | None:
    """The most frequent source among rows that formats of installed packages read, if those are most of the rows."""
    from parsers.formats import installed_names

    if not (names := installed_names()):
        return None
    read = rows.filter(pl.col("format").cast(pl.String).is_in(names) & pl.col("source").is_not_null())
    if 2 * read.height <= rows.height:
        return None
    counted = (
        read.select(pl.col("source").cast(pl.String))
        .group_by("source")
        .len()
        .sort(["len", "source"], descending=[True, False])
    )
    return str(counted["source"][0])


def _pieces(patterns: tuple[Path, ...]) -> Callable[[Any], tuple[Packed, list[Counts]]]:
    """The work function of a pool worker."""
    parsers = _Parsers(patterns)

    def answer(request: Any) -> tuple[Packed, list[Counts]]:
        found = parsers.parse(*request)
        return Packed.of(found.rows), found.counts

    return answer
