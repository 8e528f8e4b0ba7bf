"""The processes behind the wall: the one that forks, and those that it forked, each for one statement at a time.

Half of what a small statement costs there is the fork and the end of its process. So a process whose statement ended
well and stayed far from its limits is kept for a while, and answers the next statement with the same limits. Nothing of
a statement is left in it but memory that its engine and interpreter reuse: each has a connection of its own, which holds
its tables and is closed after it, and no statement can change a setting. A process in which a function of an installed
package ran is not kept: such a function could keep what it saw.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from queries.kql.wall import forking

_ROOT = Path(__file__).parents[3]
#: A process is not asked again this long after its last statement, seconds. It ends by itself a little later.
KEPT_S = forking.IDLE_S / 2
#: The maximum number of processes that wait for a statement.
MOST_KEPT = 2
#: A process that gained more memory than this, or whose statement took longer, is not kept: bytes and seconds.
SMALL, SHORT_S = 2**25, 1.0


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
        # An empty part would be the current folder, and so is the first place of -c: its modules may be anybody's.
        paths = filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a pool of threads would not survive the fork
        env |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # others reserve a gigabyte at once, which a limit would count
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from queries.kql.wall.forking import main; main({its.fileno()})"],
            pass_fds=[its.fileno()], env=env, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        its.close()
        self._socket = mine
        return mine

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

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


@dataclass(eq=False)
class Child:
    """A forked process: its socket, its folder for temporary files, and the limits that it was given for good."""

    socket: socket.socket
    folder: str
    limits: tuple[int, ...]
    #: Its number; None: it has not sent its number yet. 0: it has ended.
    pid: int | None = None
    last: float = field(default_factory=time.monotonic)

    @classmethod
    def forked(cls, limits: tuple[int, ...]) -> Child:
        mine, its = socket.socketpair()
        with its:
            made = cls(mine, tempfile.mkdtemp(prefix="faultline-query-"), limits)
            try:
                FORKER.send([its.fileno()])
            except OSError:
                made.end()
                raise
        return made

    def ask(self, question: bytes, streams: Sequence[int]) -> None:
        """Sends a statement and the file handles of its streams. Raises ``OSError`` if the process is gone."""
        head = forking.LENGTH.pack(len(question))
        sent = socket.send_fds(self.socket, [head], streams) if streams else self.socket.send(head)
        self.socket.sendall(head[sent:])
        self.socket.sendall(question)

    def leave(self) -> None:
        """Lets a process end that waits for a statement. If it has ended already, its number may be another one's."""
        self.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Kills the process. On a busy machine, time may be over before it has sent its number; the answer does not wait
        for that."""
        if self.pid is None:
            threading.Thread(target=_kill_later, args=(self.socket,), daemon=True, name="query kill").start()
        else:
            if self.pid:
                _kill(self.pid)
            self.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Kept:
    """Processes that wait for their next statement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: list[Child] = []

    def take(self, limits: tuple[int, ...]) -> Child | None:
        """One with these limits, the last that was used; ends those that have waited too long."""
        now, is_running = time.monotonic(), FORKER.is_running  # they end with it
        with self._lock:
            old = [one for one in self._children if not is_running or now - one.last > KEPT_S]
            self._children = [one for one in self._children if one not in old]
            found = next((one for one in reversed(self._children) if one.limits == limits), None)
            if found is not None:
                self._children.remove(found)
        for one in old:
            one.leave()
        return found

    def put(self, child: Child) -> None:
        """The oldest one ends if there are too many."""
        child.last = time.monotonic()
        with self._lock:
            self._children.append(child)
            old = self._children.pop(0) if len(self._children) > MOST_KEPT else None
        if old is not None:
            old.leave()

    def clear(self) -> None:
        """Ends all."""
        with self._lock:
            old, self._children = self._children, []
        for one in old:
            one.leave()


KEPT = Kept()
atexit.register(KEPT.clear)  # their folders would stay


def is_readable(mine: socket.socket, seconds: float) -> bool:
    """Has something come, or comes within this time? ``select.select`` would refuse the file handles above 1,023 of a
    service with many connections."""
    waiting = select.poll()
    waiting.register(mine, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def received(mine: socket.socket, into: memoryview | bytearray, most: int) -> int:
    """How many bytes came; 0 at the end. A process that ends before it has read all that was sent resets its socket."""
    try:
        return mine.recv_into(into, most)
    except ConnectionResetError:
        return 0


def number(mine: socket.socket) -> int:
    """The number of the process, its first frame, which arrives as a whole; 0 if it ended without."""
    frame = bytearray(forking.PID_FRAME.size)
    whole = received(mine, frame, len(frame)) == len(frame)
    return int(forking.PID_FRAME.unpack(frame)[1]) if whole else 0


def _kill(pid: int) -> None:
    """The process is not a child of this one; as long as its socket is open, its number is its own."""
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def _kill_later(mine: socket.socket) -> None:
    with mine:
        mine.settimeout(None)  # ends with the process at the latest
        with suppress(OSError):
            if pid := number(mine):
                _kill(pid)
