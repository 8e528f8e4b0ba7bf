"""Files that are being read: plain ones as they grow, compressed generations to their end. Both yield readings."""

from __future__ import annotations

import codecs
import errno
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from collector.agent import rotation, wire
from collector.agent.rotation import Place
from collector.agent.source import Reading

#: Errors that mean that a file does not exist.
NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
#: Most bytes read from one file in a turn: bounds memory, and no file starves the others.
PIECE = 256 * 1024
#: A longer line is delivered in pieces (tag "continued"); a missing line end must not block a file for ever.
LONGEST_LINE = 1024 * 1024
#: A last line without its end is delivered as it is after this long without more data.
PARTIAL_S = 30.0
#: This many NULs at the start of a line are no line: a crash left them, or a daemon that writes on after a truncation.
HOLE_BYTES = 4096
#: Prefix of a kind: the lines belong to a document, not to a log.
DOCUMENT = "document:"


@dataclass
class Tail:
    """One open file. ``left_at`` is set once its name belongs to another file: it is read to its end, then closed."""

    handle: int
    place: Place
    source: str | None
    grew_at: float
    left_at: float | None = None
    finished: bool = False
    #: The file's size and modification time at the last look, and when that size was first seen.
    size: int = -1
    changed_ns: int = -1
    still_since: float = 0.0
    #: Where only NULs stood at that look.
    _nulls: tuple[int, int, int] | None = None
    _head: bytes = b""
    _wide: str | None = None

    def identity(self) -> tuple[int, int]:
        return self.place.device, self.place.inode

    def head(self) -> bytes:
        if not self._head:
            self._head = _head(self.place, self.source, os.fstat(self.handle).st_uid)
        return self._head

    def named(self) -> tuple[bool, bool]:
        """Whether a file still has its name, and if not, whether another file of that name is being written. A daemon
        that was not asked to reopen keeps writing to the old file, however rarely."""
        try:
            status = os.stat(self.place.path)  # noqa: PTH116 - for every file in every turn
        except OSError as error:
            return error.errno not in NOT_THERE, False  # without permission to look, nothing is known
        return (status.st_dev, status.st_ino) == self.identity(), status.st_size > 0

    def is_emptied(self, status: os.stat_result) -> bool:
        """Whether the file no longer holds what was read of it, even if it has its former length again."""
        changed, self.changed_ns = status.st_mtime_ns != self.changed_ns, status.st_mtime_ns
        if status.st_size <= self.place.offset and not changed:
            return False
        return status.st_size < self.place.offset or not self.place.fits(self.handle)

    def read(self, now: float, monotonic: float, last: bool) -> Reading | None:
        """The next piece of whole lines; ``last`` includes an unterminated line."""
        size = os.fstat(self.handle).st_size
        if size != self.size:
            self.size, self.still_since = size, monotonic
        if size <= self.place.offset:
            return None
        if not self.place.offset or self._wide is None:
            self._wide = _wide(os.pread(self.handle, 2, 0))
        if self._wide:
            size &= ~1  # half a character waits for the other half
        data = os.pread(self.handle, min(PIECE, size - self.place.offset), self.place.offset)
        if data[:HOLE_BYTES].count(0) == HOLE_BYTES:
            return self._passed(size, now, monotonic)
        cut = _last_end(data, self._wide)
        while cut < 0 and len(data) < min(LONGEST_LINE, size - self.place.offset):
            more = os.pread(
                self.handle, min(PIECE, size - self.place.offset - len(data)), self.place.offset + len(data)
            )
            if not more:
                break
            cut, data = _last_end(more, self._wide), data + more
            cut = cut + len(data) - len(more) if cut >= 0 else cut
        tags = None
        if cut < 0:
            if len(data) >= LONGEST_LINE:
                tags = ["continued"]
            elif not data or not (last or monotonic - self.still_since > PARTIAL_S):
                return None
            text, used = data, len(data)
        else:
            text, used = data[:cut], cut + (2 if self._wide else 1)
        if self._wide:
            text = text.decode(self._wide, "replace").removeprefix("\ufeff").encode()
        self.grew_at = monotonic
        # Compact JSON of one record: one object for all lines costs as much as one line.
        body = wire.lines_record(
            self.head(), text, offset=self.place.offset, read=wire.stamp(now), tags=tags
        )  # fmt: skip
        self.place = self.place.moved(self.handle, self.place.offset + used, now)
        return Reading(body, text.count(b"\n") + 1, {self.place.key(): self.place.as_json()})

    def _passed(self, size: int, now: float, monotonic: float) -> Reading | None:
        """Continues after NULs and reports it. None while nothing follows them: preallocated room for later lines."""
        begin, since = self.place.offset, self.place.seen or now
        if self._nulls == (begin, size, self.changed_ns):
            return None
        end = _behind_nulls(self.handle, begin, size)
        if end >= size:
            self._nulls = (begin, size, self.changed_ns)
            return None
        self.place, self.grew_at = self.place.moved(self.handle, end, now), monotonic
        why = f"{self.place.path}: {end - begin} NULs in the place of lines behind byte {begin}"
        body = wire.blind("files", self.source, since, now, why, path=self.place.path)
        return Reading(body, 0, {self.place.key(): self.place.as_json()})


