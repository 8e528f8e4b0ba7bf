"""Syslog over UDP: read from the socket directly, with bounded memory; every lost datagram is counted and reported.

A datagram is lost in two ways: the kernel drops it because the socket's buffer is full, or this receiver refuses it
because the spool has no room. Both count in ``DatagramListener.lost`` (a metric), and every ``REPORT_EVERY_S`` they
become a blind period in the store, which the sources page shows.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from pathlib import Path

import structlog

from collector.receivers.syslog_batches import Gatherer, Part, plain_address
from collector.segment_file import Position

log = structlog.get_logger()

#: Requested from the kernel for UDP (it grants up to net.core.rmem_max, or all of it to root).
BUFFER_BYTES = 32 * 1024 * 1024
#: Datagrams and bytes read before other tasks run.
TURN, TURN_BYTES = 2000, 4 * 1024 * 1024
REPORT_EVERY_S = 5.0


class DatagramListener:
    """A UDP socket, read without a protocol object: a call per datagram costs more than the datagram."""

    def __init__(self, gatherer: Gatherer, sock: socket.socket, timezone: str | None) -> None:
        self.gatherer, self.sock, self._timezone = gatherer, sock, timezone
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)
        #: Refused here since the start, and the kernel's drop count at the last query.
        self._refused = self._dropped = 0
        #: Not reported yet: datagrams refused here, their bytes, the time of the first; reported: the kernel's count.
        self._waiting, self._waiting_bytes, self._since = 0, 0, 0.0
        self._reported_drops, self._looked = 0, time.time()
        self._timer = self._loop.call_later(REPORT_EVERY_S, self._watch)

    def __str__(self) -> str:
        at = self.sock.getsockname()
        return f"syslog udp {at[0]}:{at[1]}"

    @property
    def lost(self) -> int:
        """Datagrams lost since the start: refused, or dropped by the kernel."""
        self._dropped = max(self._dropped, kernel_drops(self.sock))
        return self._refused + self._dropped

    def _readable(self) -> None:
        lines: dict[str, list[bytes]] = {}
        frames: dict[str, list[bytes]] = {}
        receive, left = self.sock.recvfrom, TURN_BYTES
        with suppress(BlockingIOError, OSError):
            for _ in range(TURN):
                data, address = receive(65536)
                left -= len(data)
                data = data.rstrip(b"\n\0")
                into = frames if b"\n" in data else lines
                into.setdefault(address[0], []).append(data)
                if left < 0:
                    break
        room = self.gatherer.has_room
        for peers, counted in ((lines, False), (frames, True)):
            for address, items in peers.items():
                joined = b"".join(b"%d %b" % (len(i), i) for i in items) if counted else b"\n".join(items) + b"\n"
                if room:
                    part = Part(plain_address((address,)), counted, "udp", len(joined), False, self._timezone)
                    self.gatherer.add(joined, part, len(items))
                else:
                    self._since = self._since or time.time()
                    self._refused += len(items)
                    self._waiting += len(items)
                    self._waiting_bytes += len(joined)

    def _watch(self) -> None:
        self._timer = self._loop.call_later(REPORT_EVERY_S, self._watch)
        self._report()

    def _report(self) -> asyncio.Future[Position] | None:
        """Reports a blind period for losses since the last report; the future completes when it is on disk. If the
        spool refuses it, the next look reports it."""
        known, now = self.lost, time.time()
        drops = self._dropped - self._reported_drops
        count, size, start = self._waiting + drops, self._waiting_bytes, self._since or self._looked
        if not count:
            self._looked = now
            return None
        reason = (
            "UDP datagrams dropped in the kernel: its receive buffer was full" if drops
            else "no room in the spool: UDP datagrams refused"
        )  # fmt: skip
        done = self.gatherer.intake.report_blind("", "syslog", str(self), start, now, reason, count, size or None)
        if done is None:
            return None
        log.warning("UDP datagrams were lost", listener=str(self), count=count, since_start=known, reason=reason)
        self._reported_drops, self._looked = self._dropped, now
        self._waiting, self._waiting_bytes, self._since = 0, 0, 0.0
        done.add_done_callback(lambda future: self._not_kept(future, count, size, start))
        return done

    def _not_kept(self, future: asyncio.Future[Position], count: int, size: int, start: float) -> None:
        """The disk refused the report: its datagrams are reported with the next one."""
        if future.cancelled() or future.exception() is not None:
            self._waiting, self._waiting_bytes, self._since = self._waiting + count, self._waiting_bytes + size, start

    async def close(self) -> None:
        self._timer.cancel()
        self._readable()
        self._loop.remove_reader(self.sock.fileno())
        last = self._report()
        await self.gatherer.drain()
        if last is not None:  # the loop may end with this listener
            await asyncio.wait([last])
        self.sock.close()


def kernel_drops(sock: socket.socket) -> int:
    """Datagrams dropped because this socket's buffer was full, from /proc/net/udp; 0 if that does not exist."""
    wanted = str(sock.fileno())
    with suppress(OSError, ValueError, IndexError):
        inode = str(Path(f"/proc/self/fd/{wanted}").readlink()).split("[")[1].rstrip("]")
        for table in ("/proc/net/udp", "/proc/net/udp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[9] == inode:
                    return int(cells[12])
    return 0


def udp_socket(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    for option in (getattr(socket, "SO_RCVBUFFORCE", 33), socket.SO_RCVBUF):
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            break
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
