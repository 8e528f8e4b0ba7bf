"""Behind the wall: a process (``main``) waits for statements on a socket and forks for each.

The waiting process has everything imported and an empty database open, because opening one takes longer than most
statements. Neither runs a thread of its own, so that a fork is safe and takes milliseconds. Its child has a copy of that
database in its own memory, runs statements in it, one after the other, and exits. It may be killed at any time: it holds
nothing that anything else needs.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import pickle
import resource
import select
import signal
import socket
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

#: A frame on the socket of one statement: its type and length.
HEAD = struct.Struct("!cQ")
DATA, END, ERROR = b"D", b"E", b"X"
#: The first frame: its type and the number of the process.
PID, PID_FRAME = b"P", struct.Struct("!cQ")
#: The length of a question, before it.
LENGTH = struct.Struct("!Q")
MOST_FDS = 64
#: A process that waits this long for its next statement ends, seconds.
IDLE_S = 60.0
#: Rows of an answer that are sent together: the row and byte budgets are checked after each batch.
ROWS_AT_ONCE = 2_048
_PDEATHSIG = 1
#: Run once before the first fork: a child copies each page of memory that it is the first to write to, and finds each
#: function of the engine that it is the first to call.
_WARM_UP = (
    "SELECT b, count(*), min(a), CAST(to_json(list(a)) AS VARCHAR) FROM (SELECT CAST(a AS BIGINT) AS a, coalesce(b, '') AS b"
    ' FROM "warm up" AS t WHERE a > $1) GROUP BY b ORDER BY b LIMIT $2'
)


def serve(listening: socket.socket) -> None:
    """Forks for each set of sockets that arrives; ends with the process that started it."""
    import pyarrow.compute  # noqa: F401

    from parsers import extensions
    from queries.kql.functions import python
    from queries.kql.wall import tables  # noqa: F401

    extensions.be_quiet()
    python.prepare()
    database = _opened()
    gc.freeze()  # a collection would write to every page that the children share

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # exit statuses are not needed
    while True:
        message, control, _, _ = listening.recvmsg(16, socket.CMSG_SPACE(MOST_FDS * 4))
        fds = array.array("i")
        for _, _, data in control:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if not message:
            # Not an ordinary end: the frozen objects count as leaked then, and DuckDB's bindings list them on stderr.
            os._exit(0)
        if os.fork() == 0:
            listening.close()
            _alone(list(fds), database)
        for fd in fds:
            os.close(fd)


def _opened() -> Any:
    """An empty database in memory that runs no thread."""
    import duckdb

    con = duckdb.connect(
        config={
            "threads": 1, "async_threads": 0, "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )  # fmt: skip
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_progress_bar = false")  # drawn in an interactive session, as which "python -c" counts
    with con.cursor() as beside:
        rows = beside.sql("SELECT * FROM (VALUES (1, 'x'), (2, NULL)) AS v(a, b)").to_arrow_table()
        beside.register("warm up", rows.to_reader())
        beside.sql(_WARM_UP, params=[0, 1]).to_arrow_reader(ROWS_AT_ONCE).read_all()
        beside.unregister("warm up")
    return con


def _alone(fds: list[int], database: Any) -> None:
    """The statements of one process, and its end."""
    code = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=fds[0]) as asker:
            asker.sendall(PID_FRAME.pack(PID, os.getpid()))
            _answers(asker, database)
        code = 0
    finally:
        os._exit(code)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _send(asker: socket.socket, kind: bytes, payload: Any) -> None:
    asker.sendall(HEAD.pack(kind, len(payload)))
    asker.sendall(payload)


def _question(asker: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receives a statement and its streams; None if there is no other. The parent is trusted: it is the service."""
    if not select.select([asker], [], [], IDLE_S)[0]:
        return None
    head, streams, _, _ = socket.recv_fds(asker, LENGTH.size, MOST_FDS)
    if not head:
        return None
    with asker.makefile("rb", buffering=0) as file:
        (length,) = LENGTH.unpack(head + _exactly(file, LENGTH.size - len(head)))
        found: dict[str, Any] = pickle.loads(_exactly(file, length))
    return found, streams


def _exactly(file: Any, length: int) -> bytearray:
    """This many bytes, and none of what comes after them."""
    made = bytearray(length)
    view, at = memoryview(made), 0
    while at < length:
        got = file.readinto(view[at:])
        if not got:
            raise EOFError
        at += got
    return made


