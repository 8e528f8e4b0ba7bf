"""Log files, followed by content: rotation by rename, copy and truncation, compressed generations, globs.

Read with ``pread`` in turns, not by inotify: logs lie on NFS and Lustre too, where inotify says nothing.
"""

from __future__ import annotations

import codecs
import contextlib
import fnmatch
import glob
import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from collector.agent import rotation, wire
from collector.agent.failure import Missing
from collector.agent.rotation import Place
from collector.agent.source import Context, Reading, SourceKind

#: Read at most so much of one file in a turn: bounds memory, and no file starves the others.
PIECE = 256 * 1024
#: A line longer than this is delivered in pieces (tag "continued"); a missing line end must not stop a file for ever.
LONGEST_LINE = 1024 * 1024
#: Daemons write to the renamed file until they are told to reopen it.
AFTER_ROTATION_S = 30.0
#: A last line without its end is delivered as it is when nothing follows for so long.
PARTIAL_S = 30.0

DEFAULT_PATHS = [
    "/var/log/syslog", "/var/log/messages", "/var/log/slurm/*.log", "/var/log/slurm*.log", "/var/log/slurm-llnl/*.log",
    "/var/log/slurmctld/*.log", "/var/log/fabricmanager.log", "/var/log/nvidia-fabricmanager.log", "/var/log/opensm.log",
    "/var/log/nhc.log", "/opt/cycle/jetpack/logs/jetpack*.log", "/opt/healthagent/*.log",
]  # fmt: skip
#: Before a kind: the lines are a document's, not a log's.
DOCUMENT = "document:"


@dataclass
class _Tail:
    """One open file. ``left_at`` is set once its name belongs to another file: it is read to its end and closed."""

    handle: int
    place: Place
    source: str | None
    grown_at: float
    left_at: float | None = None
    finished: bool = False
    _head: bytes = b""
    _wide: str | None = None

    def identity(self) -> tuple[int, int]:
        return self.place.device, self.place.inode

    def head(self) -> bytes:
        if not self._head:
            self._head = _head(self.place, self.source)
        return self._head

    def read(self, now: float, monotonic: float, last: bool) -> Reading | None:
        """The next piece of whole lines; ``last``: also what has no line end."""
        size = os.fstat(self.handle).st_size
        if size <= self.place.offset:
            return None
        if not self.place.offset or self._wide is None:
            self._wide = _wide(os.pread(self.handle, 2, 0))
        if self._wide:
            size &= ~1  # half a character waits for the other half
        data = os.pread(self.handle, min(PIECE, size - self.place.offset), self.place.offset)
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
            elif not (last or monotonic - self.grown_at > PARTIAL_S):
                return None
            text, used = data, len(data)
        else:
            text, used = data[:cut], cut + (2 if self._wide else 1)
        if self._wide:
            text = text.decode(self._wide, "replace").removeprefix("\ufeff").encode()
        self.grown_at = monotonic
        # Dense JSON of one record: one object for all lines costs as much as one line.
        body = wire.lines_record(
            self.head(), text, offset=self.place.offset, read=wire.stamp(now), tags=tags
        )  # fmt: skip
        self.place = self.place.moved(self.handle, self.place.offset + used, now)
        return Reading(body, text.count(b"\n") + 1, {self.place.key(): self.place.as_json()})


