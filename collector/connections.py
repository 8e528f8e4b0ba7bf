"""Who is connected: a cap in all and for each address, time limits, and file handles kept back.

Every listening TCP socket of the service, HTTP and syslog, is a :class:`Door`. It accepts by hand, so that a connection counts
from the moment it is accepted: a TLS handshake that never ends is one, too. Where there are too many, those go first that
have not finished anything yet (no whole request, no whole line), the oldest before others: an agent that was quiet for an
hour stays, a thousand half-sent headers do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

log = structlog.get_logger()

#: What is not finished in time, seconds: a TLS handshake; a request's head, or a connection's first word; a second without
#: so many bytes of a body that is awaited, on the mean of ``WINDOW_S``; somebody who does not read what he asked for.
HANDSHAKE_S = 15.0
HEAD_S = 30.0
WINDOW_S = 30.0
LEAST_RATE = 100
UNREAD_S = 120.0
#: A line or frame of syslog that was begun, and to which nothing comes, seconds: before the first whole one, and later. A
#: sender behind a broken network says nothing for minutes and goes on where it was.
FRAME_S, STALLED_S = 30.0, 600.0
#: Bytes of a request's head.
MOST_HEAD = 64 * 1024
#: Bytes of lines and frames that are not whole yet, of all connections of syslog together.
MOST_HELD = 256 * 1024 * 1024
#: Handles that connections leave to files: store, spool, workers, pages.
FOR_FILES = 256
#: Handles that are held open for nothing, and let go where the others are used up.
RESERVED = 16
#: Connections are looked at this often, seconds.
LOOK_S = 1.0
#: Accepted in one turn of the loop; then others get theirs.
TURN = 64
#: So long after the last refusal it is told as a trouble, seconds.
LOG_AGAIN_S = 10.0
#: Errors of accept() and open() that mean that there are no more handles, or no memory for one.
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def raise_limit() -> int:
    """As many file handles as the system allows this process; gives that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else min(hard, 1 << 20)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


class Reserve:
    """Handles held open for nothing. Inside ``lent`` they are free, for what must be opened just now."""

    def __init__(self, count: int = RESERVED) -> None:
        self._count = count
        self._held: list[int] = []
        self.fill()

    def fill(self) -> bool:
        """False if the system has none to give at the moment."""
        with contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return len(self._held) == self._count

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        self.close()
        try:
            yield
        finally:
            self.fill()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())


@dataclass(eq=False)
class Place:
    """One accepted connection. ``overdue`` is set by its protocol: why it should end now, in a word; None if it should not."""

    sock: socket.socket | None
    address: str
    since: float
    #: It finished something: a request that was answered, a whole line. It goes last.
    proven: bool = False
    #: Something is under way, or may be: it is never ended to make room (always so for proven senders of syslog).
    busy: bool = False
    #: When it last finished something.
    last: float = 0.0
    overdue: Callable[[float], str | None] | None = None
    release: Callable[[], None] = field(default=lambda: None)

    def end(self) -> None:
        """As if the other side had gone: the transport notices and closes."""
        with contextlib.suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)

    def finished(self) -> None:
        self.proven, self.last = True, time.monotonic()


