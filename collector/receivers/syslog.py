"""Syslog over UDP, TCP (octet-counted and newline) and TLS: RFC 3164, RFC 5424, RFC 6587, RFC 5425.

Plain syslog has no acknowledgement. What this side has read is spooled within ``FLUSH_S``; while the spool is full or the
disk refuses, TCP senders are not read from (they keep their queue), and UDP datagrams that find no room are counted and
told as a blind period. What lay in socket buffers when the service was killed is the sender's loss.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import structlog

from collector.columnar import octets
from collector.connections import FRAME_S, MOST_HELD, STALLED_S, Connections, Door, Place
from collector.receivers.base import Decoded, ListenFailed, Payload, Receiver, Run
from collector.segment_file import Position
from collector.spool import SpoolBroken, SpoolFull
from parsers.lines import line_ends

if TYPE_CHECKING:
    from collector.intake import Intake

log = structlog.get_logger()

#: Bytes read from a connection at once; one buffer serves all connections.
READ_BYTES = 512 * 1024
#: Lines wait so long for others before they are spooled together, or until there are ``FLUSH_BYTES`` of them.
FLUSH_S = 0.02
FLUSH_BYTES = 1024 * 1024
#: More than this on the way to the disk: senders are not read from until it is less.
HIGH_BYTES = 16 * 1024 * 1024
#: A "line" without an end is cut at this length, so that a stream of anything else cannot fill the memory.
LONGEST = 4 * 1024 * 1024
#: Asked of the kernel for UDP (it gives what net.core.rmem_max allows, or all of it to root).
UDP_BUFFER = 32 * 1024 * 1024
#: Datagrams read before others get their turn.
UDP_TURN = 2000
DROPS_EVERY_S = 5.0
RETRY_S = 0.5
DEFAULT_PORT = 5514
_OCTETS = re.compile(rb"[1-9]\d{0,6} <")
_COUNT = re.compile(rb"([1-9]\d{0,6}) ")
_MAYBE_OCTETS = re.compile(rb"(?:[1-9]\d{0,6} ?)?\Z")
_LINE_END, _SPACE = 10, 32


class Part(NamedTuple):
    """Bytes of one sender: lines with ``\\n`` behind each, or octet-counted frames."""

    peer: str
    octets: bool
    transport: str
    size: int
    cut: bool
    timezone: str | None


class Gatherer:
    """What all listeners read, put together into batches. Lives in the event loop."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self._parts: list[Part] = []
        self._data: list[bytes] = []
        self._size = 0
        self._under_way = 0
        self._again: deque[tuple[bytes, list[Part]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: set[Callable[[], None]] = set()
        #: What is read from a socket lies here until the connection has taken it, in the same turn of the loop.
        self.scratch = bytearray(READ_BYTES)
        self.room = memoryview(self.scratch)
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Future[Any]] = set()

    def add(self, data: bytes, part: Part) -> None:
        self._data.append(data)
        last = self._parts[-1] if self._parts else None
        if last is not None and not part.cut and last == part._replace(size=last.size):
            self._parts[-1] = part._replace(size=last.size + part.size)
        else:
            self._parts.append(part)
        self._size += len(data)
        if self._size >= FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_S, self.flush)

    @property
    def has_room(self) -> bool:
        if self._size + self._under_way > HIGH_BYTES or self._again:
            return False
        try:
            self.intake.spool.check_room()
        except SpoolFull:
            return False
        return True

    def when_room(self, go_on: Callable[[], None]) -> None:
        """``go_on`` is called once there is room again."""
        if not self._stopped:
            self._loop.call_later(RETRY_S / 10, self._look)
        self._stopped.add(go_on)

    def _look(self) -> None:
        if not self.has_room:
            self._loop.call_later(RETRY_S / 10, self._look)
            return
        waiting, self._stopped = self._stopped, set()
        for go_on in waiting:
            with suppress(Exception):  # a connection that is just going must not keep the others waiting
                go_on()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parts:
            self._again.append((b"".join(self._data), self._parts))
            self._parts, self._data, self._size = [], [], 0
        while self._again and self._put(*self._again[0]):
            self._again.popleft()

    def _put(self, data: bytes, parts: list[Part]) -> bool:
        try:
            done = self.intake.put("syslog", data, {"parts": parts})
        except SpoolFull:
            self._loop.call_later(RETRY_S, self.flush)
            return False
        self._under_way += len(data)
        done.add_done_callback(lambda future: self._spooled(future, data, parts))
        return True

    def _spooled(self, future: asyncio.Future[Position], data: bytes, parts: list[Part]) -> None:
        self._under_way -= len(data)
        if not future.cancelled() and isinstance(future.exception(), SpoolBroken):
            self._again.appendleft((data, parts))  # read from the sender already: kept until the disk takes it
            self._loop.call_later(RETRY_S, self.flush)

    async def drain(self) -> None:
        """Everything that was read is on disk, or two seconds have passed."""
        self.flush()
        until = time.monotonic() + 2.0
        while (self._under_way or self._again) and time.monotonic() < until:
            await asyncio.sleep(0.005)