def _wide(beginning: bytes) -> str | None:
    """The encoding of a file that begins with a mark of UTF-16 (BMC exports, Windows tools); empty for any other."""
    if len(beginning) < 2:
        return None
    return {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(beginning, "")


def _last_end(data: bytes, wide: str | None) -> int:
    """Where the last line end stands; -1 for none. ``data`` begins with a whole character."""
    if not wide:
        return data.rfind(b"\n")
    end = "\n".encode(wide)
    at = data.rfind(end)
    while at > 0 and at % 2:  # the halves of two neighbours
        at = data.rfind(end, 0, at + 1)
    return at if at % 2 == 0 else -1


def _head(place: Place, source: str | None) -> bytes:
    """The beginning of this file's records: lines of a source, or pieces of a document whose every line stands alone."""
    inode = f"{place.device}:{place.inode}"
    if source is not None and source.startswith(DOCUMENT):
        return wire.head(stream="files", document=source.removeprefix(DOCUMENT), path=place.path, inode=inode)
    return wire.head(stream="files", source=source, path=place.path, inode=inode)


@dataclass
class _Packed:
    """A compressed generation, read to its end."""

    path: Path
    place: Place
    source: str | None
    written: float
    stream: IO[bytes]
    started: bool = False
    rest: bytes = b""

    def read(self, now: float) -> Reading | None:
        """The next lines; None at the end."""
        if not self.started:
            self.started = True
            left = self.place.offset
            while left > 0 and (skipped := self.stream.read(min(left, PIECE))):
                left -= len(skipped)
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
        body = wire.lines_record(_head(self.place, self.source), text, offset=self.place.offset, read=wire.stamp(now))
        self.place = _packed_place(self.place, joined[: cut + 1], now)
        return Reading(body, text.count(b"\n") + 1, {self.place.key(): self.place.as_json()})


def _packed_place(place: Place, used: bytes, now: float) -> Place:
    import zlib

    head_bytes, head = place.head_bytes, place.head
    if not place.offset:
        head_bytes, head = len(used[: rotation.HEAD_BYTES]), zlib.crc32(used[: rotation.HEAD_BYTES])
    anchor = zlib.crc32(used[-rotation.ANCHOR_BYTES :])
    return Place(place.path, place.device, place.inode, place.offset + len(used), head_bytes, head, anchor, now)


@dataclass
class Files:
    """All files that match. ``kinds``: "GLOB=SOURCE" where the service should not recognise the file by itself, or
    "GLOB=document:KIND" for a file that is no log (its lines must stand alone, as jobcomp's do).
    """

    context: Context
    paths: list[str]
    exclude: list[str]
    kinds: list[str]
    from_start: bool
    rescan_s: float
    interval: float = 0.0
    _tails: list[_Tail] = field(default_factory=list)
    _packed: list[_Packed] = field(default_factory=list)
    _waiting: list[Reading] = field(default_factory=list)
    _finished: deque[Place] = field(default_factory=lambda: deque(maxlen=32))
    _watched: set[str] = field(default_factory=set)
    _generations: dict[str, rotation.Generations] = field(default_factory=dict)
    _scan_at: float = float("-inf")
    _first: bool = False

    def open(self, positions: Mapping[str, Any]) -> None:
        known = [Place.of_json(v) for key, v in positions.items() if key.startswith("files:")]
        self._first = not known
        for key, told in positions.items():
            if key.startswith("generations:"):
                path = key.removeprefix("generations:")
                self._generations[path] = rotation.Generations.of_json(Path(path), told)
        # The newest first: what it still has to read is not taken for a generation that nobody saw.
        for place in sorted(known, key=lambda p: p.seen, reverse=True):
            self._watch(place.path)
            if place.done:
                self._tails.append(_Tail(-1, place, None, 0.0, left_at=0.0, finished=True))
            else:
                self._resume(place)
        self._scan_at = float("-inf")

    def _watch(self, path: str) -> None:
        """Looks out for generations of a file from now on, or from when they were judged last."""
        if path not in self._watched:
            self._watched.add(path)
            self._generations.setdefault(path, rotation.Generations(Path(path))).baseline(self.context.now())

    # ---------------------------------------------------------------------------------------------- finding files

    def _resume(self, place: Place) -> None:
        path = Path(place.path)
        handle = _opened(path)
        if handle is not None:
            status = os.fstat(handle)
            same = (status.st_dev, status.st_ino) == (place.device, place.inode)
            if same and status.st_size >= place.offset and place.fits(handle):
                self._tails.append(self._tail(handle, place))
                return
            os.close(handle)
        self._moved_away(place, "renamed or removed while the agent was not running")

    def _moved_away(self, place: Place, how: str) -> None:
        """Reads the rest of a file under its new name; reports it where it is gone."""
        same = rotation.find(place)
        started: dict[str, Any] = {place.key(): None}
        if same is None and place.offset:
            now = self.context.now()
            self._waiting.append(Reading(
                wire.blind("files", self._kind(place.path), place.seen or now, now,
                           f"{place.path}: {how}; the rest behind byte {place.offset} was not found",
                           path=place.path), 0, {},
            ))  # fmt: skip
        if same is not None and (kept := self._also(same, place)) is not None:
            started[kept.key()] = kept.as_json()
        self._account(place.path, same, started)
        self._waiting.append(Reading(b"", 0, started))

    def _account(self, path: str, same: Path | None, started: dict[str, Any]) -> None:
        """A generation that was found to be a file known before is not judged again, whatever happens in between."""
        generations = self._generations.get(path)
        if same is not None and generations is not None:
            generations.account(same)
            started[f"generations:{path}"] = generations.as_json()

    def _unseen(self, monotonic: float) -> None:
        """Generations that nobody has read: the log was rotated more than once between two looks."""
        for generations in self._generations.values():
            for path in generations.appeared(monotonic, self.context.now()):
                generations.account(path)
                if self._is_known(path, str(generations.path)):
                    continue
                kept = self._also(path, Place(str(generations.path), 0, 0, seen=self.context.now()))
                if kept is not None:
                    self._waiting.append(Reading(b"", 0, {kept.key(): kept.as_json()}))
            if generations.changed:
                generations.changed = False
                self._waiting.append(Reading(b"", 0, {f"generations:{generations.path}": generations.as_json()}))

    def _is_known(self, path: Path, live: str) -> bool:
        """Whether a generation is a file that was or is being read: renamed, copied or compressed."""
        packed = path.suffix in rotation.PACKED
        places = [t.place for t in self._tails] + [p.place for p in self._packed] + list(self._finished)
        for place in places:
            if place.path == live and (
                place.fits_packed(path) if packed else rotation.holds(place, path, not place.offset)
            ):
                return True
        unread = [t.handle for t in self._tails if t.place.path == live and not t.finished and not t.place.offset]
        return any(rotation.same_beginning(path, handle) for handle in unread)

    def _also(self, path: Path, begin: Place) -> Place | None:
        """Starts reading an earlier generation from ``begin`` on."""
        try:
            status = path.stat()
        except OSError:
            return None
        place = Place(
            begin.path,
            status.st_dev,
            status.st_ino,
            begin.offset,
            begin.head_bytes,
            begin.head,
            begin.anchor,
            begin.seen,
        )
        known = {tail.identity() for tail in self._tails} | {(p.place.device, p.place.inode) for p in self._packed}
        if (status.st_dev, status.st_ino) in known:
            return None
        if path.suffix in rotation.PACKED:
            try:  # opened at once: logrotate may give its name to another generation any moment
                stream = rotation.unpacked(path)
            except rotation.UNPACKABLE as error:
                self._waiting.append(self._unreadable(path, place, error))
                return None
            self._packed.append(_Packed(path, place, self._kind(place.path), status.st_mtime, stream))
            self._packed.sort(key=lambda packed: packed.written)
            return place
        handle = _opened(path)
        if handle is None:
            return None
        tail = self._tail(handle, place)
        tail.left_at = self.context.monotonic()
        self._tails.append(tail)
        return place

    def _tail(self, handle: int, place: Place) -> _Tail:
        return _Tail(handle, place, self._kind(place.path), self.context.monotonic())

    def _kind(self, path: str) -> str | None:
        for entry in self.kinds:
            pattern, _, kind = entry.rpartition("=")
            if fnmatch.fnmatch(path, pattern):
                return kind
        return None

    def _scan(self) -> None:
        known = {tail.identity(): tail for tail in self._tails}
        matched: set[tuple[int, int]] = set()
        for path in self._matching():
            try:
                status = Path(path).stat()
            except OSError:
                continue
            identity = (status.st_dev, status.st_ino)
            matched.add(identity)
            tail = known.get(identity)
            if tail is None or (tail.finished and not self._unchanged(tail, Path(path), status.st_size)):
                if tail is not None:
                    self._tails.remove(tail)
                self._begin(path, identity, status.st_size)
        # A finished file is remembered as long as a glob finds it under its new name.
        gone = {t.place.key(): None for t in self._tails if t.finished and t.identity() not in matched}
        self._tails = [t for t in self._tails if t.place.key() not in gone]
        if gone:
            self._waiting.append(Reading(b"", 0, dict(gone)))
        self._first = False

    def _begin(self, path: str, identity: tuple[int, int], size: int) -> None:
        handle = _opened(Path(path))
        if handle is None:
            return
        place = Place(path, *identity, seen=self.context.now())
        if self._first and not self.from_start:
            place = place.moved(handle, _last_line_end(handle, size), self.context.now())
        self._watch(path)
        self._waiting.append(Reading(b"", 0, {place.key(): place.as_json()}))
        self._tails.append(self._tail(handle, place))

    @staticmethod
    def _unchanged(tail: _Tail, path: Path, size: int) -> bool:
        """A finished file that is found again: False where its inode serves another file by now."""
        handle = _opened(path)
        if handle is None:
            return True
        try:
            return size >= tail.place.offset and tail.place.fits(handle)
        finally:
            os.close(handle)

    def _matching(self) -> list[str]:
        found: dict[str, None] = {}
        for pattern in self.paths:
            for path in sorted(glob.glob(str(self.context.path(pattern)), recursive="**" in pattern)):  # noqa: PTH207 - absolute patterns
                wanted = not any(fnmatch.fnmatch(path, x) or fnmatch.fnmatch(Path(path).name, x) for x in self.exclude)
                if wanted and Path(path).suffix not in rotation.PACKED:
                    found[path] = None
        return [path for path in found if Path(path).is_file()]

    # ---------------------------------------------------------------------------------------------- reading

    def poll(self) -> Iterator[Reading]:
        monotonic, now = self.context.monotonic(), self.context.now()
        if monotonic - self._scan_at >= self.rescan_s:
            self._scan_at = monotonic
            self._scan()
            if not self._tails and not self._packed:
                raise Missing(f"no file matches {', '.join(self.paths)}")
        self._unseen(monotonic)
        # Where reading begins is noted before what was read from there.
        waiting, self._waiting = self._waiting, []
        yield from waiting
        for packed in self._packed[:1]:  # one after the other: their order is their age
            yield from self._read_packed(packed, now)
        for tail in list(self._tails):
            if not tail.finished:
                yield from self._follow(tail, now, monotonic)

    def _unreadable(self, path: Path, place: Place, error: Exception) -> Reading:
        now = self.context.now()
        reason = f"{path}: cannot be unpacked behind byte {place.offset} ({error})"
        return Reading(wire.blind("files", self._kind(place.path), place.seen or now, now, reason, path=place.path), 0)

    def _read_packed(self, packed: _Packed, now: float) -> Iterator[Reading]:
        try:
            reading = packed.read(now)
        except rotation.UNPACKABLE as error:
            reading = None
            yield self._unreadable(packed.path, packed.place, error)
        if reading is None:
            self._packed.remove(packed)
            self._finished.append(packed.place)
            packed.stream.close()
            reading = Reading(b"", 0, {packed.place.key(): None})
        yield reading

    def _follow(self, tail: _Tail, now: float, monotonic: float) -> Iterator[Reading]:
        status = os.fstat(tail.handle)
        if status.st_size < tail.place.offset or (
            status.st_size > tail.place.offset and not tail.place.fits(tail.handle)
        ):
            yield from self._emptied(tail, now)
        if tail.left_at is None and not self._still_named(tail):
            tail.left_at = tail.grown_at = monotonic
            self._scan_at = float("-inf")  # its successor is there already, most likely
        done = tail.left_at is not None and monotonic - max(tail.left_at, tail.grown_at) > AFTER_ROTATION_S
        reading = tail.read(now, monotonic, done)
        if reading is not None:
            yield reading
        elif done and status.st_size <= tail.place.offset:
            tail.finished = True
            os.close(tail.handle)
            tail.place = replace(tail.place, done=True)
            self._finished.append(tail.place)
            yield Reading(b"", 0, {tail.place.key(): tail.place.as_json()})

    def _still_named(self, tail: _Tail) -> bool:
        try:
            status = Path(tail.place.path).stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == tail.identity()

    def _emptied(self, tail: _Tail, now: float) -> Iterator[Reading]:
        """The file was truncated (copytruncate): its copy holds what was not read yet."""
        old = tail.place
        same = rotation.find(old)
        fresh = Place(old.path, old.device, old.inode, seen=now)
        started: dict[str, Any] = {fresh.key(): fresh.as_json()}
        tail.place, tail.grown_at = fresh, self.context.monotonic()
        copy = self._also(same, old) if same is not None else None
        if copy is not None:
            started[copy.key()] = copy.as_json()
        self._account(old.path, same, started)
        body = b"" if copy is not None else wire.blind(
            "files", tail.source, old.seen or now, now,
            f"{old.path}: truncated at byte {old.offset} or beyond and no copy of it was found", path=old.path,
        )  # fmt: skip
        yield Reading(body, 0, started)

    def close(self) -> None:
        for tail in self._tails:
            if not tail.finished:
                os.close(tail.handle)
        for packed in self._packed:
            packed.stream.close()
        self._tails, self._packed = [], []


def _opened(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return None


def _last_line_end(handle: int, size: int) -> int:
    """The place behind the last line end: reading starts with a whole line."""
    at = size
    while at > 0:
        start = max(0, at - PIECE)
        cut = os.pread(handle, at - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        at = start
    return 0


def _make(context: Context, options: Mapping[str, Any]) -> Files:
    return Files(
        context, options["paths"], options["exclude"], options["kinds"], options["from_start"], options["rescan_s"]
    )


SOURCE = SourceKind(
    "files", _make,
    {"paths": DEFAULT_PATHS, "exclude": [], "kinds": ["*/jobcomp.log=document:jobcomp"], "from_start": True, "rescan_s": 10.0},
    reads="Log files that match globs, through rotation of every usual kind",
    costs="two stat calls a file and turn; one read where it grew",
    blind_to="lines written between the copy and the truncation of copytruncate; files removed while the agent is away",
    slow=False,
    waits=True,
)  # fmt: skip
