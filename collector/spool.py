"""The spool: received batches, on disk before they are acknowledged, in order of arrival.

Batches are appended to segment files and fsynced together (group commit: while one fsync runs, the next batches
gather). A batch is never changed; the reader's position is in the store, in the same transaction as the rows, so that a
crash at any moment repeats or loses nothing. A segment is finished once everything in it has been committed.

It is then kept and overwritten as a later one: page cache that already exists costs a fraction of fresh memory (0.2 ms
per megabyte instead of 0.3 to 2.9, the most where a hypervisor has to provide it).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.segment_file import (
    FIRST_RECORD,
    HEAD,
    MAGIC,
    SEGMENT_MAGIC,
    Position,
    Record,
    payload_of,
    scan,
    unpacked_size,
    write_all,
)
from collector.supervised import Supervised
from store.files import flush_folder

#: A new segment starts after this many bytes: small enough that deleting whole files frees space soon.
SEGMENT_BYTES = 32 * 1024 * 1024
#: Most files kept for overwriting, while the disk has ample room.
SPARES = 4
#: Below this much free space, nothing is accepted: the store needs room for what is spooled.
MIN_FREE_BYTES = 256 * 1024 * 1024
#: Above this much waiting data, nothing is accepted; at 40 MB/s of syslog that is under two minutes of work.
MAX_WAITING_BYTES = 4 * 1024 * 1024 * 1024
#: Batches that wait for an fsync hold memory; above this the receivers must wait.
MAX_PENDING_BYTES = 64 * 1024 * 1024


#: How often a failed disk is probed while nobody sends, in seconds.
PROBE_S = 2.0
#: The resource that ran out, by error number.
NOTHING_LEFT = {
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "the disk is read-only",
    errno.EDQUOT: "the quota is used up",
    errno.EMFILE: "the service is out of file handles",
    errno.ENFILE: "the system is out of file handles",
    errno.ENOMEM: "out of memory",
}


def _begun() -> Future[Position]:
    """A future that cannot be cancelled: a waiting batch is written whether or not anyone still waits for it."""
    done: Future[Position] = Future()
    done.set_running_or_notify_cancel()
    return done


class SpoolFull(Exception):  # noqa: N818  (a state, reported to the sender)
    """Nothing was stored: retry in ``retry_s`` seconds."""

    def __init__(self, text: str, retry_s: float) -> None:
        super().__init__(text)
        self.retry_s = retry_s


class SpoolBroken(Exception):  # noqa: N818
    """The disk refused the write; nothing was acknowledged."""


class SpoolHeld(Exception):  # noqa: N818
    """Another service uses this spool."""


@dataclass
class _Waiting:
    lengths: bytes
    described: bytes
    payload: bytes
    payload_crc: int
    size: int
    unpacked: int
    done: Future[Position]


class Spool:
    """An open spool. ``append`` from any thread; one reader. Time and fsync are parameters for tests."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, min_free_bytes: int = MIN_FREE_BYTES,
                 max_waiting_bytes: int = MAX_WAITING_BYTES, fsync: Callable[[int], None] = os.fdatasync) -> None:  # fmt: skip
        self.folder = folder
        self.segment_bytes, self.min_free_bytes = segment_bytes, min_free_bytes
        self.max_waiting_bytes = max_waiting_bytes
        self._fsync = fsync
        self._lock = threading.Condition()
        self._pending: list[_Waiting] = []
        self._pending_bytes = 0
        self._closing = False
        #: The error of the last write, in words, until one succeeds.
        self._broken: str | None = None
        self._retry_at = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._hold()
        self.id = self._identity()
        numbers = self._numbers()
        self._segment = (numbers[-1] if numbers else 0) + 1
        for number in numbers[-1:]:
            self._cut_torn_end(number)
        self._fd, self._salt = -1, 0
        self._spares = sorted(folder.glob("*.spare"))
        #: Everything before this position is on disk.
        self.synced = Position(self._segment, FIRST_RECORD)
        self.committed = Position(numbers[0], FIRST_RECORD) if numbers else self.synced
        self._sizes = {n: self._path(n).stat().st_size for n in numbers}
        self.appended_batches, self.appended_bytes, self.fsyncs = 0, 0, 0
        self._unpacked_bytes = 0
        self._free = (0.0, 1 << 62)
        self._read_only = False
        try:  # a full or read-only disk is a state, and reported
            self._open_segment(self._segment)
        except OSError as error:
            self._broken = self._error_text(error)
        self._arrived = threading.Event()
        self._thread = Supervised("spool", self._run)
        self._thread.start()

    # -- opening -------------------------------------------------------------------------------------------------

    def _hold(self) -> None:
        self._held = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._held)
            raise SpoolHeld(f"{self.folder}: another service writes here; stop it, or use another --data") from error

    def _identity(self) -> str:
        """An ID that a new, empty spool does not share with its predecessor: positions belong to one spool."""
        path = self.folder / "id"
        if path.exists() and (known := path.read_text().strip()):
            return known
        made = uuid.uuid4().hex
        draft = self.folder / "id.draft"
        with draft.open("w") as file:
            file.write(made)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        flush_folder(self.folder)
        return made

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.seg"

    def _numbers(self) -> list[int]:
        return sorted(int(p.stem) for p in self.folder.glob("*.seg") if p.stem.isdigit())

    def _open_segment(self, number: int) -> None:
        """Raises ``OSError``; nothing has changed then."""
        if self._fd >= 0:  # former content must not follow the end of the file
            os.ftruncate(self._fd, self.synced.offset)
            self._fsync(self._fd)
        salt = secrets.token_hex(3).encode()
        with self._lock:
            spare = self._spares.pop() if self._spares else None
        draft = spare or self._path(number)
        fd = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, [SEGMENT_MAGIC + salt + b"\n"])
            self._fsync(fd)
            if spare:  # only now: under its new name its former records must not be readable even briefly
                spare.rename(self._path(number))
            flush_folder(self.folder)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._salt, self._segment = fd, int(salt, 16), number
        self._sizes[number] = FIRST_RECORD
        self.synced = Position(number, FIRST_RECORD)

    def _cut_torn_end(self, number: int) -> None:
        """Truncates after the last whole record: the rest was not acknowledged, or belongs to the file's former use."""
        path = self._path(number)
        size = path.stat().st_size
        end = FIRST_RECORD
        for record in scan(path, number, end, size):
            with contextlib.suppress(ValueError):
                payload_of(str(path), record.payload_offset, record.payload_bytes, record.payload_crc)
                end = record.end.offset if record.meta.get("kind") != "damaged" else end
        if size > end:
            with contextlib.suppress(OSError):
                os.truncate(path, end)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, meta: dict[str, Any], payload: bytes) -> Future[Position]:
        """Accepts a batch; the future completes when it is on disk. Raises ``SpoolFull``; the future may hold
        ``SpoolBroken``."""
        self.check_room()
        described = json.dumps(meta, separators=(",", ":"), ensure_ascii=False).encode()
        lengths = MAGIC + struct.pack("<II", len(described), len(payload))
        size = HEAD.size + len(described) + len(payload)
        waiting = _Waiting(
            lengths, described, payload, zlib.crc32(payload), size, unpacked_size(meta, len(payload)), _begun()
        )
        with self._lock:
            if self._closing:
                raise SpoolFull("the service is stopping", 5.0)
            self._pending.append(waiting)
            self._pending_bytes += waiting.size
            self._lock.notify_all()
        return waiting.done

    def check_room(self) -> None:
        """Raises ``SpoolFull``, with the reason in words, if nothing more should be accepted."""
        if self._pending_bytes > MAX_PENDING_BYTES:
            raise SpoolFull("more arrives than the disk takes", 1.0)
        if self.waiting_bytes > self.max_waiting_bytes:
            raise SpoolFull(f"{self.waiting_bytes / 1e9:.1f} GB wait to be stored; the service is behind", 5.0)
        if self.free_bytes() < self.min_free_bytes and not self._gave_up_spares():
            raise SpoolFull(f"{self.folder}: less than {self.min_free_bytes / 1e6:.0f} MB free on the disk", 10.0)
        if self._thread.is_dead:
            raise SpoolFull(f"{self.folder}: the thread that writes has ended; start the service anew", 10.0)
        if self._broken and time.monotonic() < self._retry_at:
            raise SpoolFull(self._broken, max(1.0, self._retry_at - time.monotonic()))

    @property
    def trouble(self) -> str | None:
        """Why nothing is accepted, in words, even while nobody sends; None if a batch would be accepted."""
        try:
            self.check_room()
        except SpoolFull as full:
            return None if full.retry_s < 2.0 and not self._broken else str(full)
        if self._broken is None and self._read_only:
            return f"{self.folder}: {NOTHING_LEFT[errno.EROFS]}; nothing is accepted until it can be written"
        return self._broken

    def free_bytes(self) -> int:
        """Free space of the spool's file system; queried at most four times a second."""
        now = time.monotonic()
        if now - self._free[0] > 0.25:
            try:
                disk = os.statvfs(self.folder)
                self._free = (now, disk.f_bavail * disk.f_frsize)
                self._read_only = bool(disk.f_flag & os.ST_RDONLY)
            except OSError:
                self._free = (now, 0)
        return self._free[1]

    def _gave_up_spares(self) -> bool:
        """Deletes the files kept for overwriting; False if there are none."""
        with self._lock:
            spares, self._spares = self._spares, []
        for path in spares:
            with contextlib.suppress(OSError):
                path.unlink()
        self._free = (0.0, 1 << 62)
        return bool(spares) and self.free_bytes() >= self.min_free_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes on disk that are not committed to the store yet."""
        at = self.committed
        with self._lock:
            sizes = dict(self._sizes)
        return max(0, sum(size for number, size in sizes.items() if number >= at.segment) - at.offset)

    @property
    def waiting_unpacked(self) -> float:
        """The same, approximately, unpacked: at the average compression ratio since the start."""
        return self.waiting_bytes * max(1.0, self._unpacked_bytes / max(1, self.appended_bytes))

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._pending and not self._closing:
                    self._lock.wait(PROBE_S if self._broken else None)
                batch, self._pending = self._pending, []
                if not batch and self._closing:
                    return
            if not batch:
                self._probe()
                continue
            try:
                self._write(batch)
            except BaseException as error:  # memory, or a bug of ours: waiters get the error, and the thread survives
                self._failed(error, [item for item in batch if not item.done.done()])
            finally:
                with self._lock:
                    self._pending_bytes -= sum(item.size for item in batch)

    def _probe(self) -> None:
        """Checks whether a failed disk can be written again: nobody sends to a service that is not ready."""
        if self._broken is None:
            return
        try:
            if self.free_bytes() >= self.min_free_bytes:
                self._open_segment(self._segment + 1)
                self._broken = None
        except OSError as error:
            self._broken = self._error_text(error)

    def _write(self, batch: list[_Waiting]) -> None:
        try:
            if self._fd < 0 or self._sizes.get(self._segment, 0) >= self.segment_bytes:
                self._open_segment(self._segment + 1)
            positions = self._append_all(batch)
        except OSError as error:
            self._failed(error, batch)
            return
        self._broken = None
        self.appended_batches += len(batch)
        self.appended_bytes += sum(item.size for item in batch)
        self._unpacked_bytes += sum(item.unpacked for item in batch)
        for item, position in zip(batch, positions, strict=True):
            item.done.set_result(position)
        self._arrived.set()

    def _append_all(self, batch: list[_Waiting]) -> list[Position]:
        start = self.synced.offset
        positions, offset = [], start
        pieces: list[bytes] = []
        for item in batch:
            positions.append(Position(self._segment, offset))
            offset += item.size
            meta_crc = zlib.crc32(item.described, zlib.crc32(item.lengths, self._salt))
            head = item.lengths + struct.pack("<II", meta_crc, item.payload_crc)
            pieces += (head, item.described, item.payload)
        try:
            write_all(self._fd, pieces)
            self._fsync(self._fd)
        except BaseException:
            # Nothing of it may be found later: it was never acknowledged, and the sender will send it again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
                os.lseek(self._fd, start, os.SEEK_SET)
            with contextlib.suppress(OSError):
                os.close(self._fd)
            # After a failed fsync the kernel may have dropped the pages: continue in a new file.
            self._fd = -1
            raise
        self.fsyncs += 1
        self._sizes[self._segment] = offset
        self.synced = Position(self._segment, offset)
        return positions

    def _error_text(self, error: BaseException) -> str:
        if isinstance(error, OSError):
            what = NOTHING_LEFT.get(error.errno or 0, os.strerror(error.errno or errno.EIO))
        else:
            what = "out of memory" if isinstance(error, MemoryError) else f"{type(error).__name__}: {error}"
        return f"{self.folder}: {what}; nothing is accepted until it can be written"

    def _failed(self, error: BaseException, batch: list[_Waiting]) -> None:
        self._broken = self._error_text(error)
        self._retry_at = time.monotonic() + PROBE_S
        for item in batch:
            item.done.set_exception(SpoolBroken(self._broken))

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, start: Position, max_bytes: int) -> Iterator[Record]:
        """Records from ``start`` on that are on disk, about ``max_bytes`` of them, unpacked."""
        end = self.synced
        taken = 0
        for number in sorted(n for n in list(self._sizes) if start.segment <= n <= end.segment):
            offset = start.offset if number == start.segment else FIRST_RECORD
            path = self._path(number)
            limit = end.offset if number == end.segment else self._sizes.get(number, 0)
            for record in scan(path, number, offset, limit):
                yield record
                taken += record.unpacked_bytes
                if taken >= max_bytes:
                    return

    def wait(self, timeout_s: float) -> bool:
        """Waits until something new is on disk, at most ``timeout_s`` seconds."""
        arrived = self._arrived.wait(timeout_s)
        self._arrived.clear()
        return arrived

    def wake(self) -> None:
        """Ends a ``wait``."""
        self._arrived.set()

    def commit(self, position: Position) -> None:
        """Records that everything before ``position`` is in the store: whole segments before it are overwritten later,
        or deleted."""
        self.committed = max(position, self.committed)
        with self._lock:
            done = [n for n in self._sizes if n < position.segment and n < self._segment]
            for number in done:
                del self._sizes[number]
        for number in done:
            path = self._path(number)
            ample = self.free_bytes() > 4 * self.min_free_bytes
            with contextlib.suppress(OSError):
                if len(self._spares) < SPARES and ample:
                    spare = path.with_suffix(".spare")
                    path.rename(spare)
                    with self._lock:
                        self._spares.append(spare)
                else:
                    path.unlink()

    @property
    def ended(self) -> str | None:
        """Why nothing will be written until the service restarts; None while the thread lives."""
        return f"{self.folder}: the thread that writes has ended" if self._thread.is_dead else None

    def state(self) -> dict[str, Any]:
        """The state for pages and metrics."""
        return {
            "waiting_bytes": self.waiting_bytes, "free_bytes": self.free_bytes(), "segments": len(self._sizes),
            "appended_batches": self.appended_batches, "appended_bytes": self.appended_bytes, "fsyncs": self.fsyncs,
            "trouble": self.trouble,
        }  # fmt: skip

    def close(self) -> None:
        """Writes what was accepted, then releases the spool."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._lock.notify_all()
        self._thread.join()
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.synced.offset)
            os.close(self._fd)
        os.close(self._held)
