"""Processes that decode and parse spooled batches. They read the payloads from the segment files themselves.

A worker leaves when its parent does, however that went: the kernel kills it (PR_SET_PDEATHSIG), and its pipe closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from collector.decoding import Job, Outcome

_PR_SET_PDEATHSIG = 1
#: A batch is parsed in a second or two; what takes longer than this hangs, and its worker is replaced.
PATIENCE_S = 120.0
GOODBYE_S = 2.0


class WorkerDied(Exception):  # noqa: N818  (what happened)
    """The process ended or hung over a batch; the text says which."""


class ParseWorker:
    """One process, started when first asked. One batch at a time: ``give``, then ``take``."""

    def __init__(self, patterns: Sequence[Path] = ()) -> None:
        self._patterns = tuple(patterns)
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        context = get_context("spawn")  # not forked: Polars' and DuckDB's threads do not survive a fork
        self._pipe, theirs = context.Pipe()
        before = os.environ.get("POLARS_MAX_THREADS")
        os.environ["POLARS_MAX_THREADS"] = "1"  # one process is one core
        try:
            self._process = context.Process(
                target=_serve, args=(theirs, self._patterns, os.getpid()), name="faultline parse", daemon=True
            )
            self._process.start()
        finally:
            if before is None:
                del os.environ["POLARS_MAX_THREADS"]
            else:
                os.environ["POLARS_MAX_THREADS"] = before
        theirs.close()

    def give(self, jobs: Sequence[Job]) -> None:
        if self._pipe is None:
            self.start()
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(pickle.dumps(tuple(jobs), protocol=5))
        except OSError as error:
            self.stop()
            raise WorkerDied(f"a parser process could not be asked: {error}") from error

    @property
    def connection(self) -> Connection | None:
        """To wait on: readable when the answer is there or the process is gone."""
        return self._pipe

    def take(self, timeout_s: float = PATIENCE_S) -> Outcome:
        """The answer to the last ``give``. Raises ``WorkerDied``."""
        assert self._pipe is not None
        try:
            if not self._pipe.poll(timeout_s):
                self.stop()
                raise WorkerDied(f"a parser process did not answer within {timeout_s:.0f} s")
            outcome: Outcome = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            code = self.stop()
            raise WorkerDied(f"a parser process died over the batch (exit code {code})") from error
        return outcome

    def stop(self) -> int | None:
        """Ends the process; the next ``give`` starts another."""
        pipe, process = self._pipe, self._process
        self._pipe = self._process = None
        if pipe is not None:
            pipe.close()
        if process is None:
            return None
        process.join(GOODBYE_S)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode


def _serve(pipe: Connection, patterns: tuple[Path, ...], parent: int) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    from collector.decoding import work
    from parsers.engine import LineParser
    from parsers.watched import WatchedCatalogue

    watched = WatchedCatalogue(patterns)
    parser = LineParser(watched.catalogue)
    while True:
        try:
            jobs = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        if watched.refresh():
            parser = LineParser(watched.catalogue)
        try:
            outcome = work(jobs, parser)
        except Exception:
            outcome = Outcome(fault=traceback.format_exc(limit=-3))
        with contextlib.suppress(BrokenPipeError):
            pipe.send_bytes(pickle.dumps(outcome, protocol=5))
