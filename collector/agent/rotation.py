"""Finds a file that was read before under its new name: after rotation by rename, by copy and truncation, with
compression.

A file is identified by its content, not by its name: a checksum of its first bytes and one of the bytes just before the
read offset. Together they find the file under any name, compressed or not, and detect a file that was truncated and has
outgrown that offset again.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

PACKED = (".gz", ".xz", ".bz2", ".zst")
#: Log files of one service begin alike (banners); a kilobyte reaches the first timestamps.
HEAD_BYTES = 1024
ANCHOR_BYTES = 64
_PIECE = 256 * 1024
#: A copy or an archive that has not changed for this long is complete.
STABLE_S = 1.0
#: File systems use the kernel's coarse clock, which lags by a tick.
_TICK_S = 0.01
_SAME_STAMP_NS = 50_000_000
#: Folders with many logs are scanned for generations less often: 10,000 logs per second.
_LOGS_A_SECOND = 10_000
#: So many read generations of a log are remembered until their archives have come: delaycompress packs the newest ones.
_REMEMBERED = 3
#: Stands for the checksum of an empty file. Earlier versions stored 0, also for archives of which nothing was read yet.
_EMPTY = 1
#: Exceptions raised by unpacking a damaged or foreign file.
UNPACKABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class Place:
    """How far a file has been read: ``offset``, and the checksums that find the file again.

    ``head`` is of the first ``head_bytes``, also of a file of which nothing was read; ``anchor`` of the ``ANCHOR_BYTES`` (or fewer) before ``offset``. ``seen``:
    when that offset was reached (epoch seconds). ``done``: the file was read to its end under another name and is no
    longer written.
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
        """The key of this position in the spool."""
        return f"files:{self.path}|{self.device}:{self.inode}"

    def moved(self, handle: int, offset: int, seen: float) -> Place:
        """The same file (open as ``handle``), read up to ``offset``."""
        head_bytes, head = self.head_bytes, self.head
        if head_bytes < HEAD_BYTES or not self.offset:
            beginning = os.pread(handle, min(HEAD_BYTES, offset), 0)
            head_bytes, head = len(beginning), zlib.crc32(beginning)
        anchor = zlib.crc32(os.pread(handle, min(ANCHOR_BYTES, offset), max(0, offset - ANCHOR_BYTES)))
        return Place(self.path, self.device, self.inode, offset, head_bytes, head, anchor, seen)

    def begun(self, beginning: bytes) -> Place:
        """The same file before anything was read of it, to be found by how it begins: ``HEAD_BYTES``, or all it has."""
        return replace(self, head_bytes=len(beginning), head=zlib.crc32(beginning) if beginning else _EMPTY)

    def begins(self, path: Path) -> bool:
        """Whether a file, unpacked, is this one, of which nothing was read: it begins alike, or is the same if short."""
        try:
            with unpacked(path) as stream:
                beginning = stream.read(self.head_bytes + 1)
        except UNPACKABLE:
            return False
        is_whole = self.head_bytes == HEAD_BYTES or len(beginning) == self.head_bytes
        return self.head_bytes > 0 and is_whole and zlib.crc32(beginning[: self.head_bytes]) == self.head

    def fits(self, handle: int) -> bool:
        """Whether the open file still holds, before ``offset``, what was read."""
        if not self.offset:
            return True
        before = os.pread(handle, min(ANCHOR_BYTES, self.offset), max(0, self.offset - ANCHOR_BYTES))
        if len(before) < min(ANCHOR_BYTES, self.offset) or zlib.crc32(before) != self.anchor:
            return False
        return zlib.crc32(os.pread(handle, self.head_bytes, 0)) == self.head

    def fits_packed(self, path: Path) -> bool:
        """Whether a compressed file unpacks to what was read."""
        if not self.offset:
            return False  # nothing was read: any file would match
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