class Stream(asyncio.BufferedProtocol):
    """One TCP or TLS connection. Which framing a sender uses is seen at its first bytes."""

    def __init__(self, gatherer: Gatherer, transport_name: str, timezone: str | None, connections: set[Stream],
                 place: Place | None = None, all_of_them: Connections | None = None) -> None:  # fmt: skip
        self._gatherer, self._name, self._timezone, self._connections = gatherer, transport_name, timezone, connections
        place = place or Place(None, "", time.monotonic())
        self._place, self._all = place, all_of_them or Connections()
        #: When something came last, and when what is not whole yet began.
        self._came = self._began = place.since
        self._paused = False
        #: What is not whole yet, in pieces, and how many bytes; before there are ``_wanted`` it is not looked at again.
        self._begun: list[bytes] = []
        self._held = self._wanted = 0
        self._octets: bool | None = None
        self._peer = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = plain_address(transport.get_extra_info("peername"))
        self._connections.add(self)
        self._came = time.monotonic()
        self._place.overdue = self._overdue

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # what a transport knows of sizes is less than this
        return self._gatherer.room

    def _overdue(self, now: float) -> str | None:
        """A line or frame was begun, and nothing comes to it. (Who has said nothing yet may wait: he holds no memory.)

        Before the first whole one, all of it must come in time, not only something of it."""
        if not self._held or self._paused:
            return None
        if self._place.proven:
            return "frame" if now - self._came > STALLED_S else None
        return "frame" if now - self._began > FRAME_S else None

    def buffer_updated(self, size: int) -> None:
        before, self._came = self._held, time.monotonic()
        if not before:
            self._began = self._came
        self._read(size)
        self._all.held += self._held - before
        if self._all.held > MOST_HELD and self._held > before and self._transport is not None:
            self._all.counts["held"] += 1
            self._transport.close()

    def _read(self, size: int) -> None:
        room, scratch = self._gatherer.room, self._gatherer.scratch
        if self._octets is False and (end := scratch.rfind(b"\n", 0, size) + 1):
            # Nearly always, and so with one copy of what was read.
            self._add(b"".join((*self._begun, room[:end])), False)
            self._keep(bytes(room[end:size]))
        elif self._held + size < self._wanted and (self._octets or scratch.find(b"\0", 0, size) < 0):
            # Joined each time, a message of megabytes in small segments would cost a thousand times itself.
            self._begun.append(bytes(room[:size]))
            self._held += size
        else:
            self._take(b"".join((*self._begun, room[:size])))
        if not self._gatherer.has_room and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
            self._gatherer.when_room(self._go_on)

    def _take(self, data: bytes) -> None:
        if self._octets is None:
            if len(data) < 9 and _MAYBE_OCTETS.match(data):
                self._keep(data)
                return
            self._octets = _OCTETS.match(data) is not None
        at = self._octet_end(data) if self._octets else 0
        if at:
            self._add(data[:at], True)
            data = data[at:]
        if not self._octets:
            data = _ended(data)
            end = data.rfind(b"\n") + 1
            if not end and len(data) > LONGEST:
                data, end = data + b"\n", len(data) + 1
            if end:
                self._add(data[:end], False)
                data = data[end:]
        self._keep(data)

    def _keep(self, rest: bytes) -> None:
        """Nothing of ``rest`` is whole: a line without its end, or a frame that begins with its count."""
        self._begun, self._held = [rest] if rest else [], len(rest)
        counted = _COUNT.match(rest) if self._octets else None
        self._wanted = counted.end() + int(counted[1]) if counted else LONGEST + 1 if self._octets is False else 0

    def _octet_end(self, data: bytes) -> int:
        """Where the last whole frame ends; frames that lose their count make the rest a stream of lines."""
        at, is_begun = octets.whole(data)
        if is_begun:
            return at
        if len(data) - at > octets.DIGITS + 1 or (data[at:] and not data[at:].strip().isdigit()):
            log.warning("syslog: octet count lost; reading lines", peer=self._peer)
            self._octets = False
        return at

    def _add(self, data: bytes, octets: bool, cut: bool = False) -> None:
        self._gatherer.add(data, Part(self._peer, octets, self._name, len(data), cut, self._timezone))
        if not self._place.proven:
            self._place.finished()
            self._place.busy = True  # what it sends is acknowledged by nobody: ending it would lose lines

    def _go_on(self) -> None:
        self._paused, self._came = False, time.monotonic()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._place.release()
        self._all.held -= self._held
        if self._begun:  # a last line without its end: kept, and marked
            self._add(b"".join((*self._begun, b"\n")), False, cut=True)
            self._keep(b"")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class StreamListener:
    """A listening TCP or TLS socket and its connections."""

    def __init__(self, gatherer: Gatherer, name: str) -> None:
        self.gatherer, self.name = gatherer, name
        self.connections: set[Stream] = set()
        self.server: Door | None = None

    def __str__(self) -> str:
        at = self.server.sockets[0].getsockname() if self.server is not None and self.server.sockets else ("?", 0)
        return f"syslog {self.name} {at[0]}:{at[1]}"

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.gatherer.intake.connections.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)
        await self.gatherer.drain()


