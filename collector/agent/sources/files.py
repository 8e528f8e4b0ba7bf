"""Log files, followed by content: rotation by rename, copy and truncation, compressed generations, globs.

Files are read with ``pread`` in turns, not through inotify: logs are on NFS and Lustre too, where inotify reports
nothing.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.agent import rotation, wire
from collector.agent.failure import Missing
from collector.agent.rotation import Place
from collector.agent.source import Context, Reading, SourceKind
from collector.agent.strangers import open_safely
from collector.agent.tails import NOT_THERE, Packed, Tail, last_line_end

#: With more files than this, those silent for this long are checked only with each scan for new ones.
MANY, QUIET_S = 1_000, 600.0
#: A file reported as gone is remembered for this long.
GONE_S = 86_400.0
#: Daemons write to the renamed file until they reopen it.
AFTER_ROTATION_S = 30.0

DEFAULT_PATHS = [
    "/var/log/syslog", "/var/log/messages", "/var/log/slurm/*.log", "/var/log/slurm*.log", "/var/log/slurm-llnl/*.log",
    "/var/log/slurmctld/*.log", "/var/log/fabricmanager.log", "/var/log/nvidia-fabricmanager.log", "/var/log/opensm.log",
    "/var/log/nhc.log", "/opt/cycle/jetpack/logs/jetpack*.log", "/opt/healthagent/*.log",
]  # fmt: skip


@dataclass
class Files:
    """All files that match. ``kinds``: "GLOB=SOURCE" if the service should not detect the type itself, or
    "GLOB=document:KIND" for a file that is not a log (each line must be complete by itself, as in jobcomp's).
    """

    context: Context
    paths: list[str]
    exclude: list[str]
    kinds: list[str]
    from_start: bool
    rescan_s: float
    interval: float = 0.0
    _tails: list[Tail] = field(default_factory=list)
    _packed: list[Packed] = field(default_factory=list)
    _waiting: list[Reading] = field(default_factory=list)
    _finished: deque[Place] = field(default_factory=lambda: deque(maxlen=32))
    _remembered: rotation.Remembered = field(default_factory=rotation.Remembered)
    _watched: set[str] = field(default_factory=set)
    _folders: rotation.Folders = field(default_factory=rotation.Folders)
    #: Files that cannot be read at the moment, by path: reading continues there later. ``_gone``: already reported as
    #: gone.
    _away: dict[str, Place] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    #: Why files are not read, by path.
    _refused: dict[str, str] = field(default_factory=dict)
    trouble: str = ""
    _generations: dict[str, rotation.Generations] = field(default_factory=dict)
    _scan_at: float = float("-inf")
    _all_at: float = float("-inf")
    _first: bool = False

    def open(self, positions: Mapping[str, Any]) -> None:
        known = [Place.of_json(v) for key, v in positions.items() if key.startswith("files:")]
        self._first = not known and "files" not in positions
        self._recall_gone(positions)
        for key, position in positions.items():
            if key.startswith("generations:"):
                path = key.removeprefix("generations:")
                self._generations[path] = rotation.Generations.of_json(Path(path), position)
            elif key.startswith(rotation.Remembered.KEY):
                self._remembered.recall(key, Place.of_json(position))
        # Newest first: the rest of a file must not be taken for a generation that was never seen.
        for place in sorted(known, key=lambda p: p.seen, reverse=True):
            self._watch(place.path)
            if place.done:
                self._tails.append(Tail(-1, place, None, 0.0, left_at=0.0, finished=True))
            else:
                self._resume(place)
        self._scan_at = float("-inf")

    def _watch(self, path: str) -> None:
        """Watches for generations of a file from now on, or from when they were last judged."""
        if path not in self._watched:
            self._watched.add(path)
            generations = self._generations.setdefault(path, rotation.Generations(Path(path)))
            self._folders.add(generations, self.context.now())

    # ---------------------------------------------------------------------------------------------- finding files

    def _recall_gone(self, positions: Mapping[str, Any]) -> None:
        """Files that were reported as gone may return: their file system was not mounted yet."""
        for key, position in positions.items():
            if key.startswith("gone:"):
                place = Place.of_json(position)
                if self.context.now() - place.seen < GONE_S:
                    self._away[place.path] = place
                    self._gone.add(place.path)
                else:
                    self._waiting.append(Reading(b"", 0, {key: None}))

    def _resume(self, place: Place) -> None:
        try:
            handle = open_safely(Path(place.path))
        except OSError as error:
            if error.errno in NOT_THERE:
                self._moved_away(place, "renamed or removed while the agent was not running")
            else:
                self._put_off(place, error)
            return
        if not self._go_on(place, handle):
            os.close(handle)
            self._moved_away(place, "renamed or removed while the agent was not running")

    def _go_on(self, place: Place, handle: int) -> bool:
        """Continues reading an open file at ``place`` if it is that file. Its device number may differ after a boot or
        a remount."""
        try:
            status = os.fstat(handle)
            if status.st_ino != place.inode or status.st_size < place.offset or not place.fits(handle):
                return False
        except OSError as error:
            os.close(handle)
            self._put_off(place, error)
            return True
        there = replace(place, device=status.st_dev)
        if there.key() != place.key():
            self._waiting.append(Reading(b"", 0, {place.key(): None, there.key(): there.as_json()}))
        self._tails.append(self._tail(handle, there))
        return True

    def _put_off(self, place: Place, error: OSError) -> None:
        """A file that cannot be read at the moment keeps its place; the others continue."""
        self._away[place.path] = place
        self._gone.discard(place.path)
        self._refuse(place.path, error)

    def _refuse(self, path: str, error: OSError) -> None:
        self._refused[path] = error.strerror or str(error)
        count = f"; and {len(self._refused) - 1} more files" if len(self._refused) > 1 else ""
        self.trouble = f"{path}: {self._refused[path]}{count}"

    def _moved_away(self, place: Place, how: str) -> None:
        """Reads the rest of a file under its new name, or reports it as gone."""
        same = rotation.find(place)
        started: dict[str, Any] = {place.key(): None}
        if same is None and place.offset:
            now = self.context.now()
            self._waiting.append(Reading(
                wire.blind("files", self._kind(place.path), place.seen or now, now,
                           f"{place.path}: {how}; the rest behind byte {place.offset} was not found",
                           path=place.path), 0, {},
            ))  # fmt: skip
            self._away[place.path] = place
            self._gone.add(place.path)
            started[f"gone:{place.path}"] = place.as_json()
        if same is not None and (kept := self._also(same, place)) is not None:
            started[kept.key()] = kept.as_json()
        self._account(place.path, same, started)
        self._waiting.append(Reading(b"", 0, started))

    def _account(self, path: str, same: Path | None, started: dict[str, Any]) -> None:
        """A generation recognised as a known file is not judged again, whatever happens meanwhile."""
        generations = self._generations.get(path)
        if same is not None and generations is not None:
            generations.account(same)
            started[f"generations:{path}"] = generations.as_json()

    def _unseen(self, monotonic: float) -> None:
        """Generations that were never read: the log rotated more than once between two looks."""
        followed = {tail.identity() for tail in self._tails}
        for generations, fresh in self._folders.appeared(monotonic, self.context.now(), followed):
            for path in fresh:
                generations.account(path)
                if self._is_known(path, str(generations.path)):
                    self._keep_out(path, str(generations.path))
                    continue
                kept = self._also(path, Place(str(generations.path), 0, 0, seen=self.context.now()))
                if kept is not None:
                    self._waiting.append(Reading(b"", 0, {kept.key(): kept.as_json()}))
            if generations.changed:
                generations.changed = False
                self._waiting.append(Reading(b"", 0, {f"generations:{generations.path}": generations.as_json()}))

    def _keep_out(self, path: Path, live: str) -> None:
        """Excludes a copy of what was read: a glob that matches it must not have it read again."""
        known = {tail.identity() for tail in self._tails}
        with contextlib.suppress(OSError):
            handle = open_safely(path)
            try:
                status = os.fstat(handle)
                if path.suffix not in rotation.PACKED and (status.st_dev, status.st_ino) not in known:
                    place = Place(live, status.st_dev, status.st_ino).moved(handle, status.st_size, self.context.now())
                    self._tails.append(Tail(-1, replace(place, done=True), None, 0.0, left_at=0.0, finished=True))
                    self._waiting.append(Reading(b"", 0, {place.key(): self._tails[-1].place.as_json()}))
            finally:
                os.close(handle)

    def _is_known(self, path: Path, live: str) -> bool:
        """Whether a generation is a file that was or is being read: renamed, copied or compressed."""
        places = [t.place for t in self._tails] + [p.place for p in self._packed] + list(self._finished)
        places += self._remembered.of(live)
        read = [place for place in places if place.path == live and place.offset]
        if path.suffix in rotation.PACKED:
            if any(place.fits_packed(path) for place in read):
                return True
        elif any(rotation.holds(place, path) for place in read):
            return True
        # Nothing was read of it: it is the same file while it is open. Another may have the inode of one that was closed.
        waiting = [t for t in self._tails if t.place.path == live and not t.finished and not t.place.offset]
        if any(rotation.holds(tail.place, path, same_inode=True) for tail in waiting):
            return True
        return any(rotation.same_beginning(path, tail.handle) for tail in waiting)

    def _also(self, path: Path, begin: Place) -> Place | None:
        """Starts reading an earlier generation at ``begin``."""
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
        identity = (status.st_dev, status.st_ino)
        known = {t.identity() for t in self._tails if not t.finished} | {
            (p.place.device, p.place.inode) for p in self._packed
        }
        if identity in known:
            return None
        self._tails = [tail for tail in self._tails if tail.identity() != identity]  # an excluded copy may hold more
        if path.suffix in rotation.PACKED:
            try:  # open it at once: logrotate may give its name to another generation at any moment
                stream = rotation.unpacked(path)
                beginning = b"" if place.offset else stream.read(rotation.HEAD_BYTES)
            except rotation.UNPACKABLE as error:
                self._waiting.append(self._unreadable(path, place, error))
                return None
            place = place if place.offset else place.begun(beginning)
            packed = Packed(path, place, self._kind(place.path), status.st_mtime, stream, rest=beginning)
            packed.owner = status.st_uid
            self._packed.append(packed)
            self._packed.sort(key=lambda packed: packed.written)
            return place
        try:
            handle = open_safely(path)
            place = place if place.offset else place.begun(os.pread(handle, rotation.HEAD_BYTES, 0))
        except OSError as error:
            self._waiting.append(self._unreadable(path, place, error))
            return None
        tail = self._tail(handle, place)
        tail.left_at = self.context.monotonic()
        self._tails.append(tail)
        return place

    def _tail(self, handle: int, place: Place) -> Tail:
        return Tail(handle, place, self._kind(place.path), self.context.monotonic())

    def _kind(self, path: str) -> str | None:
        for entry in self.kinds:
            pattern, _, kind = entry.rpartition("=")
            if fnmatch.fnmatch(path, pattern):
                return kind
        return None

    def _scan(self) -> None:
        known = {tail.identity(): tail for tail in self._tails}
        matched: set[tuple[int, int]] = set()
        self._refused, self.trouble = {}, ""
        for path, status in self._matching():
            identity = (status.st_dev, status.st_ino)
            matched.add(identity)
            tail = known.get(identity)
            try:
                if tail is None:
                    if self._first or not self._is_to_be_judged(path):
                        known[identity] = self._begin(path)
                elif tail.finished:
                    self._look_again(tail, path)
            except OSError as error:
                if error.errno not in NOT_THERE:
                    self._refuse(path, error)
        self._forget_finished(matched)
        if self._first and not self.from_start:  # from now on everything is new, even in an empty file
            self._waiting.append(Reading(b"", 0, {"files": {"since": self.context.now()}}))
        self._first = False

    def _forget_finished(self, matched: set[tuple[int, int]]) -> None:
        """A finished file is followed as long as a glob matches its new name, and remembered while it may be packed."""
        gone = [t for t in self._tails if t.finished and t.identity() not in matched]
        self._tails = [t for t in self._tails if not t.finished or t.identity() in matched]
        used = {t.place.key() for t in self._tails} | {p.place.key() for p in self._packed}
        for tail in gone:
            self._remembered.add(tail.place)
        changed = {t.place.key(): None for t in gone if t.place.key() not in used} | self._remembered.changes(
            self._generations
        )
        if changed:
            self._waiting.append(Reading(b"", 0, changed))

    def _is_to_be_judged(self, path: str) -> bool:
        """Whether a new file may be an earlier generation of a followed log: most or all of it was read under that
        name."""
        waiting = [generations for generations in self._folders.of(Path(path)) if str(generations.path) != path]
        return any(not generations.knows(Path(path)) for generations in waiting)

    def _begin(self, path: str) -> Tail:
        """Follows a file, from its old position if it is a returning one. Raises ``OSError``."""
        handle = open_safely(Path(path))
        away = self._away.pop(path, None)
        if away is not None:
            self._waiting.append(Reading(b"", 0, {f"gone:{path}": None}))
            if self._go_on(away, handle):
                self._waiting.append(Reading(b"", 0, {self._tails[-1].place.key(): self._tails[-1].place.as_json()}))
                return self._tails[-1]
            if path not in self._gone:
                self._moved_away(away, "another file has its name by now")
        status = os.fstat(handle)
        place = Place(path, status.st_dev, status.st_ino, seen=self.context.now())
        if self._first and not self.from_start:
            place = place.moved(handle, last_line_end(handle, status.st_size), self.context.now())
        else:
            place = place.begun(os.pread(handle, rotation.HEAD_BYTES, 0))
        self._watch(path)
        self._folders.look_again(Path(path))
        self._waiting.append(Reading(b"", 0, {place.key(): place.as_json()}))
        self._tails.append(self._tail(handle, place))
        return self._tails[-1]

    def _look_again(self, tail: Tail, path: str) -> None:
        """Handles a finished file that is found again: it has its name back, it is still written to, or its inode now
        belongs to another file. Raises ``OSError``."""
        handle = open_safely(Path(path))
        size = os.fstat(handle).st_size
        is_same = size >= tail.place.offset and tail.place.fits(handle)
        if is_same and size == tail.place.offset and path != tail.place.path:
            os.close(handle)
            return
        self._tails.remove(tail)
        if not is_same:
            os.close(handle)
            self._remembered.add(tail.place)
            self._begin(path)
            return
        again = self._tail(handle, replace(tail.place, done=False))
        self._tails.append(again)
        self._waiting.append(Reading(b"", 0, {again.place.key(): again.place.as_json()}))

    def _matching(self) -> Iterator[tuple[str, os.stat_result]]:
        found: dict[str, None] = {}
        for pattern in self.paths:
            for path in sorted(glob.glob(str(self.context.path(pattern)), recursive="**" in pattern)):  # noqa: PTH207 - absolute patterns
                wanted = not any(fnmatch.fnmatch(path, x) or fnmatch.fnmatch(Path(path).name, x) for x in self.exclude)
                if wanted and Path(path).suffix not in rotation.PACKED:
                    found[path] = None
        for path in found:
            try:
                status = os.stat(path)  # noqa: PTH116 - thousands of them
            except OSError as error:
                if error.errno not in NOT_THERE:
                    self._refuse(path, error)
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status

    # ---------------------------------------------------------------------------------------------- reading

    def poll(self) -> Iterator[Reading]:
        monotonic, now = self.context.monotonic(), self.context.now()
        if monotonic - self._scan_at >= self.rescan_s:
            self._scan_at = monotonic
            self._scan()
            if not self._tails and not self._packed and not self._refused and not self._away:
                yield from self._waiting
                raise Missing(f"no file matches {', '.join(self.paths)}")
        self._unseen(monotonic)
        # Start positions are stored before what was read from there.
        waiting, self._waiting = self._waiting, []
        yield from waiting
        for packed in self._packed[:1]:  # one after the other: their order is their age
            yield from self._read_packed(packed, now)
        few = len(self._tails) <= MANY or monotonic >= self._all_at
        if few:
            self._all_at = monotonic + self.rescan_s
        for tail in list(self._tails):
            if not tail.finished and (few or monotonic - tail.grew_at < QUIET_S):
                try:
                    yield from self._follow(tail, now, monotonic)
                except OSError as error:  # a stale handle, a bad disk block: the others continue
                    yield from self._lost_sight(tail, error)

    def _lost_sight(self, tail: Tail, error: OSError) -> Iterator[Reading]:
        """Searches by name for a file that can no longer be read; reports one that has no name."""
        self._tails.remove(tail)
        with contextlib.suppress(OSError):
            os.close(tail.handle)
        self._put_off(tail.place, error)
        if tail.left_at is not None:
            del self._away[tail.place.path]
            record = self._unreadable(Path(tail.place.path), tail.place, error)
            yield replace(record, positions={tail.place.key(): None})

    def _unreadable(self, path: Path, place: Place, error: Exception) -> Reading:
        now = self.context.now()
        reason = f"{path}: cannot be read behind byte {place.offset} ({error})"
        return Reading(wire.blind("files", self._kind(place.path), place.seen or now, now, reason, path=place.path), 0)

    def _read_packed(self, packed: Packed, now: float) -> Iterator[Reading]:
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

    def _follow(self, tail: Tail, now: float, monotonic: float) -> Iterator[Reading]:
        status = os.fstat(tail.handle)
        if tail.is_emptied(status):
            yield from self._emptied(tail, now)
        named, is_succeeded = tail.named()
        if named:
            tail.left_at = None
        elif tail.left_at is None:
            tail.left_at = tail.grew_at = monotonic
            self._scan_at = float("-inf")  # its successor most likely exists already
        done = (
            tail.left_at is not None
            and monotonic - max(tail.left_at, tail.grew_at) > AFTER_ROTATION_S
            and (is_succeeded or not status.st_nlink)
        )
        reading = tail.read(now, monotonic, done)
        if reading is not None:
            yield reading
        elif done:
            tail.finished = True
            os.close(tail.handle)
            tail.place = replace(tail.place, done=True)
            self._finished.append(tail.place)
            self._remembered.add(tail.place)  # at once: its inode, and so its key, may be another file's from now on
            remembered = self._remembered.changes(self._generations)
            yield Reading(b"", 0, {tail.place.key(): tail.place.as_json(), **remembered})

    def _emptied(self, tail: Tail, now: float) -> Iterator[Reading]:
        """The file was truncated (copytruncate): its copy holds what was not read yet."""
        old = tail.place
        same = rotation.find(old)
        fresh = Place(old.path, old.device, old.inode, seen=now).begun(os.pread(tail.handle, rotation.HEAD_BYTES, 0))
        started: dict[str, Any] = {fresh.key(): fresh.as_json()}
        tail.place, tail.grew_at = fresh, self.context.monotonic()
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


def _make(context: Context, options: Mapping[str, Any]) -> Files:
    return Files(
        context, options["paths"], options["exclude"], options["kinds"], options["from_start"], options["rescan_s"]
    )


SOURCE = SourceKind(
    "files", _make,
    {"paths": DEFAULT_PATHS, "exclude": [], "kinds": ["*/jobcomp.log=document:jobcomp"], "from_start": True, "rescan_s": 10.0},
    reads="Log files that match globs, through all common kinds of rotation",
    costs="two stat calls per file and poll; one read if it grew",
    blind_to="lines written between the copy and the truncation of copytruncate; files removed while the agent is down",
    slow=False,
    waits=True,
)  # fmt: skip
