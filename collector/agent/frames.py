"""The on-disk frame of one batch in the agent's spool.

A frame is ``FLB1``, three little-endian u32 (length of the header, length of the payload, CRC-32 of the header), the
header (JSON) and the payload; the header holds the CRC-32 of the payload.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_MAGIC = b"FLB1"
_HEAD = struct.Struct("<4sIII")
#: A header holds counts and positions: a larger one is damage, not a header of ours.
_MOST_HEADER = 16 * 1024 * 1024


@dataclass(frozen=True)
class Frame:
    """The position of a frame in its segment, and its header."""

    start: int
    header: dict[str, Any]
    body: int
    length: int


def frame_of(header: Mapping[str, Any], payload: bytes) -> bytes:
    """The bytes of a frame; the payload's checksum goes into its header."""
    packed = json.dumps({**header, "crc": zlib.crc32(payload)}, separators=(",", ":")).encode()
    return _HEAD.pack(_MAGIC, len(packed), len(payload), zlib.crc32(packed)) + packed + payload


def is_whole(frame: Frame, payload: bytes) -> bool:
    """Whether the payload is intact."""
    return zlib.crc32(payload) == int(frame.header["crc"])


def frames(stream: BinaryIO, end: int | None = None) -> Iterator[Frame]:
    """Whole frames from the stream's position on, skipping damaged or truncated ones. Payloads are not read."""
    if end is None:
        here = stream.tell()
        end = stream.seek(0, os.SEEK_END)
        stream.seek(here)
    while (start := stream.tell()) < end:
        frame = _frame_at(stream, start, end) or _next_frame(stream, start + 1, end)
        if frame is None:
            return
        yield frame
        stream.seek(frame.body + frame.length)


def _frame_at(stream: BinaryIO, start: int, end: int) -> Frame | None:
    stream.seek(start)
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, length, size, crc = _HEAD.unpack(head)
    body = start + _HEAD.size + length
    if magic != _MAGIC or length > _MOST_HEADER or body + size > end:
        return None
    packed = stream.read(length)
    if len(packed) < length or zlib.crc32(packed) != crc:
        return None
    return Frame(start, json.loads(packed), body, size)


def _next_frame(stream: BinaryIO, start: int, end: int) -> Frame | None:
    """The first whole frame after a damaged place; only the magic bytes still mark where one begins."""
    stream.seek(start)
    rest = stream.read(end - start)  # a segment is a few MB
    at = rest.find(_MAGIC)
    while at >= 0:
        frame = _frame_at(stream, start + at, end)
        if frame is not None:
            return frame
        at = rest.find(_MAGIC, at + 1)
    return None
