"""Runs a statement behind the wall: in one process, fed by the store, watched, and killed at its time or memory limit."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa
import structlog

from queries.kql import errors
from queries.kql.errors import KqlError, KqlRuntimeError, QueryTimeout
from queries.kql.functions.python import USED, give
from queries.kql.functions.registry import registry
from queries.kql.parsed import parsed
from queries.kql.wall import forking
from queries.kql.wall.batches import batches
from queries.kql.wall.children import FORKER, KEPT, SHORT_S, SMALL, Child, is_readable, number, received
from queries.kql.wall.cutting import Cut, Stream
from queries.kql.wall.guarding import Guarded
from queries.kql.wall.judging import keeps_rows
from queries.kql.wall.memory import Shares, memory_budget, too_much
from queries.kql.wall.tables import Rows

log = structlog.get_logger()
#: How often the time limit and the client of a process are checked, seconds; the kernel limits its memory.
LOOK_S = 0.01
#: Rows that a stream sends together: a chunk of the engine, so that no more long lines are held than necessary.
ROWS_AT_ONCE = 2_048
#: Temporary files of one query: this many times its memory.
DISK_SHARE = 4
#: A forked process sends its number at once; one that does not within this has failed.
START_S = 10.0
NOT_STARTED = "the process for this query did not start: the machine may have no memory left; see the service's log"


class _Feeder(threading.Thread):
    """Streams the rows of one step out of the store into a pipe."""

    def __init__(self, con: duckdb.DuckDBPyConnection, stream: Stream, fd: int, share: int) -> None:
        super().__init__(daemon=True, name="query rows")
        self._con, self._stream, self._fd = con.cursor(), stream, fd
        self._guarded = Guarded(self._con, share or None)
        self.problem: duckdb.Error | KqlError | None = None

    def run(self) -> None:
        try:
            with os.fdopen(self._fd, "wb", buffering=2**16) as file, self._guarded:
                statement = self._stream.statement
                # Not execute(): its reader holds all rows before the first is read.
                found = self._con.sql(parsed(self._con, statement.sql), params=statement.parameters)
                types = [(column[0], str(column[1])) for column in found.description]
                file.write(json.dumps(types).encode() + b"\n")
                reader = found.to_arrow_reader(ROWS_AT_ONCE)
                with pa.ipc.new_stream(file, reader.schema) as writer:
                    try:
                        for batch in batches(reader):
                            writer.write_batch(batch)
                    except duckdb.Error as problem:  # known before the stream ends, as if it had no more rows
                        self.problem = self._problem_of(problem)
        except duckdb.Error as problem:
            self.problem = self._problem_of(problem)
        except (OSError, pa.ArrowException):
            pass  # the reader is gone

    def _problem_of(self, problem: duckdb.Error) -> duckdb.Error | KqlError:
        return KqlRuntimeError(too_much(self._guarded.budget)) if self._guarded.struck else problem

    def stop(self) -> None:
        if self.ident is None:  # never started
            os.close(self._fd)
        for _ in range(250):
            if not self.is_alive():
                break
            with suppress(duckdb.Error):
                self._con.interrupt()
            self.join(LOOK_S)
        else:
            log.warning("a query's rows are still being read from the store")
            return
        self._con.close()


class _Frames:
    """The answer's bytes as they arrive, a file that Arrow reads; what was read is released."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()

    def add(self, part: bytearray) -> None:
        if part:
            self._parts.append(memoryview(part))

    def read(self, size: int = -1) -> bytearray:
        made = bytearray()
        while self._parts and (size < 0 or len(made) < size):
            part = self._parts.popleft()
            wanted = len(part) if size < 0 else min(size - len(made), len(part))
            made += part[:wanted]
            if wanted < len(part):
                self._parts.appendleft(part[wanted:])
        return made

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None: ...