def _behind_nulls(handle: int, at: int, size: int) -> int:
    """Offset of the first byte that is not NUL; ``size`` if there is none."""
    while at < size:
        try:
            at = os.lseek(handle, at, os.SEEK_DATA)  # skipping a hole is free
        except OSError as error:
            if error.errno == errno.ENXIO:  # up to the end
                return size
        piece = os.pread(handle, PIECE, at)
        left = piece.lstrip(b"\0")
        at += len(piece) - len(left)
        if left:
            return at
        if not piece:
            break
    return size


def _wide(beginning: bytes) -> str | None:
    """The encoding of a file that begins with a UTF-16 byte order mark (BMC exports, Windows tools); empty for any
    other."""
    if len(beginning) < 2:
        return None
    return {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(beginning, "")


def _last_end(data: bytes, wide: str | None) -> int:
    """Position of the last line end; -1 for none. ``data`` begins with a whole character."""
    if not wide:
        return data.rfind(b"\n")
    end = "\n".encode(wide)
    at = data.rfind(end)
    while at > 0 and at % 2:  # the halves of two neighbouring characters
        at = data.rfind(end, 0, at + 1)
    return at if at % 2 == 0 else -1


def _head(place: Place, source: str | None, owner: int) -> bytes:
    """The start of this file's records: lines of a source, or pieces of a document whose every line is complete by
    itself. The service believes no daemon's words in a file whose ``owner`` is a person."""
    inode = f"{place.device}:{place.inode}"
    if source is not None and source.startswith(DOCUMENT):
        kind = source.removeprefix(DOCUMENT)
        return wire.head(stream="files", document=kind, path=place.path, inode=inode, owner=str(owner))
    return wire.head(stream="files", source=source, path=place.path, inode=inode, owner=str(owner))


@dataclass
class Packed:
    """A compressed generation, read to its end."""

    path: Path
    place: Place
    source: str | None
    written: float
    stream: IO[bytes]
    started: bool = False
    rest: bytes = b""
    #: The last bytes before the place, which identify it.
    before: bytes = b""
    owner: int = 0

    def read(self, now: float) -> Reading | None:
        """The next lines; None at the end."""
        if not self.started:
            self.started = True
            left = self.place.offset
            while left > 0 and (skipped := self.stream.read(min(left, PIECE))):
                left -= len(skipped)
                self._passed_over(skipped)
        data = self.stream.read(PIECE)
        joined = self.rest + data
        if not joined:
            return None
        cut = joined.rfind(b"\n") if data else len(joined)
        if cut < 0 and len(joined) < LONGEST_LINE:
            self.rest = joined
            return self.read(now)
        cut = len(joined) if cut < 0 else cut
        text, self.rest = joined[:cut].removesuffix(b"\n"), joined[cut + 1 :]
        body = wire.lines_record(
            _head(self.place, self.source, self.owner), text, offset=self.place.offset, read=wire.stamp(now)
        )
        used = joined[: cut + 1]
        self._passed_over(used)
        self.place = _packed_place(self.place, used, self.before, now)
        return Reading(body, text.count(b"\n") + 1, {self.place.key(): self.place.as_json()})

    def _passed_over(self, data: bytes) -> None:
        self.before = (self.before + data[-rotation.ANCHOR_BYTES :])[-rotation.ANCHOR_BYTES :]


def _packed_place(place: Place, used: bytes, before: bytes, now: float) -> Place:
    """The place behind ``used``; ``before``: the last bytes before it, which may begin before ``used``."""
    head_bytes, head = place.head_bytes, place.head
    if not place.offset:
        head_bytes, head = len(used[: rotation.HEAD_BYTES]), zlib.crc32(used[: rotation.HEAD_BYTES])
    anchor = zlib.crc32(before)
    return Place(place.path, place.device, place.inode, place.offset + len(used), head_bytes, head, anchor, now)


def last_line_end(handle: int, size: int) -> int:
    """Offset after the last line end: reading starts with a whole line."""
    at = size
    while at > 0:
        start = max(0, at - PIECE)
        cut = os.pread(handle, at - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        at = start
    return 0
