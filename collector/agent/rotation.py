"""Finding what was read before under a new name: after rotation by rename, by copy and truncation, with compression.

A file is known by what it holds, not by its name: a checksum of its first bytes and one of the bytes just before the
place that was reached. Both together find the file under any name, compressed or not, and notice a file that was
emptied and has grown past that place again.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

PACKED = (".gz", ".xz", ".bz2", ".zst")
#: Log files of one service begin alike (banners); a kilobyte reaches the first stamps.
HEAD_BYTES = 1024
ANCHOR_BYTES = 64
_PIECE = 256 * 1024
#: A copy or an archive that did not change for so long is complete.
STABLE_S = 1.0
#: File systems stamp with the kernel's coarse clock, which is a tick behind.
_TICK_S = 0.01
#: What unpacking a damaged or foreign file raises.
UNPACKABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class Place:
    """How far a file has been read: ``offset``, and the checksums by which the file is found again.

    ``head`` is of the first ``head_bytes``; ``anchor`` of the ``ANCHOR_BYTES`` (or fewer) before ``offset``. ``seen``:
    when that was (epoch seconds). ``done``: it was read to its end under another name and nobody writes to it any more.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    head_bytes: int = 0
    head: int = 0
    anchor: int = 0
    seen: float = 0.0
    done: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> Place:
        return cls(**row)

    def key(self) -> str:
        """The name of this position in the spool."""
        return f"files:{self.path}|{self.device}:{self.inode}"

    def moved(self, handle: int, offset: int, seen: float) -> Place:
        """The same file (open as ``handle``), read up to ``offset``."""
        head_bytes, head = self.head_bytes, self.head
        if head_bytes < HEAD_BYTES:
            beginning = os.pread(handle, min(HEAD_BYTES, offset), 0)
            head_bytes, head = len(beginning), zlib.crc32(beginning)
        anchor = zlib.crc32(os.pread(handle, min(ANCHOR_BYTES, offset), max(0, offset - ANCHOR_BYTES)))
        return Place(self.path, self.device, self.inode, offset, head_bytes, head, anchor, seen)

    def fits(self, handle: int) -> bool:
        """Whether the open file still holds, before ``offset``, what was read there."""
        if not self.offset:
            return True
        before = os.pread(handle, min(ANCHOR_BYTES, self.offset), max(0, self.offset - ANCHOR_BYTES))
        if len(before) < min(ANCHOR_BYTES, self.offset) or zlib.crc32(before) != self.anchor:
            return False
        return zlib.crc32(os.pread(handle, self.head_bytes, 0)) == self.head

    def fits_packed(self, path: Path) -> bool:
        """Whether a compressed file unpacks to what was read."""
        if not self.offset:
            return False  # nothing was read of it: any file would fit
        try:
            with unpacked(path) as stream:
                beginning = stream.read(self.head_bytes)
                if zlib.crc32(beginning) != self.head:
                    return False
                tail, left = beginning, self.offset - len(beginning)
                while left > 0:
                    piece = stream.read(min(left, _PIECE))
                    if not piece:
                        return False
                    left -= len(piece)
                    tail = (tail + piece)[-ANCHOR_BYTES:]
                wanted = min(ANCHOR_BYTES, self.offset)
                return zlib.crc32(tail[-wanted:] if wanted else b"") == self.anchor
        except UNPACKABLE:
            return False


