"""Syslog over UDP, TCP (octet-counted and newline) and TLS: RFC 3164, RFC 5424, RFC 6587, RFC 5425.

Plain syslog has no acknowledgement. Received data is spooled within ``FLUSH_S``; while the spool is full or the disk
refuses, TCP senders are not read (they keep their queue). Data in socket buffers when the service is killed is lost to
the sender. Over UDP: ``syslog_udp``.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import structlog

from collector import octet_frames
from collector.connections import FRAME_S, MOST_HELD, STALLED_S, Connections, Door, Place
from collector.receivers.base import Decoded, Intake, Payload, Receiver, Run
from collector.receivers.refusals import ListenFailed
from collector.receivers.syslog_batches import Gatherer, Part, plain_address
from collector.receivers.syslog_udp import DatagramListener, udp_socket
from parsers.lines import count_of, line_ends

log = structlog.get_logger()

#: A "line" without an end is cut at this length, so that a stream of anything else cannot fill the memory.
LONGEST = 4 * 1024 * 1024
DEFAULT_PORT = 5514
_OCTETS = re.compile(rb"[1-9]\d{0,6} <")
_COUNT = re.compile(rb"([1-9]\d{0,6}) ")
_MAYBE_OCTETS = re.compile(rb"(?:[1-9]\d{0,6} ?)?\Z")
_LINE_END, _SPACE = 10, 32


class Stream(asyncio.BufferedProtocol):
    """One TCP or TLS connection. The first bytes show which framing a sender uses."""

    def __init__(self, gatherer: Gatherer, transport_name: str, timezone: str | None, connections: set[Stream],
                 place: Place | None = None, all_of_them: Connections | None = None) -> None:  # fmt: skip
        self._gatherer, self._name, self._timezone, self._connections = gatherer, transport_name, timezone, connections
        place = place or Place(None, "", time.monotonic())
        self._place, self._all = place, all_of_them or Connections()
        #: When the last data arrived, and when the unfinished line or frame began.
        self._came = self._began = place.since
        self._paused = False
        #: The unfinished data in pieces, and its size; it is not examined again before ``_wanted`` bytes are there.
        self._begun: list[bytes] = []
        self._held = self._wanted = 0
        self._octets: bool | None = None
        self._peer = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = plain_address(transport.get_extra_info("peername"))
        self._connections.add(self)
        self._gatherer.streams.add(self)
        if self._gatherer.is_held:
            self.hold()
        self._came = time.monotonic()
        self._place.overdue = self._overdue

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # a transport's hint is smaller than this
        return self._gatherer.room

    def _overdue(self, now: float) -> str | None:
        """A line or frame was begun and gets no data. (A silent new connection may wait: it holds no memory.)

        The first line or frame must arrive completely in time, not just continue to arrive."""
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
            # The common case, with one copy of what was read.
            whole = b"".join((*self._begun, room[:end]))
            self._add(whole, False, count_of(b"\n", whole))
            self._keep(bytes(room[end:size]))
        elif self._held + size < self._wanted and (self._octets or scratch.find(b"\0", 0, size) < 0):
            # Joining each time, a message of megabytes in small segments would cost a thousand times its size.
            self._begun.append(bytes(room[:size]))
            self._held += size
        else:
            self._take(b"".join((*self._begun, room[:size])))
        if not self._gatherer.has_room:
            self._gatherer.hold()

    def _take(self, data: bytes) -> None:
        if self._octets is None:
            if len(data) < 9 and _MAYBE_OCTETS.match(data):
                self._keep(data)
                return
            self._octets = _OCTETS.match(data) is not None
        at, frames = self._octet_end(data) if self._octets else (0, 0)
        if at:
            self._add(data[:at], True, frames)
            data = data[at:]
        if not self._octets:
            data = _ended(data)
            end = data.rfind(b"\n") + 1
            if not end and len(data) > LONGEST:
                data, end = data + b"\n", len(data) + 1
            if end:
                self._add(data[:end], False, data.count(b"\n", 0, end))
                data = data[end:]
        self._keep(data)

    def _keep(self, rest: bytes) -> None:
        """Keeps ``rest``, which holds nothing whole: a line without its end, or a frame that begins with its count."""
        self._begun, self._held = [rest] if rest else [], len(rest)
        counted = _COUNT.match(rest) if self._octets else None
        self._wanted = counted.end() + int(counted[1]) if counted else LONGEST + 1 if self._octets is False else 0

    def _octet_end(self, data: bytes) -> tuple[int, int]:
        """Where the last whole frame ends, and how many there are; after a lost count, the rest is a stream of lines."""
        at, is_begun, frames = octet_frames.whole(data)
        if is_begun:
            return at, frames
        if len(data) - at > octet_frames.DIGITS + 1 or (data[at:] and not data[at:].strip().isdigit()):
            log.warning("syslog: octet count lost; reading lines", peer=self._peer)
            self._octets = False
        return at, frames

    def _add(self, data: bytes, octets: bool, lines: int, cut: bool = False) -> None:
        self._gatherer.add(data, Part(self._peer, octets, self._name, len(data), cut, self._timezone), lines)
        if not self._place.proven:
            self._place.finished()
            self._place.busy = True  # nothing acknowledges syslog: closing the connection would lose lines

    def hold(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        self._paused, self._came = False, time.monotonic()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._gatherer.streams.discard(self)
        self._place.release()
        self._all.held -= self._held
        if self._begun:  # a last line without its end: kept and marked
            self._add(b"".join((*self._begun, b"\n")), False, 1, cut=True)
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


def _ended(data: bytes) -> bytes:
    """Messages terminated by NUL (RFC 6587, 3.4.2) as lines. NULs elsewhere are text."""
    if b"\0" not in data or b"\n" in data:
        return data
    ended = data.replace(b"\0<", b"\n<")
    return ended[:-1] + b"\n" if ended.endswith(b"\0") else ended


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
            frames = octet_frames.frames(data)
            if frames:
                into.add(frames, run._replace(lines=len(frames)), timezone=part.timezone)
        else:
            count, data = without_blanks(data)
            if count:
                into.add_data(data, run._replace(lines=count), timezone=part.timezone)


def without_blanks(data: bytes) -> tuple[int, bytes]:
    """Lines with their ends, without blank ones, and their number. A chunk has thousands of lines: nothing is done per
    line without need."""
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
    """Listeners as configured; without configuration, UDP and TCP on ``DEFAULT_PORT`` if it is free."""
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
            return DatagramListener(gatherer, udp_socket(host, int(port)), zone)
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


def _tls(one: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(one.certificate, one.key)
    if one.client_ca is not None:
        context.load_verify_locations(one.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


RECEIVER = Receiver("syslog", "syslog over UDP, TCP and TLS", _decode, open=_open)