class DatagramListener:
    """A UDP socket, read by hand: a protocol object per datagram costs more than the datagram."""

    def __init__(self, gatherer: Gatherer, sock: socket.socket, timezone: str | None) -> None:
        self.gatherer, self.sock, self._timezone = gatherer, sock, timezone
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)
        self._refused, self._refused_bytes, self._since = 0, 0, 0.0
        self._dropped, self._looked = kernel_drops(sock), time.time()
        self._timer = self._loop.call_later(DROPS_EVERY_S, self._watch)

    def __str__(self) -> str:
        at = self.sock.getsockname()
        return f"syslog udp {at[0]}:{at[1]}"

    def _readable(self) -> None:
        lines: dict[str, list[bytes]] = {}
        frames: dict[str, list[bytes]] = {}
        receive = self.sock.recvfrom
        with suppress(BlockingIOError, OSError):
            for _ in range(UDP_TURN):
                data, address = receive(65536)
                data = data.rstrip(b"\n\0")
                into = frames if b"\n" in data else lines
                into.setdefault(address[0], []).append(data)
        room = self.gatherer.has_room
        for peers, counted in ((lines, False), (frames, True)):
            for address, items in peers.items():
                joined = b"".join(b"%d %b" % (len(i), i) for i in items) if counted else b"\n".join(items) + b"\n"
                if room:
                    part = Part(plain_address((address,)), counted, "udp", len(joined), False, self._timezone)
                    self.gatherer.add(joined, part)
                else:
                    self._since = self._since or time.time()
                    self._refused += len(items)
                    self._refused_bytes += len(joined)

    def _watch(self) -> None:
        """Tells what was lost: refused by us, or dropped by the kernel because we were too slow."""
        self._timer = self._loop.call_later(DROPS_EVERY_S, self._watch)
        dropped, now = kernel_drops(self.sock), time.time()
        lost, size, start = self._refused, self._refused_bytes, self._since
        reason = "no room in the spool: UDP datagrams refused"
        if dropped > self._dropped:
            lost, size, start = lost + dropped - self._dropped, size, start or self._looked
            reason = "UDP datagrams dropped in the kernel: its receive buffer was full"
        if lost and self.gatherer.has_room:
            self.gatherer.intake.tell_blind("", "syslog", str(self), start, now, reason, lost, size or None)
            self._dropped, self._refused, self._refused_bytes, self._since = dropped, 0, 0, 0.0
        if not lost:
            self._looked = now

    async def close(self) -> None:
        self._timer.cancel()
        self._readable()
        self._loop.remove_reader(self.sock.fileno())
        await self.gatherer.drain()
        self.sock.close()


