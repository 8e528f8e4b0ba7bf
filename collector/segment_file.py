"""Segment files of the spool: how a batch lies in them, and how batches are found again.

A segment is a header with a number of its own (*salt*) and then records: ``HEAD`` (magic, lengths, two CRCs), the
description as JSON, the payload as it was received. The salt goes into the CRC of each record: a file may be written over as a later segment, and then nothing of what it held
before is taken for a record of its new life.
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

#: Begins a segment; ``FIRST_MAGIC`` one of versions before, without a salt. Both are followed by records at ``FIRST_RECORD``.
SEGMENT_MAGIC = b"faultline/2"
FIRST_MAGIC = b"faultline-spool/1\n"
FIRST_RECORD = len(FIRST_MAGIC)
#: What follows ``SEGMENT_MAGIC``: the salt in hexadecimal digits and a line end.
_SALT = re.compile(rb"([0-9a-f]{6})\n")
#: magic, length of the description, length of the payload, CRC-32 (from the salt on) of what is before it and the
#: description, CRC-32 of the payload.
HEAD = struct.Struct("<4sIIII")
MAGIC = b"\xf5FL1"
#: Parts of one write; POSIX allows 1,024.
_MOST_PARTS = 1023

#: A packed byte stands for about so many, where nothing is said of it.
PACKED = 8


class Position(NamedTuple):
    """A place between two records: segment number and byte offset."""

    segment: int
    offset: int


@dataclass(frozen=True)
class Record:
    """A batch in a segment. ``meta`` describes it; the payload is read when needed. ``end`` is the position behind it."""

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
        """About how much there is to read in it."""
        return unpacked_size(self.meta, self.payload_bytes)


def unpacked_size(meta: Mapping[str, Any], payload_bytes: int) -> int:
    """Bytes of a payload unpacked: what was said when it was taken in, else a guess where it is packed."""
    known = meta.get("unpacked")
    if isinstance(known, int):
        return known
    return payload_bytes * (PACKED if meta.get("encoding") not in (None, "", "identity") else 1)


def payload_of(path: str, offset: int, size: int, crc: int) -> bytes:
    """Reads a payload and checks it. Raises ``ValueError`` if the bytes are not those that were written."""
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
    """What the CRCs of a segment's records begin with; None where that is not to be read."""
    file.seek(0)
    head = file.read(FIRST_RECORD)
    if head == FIRST_MAGIC:
        return 0
    found = _SALT.fullmatch(head[len(SEGMENT_MAGIC) :]) if head.startswith(SEGMENT_MAGIC) else None
    return int(found[1], 16) if found else None


def scan(path: Path, number: int, offset: int, limit: int) -> Iterator[Record]:
    """Records between two offsets.

    A damaged description in the middle of a segment is skipped to the next record that reads well: the payload's own CRC
    tells whoever reads it of damage there.
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
        if offset < limit:  # on disk once, and no longer readable: to be told, not to be passed over
            yield _damaged(path, number, offset, limit)


def _record(file: Any, path: Path, number: int, offset: int, limit: int, salt: int) -> Record | None:
    """The record that begins where ``file`` is read next; None if none does, or not all of it lies before ``limit``."""
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
    """Where the next whole record begins, behind damage."""
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
