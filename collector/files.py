"""Reads files as they are found: plain or compressed, small or huge, whole or broken."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from collector.segment_file import weight
from collector.tree import opened_at

#: Enough bytes to recognise a file.
HEAD = 64 * 1024
#: How many bytes are parsed and stored at a time; very short lines count as more (``segment_file.weight``).
CHUNK = 4 * 1024 * 1024

#: Bytes requested from a decompressor at a time. Small, because a decompressor that meets a truncated end returns
#: nothing of that call.
BLOCK = 64 * 1024

#: A longer line is not a line and would be held in memory.
LONGEST_LINE = 64 * 1024 * 1024
#: A file with more bytes of holes is read up to its first hole: it is not a log, just terabytes of nothing. What a file
#: system leaves in a log after a power loss is smaller.
MOST_HOLES = 64 * 1024 * 1024

BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


class _Utf16(io.RawIOBase):
    """A UTF-16 file with a byte order mark (Windows tools, BMC exports) as UTF-8; undecodable input becomes U+FFFD."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-16")("replace").decode
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._file.read(BLOCK)
            self._ready = self._decode(data, final=not data).encode("utf-8", "replace")
            if not data:
                break
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


#: The count of an octet-counted frame (RFC 6587), before its message.
_COUNT = re.compile(rb"([1-9]\d{0,6}) (?=<\d{1,3}>)")
#: Longest frame; more bytes without an end are not a frame.
_LONGEST_FRAME = 8 * 1024 * 1024


class _Frames(io.RawIOBase):
    """Octet-counted frames written to a file back to back, as lines. After a lost count, the rest comes unchanged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._data, self._ready, self._plain = b"", b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._file.read(BLOCK)
            self._data += block
            self._ready = self._unframed(last=not block)
            if not block:
                break
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _unframed(self, last: bool) -> bytes:
        out, at, data = [], 0, self._data
        while not self._plain and (found := _COUNT.match(data, at)):
            end = found.end() + int(found[1])
            if end > len(data):
                break
            out.append(data[found.end() : end].rstrip(b"\r\n\0") + b"\n")
            at = end
        left = len(data) - at
        # Neither a count nor a frame that the next block could complete.
        lost = left > _LONGEST_FRAME or (left > 16 and not _COUNT.match(data, at))
        self._plain = self._plain or lost
        if self._plain or last:
            out.append(data[at:])
            at = len(data)
        self._data = data[at:]
        return b"".join(out)

    def close(self) -> None:
        self._file.close()
        super().close()


def _is_glued(head: bytes) -> bool:
    """Whether a file begins with two octet-counted frames with nothing between them."""
    first = _COUNT.match(head)
    return first is not None and _COUNT.match(head, first.end() + int(first[1])) is not None


def plain(path: Path) -> IO[bytes]:
    """Opens a regular file without decoding, at a path without links. Raises ``OSError``."""
    return os.fdopen(opened_at(path.absolute()), "rb")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file for reading, unpacked, UTF-16 as UTF-8, concatenated frames as lines. The first bytes decide, not
    the name: a ``.gz`` may be plain."""
    with plain(path) as raw:
        head = raw.read(BLOCK)
        raw.seek(0)
        yield _unpacked(raw, head)


def _unpacked(raw: IO[bytes], head: bytes) -> IO[bytes]:
    magic = head[:6]
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(raw, "rb"))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(raw, "rb")
    if magic.startswith(b"BZh"):
        return bz2.open(raw, "rb")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        reader: IO[bytes] = zstandard.ZstdDecompressor().stream_reader(raw, closefd=False, read_across_frames=True)
        return reader
    if magic.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return io.BufferedReader(_Utf16(raw))
    if _is_glued(head):
        return io.BufferedReader(_Frames(raw))
    return raw


def hole_of(path: Path) -> int | None:
    """The first hole of a file that is mostly holes; None for any other."""
    with plain(path) as raw:
        seen = os.fstat(raw.fileno())
        if seen.st_size - seen.st_blocks * 512 <= MOST_HOLES:
            return None
        try:
            return os.lseek(raw.fileno(), 0, os.SEEK_HOLE)
        except (OSError, AttributeError):
            return 0


def head_of(path: Path) -> bytes:
    with opened(path) as stream:
        return stream.read(HEAD)


@dataclass
class Pieces:
    """A file in pieces that end at line ends (the last one may not).

    After iterating: ``consumed`` bytes up to the last line end, their ``digest``, the unterminated ``tail`` after them,
    and ``broken`` if the content stopped in the middle (a truncated archive); everything before is still yielded.
    ``skip`` bytes are read for the digest only, and ``most`` bytes (unpacked) at most.
    """

    path: Path
    skip: int = 0
    most: int | None = None
    consumed: int = 0
    tail: bytes = b""
    broken: str | None = None
    _hash: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        held: list[bytes] = []
        size = lines = 0
        left = self.skip
        for block in self._bounded():
            if left:
                self._take(block[:left])
                left, block = left - len(block[:left]), block[left:]
            cut = block.rfind(b"\n") + 1
            held.append(block[:cut] if cut else block)
            size += len(held[-1])
            lines += held[-1].count(b"\n")
            if cut and weight(lines, size) >= CHUNK:
                yield self._terminated(held)
                held, size, lines = [], 0, 0
            if cut and cut < len(block):
                held.append(block[cut:])
                size += len(held[-1])
            if size > LONGEST_LINE + CHUNK:
                self.broken = f"no line ends within {LONGEST_LINE:,} bytes"
                held = _lines_of(held)
                break
        rest = b"".join(held)
        cut = rest.rfind(b"\n") + 1
        self._take(rest[:cut])
        self.tail = rest[cut:]
        if rest:
            yield rest

    def _bounded(self) -> Iterator[bytes]:
        """Blocks, the last one cut at the point where reading stops."""
        left = self.most
        try:
            hole = hole_of(self.path)
        except OSError:  # reported by the reader
            hole = None
        if hole is not None and (left is None or hole < left):
            left = hole
        why = f"holes from byte {hole:,} on" if hole is not None and left == hole else f"more than {left or 0:,} bytes"
        for block in self._blocks():
            if left is not None and len(block) > left:
                self.broken = why
                if left:
                    yield block[:left]
                return
            yield block
            left = None if left is None else left - len(block)

    def _terminated(self, held: list[bytes]) -> bytes:
        piece = b"".join(held)
        self._take(piece)
        return piece

    def _blocks(self) -> Iterator[bytes]:
        try:
            with opened(self.path) as stream:
                while block := stream.read(BLOCK):
                    yield block
        except BROKEN as error:
            self.broken = f"{type(error).__name__}: {error}"

    def _take(self, block: bytes) -> None:
        self._hash.update(block)
        self.consumed += len(block)


def _lines_of(held: list[bytes]) -> list[bytes]:
    """The whole lines of the buffer, without the unterminated one."""
    whole = b"".join(held)
    return [whole[: whole.rfind(b"\n") + 1]]


def prefix_digest(path: Path, length: int) -> str | None:
    """The digest of the first ``length`` bytes; None if the file is shorter now."""
    pieces = hashlib.blake2b(digest_size=16)
    with opened(path) as stream:
        left = length
        while left:
            block = stream.read(min(left, CHUNK))
            if not block:
                return None
            pieces.update(block)
            left -= len(block)
    return pieces.hexdigest()