class Asked:
    """One statement behind the wall."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, cut: Cut, rows: Sequence[Rows] | None, *, max_rows: int | None,
        max_bytes: int | None, deadline: float | None, timeout_s: float | None, stopped: threading.Event | None,
    ) -> None:  # fmt: skip
        self._con, self._far, self._rows = con, cut.far, rows
        self._near = cut.near if rows is None else ()
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._deadline, self._timeout_s, self._stopped = deadline, timeout_s, stopped
        self._memory = memory_budget()
        self._shares = Shares.of(self._memory, max_bytes, any(keeps_rows(one.statement.sql) for one in self._near))
        if max_bytes is not None:
            self._max_bytes = min(max_bytes, self._shares.answer)
        self._limits = (self._shares.limit, self._shares.engine, DISK_SHARE * self._memory, self._shares.threads)
        self._child: Child | None = None
        self._feeders: list[_Feeder] = []
        self._frames = _Frames()

    def answer(self) -> tuple[pa.Table, str | None]:
        """The rows, and where they were cut ("rows", "bytes"). Raises ``KqlError``, and ``duckdb.Error`` of the store."""
        is_kept = False
        try:
            self._begin()
            message = self._wait()
            is_kept = self._may_be_kept(message)
        finally:
            self._end(is_kept)
        table = pa.ipc.open_stream(pa.PythonFile(self._frames, mode="r")).read_all()
        return table, message["truncated"]

    def _begin(self) -> None:
        reads: list[int] = []
        try:
            for stream in self._near:
                read, write = os.pipe()
                reads.append(read)
                self._feeders.append(_Feeder(self._con, stream, write, self._shares.near))
            self._send(reads)
        finally:
            for read in reads:
                os.close(read)
        for feeder in self._feeders:
            feeder.start()

    def _send(self, reads: list[int]) -> None:
        """Sends the question to a process that is kept, or else to a new one."""
        limit, engine, disk, threads = self._limits
        asked = {
            "rows": self._rows or (), "sql": self._far.sql, "parameters": self._far.parameters,
            "streams": [(s.name, s.once) for s in self._near], "memory": limit, "engine": engine, "disk": disk,
            "threads": threads, "nice": 5, "max_rows": self._max_rows, "max_bytes": self._max_bytes,
            "too_much": too_much(self._memory),
        }  # fmt: skip
        while (kept := KEPT.take(self._limits)) is not None:
            self._child = kept
            with suppress(OSError):
                kept.ask(pickle.dumps(asked | {"folder": kept.folder}), reads)
                return
            kept.leave()
        self._child = None
        self._child = child = Child.forked(self._limits)
        child.socket.settimeout(START_S)
        try:
            child.ask(pickle.dumps(asked | {"folder": child.folder}), reads)
        except OSError as error:
            raise KqlRuntimeError(NOT_STARTED) from error

    def _wait(self) -> dict[str, Any]:
        """Reads frames until the end of the answer."""
        child = self._child
        assert child is not None
        mine = child.socket
        while not is_readable(mine, LOOK_S):
            self._look()
        if child.pid is None:
            child.pid = number(mine)
            if child.pid == 0:  # it sends its number first, before it takes memory
                self._look()
                raise KqlRuntimeError(NOT_STARTED)
        while True:
            kind, length = forking.HEAD.unpack(self._read(mine, forking.HEAD.size))
            payload = self._read(mine, length)
            if kind == forking.DATA:
                self._frames.add(payload)
            elif kind == forking.END:
                self._problem_of_feeders()
                found: dict[str, Any] = json.loads(payload)
                FORKER.cpu_s += found["cpu_s"]
                return found
            else:
                self._problem_of_feeders()
                raise self._error(json.loads(payload))

    def _read(self, mine: socket.socket, length: int) -> bytearray:
        """Reads this many bytes; checks the limits while it waits."""
        wanted = bytearray(length)
        view, at = memoryview(wanted), 0
        while at < length:
            self._look()
            if not is_readable(mine, LOOK_S):
                continue
            got = received(mine, view[at:], min(length - at, 2**20))
            if not got:
                self._ended()
                self._problem_of_feeders()
                self._look()
                raise KqlRuntimeError(too_much(self._memory))  # the kernel refused it memory, or ended it
            at += got
        return wanted

    def _problem_of_feeders(self) -> None:
        for feeder in self._feeders:
            if feeder.problem is not None:
                raise feeder.problem

    def _error(self, message: dict[str, str]) -> KqlError:
        kind = getattr(errors, message["kind"], KqlRuntimeError)
        made: KqlError = kind(message["message"])
        return made

    def _look(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise QueryTimeout(f"the query took longer than {self._timeout_s:g} s and was stopped")
        if self._stopped is not None and self._stopped.is_set():
            raise KqlRuntimeError("the query was cancelled")

    def _ended(self) -> None:
        """The process is gone; its number may be that of another one soon."""
        if self._child is not None:
            self._child.pid = 0

    def _may_be_kept(self, message: dict[str, Any]) -> bool:
        is_small = message["gained"] <= SMALL and message["seconds"] <= SHORT_S
        return is_small and not any(name in registry().site for name, _ in USED.findall(self._far.sql))

    def _end(self, is_kept: bool) -> None:
        if self._child is not None and not is_kept:
            self._child.end()
        for feeder in self._feeders:
            feeder.stop()
        if self._child is not None and is_kept:
            KEPT.put(self._child)


def ask(
    con: duckdb.DuckDBPyConnection, cut: Cut, rows: Sequence[Rows] | None = None, *, max_rows: int | None,
    max_bytes: int | None, deadline: float | None, timeout_s: float | None, stopped: threading.Event | None = None,
) -> tuple[pa.Table, str | None]:  # fmt: skip
    """The answer of a statement that was cut in two. ``rows``: those of its near steps, if they were read before."""
    for stream in cut.near:
        give(con, stream.statement.sql)  # none, unless an engine's table of words changes
    return Asked(
        con, cut, rows, max_rows=max_rows, max_bytes=max_bytes, deadline=deadline, timeout_s=timeout_s, stopped=stopped
    ).answer()
