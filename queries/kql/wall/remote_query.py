"""Runs a statement behind the wall: in one process, fed by the store, watched, and killed at its time or memory limit."""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import structlog

from queries.kql import errors
from queries.kql.errors import KqlError, KqlRuntimeError, QueryTimeout
from queries.kql.functions.python import give
from queries.kql.parsed import parsed
from queries.kql.wall import forking
from queries.kql.wall.cutting import Cut, Stream
from queries.kql.wall.guarding import Guarded
from queries.kql.wall.judging import keeps_rows
from queries.kql.wall.memory import Shares, memory_budget, too_much

log = structlog.get_logger()
_ROOT = Path(__file__).parents[3]
#: How often the time limit and the client of a process are checked, seconds; the kernel limits its memory.
LOOK_S = 0.01
#: Rows that a stream sends together: a chunk of the engine, so that no more long lines are held than necessary.
ROWS_AT_ONCE = 2_048
#: Temporary files of one query: this many times its memory.
DISK_SHARE = 4
#: A forked process sends its number at once; one that does not within this has failed.
START_S = 10.0


class Forker:
    """The process that forks; started when first needed, and again when it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        #: CPU seconds of the statements, as their processes reported; without the end of a process. For benchmarks.
        self.cpu_s = 0.0

    def start(self) -> None:
        """Does nothing while it runs."""
        with self._lock:
            self._started()

    def _started(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        if self._socket is not None:
            self._socket.close()
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a pool of threads would not survive the fork
        env |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # others reserve a gigabyte at once, which a limit would count
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from queries.kql.wall.forking import main; main({its.fileno()})"],
            pass_fds=[its.fileno()], env=env, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        its.close()
        self._socket = mine
        return mine

    def send(self, fds: list[int]) -> None:
        """Forks a process that receives these."""
        with self._lock:
            try:
                socket.send_fds(self._started(), [b"fork"], fds)
            except OSError:
                if self._process is not None:
                    self._process.kill()
                    self._process.wait()
                socket.send_fds(self._started(), [b"fork"], fds)

    def stop(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None


FORKER = Forker()


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
                    for batch in reader:
                        writer.write_batch(batch)
        except duckdb.Error as problem:
            self.problem = KqlRuntimeError(too_much(self._guarded.budget)) if self._guarded.struck else problem
        except (OSError, pa.ArrowException):
            pass  # the reader is gone

    def stop(self) -> None:
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
        self, con: duckdb.DuckDBPyConnection, cut: Cut, *, max_rows: int | None, max_bytes: int | None,
        deadline: float | None, timeout_s: float | None, stopped: threading.Event | None,
    ) -> None:  # fmt: skip
        self._con, self._cut = con, cut
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._deadline, self._timeout_s, self._stopped = deadline, timeout_s, stopped
        self._memory = memory_budget()
        self._shares = Shares.of(self._memory, max_bytes, any(keeps_rows(stream.statement.sql) for stream in cut.near))
        if max_bytes is not None:
            self._max_bytes = min(max_bytes, self._shares.answer)
        #: The process; None: it has not said its number yet. 0: it has ended.
        self._pid: int | None = None
        self._feeders: list[_Feeder] = []
        self._frames = _Frames()

    def answer(self) -> tuple[pa.Table, str | None]:
        """The rows, and where they were cut ("rows", "bytes"). Raises ``KqlError``, and ``duckdb.Error`` of the store."""
        folder = tempfile.mkdtemp(prefix="faultline-query-")
        mine, its = socket.socketpair()
        try:
            self._begin(mine, its, folder)
            message = self._wait(mine)
        finally:
            its.close()
            self._end(mine)
            for feeder in self._feeders:
                feeder.stop()
            shutil.rmtree(folder, ignore_errors=True)
        table = pa.ipc.open_stream(pa.PythonFile(self._frames, mode="r")).read_all()
        return table, message["truncated"]

    def _begin(self, mine: socket.socket, its: socket.socket, folder: str) -> None:
        pipes = [os.pipe() for _ in self._cut.near]
        try:
            FORKER.send([its.fileno(), *(read for read, _ in pipes)])
        finally:
            for read, write in pipes:
                os.close(read)
                stream = self._cut.near[len(self._feeders)]
                self._feeders.append(_Feeder(self._con, stream, write, self._shares.near))
        its.close()
        for feeder in self._feeders:
            feeder.start()
        question = pickle.dumps(
            {
                "sql": self._cut.far.sql, "parameters": self._cut.far.parameters, "folder": folder,
                "streams": [(s.name, s.once) for s in self._cut.near], "memory": self._shares.limit,
                "engine": self._shares.engine, "disk": DISK_SHARE * self._memory, "threads": self._shares.threads,
                "nice": 5, "max_rows": self._max_rows, "max_bytes": self._max_bytes, "too_much": too_much(self._memory),
            }
        )  # fmt: skip
        mine.settimeout(START_S)
        try:
            mine.sendall(struct.pack("!Q", len(question)) + question)
        except OSError as error:
            raise KqlRuntimeError("the process for this query did not start; see the service's log") from error

    def _wait(self, mine: socket.socket) -> dict[str, Any]:
        """Reads frames until the end of the answer."""
        while not select.select([mine], [], [], LOOK_S)[0]:
            self._look()
        self._pid = _number(mine)
        while True:
            kind, length = forking.HEAD.unpack(self._read(mine, forking.HEAD.size))
            payload = self._read(mine, length)
            if kind == forking.DATA:
                self._frames.add(payload)
            elif kind == forking.END:
                self._pid = 0  # it exits by itself, and its number may be reused
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
            if not select.select([mine], [], [], LOOK_S)[0]:
                continue
            got = _received(mine, view[at:], min(length - at, 2**20))
            if not got:
                self._pid = 0
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

    def _end(self, mine: socket.socket) -> None:
        """Kills the process. On a busy machine, time may be over before it has said its number; the answer does not wait
        for that."""
        if self._pid is None:
            threading.Thread(target=_kill_later, args=(mine,), daemon=True, name="query kill").start()
            return
        if self._pid:
            _kill(self._pid)
        mine.close()


def _received(mine: socket.socket, into: memoryview | bytearray, most: int) -> int:
    """How many bytes came; 0 at the end. A process that ends before it has read all that was sent resets its socket."""
    try:
        return mine.recv_into(into, most)
    except ConnectionResetError:
        return 0


def _number(mine: socket.socket) -> int:
    """The number of the process, its first frame, which arrives as a whole; 0 if it ended without."""
    frame = bytearray(forking.PID_FRAME.size)
    whole = _received(mine, frame, len(frame)) == len(frame)
    return int(forking.PID_FRAME.unpack(frame)[1]) if whole else 0


def _kill(pid: int) -> None:
    """The process is not a child of this one; as long as its socket is open, its number is its own."""
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def _kill_later(mine: socket.socket) -> None:
    with mine:
        mine.settimeout(None)  # ends with the process at the latest
        with suppress(OSError):
            if pid := _number(mine):
                _kill(pid)


def ask(
    con: duckdb.DuckDBPyConnection, cut: Cut, *, max_rows: int | None, max_bytes: int | None, deadline: float | None,
    timeout_s: float | None, stopped: threading.Event | None = None,
) -> tuple[pa.Table, str | None]:  # fmt: skip
    """The answer of a statement that was cut in two."""
    for stream in cut.near:
        give(con, stream.statement.sql)  # none, unless an engine's table of words changes
    return Asked(
        con, cut, max_rows=max_rows, max_bytes=max_bytes, deadline=deadline, timeout_s=timeout_s, stopped=stopped
    ).answer()
