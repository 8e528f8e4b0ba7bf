"""Segment files of the spool: the format of batches, and how to find them again.

A segment is a header with a number of its own (*salt*) and then records: ``HEAD`` (magic, lengths, two CRCs), the
description as JSON, and the payload as received. The salt is part of each record's CRC: a file may be overwritten as a
later segment, and none of its former records may then be taken for a new one.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

#: Begins a segment; ``FIRST_MAGIC`` is that of earlier versions, without a salt. In both, records start at
#: ``FIRST_RECORD``.
SEGMENT_MAGIC = b"faultline/2"
FIRST_MAGIC = b"faultline-spool/1\n"
FIRST_RECORD = len(FIRST_MAGIC)
#: Follows ``SEGMENT_MAGIC``: the salt in hexadecimal digits and a line end.
_SALT = re.compile(rb"([0-9a-f]{6})\n")
#: Magic, length of the description, length of the payload, CRC-32 (seeded with the salt) of the preceding fields and
#: the description, CRC-32 of the payload.
HEAD = struct.Struct("<4sIIII")
MAGIC = b"\xf5FL1"
#: Most buffers of one write; POSIX allows 1,024.
_MOST_PARTS = 1023

#: Assumed compression ratio if none is recorded.
PACKED = 8
#: A line counts as at least so many bytes of its batch: parsed, it takes a worker and the service as much memory as a
#: line of so many bytes, however short it is.
LINE_BYTES = 20


class Position(NamedTuple):
    """A position between two records: segment number and byte offset."""

    segment: int
    offset: int


@dataclass(frozen=True)
class Record:
    """A batch in a segment. ``meta`` describes it; the payload is read on demand. ``end`` is the position after it."""

    segment: int
    offset: int
    meta: dict[str, Any]
    payload_offset: int
    payload_bytes: int
    payload_crc: int
    path: str

    @property
    def start(self) -> Position:
        return Position(self.segment, self.offset)

    @property
    def end(self) -> Position:
        return Position(self.segment, self.payload_offset + self.payload_bytes)

    @property
    def unpacked_bytes(self) -> int:
        """Approximate unpacked size."""
        return unpacked_size(self.meta, self.payload_bytes)

    @property
    def weight(self) -> int:
        """Its bytes, unpacked; more if its lines are very short."""
        lines = self.meta.get("lines")
        return weight(lines if isinstance(lines, int) else 0, self.unpacked_bytes)


def weight(lines: int, size: int) -> int:
    """What so many lines in ``size`` bytes count as, in bytes: more if they are very short."""
    return max(size, lines * LINE_BYTES)


def short_lines(lines: int, size: int) -> dict[str, int]:
    """The description of a batch of ``size`` bytes, unpacked, with at most so many lines: empty unless they are very
    short."""
    return {"lines": lines} if lines * LINE_BYTES > size else {}


def unpacked_size(meta: Mapping[str, Any], payload_bytes: int) -> int:
    """The unpacked size of a payload in bytes: as recorded at arrival, else an estimate if it is packed."""
    known = meta.get("unpacked")
    if isinstance(known, int):
        return known
    return payload_bytes * (PACKED if meta.get("encoding") not in (None, "", "identity") else 1)


def payload_of(path: str, offset: int, size: int, crc: int) -> bytes:
    """Reads a payload and verifies it. Raises ``ValueError`` if the bytes differ from those written."""
    with Path(path).open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), size, offset)
    if len(data) != size or zlib.crc32(data) != crc:
        raise ValueError(f"{path}: the checksum at byte {offset} is wrong: the disk changed {size:,} bytes")
    return data


def write_all(fd: int, parts: Sequence[bytes]) -> None:
    for at in range(0, len(parts), _MOST_PARTS):
        group = parts[at : at + _MOST_PARTS]
        written = os.writev(fd, group)
        if written < sum(map(len, group)):
            view = memoryview(b"".join(group))[written:]
            while view:
                view = view[os.write(fd, view) :]


def _salt_of(file: Any) -> int | None:
    """The seed of the CRCs of a segment's records; None if it cannot be read."""
    file.seek(0)
    head = file.read(FIRST_RECORD)
    if head == FIRST_MAGIC:
        return 0
    found = _SALT.fullmatch(head[len(SEGMENT_MAGIC) :]) if head.startswith(SEGMENT_MAGIC) else None
    return int(found[1], 16) if found else None


def scan(path: Path, number: int, offset: int, limit: int) -> Iterator[Record]:
    """Records between two offsets.

    A damaged description in the middle of a segment is skipped up to the next valid record: the payload's own CRC
    reveals damage there.
    """
    try:
        file = path.open("rb", buffering=64 * 1024)
    except FileNotFoundError:
        return
    with file:
        salt = _salt_of(file)
        while salt is not None and offset + HEAD.size <= limit:
            file.seek(offset)
            record = _record(file, path, number, offset, limit, salt)
            if record is None:
                found = _next_record(file, path, number, offset + 1, limit, salt)
                if found is None:
                    break
                record = _damaged(path, number, offset, found)
            yield record
            offset = record.end.offset
        if offset < limit:  # once on disk and now unreadable: report it, do not skip it
            yield _damaged(path, number, offset, limit)


def _record(file: Any, path: Path, number: int, offset: int, limit: int, salt: int) -> Record | None:
    """The record at the file's current position; None if there is none, or if it does not end before ``limit``."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        return None
    _, described, size, meta_crc, payload_crc = HEAD.unpack(head)
    at = offset + HEAD.size + described
    if at + size > limit:
        return None
    text = file.read(described)
    if zlib.crc32(text, zlib.crc32(head[:12], salt)) != meta_crc:
        return None
    return Record(number, offset, json.loads(text), at, size, payload_crc, str(path))


def _next_record(file: Any, path: Path, number: int, start: int, limit: int, salt: int) -> int | None:
    """Where the next whole record begins after damage."""
    file.seek(start)
    data = file.read(limit - start)
    view = io.BytesIO(data)
    at = data.find(MAGIC)
    while at >= 0:
        view.seek(at)
        if _record(view, path, number, start + at, limit, salt) is not None:
            return start + int(at)
        at = data.find(MAGIC, at + 1)
    return None


def _damaged(path: Path, number: int, offset: int, end: int) -> Record:
    return Record(number, offset, {"kind": "damaged"}, offset, end - offset, 0, str(path))