class Connections:
    """All places of one service. Belongs to the event loop's thread; counts may be read from any."""

    def __init__(self, most: int = 16384, per_address: int = 8192, reserve: Reserve | None = None) -> None:
        self.most, self.per_address = most, per_address
        self.reserve = reserve
        self.places: dict[Place, None] = {}  # in the order in which they came
        self._of: Counter[str] = Counter()
        #: opened; refused (no room, and nobody to send away); evicted (sent away for others); by time limit and its word.
        self.counts: Counter[str] = Counter()
        self.held = 0
        self._exhausted_at = self._refused_at = -LOG_AGAIN_S
        self._timer: asyncio.TimerHandle | None = None

    @property
    def trouble(self) -> str | None:
        """Why connections are turned away, in words; None if they are not."""
        now = time.monotonic()
        if now - self._exhausted_at < LOG_AGAIN_S:
            return "the service is out of file handles; connections are turned away (raise LimitNOFILE= of the service)"
        if now - self._refused_at < LOG_AGAIN_S:
            return (
                f"{len(self.places):,} connections are open; more are turned away "
                "(most and per_address in [connections] say how many may be)"
            )
        return None

    def exhausted(self) -> None:
        self._exhausted_at = time.monotonic()
        self.counts["no handle"] += 1

    def enter(self, sock: socket.socket, address: str) -> Place | None:
        """A place for a connection that was accepted; None if there is none, also after making room."""
        now = time.monotonic()
        crowded = self._of[address] >= self.per_address
        if (crowded or len(self.places) >= self.most) and not self._made_room(address if crowded else None):
            self._refused_at = now
            self.counts["refused"] += 1
            return None
        place = Place(sock, address, now)
        place.release = lambda: self.leave(place)
        self.places[place] = None
        self._of[address] += 1
        self.counts["opened"] += 1
        return place

    def leave(self, place: Place) -> None:
        if place in self.places:
            del self.places[place]
            self._of[place.address] -= 1
            if not self._of[place.address]:
                del self._of[place.address]

    def make_room(self) -> bool:
        """Sends one away that has not finished anything. For whoever found no file handle: who knocks is sent away all the same,
        so no sender that is known loses its connection for it."""
        waiting = next((place for place in self.places if not place.proven), None)
        if waiting is not None:
            self._evict(waiting)
        return waiting is not None

    def _made_room(self, address: str | None) -> bool:
        """Sends one away, of this address if one is given: unproven before proven, and of these whoever was idle longest."""
        idle: Place | None = None
        for place in self.places:
            if address is not None and place.address != address:
                continue
            if not place.proven:
                self._evict(place)
                return True
            if not place.busy and (idle is None or place.last < idle.last):
                idle = place
        if idle is not None:
            self._evict(idle)
        return idle is not None

    def _evict(self, place: Place) -> None:
        self.counts["evicted"] += 1
        self.leave(place)
        place.end()

    def look(self) -> None:
        """Ends what is overdue; calls itself again."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self.look)
        if self.reserve is not None and not self.reserve.fill():
            self.exhausted()
        now = time.monotonic()
        for place in list(self.places):
            why = place.overdue(now) if place.overdue is not None else None
            if why is not None:
                self.counts[why] += 1
                self.leave(place)
                place.end()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self) -> None:
        """``look`` from now on, once however often it is asked for. Inside the event loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.look)


class Door:
    """A listening socket. ``serve`` makes the protocol of a connection, which calls ``place.release`` when it is lost."""

    def __init__(self, sock: socket.socket, connections: Connections, serve: Callable[[Place], asyncio.BaseProtocol],
                 tls: ssl.SSLContext | None = None) -> None:  # fmt: skip
        self.sockets = (sock,)
        self._sock, self._connections, self._serve, self._tls = sock, connections, serve, tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._accept)
        connections.watch()

    def _accept(self) -> None:
        for _ in range(TURN):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except (OSError, MemoryError) as error:
                if isinstance(error, MemoryError) or error.errno in EXHAUSTED:
                    self._turn_away()
                return
            try:
                self._take_in(sock, address)
            except Exception:  # no memory for it: this connection is lost, the door stays open
                self._connections.counts["refused"] += 1
                sock.close()

    def _take_in(self, sock: socket.socket, address: Any) -> None:
        place = self._connections.enter(sock, str(address[0]).removeprefix("::ffff:") if address else "")
        if place is None:
            sock.close()
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        task = self._loop.create_task(self._connect(sock, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, place: Place) -> None:
        try:
            patience = HANDSHAKE_S if self._tls is not None else None
            await self._loop.connect_accepted_socket(
                lambda: self._serve(place), sock, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except Exception as error:  # a handshake that failed, or was not finished in time; a sender that left
            late = isinstance(error, ConnectionAbortedError | TimeoutError)
            self._connections.counts["handshake" if late else "broken"] += 1
            place.release()
            sock.close()
        except BaseException:
            place.release()
            sock.close()
            raise

    def _turn_away(self) -> None:
        """No handle is left: one who has not finished anything goes, and who knocks is told so (the connection is closed)
        with a handle that was kept back. Else he would wait, and the loop would turn in vain."""
        self._connections.exhausted()
        self._connections.make_room()
        reserve = self._connections.reserve
        with reserve.lent() if reserve is not None else contextlib.nullcontext():
            for _ in range(TURN):
                try:
                    sock, _address = self._sock.accept()
                except (OSError, MemoryError):
                    break
                sock.close()
                self._connections.counts["refused"] += 1
        self._loop.remove_reader(self._sock.fileno())
        self._again = self._loop.call_later(0.1, self._open_again)

    def _open_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        for task in list(self._tasks):
            task.cancel()

    async def wait_closed(self) -> None:
        """All that was being accepted is done with."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
