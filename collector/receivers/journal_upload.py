"""``systemd-journal-upload``: the journal's export format over HTTP (``POST /upload``), bodies of any length.

The client keeps a cursor and advances it when its request was answered; after a failure it resends from there. Entries
carry their journal's sequence number (in ``__CURSOR``), so that those already stored are skipped.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

from collector.receivers.base import Answer, Decoded, Intake, Payload, Poison, Receiver, Refused, Route, Run, unpack

#: Entries are spooled together up to this many bytes: a body may be a whole journal.
BATCH_BYTES = 1024 * 1024
#: A larger entry is not a log entry (journald's own limit for a field is 64 MiB, its default line 48 KiB).
MAX_ENTRY = 8 * 1024 * 1024
_SIZE = struct.Struct("<Q")
_CURSOR = re.compile(rb"s=([0-9a-f]+);i=([0-9a-f]+)")

Fields = list[tuple[bytes, bytes]]


def entry_end(data: bytes, at: int) -> tuple[int, Fields] | None:
    """Where the entry at ``at`` ends, and its fields; None if it is incomplete. Raises ``Poison``."""
    fields: Fields = []
    while True:
        end = data.find(b"\n", at)
        if end < 0:
            return None
        line = data[at:end]
        at = end + 1
        if not line:
            return at, fields
        name, equals, value = line.partition(b"=")
        if equals:
            fields.append((name, value))
            continue
        if len(data) < at + _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(data, at)
        if size > MAX_ENTRY:
            raise Poison(f"a field {line[:40]!r} of {size:,} bytes: this is not the journal's export format")
        if len(data) < at + _SIZE.size + size + 1:
            return None
        fields.append((line, data[at + _SIZE.size : at + _SIZE.size + size]))
        at += _SIZE.size + size + 1


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
    spooling = _Spooling(intake, client[0] if client else None, scope.get("faultline.limits"))
    packed = headers.get("content-encoding")
    if packed and packed != "identity":
        whole = b"".join([chunk async for chunk in chunks])
        await spooling.take(unpack(whole, packed))
    else:
        async for chunk in chunks:
            await spooling.take(chunk)
    await spooling.finish()
    return Answer(202, b"OK.\n", "text/plain")


class _Spooling:
    """Splits a stream into batches of whole entries of one journal, with increasing numbers."""

    def __init__(self, intake: Intake, peer: str | None, limits: dict[str, Any] | None) -> None:
        self._intake, self._peer, self._limits = intake, peer, limits
        self._rest = b""
        self._batch: list[bytes] = []
        self._size = 0
        self._journal: str | None = None
        self._first = self._last = -1

    async def take(self, chunk: bytes) -> None:
        data = self._rest + chunk
        at = 0
        try:
            while (found := entry_end(data, at)) is not None:
                end, fields = found
                if fields:
                    await self._entry(data[at:end], fields)
                at = end
        except Poison as error:
            raise Refused(400, str(error)) from error
        self._rest = data[at:]
        if len(self._rest) > MAX_ENTRY:
            raise Refused(400, f"an entry of more than {MAX_ENTRY:,} bytes")

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
        self._batch, self._size = [], 0
        await self._intake.put("journal", payload, meta)

    async def finish(self) -> None:
        if self._rest.strip():
            end = entry_end(self._rest + b"\n\n", 0)
            if end is None or not end[1]:
                raise Refused(400, "the body ends in the middle of an entry")
            await self._entry(self._rest + b"\n", end[1])
        await self._flush()


def _entries(data: bytes) -> Iterator[Fields]:
    at = 0
    while at < len(data):
        found = entry_end(data, at)
        if found is None:
            raise Poison(f"{len(data) - at} bytes behind the last entry")
        at, fields = found
        if fields:
            yield fields


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
