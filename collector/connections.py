"""Connections: a cap in total and per address, time limits, and reserved file handles.

Every listening TCP socket of the service, HTTP and syslog, is a :class:`Door`. It accepts sockets itself, so a
connection counts from the moment it is accepted, including a TLS handshake that never ends. When there are too many,
those that have not finished anything yet (no whole request, no whole line) are closed first, oldest first: an agent
that was quiet for an hour stays, a thousand half-sent headers do not.
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

#: Time limits in seconds: a TLS handshake; a request's head, or a connection's first message; a second without this
#: many bytes of an awaited body, averaged over ``WINDOW_S``; a client that does not read its response.
HANDSHAKE_S = 15.0
HEAD_S = 30.0
WINDOW_S = 30.0
LEAST_RATE = 100
UNREAD_S = 120.0
#: Time limit in seconds for an unfinished syslog line or frame that receives nothing: before the first whole one, and
#: later. A sender behind a broken network is silent for minutes and continues where it stopped.
FRAME_S, STALLED_S = 30.0, 600.0
#: Limit of a request's head, in bytes.
MOST_HEAD = 64 * 1024
#: Limit of unfinished lines and frames of all syslog connections together, in bytes.
MOST_HELD = 256 * 1024 * 1024
#: Handles that connections leave to files: store, spool, workers, pages.
FOR_FILES = 256
#: Handles held in reserve and released when the others are used up.
RESERVED = 16
#: How often connections are checked, in seconds.
LOOK_S = 1.0
#: Most connections accepted per turn of the loop; then other tasks run.
TURN = 64
#: How long after the last refusal it is reported as trouble, in seconds.
LOG_AGAIN_S = 10.0
#: Errors of accept() and open() that mean that handles, or memory for them, ran out.
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def raise_limit() -> int:
    """Raises the limit of file handles as far as the system allows; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else min(hard, 1 << 20)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


class Reserve:
    """Handles held in reserve. Inside ``lent`` they are free for what must be opened now."""

    def __init__(self, count: int = RESERVED) -> None:
        self._count = count
        self._held: list[int] = []
        self.fill()

    def fill(self) -> bool:
        """False if the system has no handles available at the moment."""
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
    """One accepted connection. ``overdue`` is set by its protocol: why it should end now, in a word; None if it should
    not."""

    sock: socket.socket | None
    address: str
    since: float
    #: It finished something: an answered request, a whole line. It is closed last.
    proven: bool = False
    #: Work is or may be in progress: never closed to make room (always true for proven syslog senders).
    busy: bool = False
    #: When it last finished something.
    last: float = 0.0
    overdue: Callable[[float], str | None] | None = None
    release: Callable[[], None] = field(default=lambda: None)

    def end(self) -> None:
        """Closes as if the peer had gone: the transport notices and closes."""
        with contextlib.suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)

    def finished(self) -> None:
        self.proven, self.last = True, time.monotonic()


class Connections:
    """All places of one service. Owned by the event loop's thread; any thread may read the counts."""

    def __init__(self, most: int = 16384, per_address: int = 8192, reserve: Reserve | None = None) -> None:
        self.most, self.per_address = most, per_address
        self.reserve = reserve
        self.places: dict[Place, None] = {}  # in the order of arrival
        self._of: Counter[str] = Counter()
        #: opened; refused (no room, and none to evict); evicted (closed for others); one per time limit, by its name.
        self.counts: Counter[str] = Counter()
        self.held = 0
        self._exhausted_at = self._refused_at = -LOG_AGAIN_S
        self._timer: asyncio.TimerHandle | None = None

    @property
    def trouble(self) -> str | None:
        """Why connections are refused, in words; None if they are not."""
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
        """A place for an accepted connection; None if there is none, even after making room."""
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
        """Closes a connection that has not finished anything, when no file handle is left. The new connection is closed
        as well, so no known sender loses its connection to it."""
        waiting = next((place for place in self.places if not place.proven), None)
        if waiting is not None:
            self._evict(waiting)
        return waiting is not None

    def _made_room(self, address: str | None) -> bool:
        """Evicts one connection, of this address if one is given: unproven before proven, then the longest idle."""
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
        """Ends what is overdue; reschedules itself."""
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
        """Starts ``look``, once however often it is called. Call it inside the event loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.look)


class Door:
    """A listening socket. ``serve`` creates the protocol of a connection, which calls ``place.release`` when it is
    lost."""

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
            except Exception:  # no memory for it: this connection is lost, the socket stays open
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
        except Exception as error:  # a failed or unfinished handshake, or a sender that left
            late = isinstance(error, ConnectionAbortedError | TimeoutError)
            self._connections.counts["handshake" if late else "broken"] += 1
            place.release()
            sock.close()
        except BaseException:
            place.release()
            sock.close()
            raise

    def _turn_away(self) -> None:
        """Refuses when no handle is left: evicts a connection that has not finished anything, and closes the new one
        with a reserved handle. Otherwise the new one would wait and the loop would spin."""
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
        """Waits until every pending accept is finished."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
