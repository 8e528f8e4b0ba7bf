"""Parsing in worker processes: bytes in, rows out, in the order asked for.

    with ParserPool(2, patterns) as pool:
        waiting = pool.submit(Piece(data, origin))
        rows = waiting.result()                     # a frame of LOGS, one row per line

A worker leaves when its parent is gone, however it went: ``kill -9`` of the service leaves nobody behind. A worker that
dies over a batch is replaced and the batch tried once more; what kills two workers is the caller's to store unparsed.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.record import Origin, empty

if TYPE_CHECKING:
    from parsers.engine import LineParser

#: One process is one core: Polars' own threads would only get in each other's way.
_ONE_THREAD = "POLARS_MAX_THREADS"
#: A worker answers its farewell within this, or is ended.
GOODBYE_S = 5.0
_environment = threading.Lock()


class ParsingFailed(RuntimeError):  # noqa: N818  (what happened, told to a person)
    """A batch could not be parsed: its worker died twice over it, or met a fault of ours. The text says which."""


@dataclass(frozen=True)
class Piece:
    """Lines of one origin. ``data``: bytes that are cut at line ends, or lines already cut. ``first_line`` numbers the
    first of them."""

    data: bytes | list[bytes]
    origin: Origin
    first_line: int = 1


@dataclass(frozen=True)
class Counts:
    """What one piece held: lines, lines that mean an event, lines without any header that we know."""

    lines: int
    events: int
    unparsed: int


@dataclass(frozen=True)
class Counted:
    """Rows of several pieces, one after another, and the counts of each."""

    rows: pl.DataFrame
    counts: list[Counts]


class ParserPool:
    """Parses batches on ``workers`` processes; with 0 in this one, when asked. Safe to use from several threads.

    ``patterns`` are the site's catalogue files or folders; after :meth:`reload` batches are read with what they say then.
    ``parser`` is used in this process, where it is given.
    """

    def __init__(
        self, workers: int | None = None, patterns: Sequence[Path] = (), parser: LineParser | None = None
    ) -> None:
        self.workers = (os.cpu_count() or 1) if workers is None else workers
        self._patterns = tuple(patterns)
        self._edition = 0
        self._here = _Parsers(self._patterns, parser)
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        self._started: list[_Worker] = []
        self._closed = False
        for _ in range(self.workers):
            self._free.put(None)  # started when first needed
        self._threads = ThreadPoolExecutor(max(1, self.workers), thread_name_prefix="parser")

    def submit(self, *pieces: Piece) -> Future[pl.DataFrame]:
        """The rows of all ``pieces``, one after another, as one frame. ``ParsingFailed`` comes out of the future."""
        future: Future[pl.DataFrame] = self._submit(pieces, False)
        return future

    def _submit(self, pieces: tuple[Piece, ...], counted: bool) -> Future[Any]:
        if self._closed:
            raise RuntimeError("the parser pool is closed")
        if self.workers:
            return self._threads.submit(self._elsewhere, pieces, counted)
        done: Future[Any] = Future()
        try:
            found = self._here.parse(self._edition, pieces, counted)
            done.set_result(found if counted else found.rows)
        except Exception as error:
            done.set_exception(error)
        return done

    def submit_counted(self, *pieces: Piece) -> Future[Counted]:
        """As :meth:`submit`, with the rows in the store's form and what each piece held."""
        future: Future[Counted] = self._submit(pieces, True)
        return future

    def parse(self, *pieces: Piece) -> pl.DataFrame:
        """As :meth:`submit`, waiting for it."""
        return self.submit(*pieces).result()

    def reload(self) -> None:
        """Batches submitted from now on are read with the catalogue as it lies on disk now."""
        self._edition += 1

    def close(self) -> None:
        """Waits for what is under way and ends the workers."""
        self._closed = True
        self._threads.shutdown(wait=True)
        for worker in self._started:
            worker.close()

    def __enter__(self) -> ParserPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _elsewhere(self, pieces: tuple[Piece, ...], counted: bool) -> pl.DataFrame | Counted:
        worker = self._free.get()
        try:
            for attempt in (1, 2):
                if worker is None:
                    worker = _Worker(self._patterns)
                    self._started.append(worker)
                try:
                    found = worker.ask(self._edition, pieces, counted)
                    return found if counted else found.rows
                except (EOFError, OSError) as error:
                    worker.close()
                    self._started.remove(worker)
                    code, worker = worker.process.exitcode, None
                    if attempt == 2:
                        where = ", ".join(sorted({piece.origin.path or "a stream" for piece in pieces}))
                        raise ParsingFailed(
                            f"{where}: two parser processes died over one batch (exit code {code})"
                        ) from error
            raise AssertionError("unreachable")
        finally:
            self._free.put(worker)


class _Worker:
    """The parent's end of one process."""

    def __init__(self, patterns: tuple[Path, ...]) -> None:
        context = get_context("spawn")  # not forked: Polars' and DuckDB's threads do not survive a fork
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, patterns), name="faultline parser", daemon=True)
        with _environment, _set(_ONE_THREAD, "1"):
            self.process.start()
        theirs.close()

    def ask(self, edition: int, pieces: tuple[Piece, ...], counted: bool) -> Counted:
        self.connection.send_bytes(pickle.dumps((edition, pieces, counted), protocol=5))
        counts = pickle.loads(self.connection.recv_bytes())
        if isinstance(counts, str):
            raise ParsingFailed(f"a fault in the parser: {counts}")
        return Counted(pl.read_ipc(io.BytesIO(self.connection.recv_bytes())), counts)

    def close(self) -> None:
        self.connection.close()
        self.process.join(GOODBYE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextlib.contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class _Parsers:
    """The parser of the newest edition of the catalogue; loaded when first needed."""

    def __init__(self, patterns: tuple[Path, ...], parser: LineParser | None = None) -> None:
        self._patterns = patterns
        self._edition = 0
        self._lock = threading.Lock()
        self._parser = parser

    def parse(self, edition: int, pieces: tuple[Piece, ...], for_storage: bool) -> Counted:
        from parsers.engine import LineParser
        from parsers.patterns import load
        from store.duckdb_store import logs_for_storage

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
    return Counts(rows.height, int((rows["event"] != "other").sum()), int((rows["format"] == "plain").sum()))


def _work(connection: Connection, patterns: tuple[Path, ...]) -> None:
    """The life of a worker: batches until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    parsers = _Parsers(patterns)
    while True:
        try:
            edition, pieces, for_storage = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        rows = io.BytesIO()
        try:
            found = parsers.parse(edition, pieces, for_storage)
            found.rows.write_ipc(rows)
        except Exception:
            connection.send_bytes(pickle.dumps(traceback.format_exc(limit=-3)))
            continue
        connection.send_bytes(pickle.dumps(found.counts))
        connection.send_bytes(rows.getbuffer())


def _leave_with_parent() -> None:
    """Ends this process the moment its parent is gone, in the middle of a batch too."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)