class _Frames:
    """A file that Arrow writes to, each write a frame."""

    closed = False

    def __init__(self, asker: socket.socket) -> None:
        self._asker = asker

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        _send(self._asker, DATA, view)
        return len(view)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _answers(asker: socket.socket, database: Any) -> None:
    """Answers until a statement fails or no other comes."""
    before, used = _data(), 0.0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    is_new = True
    while (question := _question(asker)) is not None:
        asked, streams = question
        if is_new:
            os.nice(asked["nice"])
            resource.setrlimit(resource.RLIMIT_DATA, (before + asked["memory"],) * 2)
        outcome = _answer(asker, asked, streams, database, is_new)
        if outcome is None:
            return
        # What is left is the end of the process.
        cpu_s, used = time.process_time() - used, time.process_time()
        _send(asker, END, json.dumps(outcome | {"gained": _data() - before, "cpu_s": cpu_s}).encode())
        is_new = False
    if not is_new:
        with suppress(OSError):
            Path(asked["folder"]).rmdir()  # usually the service removes it


def _answer(
    asker: socket.socket, asked: dict[str, Any], streams: list[int], database: Any, is_new: bool
) -> dict[str, Any] | None:
    """Sends rows, or an error; returns the outcome, None after an error."""
    import duckdb

    from queries.kql.errors import KqlError, KqlRuntimeError
    from queries.kql.failures import engine_error

    try:
        return _run(asker, asked, streams, database, is_new)
    except MemoryError:
        _send(asker, ERROR, json.dumps({"kind": "KqlRuntimeError", "message": asked["too_much"]}).encode())
    except duckdb.Error as problem:
        error = engine_error(problem, False, None)
        if "MemoryError" in str(problem):  # from a body in Python
            error = KqlRuntimeError(asked["too_much"])
        _send(asker, ERROR, json.dumps({"kind": type(error).__name__, "message": error.message}).encode())
    except KqlError as error:
        _send(asker, ERROR, json.dumps({"kind": type(error).__name__, "message": error.message}).encode())
    return None


def _data() -> int:
    """Bytes that the process has allocated, as its limit counts them."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _run(
    asker: socket.socket, asked: dict[str, Any], streams: list[int], database: Any, is_new: bool
) -> dict[str, Any]:
    from queries.kql.functions.python import give
    from queries.kql.wall.tables import registered

    began = time.monotonic()
    # The connection is the statement's own: its tables end with it, and its random numbers start anew.
    with database.cursor() as con, ExitStack() as files:
        if is_new:
            con.execute("SET memory_limit = ?", [f"{asked['engine'] // 2**20}MiB"])
            con.execute("SET temp_directory = ?", [asked["folder"]])
            con.execute("SET max_temp_directory_size = ?", [f"{asked['disk'] // 2**20}MiB"])
            con.execute("SET threads = ?", [asked["threads"]])
        for (name, once), fd in zip(asked["streams"], streams, strict=True):
            _take(con, name, once, files.enter_context(os.fdopen(fd, "rb", buffering=2**16)))
        if is_new:
            # The folder of temporary files is opened at first use, which would fail without external access.
            con.execute("SET allowed_directories = ?", [[asked["folder"]]])
            con.execute("SET enable_external_access = false")
            con.execute("SET lock_configuration = true")
        give(con, asked["sql"])
        with registered(con, asked["rows"], asked["sql"]) as statement:
            # Not con.execute(): its reader holds the whole answer before the first row is read.
            reader = con.sql(statement, params=asked["parameters"]).to_arrow_reader(ROWS_AT_ONCE)
            truncated = _send_rows(asker, reader, asked["max_rows"], asked["max_bytes"])
            reader.close()
    return {"truncated": truncated, "seconds": time.monotonic() - began}


def _send_rows(asker: socket.socket, reader: Any, max_rows: int | None, max_bytes: int | None) -> str | None:
    """Sends the answer; returns where it was cut."""
    import pyarrow as pa

    from queries.kql.wall.batches import batches

    rows = size = 0
    truncated: str | None = None
    with pa.ipc.new_stream(pa.PythonFile(_Frames(asker), mode="w"), reader.schema) as writer:
        for batch in batches(reader):
            if max_rows is not None and rows + batch.num_rows > max_rows:
                batch, truncated = batch.slice(0, max_rows - rows), "rows"
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if max_bytes is not None and size > max_bytes:
                truncated = "bytes"
                break
            writer.write_batch(batch)
            if truncated:
                break
    return truncated


def _take(con: Any, name: str, once: bool, file: Any) -> None:
    """Registers the rows of a step that ran beside the store, under its name and with its types."""
    import pyarrow as pa

    from queries.kql.wall.tables import casts, quoted

    types = json.loads(file.readline())
    reader = pa.ipc.open_stream(file)
    con.register(f"in {name}", reader)
    made = "VIEW" if once else "TABLE"
    con.execute(f'CREATE TEMP {made} {quoted(name)} AS SELECT {casts(types)} FROM "in {name}"')


def main(fd: int) -> None:
    """Runs the forking process, on the socket of this number."""
    serve(socket.socket(fileno=fd))