def siblings(path: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Files that may be earlier generations of ``path``, oldest first: logrotate's ``.1``, ``-20261121``, ``.2.gz``,
    and ``name-20261121.log`` for ``name.log``. ``names``: the names in its folder, if known.
    """
    if names is None:
        names = []
        with contextlib.suppress(OSError):
            names = [entry.name for entry in path.parent.iterdir() if path.name in logs_of(entry.name)]
    found: list[tuple[float, Path]] = []
    for name in names:
        with contextlib.suppress(OSError):
            status = (path.parent / name).lstat()  # a link is not a generation
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, path.parent / name))
    return [path for _, path in sorted(found)]


#: What rotation adds to a name: a number, a date or "old", after a dot, a dash or an underscore.
_ADDED = frozenset("._-0123456789oldTbak")


def logs_of(name: str) -> set[str]:
    """The log names that a file of this name may be an earlier generation of: "a.log.1.gz" -> "a.log" (and "a.log.1").

    "slurmd.log" is not a generation of "slurm.log".
    """
    plain = name
    for suffix in PACKED:
        plain = plain.removesuffix(suffix)
    found = {plain} - {name}
    suffixes = ("", plain[plain.rindex(".") :]) if "." in plain[1:] else ("",)
    for suffix in suffixes:
        base = plain[: len(plain) - len(suffix)]
        at = len(base) - 1
        while at > 0 and base[at] in _ADDED:
            if base[at] in ".-_" and at + 1 < len(base):
                found.add(base[:at] + suffix)
            at -= 1
    return found - {name}


def find(place: Place) -> Path | None:
    """The file of ``place`` under a new name, by its inode, else by its content; None if it is not found."""
    generations = siblings(Path(place.path))
    plain = [path for path in reversed(generations) if path.suffix not in PACKED]
    for path in plain:
        if holds(place, path, same_inode=True):
            return path
    if not place.offset:
        # An archive may have the inode of a file that was empty: its content decides, of equal ones its inode.
        same = [path for path in generations if path.suffix in PACKED and _is_same_file(place, path)]
        if same and not place.head_bytes and place.head != _EMPTY:
            return same[0]
        return next((path for path in [*same, *reversed(generations)] if place.begins(path)), None)
    for path in plain:
        if holds(place, path):
            return path
    return next((p for p in reversed(generations) if p.suffix in PACKED and place.fits_packed(p)), None)


#: Device, inode and a checksum of the first bytes: inodes are reused, on some file systems at once.
Identity = tuple[int, int, int]


@dataclass
class Generations:
    """Earlier generations of one log as they appear: a log may rotate twice between two looks.

    ``accounted`` holds those that existed at first or have been judged; ``judged_at`` is when none was left to judge;
    ``changed`` is set when there is something new to store. A new generation is returned once it has stopped changing:
    a copy or an archive still being written matches nothing known.
    """

    path: Path
    accounted: set[Identity] = field(default_factory=set)
    judged_at: float | None = None
    changed: bool = False
    #: Whether the folder was looked at since the start.
    is_seen: bool = False
    _changing: dict[Identity, tuple[int, int, float]] = field(default_factory=dict)

    def baseline(self, now: float, names: Iterable[str]) -> None:
        """Sets what counts as already known. Without earlier knowledge that is everything present; otherwise it is
        every file last written before all had been judged, since an archive of a generation keeps its time. ``names``:
        the log's generations in its folder.

        A clock that was set back since then says nothing of that: each file is judged by its content.
        """
        was_set_back = self.judged_at is not None and now < self.judged_at
        for path in siblings(self.path, names) if not was_set_back else ():
            found = identified(path)
            if found and (self.judged_at is None or found[1].st_mtime <= self.judged_at - _TICK_S):
                self.accounted.add(found[0])
        if self.judged_at is None:
            self.judged_at, self.changed = now, True

    def as_json(self) -> dict[str, Any]:
        return {"at": self.judged_at, "known": [list(identity) for identity in sorted(self.accounted)]}

    @classmethod
    def of_json(cls, path: Path, row: dict[str, Any]) -> Generations:
        return cls(path, {(d, i, c) for d, i, c in row["known"]}, row["at"])

    @property
    def is_changing(self) -> bool:
        """Whether a new generation may still be written."""
        return bool(self._changing)

    def _is_followed(self, followed: Collection[tuple[int, int]]) -> bool:
        try:
            status = self.path.stat()
        except OSError:
            return True  # a new one is written later than now
        return (status.st_dev, status.st_ino) in followed

    def appeared(self, monotonic: float, now: float, names: Iterable[str], followed: Collection[tuple[int, int]]) -> list[Path]:  # fmt: skip
        """New generations unchanged for a second, oldest first; each is returned until it is accounted for.

        ``followed``: device and inode of the files whose position was handed over already. While the log itself is none of
        them, not all is judged: its archive will be as old as its lines, and nothing would tell that they were never read.
        The folder is looked at again when the log is found (``Folders.look_again``).
        """
        fresh: list[Path] = []
        changing: dict[Identity, tuple[int, int, float]] = {}
        there: set[Identity] = set()
        for path in siblings(self.path, names):
            found = identified(path)
            if found is None:
                continue
            identity, status = found
            there.add(identity)
            if identity in self.accounted or (path.suffix in PACKED and path.with_suffix("").exists()):
                continue  # an archive beside its original is unfinished, however long it has been still
            size, written, since = self._changing.get(identity, (-1, -1, monotonic))
            if (size, written) != (status.st_size, status.st_mtime_ns):
                changing[identity] = (status.st_size, status.st_mtime_ns, monotonic)
            elif monotonic - since < STABLE_S:
                changing[identity] = (size, written, since)
            else:
                fresh.append(path)
        self._changing = changing
        self.accounted &= there
        if not changing and self._is_followed(followed):
            self.judged_at = now
        return fresh

    def knows(self, path: Path) -> bool:
        """Whether this generation has been judged or existed at first."""
        found = identified(path)
        return found is not None and found[0] in self.accounted

    def may_be_packed(self, inode: int) -> bool:
        """Whether this generation is still there as it is, or its archive may be among those not judged yet."""
        return not self.is_seen or self.is_changing or any(known == inode for _, known, _ in self.accounted)

    def account(self, path: Path) -> None:
        """Marks this generation as judged."""
        found = identified(path)
        if found:
            self.accounted.add(found[0])
            self.changed = True


class Remembered:
    """Generations that were read to their end. Rotation may pack them much later: their archives hold nothing new.

    Each has a position of its own, under a key that begins with ``KEY``: a new file may get its inode.
    """

    KEY = "read:"

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._stored: set[str] = set()

    def recall(self, key: str, place: Place) -> None:
        """A place from the stored positions."""
        self._places[key] = place
        self._stored.add(key)

    def add(self, place: Place) -> None:
        if place.offset:  # an empty file cannot be distinguished by its content
            self._places[f"{self.KEY}{place.path}|{place.inode}:{place.head:08x}:{place.anchor:08x}"] = place

    def of(self, path: str) -> list[Place]:
        """The remembered generations of a log."""
        return [place for place in self._places.values() if place.path == path]

    def changes(self, generations: Mapping[str, Generations]) -> dict[str, Any]:
        """Forgets all but the newest, and those whose archive has been judged. Returns the positions to store.
        ``generations``: of each log."""
        kept: dict[str, Place] = {}
        counts: Counter[str] = Counter()
        for key, place in sorted(self._places.items(), key=lambda item: item[1].seen, reverse=True):
            own = generations.get(place.path)
            if own is not None and own.may_be_packed(place.inode) and counts[place.path] < _REMEMBERED:
                counts[place.path] += 1
                kept[key] = place
        changed: dict[str, Any] = dict.fromkeys(self._stored - kept.keys())
        changed |= {key: place.as_json() for key, place in kept.items() if key not in self._stored}
        self._places, self._stored = kept, set(kept)
        return changed


@dataclass
class _Folder:
    generations: dict[str, Generations] = field(default_factory=dict)
    changed: int | None = None
    due: float = float("-inf")
    is_changing: bool = False
    #: The generations of each log, under any name.
    names: dict[str, list[str]] = field(default_factory=dict)


class Folders:
    """The folders of followed logs. Each is listed once when it changes, however many logs it holds."""

    def __init__(self) -> None:
        self._folders: dict[Path, _Folder] = {}

    def add(self, generations: Generations, now: float) -> None:
        """Watches for generations of a log from now on, or from when they were last judged."""
        path = generations.path
        folder = self._folders.setdefault(path.parent, _Folder())
        if folder.changed is None:
            self._list(path.parent, folder)
        folder.generations[path.name] = generations
        generations.baseline(now, folder.names.get(path.name, ()))
        folder.changed = 0  # forces a look, which makes it known

    def look_again(self, path: Path) -> None:
        """A log is followed from now on: its generations can be judged."""
        if (folder := self._folders.get(path.parent)) is not None:
            folder.changed = 0

    def of(self, path: Path) -> list[Generations]:
        """The followed logs that a file may be a generation of."""
        folder = self._folders.get(path.parent)
        return [folder.generations[name] for name in logs_of(path.name) if name in folder.generations] if folder else []

    def appeared(
        self, monotonic: float, now: float, followed: Collection[tuple[int, int]]
    ) -> Iterator[tuple[Generations, list[Path]]]:
        """Logs whose folders changed, with their new generations. ``followed``: as for ``Generations.appeared``."""
        for path, folder in self._folders.items():
            if monotonic < folder.due or not (self._list(path, folder) or folder.is_changing):
                continue
            folder.due, folder.is_changing = monotonic + len(folder.generations) / _LOGS_A_SECOND, False
            for name, generations in folder.generations.items():
                names = folder.names.get(name, ())
                if names or generations.accounted or generations.changed:
                    yield generations, generations.appeared(monotonic, now, names, followed)
                    folder.is_changing = folder.is_changing or generations.is_changing
                generations.is_seen = True

    def _list(self, path: Path, folder: _Folder) -> bool:
        """Lists a folder that changed; False if it did not."""
        try:
            changed = path.stat().st_mtime_ns
            if changed == folder.changed:
                return False
            names = [entry.name for entry in os.scandir(path)]
        except OSError:
            return False
        folder.changed = (
            changed if time.time_ns() - changed > _SAME_STAMP_NS else 0
        )  # more files may arrive with the same timestamp
        folder.names = {}
        for name in names:
            for log in logs_of(name):
                folder.names.setdefault(log, []).append(name)
        return True


def identified(path: Path) -> tuple[Identity, os.stat_result] | None:
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            return (status.st_dev, status.st_ino, zlib.crc32(stream.read(256))), status
    except OSError:
        return None


def same_beginning(path: Path, handle: int) -> bool:
    """Whether a file, unpacked, begins like the open one (both not empty)."""
    try:
        with unpacked(path) as stream:
            one = stream.read(HEAD_BYTES)
    except UNPACKABLE:
        return False
    other = os.pread(handle, HEAD_BYTES, 0)
    length = min(len(one), len(other))
    return length > 0 and one[:length] == other[:length]


def _is_same_file(place: Place, path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (place.device, place.inode)


def holds(place: Place, path: Path, same_inode: bool = False) -> bool:
    """Whether a plain file holds what was read up to ``place`` (``same_inode``: and is the very same file)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if same_inode and (status.st_dev, status.st_ino) != (place.device, place.inode):
            return False
        if not place.offset and not same_inode:
            return False  # nothing was read: any file would match
        return status.st_size >= place.offset and place.fits(handle)
    finally:
        os.close(handle)