def kernel_drops(sock: socket.socket) -> int:
    """Datagrams that this socket's buffer had no room for, as /proc/net/udp counts them; 0 where there is none."""
    wanted = str(sock.fileno())
    with suppress(OSError, ValueError, IndexError):
        inode = str(Path(f"/proc/self/fd/{wanted}").readlink()).split("[")[1].rstrip("]")
        for table in ("/proc/net/udp", "/proc/net/udp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[9] == inode:
                    return int(cells[12])
    return 0


def _ended(data: bytes) -> bytes:
    """Messages that end with NUL (RFC 6587, 3.4.2) as lines. NULs elsewhere are text."""
    if b"\0" not in data or b"\n" in data:
        return data
    ended = data.replace(b"\0<", b"\n<")
    return ended[:-1] + b"\n" if ended.endswith(b"\0") else ended


def plain_address(address: Any) -> str:
    """The sender's address; IPv4 in IPv6's clothes as IPv4."""
    return str(address[0]).removeprefix("::ffff:") if address else "?"


def _decode(payload: Payload, into: Decoded) -> None:
    at = 0
    for values in payload.meta["parts"]:
        part = Part(*values)
        data = payload.data[at : at + part.size]
        at += part.size
        run = Run(
            0, payload.received, part.peer, transport=f"syslog/{part.transport}", tags='["cut"]' if part.cut else None
        )
        if part.octets:
            frames = octets.frames(data)
            if frames:
                into.add(frames, run._replace(lines=len(frames)), timezone=part.timezone)
        else:
            count, data = without_blanks(data)
            if count:
                into.add_data(data, run._replace(lines=count), timezone=part.timezone)


def without_blanks(data: bytes) -> tuple[int, bytes]:
    """Lines with their ends and without those of white space alone, and how many there are. A chunk has thousands of them:
    nothing is done to each in vain."""
    letters = np.frombuffer(data, np.uint8)
    ends = line_ends(letters)
    if len(data) and letters[-1] == _LINE_END:
        begins = np.concatenate(([0], ends[:-1] + 1))
        doubtful = np.flatnonzero(letters[begins] <= _SPACE)
        if all(data[begins[at] : ends[at]].strip() for at in doubtful):
            return len(ends), data
    kept = [line for line in data.split(b"\n") if line.strip()]
    return len(kept), b"".join(line + b"\n" for line in kept)


async def _open(config: Any, intake: Intake) -> list[Any]:
    """Listeners as configured; without configuration UDP and TCP on ``DEFAULT_PORT``, if nobody else has it."""
    gatherer = Gatherer(intake)
    if config.syslog is not None:
        return [await _listen(gatherer, one, config.timezone) for one in config.syslog]
    opened: list[Any] = []
    host = config.address[0]
    for transport in ("udp", "tcp"):
        try:
            opened.append(await _listen(gatherer, _Default(f"{host}:{DEFAULT_PORT}", transport), config.timezone))
        except ListenFailed as error:
            log.warning("no syslog by default", reason=str(error))
    return opened


class _Default(NamedTuple):
    listen: str
    transport: str
    timezone: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


async def _listen(gatherer: Gatherer, one: Any, timezone: str | None) -> Any:
    host, _, port = one.listen.rpartition(":")
    host, zone = host.strip("[]"), one.timezone or timezone
    try:
        if one.transport == "udp":
            return DatagramListener(gatherer, _udp_socket(host, int(port)), zone)
        listener, everybody = StreamListener(gatherer, one.transport), gatherer.intake.connections
        secured = _tls(one) if one.transport == "tls" else None
        listener.server = Door(
            _tcp_socket(host, int(port)), everybody,
            lambda place: Stream(gatherer, one.transport, zone, listener.connections, place, everybody), secured,
        )  # fmt: skip
        return listener
    except (OSError, ssl.SSLError) as error:
        text = error.strerror or str(error)
        raise ListenFailed(
            f"syslog {one.transport} {one.listen}: cannot listen: {text}; choose another address"
        ) from error


def _tcp_socket(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = found[0]
    return socket.create_server(address[:2], family=family, backlog=1024)


def _udp_socket(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    for option in (getattr(socket, "SO_RCVBUFFORCE", 33), socket.SO_RCVBUF):
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, UDP_BUFFER)
            break
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _tls(one: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(one.certificate, one.key)
    if one.client_ca is not None:
        context.load_verify_locations(one.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


RECEIVER = Receiver("syslog", "syslog over UDP, TCP and TLS", _decode, open=_open)