def unpacked(path: Path) -> IO[bytes]:
    """The content of a file, decompressed by its suffix. Raises ``OSError``, or ``ValueError`` without zstandard."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(IO[bytes], lzma.open(path, "rb"))
    if path.suffix == ".bz2":
        return cast(IO[bytes], bz2.open(path, "rb"))
    if path.suffix == ".zst":
        try:
            import zstandard
        except ImportError as error:
            raise ValueError(f"{path}: needs the package zstandard to be read") from error
        return cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True))
    return path.open("rb")


def siblings(path: Path) -> list[Path]:
    """Files that may be earlier generations of ``path``, oldest first: logrotate's ``.1``, ``-20261121``, ``.2.gz``,
    and ``name-20261121.log`` for ``name.log``.
    """
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name == path.name or not _is_generation(entry.name, path):
                continue
            with contextlib.suppress(OSError):
                if entry.is_file():
                    found.append((entry.stat().st_mtime, Path(entry.path)))
    return [path for _, path in sorted(found)]


def _is_generation(name: str, path: Path) -> bool:
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    if name.startswith(path.name):
        rest = name[len(path.name) :]
    elif path.suffix and name.startswith(path.stem) and name.endswith(path.suffix):
        rest = name[len(path.stem) : -len(path.suffix)]
    else:
        return False
    # "slurmd.log" is no generation of "slurm.log": what differs is a number, a date, or "old".
    return not rest or (rest[0] in ".-_" and not rest.strip("._-0123456789oldTbak"))


def find(place: Place) -> Path | None:
    """The file of ``place`` under a new name: by its inode, else by what it holds; None where it is not found."""
    generations = siblings(Path(place.path))
    plain = [path for path in reversed(generations) if path.suffix not in PACKED]
    for path in generations if not place.offset else plain:
        if holds(place, path, same_inode=True):
            return path
    for path in plain:
        if holds(place, path):
            return path
    return next((p for p in reversed(generations) if p.suffix in PACKED and place.fits_packed(p)), None)


#: Device, inode and a checksum of the first bytes: inodes are used again, at once on some file systems.
Identity = tuple[int, int, int]


@dataclass
class Generations:
    """Earlier generations of one log as they appear: a log may be rotated twice between two looks.

    ``accounted`` are those that were there at first or have been judged, ``judged_at`` is when none was left to judge;
    ``changed`` is set when there is something new to keep. A new one is handed out once it has stopped changing: a copy
    or an archive that is still being written looks like nothing known.
    """

    path: Path
    accounted: set[Identity] = field(default_factory=set)
    judged_at: float | None = None
    changed: bool = False
    _changing: dict[Identity, tuple[int, int, float]] = field(default_factory=dict)
    _folder_changed: int | None = None

    def baseline(self, now: float) -> None:
        """What is there is history if nothing is known yet; else what was last written when all had been judged:
        an archive of a generation that was read keeps its time.
        """
        for path in siblings(self.path):
            found = _identified(path)
            if found and (self.judged_at is None or found[1].st_mtime <= self.judged_at - _TICK_S):
                self.accounted.add(found[0])
        if self.judged_at is None:
            self.judged_at, self.changed = now, True

    def as_json(self) -> dict[str, Any]:
        return {"at": self.judged_at, "known": [list(identity) for identity in sorted(self.accounted)]}

    @classmethod
    def of_json(cls, path: Path, row: dict[str, Any]) -> Generations:
        return cls(path, {(d, i, c) for d, i, c in row["known"]}, row["at"])

    def appeared(self, monotonic: float, now: float) -> list[Path]:
        """New generations that have not changed for a second, oldest first; each is given until it is accounted."""
        try:
            folder_changed = self.path.parent.stat().st_mtime_ns
        except OSError:
            return []
        if folder_changed == self._folder_changed and not self._changing:
            return []
        self._folder_changed = folder_changed
        fresh: list[Path] = []
        changing: dict[Identity, tuple[int, int, float]] = {}
        there: set[Identity] = set()
        for path in siblings(self.path):
            found = _identified(path)
            if found is None:
                continue
            identity, status = found
            there.add(identity)
            if identity in self.accounted:
                continue
            size, written, since = self._changing.get(identity, (-1, -1, monotonic))
            if (size, written) != (status.st_size, status.st_mtime_ns):
                changing[identity] = (status.st_size, status.st_mtime_ns, monotonic)
            elif monotonic - since < STABLE_S:
                changing[identity] = (size, written, since)
            else:
                fresh.append(path)
        self._changing = changing
        self.accounted &= there
        if not changing:
            self.judged_at = now
        return fresh

    def account(self, path: Path) -> None:
        """This generation has been judged."""
        found = _identified(path)
        if found:
            self.accounted.add(found[0])
            self.changed = True


def _identified(path: Path) -> tuple[Identity, os.stat_result] | None:
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            return (status.st_dev, status.st_ino, zlib.crc32(stream.read(256))), status
    except OSError:
        return None


def same_beginning(path: Path, handle: int) -> bool:
    """Whether a file, unpacked, begins as the open one does (both not empty)."""
    try:
        with unpacked(path) as stream:
            one = stream.read(HEAD_BYTES)
    except UNPACKABLE:
        return False
    other = os.pread(handle, HEAD_BYTES, 0)
    length = min(len(one), len(other))
    return length > 0 and one[:length] == other[:length]


def holds(place: Place, path: Path, same_inode: bool = False) -> bool:
    """Whether a plain file holds what was read up to ``place`` (and is the very same file)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if same_inode and (status.st_dev, status.st_ino) != (place.device, place.inode):
            return False
        if not place.offset and not same_inode:
            return False  # nothing was read of it: any file would fit
        return status.st_size >= place.offset and place.fits(handle)
    finally:
        os.close(handle)
