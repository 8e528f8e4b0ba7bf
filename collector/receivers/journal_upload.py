"""``systemd-journal-upload``: the journal's export format over HTTP (``POST /upload``), bodies of any length.

The client keeps a cursor and advances it when its request was answered; after a failure it resends from there. Entries
carry their journal's sequence number (in ``__CURSOR``), so that those already stored are skipped.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

from collector.receivers.base import Answer, Decoded, Intake, Payload, Receiver, Route, Run
from collector.receivers.refusals import Poison, Refused
from collector.segment_file import short_lines

#: Entries are spooled together up to this many bytes: a body may be a whole journal.
BATCH_BYTES = 1024 * 1024
#: A larger entry is not a log entry (journald's own limit for a field is 64 MiB, its default line 48 KiB).
MAX_ENTRY = 8 * 1024 * 1024
#: journald takes 1,025 fields from a program, any user's, and adds some fifty. A field of four bytes takes 200 in memory.
MOST_FIELDS = 2048
#: Unpacked data is read in pieces of this size, and other requests are answered in between.
_PIECE = 64 * 1024
_SIZE = struct.Struct("<Q")
_CURSOR = re.compile(rb"s=([0-9a-f]+);i=([0-9a-f]+)")

Fields = list[tuple[bytes, bytes]]


class Entries:
    """Cuts a stream into entries. Each byte is examined once, however small the pieces are in which it arrives."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._fields: Fields = []
        #: Where the next field begins; before which place there is no line end of it; how much data it needs.
        self._at = self._seen = self._wanted = 0

    @property
    def held(self) -> int:
        """Bytes of the unfinished entry."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data += data

    def next(self) -> tuple[bytes, Fields] | None:
        """The next entry and its fields; None if it is incomplete. Raises ``Poison``."""
        data = self._data
        while len(data) >= self._wanted:
            end = data.find(b"\n", max(self._at, self._seen))
            if end < 0:
                self._seen = len(data)
                break
            line, behind = bytes(data[self._at : end]), end + 1
            if not line:
                return self._taken(behind)
            name, equals, value = line.partition(b"=")
            if not equals:
                self._seen, self._wanted = end, behind + _SIZE.size
                if len(data) < self._wanted:
                    break
                begin, behind = self._wanted, self._wanted + _size(line, data, behind) + 1
                self._wanted = behind
                if len(data) < behind:
                    break
                value = bytes(data[begin : behind - 1])
            if len(self._fields) == MOST_FIELDS:
                raise Poison(f"an entry of more than {MOST_FIELDS:,} fields: this is not the journal's export format")
            self._fields.append((name, value))
            self._at = self._seen = behind
        return None

    def _taken(self, end: int) -> tuple[bytes, Fields]:
        found = bytes(self._data[:end]), self._fields
        del self._data[:end]
        self._fields, self._at, self._seen, self._wanted = [], 0, 0, 0
        return found


def _size(name: bytes, data: bytearray, at: int) -> int:
    """The length of the value of the field ``name``. Raises ``Poison``."""
    (size,) = _SIZE.unpack_from(data, at)
    if size > MAX_ENTRY:
        raise Poison(f"a field {name[:40]!r} of {size:,} bytes: this is not the journal's export format")
    return int(size)


def number_of(fields: Fields) -> tuple[str, int] | None:
    """The journal's sequence ID and the entry's number in it."""
    for name, value in fields:
        if name == b"__CURSOR" and (found := _CURSOR.match(value)):
            return found[1].decode(), int(found[2], 16)
    return None


async def _upload(intake: Intake, scope: Any, headers: dict[str, str], chunks: AsyncIterator[bytes]) -> Answer:
    kind = headers.get("content-type", "").split(";")[0].strip()
    if kind and kind != "application/vnd.fdo.journal":
        raise Refused(415, f"Content-Type {kind[:60]!r}", "Send application/vnd.fdo.journal.")
    client = scope.get("client")
    peer = client[0] if client else None
    spooling = _Spooling(intake, peer, scope.get("faultline.limits"))
    packed = headers.get("content-encoding")
    if packed and packed != "identity":
        async with intake.unpacked(await intake.body(chunks, peer), packed, peer) as plain:
            for at in range(0, len(plain), _PIECE):
                await spooling.take(plain[at : at + _PIECE])
                await asyncio.sleep(0)
    else:
        with intake.arriving.body(peer, spooling.forget) as held:
            async for chunk in chunks:
                held.check()
                held.resize(await spooling.take(chunk))
            held.check()
    await spooling.finish()
    return Answer(202, b"OK.\n", "text/plain")


class _Spooling:
    """Splits a stream into batches of whole entries of one journal, with increasing numbers."""

    def __init__(self, intake: Intake, peer: str | None, limits: dict[str, Any] | None) -> None:
        self._intake, self._peer, self._limits = intake, peer, limits
        self._entries = Entries()
        self._batch: list[bytes] = []
        self._size = 0
        self._journal: str | None = None
        self._first = self._last = -1

    async def take(self, chunk: bytes) -> int:
        """Spools what is complete. Returns how many bytes are left."""
        self._entries.feed(chunk)
        await self._read()
        if self._entries.held > MAX_ENTRY:
            raise Refused(400, f"an entry of more than {MAX_ENTRY:,} bytes")
        return self._entries.held + self._size

    def forget(self) -> None:
        """Drops what was not spooled."""
        self._entries = Entries()
        self._batch, self._size = [], 0

    async def _read(self) -> None:
        """Spools the entries that are complete."""
        try:
            while (found := self._entries.next()) is not None:
                data, fields = found
                if fields:
                    await self._entry(data, fields)
        except Poison as error:
            raise Refused(400, str(error)) from error

    async def _entry(self, data: bytes, fields: Fields) -> None:
        named = number_of(fields)
        journal, number = named if named else (None, -1)
        follows = journal == self._journal and (journal is None or number > self._last)
        if self._batch and (not follows or self._size + len(data) > BATCH_BYTES):
            await self._flush()
        if not self._batch:
            self._journal, self._first = journal, number
        self._last = number
        self._batch.append(data)
        self._size += len(data)

    async def _flush(self) -> None:
        if not self._batch:
            return
        meta: dict[str, Any] = {"peer": self._peer, **({"limits": self._limits} if self._limits else {})}
        if self._journal is not None:
            meta["key"] = ["journal", self._journal, "0", self._first, self._last]
        payload = b"".join(self._batch)
        meta |= short_lines(len(self._batch), len(payload))
        self._batch, self._size = [], 0
        await self._intake.put("journal", payload, meta)

    async def finish(self) -> None:
        self._entries.feed(b"\n\n")  # the last entry may lack its empty line
        await self._read()
        if self._entries.held:
            raise Refused(400, "the body ends in the middle of an entry")
        await self._flush()


def _entries(data: bytes) -> Iterator[Fields]:
    entries = Entries()
    entries.feed(data)
    while (found := entries.next()) is not None:
        if found[1]:
            yield found[1]
    if entries.held:
        raise Poison(f"{entries.held} bytes behind the last entry")


def _decode(payload: Payload, into: Decoded) -> None:
    texts: dict[str | None, list[bytes]] = {}
    for fields in _entries(payload.data):
        named = number_of(fields)
        if named is not None and payload.is_stored(named[1]):
            continue
        record: dict[str, Any] = {}
        for raw_name, raw in fields:
            name = raw_name.decode("ascii", "replace")
            try:
                value: Any = raw.decode()
            except UnicodeDecodeError:
                value = list(raw)  # the form of non-UTF-8 data in journalctl -o json
            if name in record:
                held = record[name]
                record[name] = [*held, value] if isinstance(held, list) else [held, value]
            else:
                record[name] = value
        host = record.get("_HOSTNAME") if isinstance(record.get("_HOSTNAME"), str) else payload.peer
        texts.setdefault(host, []).append(json.dumps(record, ensure_ascii=False).encode())
    for host, lines in texts.items():
        run = Run(len(lines), payload.received, host, f"journal:{host or '?'}", transport="journal")
        into.add(lines, run)


RECEIVER = Receiver(
    "journal", "systemd-journal-upload", _decode, (Route(("POST",), r"/upload", lambda _: _never(), stream=_upload),)
)


def _never() -> Any:
    raise AssertionError("bodies of this route are read as a stream")
