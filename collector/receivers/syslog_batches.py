"""Gathers the lines of all syslog listeners into batches for the spool.

Memory is bounded: reading stops while more than ``HIGH_BYTES`` are on their way to the disk. The bookkeeping of each
sender's part counts as well, so many forged senders of one byte each hold no more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from collector.receivers.base import Intake
from collector.segment_file import Position, short_lines
from collector.spool import SpoolBroken, SpoolFull

#: Bytes read from a connection at once; one buffer serves all connections.
READ_BYTES = 512 * 1024
#: Lines wait this long for others before they are spooled together, or until there are ``FLUSH_BYTES`` of them.
FLUSH_S = 0.02
FLUSH_BYTES = 1024 * 1024
#: Or so many lines: a worker's memory depends on their number.
FLUSH_LINES = 100_000
#: With more than this on the way to the disk, reading stops until it is less.
HIGH_BYTES = 16 * 1024 * 1024
#: The overhead of a part besides its bytes: address, transport and sizes, in memory and in the batch's description.
PART_BYTES = 512
RETRY_S = 0.5


class Part(NamedTuple):
    """Bytes of one sender: lines that each end with ``\\n``, or octet-counted frames."""

    peer: str
    octets: bool
    transport: str
    size: int
    cut: bool
    timezone: str | None


class _Batch(NamedTuple):
    """A batch for the spool, with its description and its size as a gatherer counts it."""

    data: bytes
    meta: dict[str, Any]
    size: int


class Held(Protocol):
    """A connection whose reading can be paused and resumed."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class Gatherer:
    """Gathers what all listeners read into batches. Belongs to the event loop."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self._parts: list[Part] = []
        self._data: list[bytes] = []
        #: Bytes, including ``PART_BYTES`` for each part.
        self._size = self._lines = 0
        self._under_way = 0
        self._again: deque[_Batch] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: The connections being read; and whether they are paused for lack of room.
        self.streams: set[Held] = set()
        self.is_held = False
        #: Socket data is read into this buffer until the connection has taken it, in the same turn of the loop.
        self.scratch = bytearray(READ_BYTES)
        self.room = memoryview(self.scratch)
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Future[Any]] = set()

    def add(self, data: bytes, part: Part, lines: int) -> None:
        """Adds what a sender sent: at most so many lines."""
        self._data.append(data)
        self._lines += lines
        last = self._parts[-1] if self._parts else None
        if last is not None and not part.cut and last == part._replace(size=last.size):
            self._parts[-1] = part._replace(size=last.size + part.size)
        else:
            self._parts.append(part)
            self._size += PART_BYTES
        self._size += len(data)
        if self._size >= FLUSH_BYTES or self._lines >= FLUSH_LINES:
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

    def hold(self) -> None:
        """Pauses all connections until there is room: one read from each of thousands would be gigabytes."""
        if self.is_held:
            return
        self.is_held = True
        for stream in list(self.streams):
            stream.hold()
        self._loop.call_later(RETRY_S / 10, self._look)

    def _look(self) -> None:
        if not self.has_room:
            self._loop.call_later(RETRY_S / 10, self._look)
            return
        self.is_held = False
        for stream in list(self.streams):
            with suppress(Exception):  # a connection that is closing must not block the others
                stream.go_on()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parts:
            meta = {"parts": self._parts, **short_lines(self._lines, self._size)}
            self._again.append(_Batch(b"".join(self._data), meta, self._size))
            self._parts, self._data, self._size, self._lines = [], [], 0, 0
        while self._again and self._put(self._again[0]):
            self._again.popleft()

    def _put(self, batch: _Batch) -> bool:
        try:
            done = self.intake.put("syslog", batch.data, batch.meta)
        except SpoolFull:
            self._loop.call_later(RETRY_S, self.flush)
            return False
        self._under_way += batch.size
        done.add_done_callback(lambda future: self._spooled(future, batch))
        return True

    def _spooled(self, future: asyncio.Future[Position], batch: _Batch) -> None:
        self._under_way -= batch.size
        if not future.cancelled() and isinstance(future.exception(), SpoolBroken):
            self._again.appendleft(batch)  # already read from the sender: kept until the disk accepts it
            self._loop.call_later(RETRY_S, self.flush)

    async def drain(self) -> None:
        """Waits until everything read is on disk, at most two seconds."""
        self.flush()
        until = time.monotonic() + 2.0
        while (self._under_way or self._again) and time.monotonic() < until:
            await asyncio.sleep(0.005)


def plain_address(address: Any) -> str:
    """The sender's address; IPv4-mapped IPv6 as IPv4."""
    return str(address[0]).removeprefix("::ffff:") if address else "?"
