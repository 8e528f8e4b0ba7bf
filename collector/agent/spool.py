"""The agent's bounded spool on disk: batches that wait for the server, and the read position of each source.

A *batch* is one delivery: a sequence number, compressed records, how many lines of which source kind they hold, and the
read positions reached once it is stored. Batches and positions are one frame, so they cannot disagree: what is in the
spool is never read again, and what is not in it is.

    SPOOL/
      state.json            epoch, last acknowledged sequence, positions (a copy that survives removed segments)
      state.json.new        the disk's blocks for the next one, so that a full disk cannot refuse it
      acknowledged          the last acknowledged sequence and the epoch, written at each answer (without a sync: a
                            power cut may undo it; then delivered batches are offered again, or reported lost if the
                            spool is full)
      00000000000000000042.seg   frames from sequence 42 on

A frame (``collector.agent.frames``) that a crash cut off at the end of the newest segment is removed at the next start: it
was never synced, hence never sent, and its lines are read again.

Durability (``append`` then ``sync``): a batch is synced before it is sent. So a sequence number that the server has
seen never denotes other lines, not even after a power cut.

A stored number that is gone (a damaged disk, a removed segment) is reported as lost in its turn, under its own number:
the service knows whether it has it.

Full: the oldest batches are dropped first, except the first unacknowledged one: the server may have it already. Dropped
lines are counted by source kind and reported in a batch of their own (a blind period), appended before anything is
removed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from collector.agent import spool_state
from collector.agent.batch import Batch, Loss
from collector.agent.console import log
from collector.agent.failure import AgentError
from collector.agent.frames import frame_of, frames, is_whole
from collector.agent.spool_state import State, sync_folder

#: Segments are dropped and removed whole: 1/16 of the cap, within these bounds, keeps both cheap and fine-grained.
_SEGMENT_BYTES = (64 * 1024, 4 * 1024 * 1024)


@dataclass
class _Segment:
    path: Path
    first: int
    last: int = 0
    size: int = 0


@dataclass
class AgentSpool:
    """The spool in ``folder``, at most ``cap`` bytes. ``report`` turns a loss into the payload that reports it to the
    server.

    Thread-safe: one thread appends, another reads and acknowledges. Raises ``AgentError`` if the folder cannot be used
    at all; a full disk raises ``OSError`` from ``append`` and changes nothing.
    """

    folder: Path
    cap: int
    report: Callable[[Loss], bytes]
    epoch: str = ""
    acknowledged: int = 0
    dropped_lines: int = 0
    _positions: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _segments: list[_Segment] = field(default_factory=list)
    _next: int = 1
    _tail: BinaryIO | None = None
    _unsynced: bool = False
    _read_at: tuple[Path, int] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _lock_file: BinaryIO | None = None
    _answers: int | None = None
    _dropped: list[tuple[int, int]] = field(default_factory=list)
    _opened: float = 0.0

    # ------------------------------------------------------------------------------------------------ opening

    def open(self, new_epoch: Callable[[], str], now: float) -> None:
        """Takes the folder for this process and reads its contents. ``new_epoch`` names a new spool."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock_file = (self.folder / "lock").open("ab")
        except OSError as error:
            raise AgentError(f"{self.folder}: spool cannot be used: {error.strerror}; set another 'spool'") from error
        import fcntl

        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AgentError(f"{self.folder}: another agent uses this spool; stop it or set another 'spool'") from error
        for left in self.folder.glob("[0-9]*.new"):
            left.unlink()
        self._opened = now
        if (state := spool_state.read(self.folder)) is not None:
            self.epoch, self.acknowledged, self._next = state.epoch, state.acknowledged, state.next
            self.dropped_lines, self._positions = state.dropped_lines, state.positions
        self._answers = os.open(self.folder / "acknowledged", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        number, _, epoch = os.pread(self._answers, 1024, 0).decode("utf-8", "replace").strip().partition(" ")
        if not self.epoch and epoch:
            self.epoch = epoch
            log(f"{self.folder}: state.json was lost; logs are read again from their start")
        if number.isdigit() and epoch == self.epoch:
            self.acknowledged = max(self.acknowledged, int(number))
        if self.epoch:
            self._read_segments()
            self._write_answer()
            return
        nameless = self._set_aside()
        self.epoch = new_epoch()
        self._write_state()
        self._write_answer()
        if nameless is not None:
            self._append(self.report(nameless), {}, now, {}, nameless)

    def _set_aside(self) -> Loss | None:
        """Sets aside segments of an unknown epoch: their numbers must not be reused. They are kept for a person to
        inspect."""
        self._segments = [_Segment(path, int(path.stem), 1 << 62) for path in sorted(self.folder.glob("*.seg"))]
        for segment in self._segments:
            segment.size = segment.path.stat().st_size
        loss = self._loss(self._segments, 0, "the spool's own state was lost; kept beside it as *.orphan-*")
        for segment in self._segments:
            segment.path.rename(segment.path.with_suffix(f".orphan-{int(self._opened)}"))
        self._segments = []
        return loss

    def _read_segments(self) -> None:
        paths = sorted(self.folder.glob("*.seg"))
        ranges: list[tuple[int, int]] = []
        for path in paths:
            segment = _Segment(path, int(path.stem), int(path.stem) - 1)
            with path.open("rb") as stream:
                for frame in frames(stream):
                    header = frame.header
                    segment.last = header["sequence"]
                    segment.size = frame.body + frame.length
                    self._keep_positions(header)
                    if header.get("removes"):
                        ranges.append(tuple(header["removes"]))
                whole = stream.seek(0, os.SEEK_END)
            if whole > segment.size:
                os.truncate(path, segment.size)
            if segment.last < segment.first:
                path.unlink()
                continue
            self._segments.append(segment)
            self._next = max(self._next, segment.last + 1)
        self._next = max(self._next, self.acknowledged + 1)
        for first, last in ranges:  # removal of a drop that a crash interrupted after its report
            self._dropped.append((first, last))
            self._remove_range(first, last)
        self._drop_acknowledged()

    def _keep_positions(self, header: Mapping[str, Any]) -> None:
        sequence = header["sequence"]
        for key, value in header.get("positions", {}).items():
            if self._positions.get(key, (0, None))[0] <= sequence:
                self._positions[key] = (sequence, value)

    # ------------------------------------------------------------------------------------------------ writing

    def positions(self) -> dict[str, Any]:
        """The read position of each source, by its own key."""
        with self._lock:
            return {key: value for key, (_, value) in self._positions.items() if value is not None}

    def append(
        self, payload: bytes, lines: Mapping[str, int], created: float, positions: Mapping[str, Any] | None = None
    ) -> int:
        """Stores a batch (``sync`` makes it durable) and returns its sequence number."""
        with self._lock:
            self._make_room(len(payload) + 4096, created)
            return self._append(payload, lines, created, positions or {})

    def _append(
        self, payload: bytes, lines: Mapping[str, int], created: float, positions: Mapping[str, Any],
        lost: Loss | None = None, removes: tuple[int, int] | None = None,
    ) -> int:  # fmt: skip
        sequence = self._next
        header: dict[str, Any] = {"sequence": sequence, "created": created, "lines": dict(lines)}
        if positions:
            header["positions"] = dict(positions)
        if lost:
            header["lost"], header["removes"] = lost.as_json(), removes
        frame = frame_of(header, payload)
        segment, tail = self._segment_for(len(frame), sequence)
        try:
            written = 0
            while written < len(frame):  # a disk that fills up takes a part first and refuses the rest
                written += tail.write(frame[written:])
        except OSError:
            os.ftruncate(tail.fileno(), segment.size)
            tail.seek(segment.size)
            raise
        segment.last = sequence
        segment.size += len(frame)
        self._next = sequence + 1
        self._unsynced = True
        self._keep_positions(header)
        return sequence

    def _segment_for(self, size: int, sequence: int) -> tuple[_Segment, BinaryIO]:
        low, high = _SEGMENT_BYTES
        full = min(max(self.cap // 16, low), high)
        if self._tail is not None and self._segments and self._segments[-1].size + size <= full:
            return self._segments[-1], self._tail
        if self._tail is not None:
            self.sync()
            self._tail.close()
        segment = _Segment(self.folder / f"{sequence:020d}.seg", sequence, sequence - 1)
        self._tail = segment.path.open("wb", buffering=0)
        sync_folder(self.folder)
        self._segments.append(segment)
        return segment, self._tail

    def sync(self) -> None:
        """Makes the appended data durable."""
        with self._lock:
            if self._tail is not None and self._unsynced:
                os.fdatasync(self._tail.fileno())
                self._unsynced = False

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def waiting(self) -> int:
        """How many batches are unacknowledged, including numbers dropped in between."""
        return self._next - 1 - self.acknowledged

    # ------------------------------------------------------------------------------------------------ full

    def _make_room(self, size: int, now: float) -> None:
        if self.size + size <= self.cap or not self._segments:
            return
        self._drop_acknowledged()
        for first, last in self._dropped:  # what a full disk kept from being removed: already reported
            self._remove_range(first, last)
        if self.size + size <= self.cap:
            return
        # The first waiting batch stays: the server may have it. It need not be the next number: others were dropped
        # before.
        waiting = self._first_waiting()
        victims: list[_Segment] = []
        freed = 0
        for segment in self._segments:
            if self.size + size - freed <= self.cap:
                break
            if segment.last <= waiting:
                continue
            victims.append(segment)
            freed += segment.size
        loss = self._loss(victims, waiting, "spool full")
        if loss is None:
            return
        if victims[-1] is self._segments[-1]:
            self._close_tail()  # the report must not be in a segment that is removed
        self._append(self.report(loss), {}, now, {}, loss, (waiting + 1, loss.last))
        self._dropped.append((waiting + 1, loss.last))
        self.sync()
        self._write_state()
        self._remove_range(waiting + 1, loss.last)

    def _first_waiting(self) -> int:
        """The number of the oldest batch that exists and is not acknowledged."""
        for segment in self._segments:
            if segment.last > self.acknowledged:
                with segment.path.open("rb") as stream:
                    for frame in frames(stream, segment.size):
                        if frame.header["sequence"] > self.acknowledged:
                            return int(frame.header["sequence"])
        return self.acknowledged

    def _loss(self, victims: list[_Segment], waiting: int, reason: str) -> Loss | None:
        """The loss of these segments; losses that earlier reports among them named are carried over into the new
        report."""
        found: Loss | None = None
        for segment in victims:
            with segment.path.open("rb") as stream:
                for frame in frames(stream, segment.size):
                    header = frame.header
                    sequence = header["sequence"]
                    if sequence <= waiting:
                        continue
                    lines, since = header["lines"], header["created"]
                    self.dropped_lines += sum(lines.values())
                    piece = Loss(sequence, sequence, lines, since, since, reason)
                    if header.get("lost"):
                        piece = replace(piece.merged(Loss.of_json(header["lost"])), last=sequence)
                    found = piece if found is None else found.merged(piece)
        return found

    def _close_tail(self) -> None:
        if self._tail is not None:
            self.sync()
            self._tail.close()
            self._tail = None

    def _remove_range(self, first: int, last: int) -> None:
        """Removes the frames ``first..last``; rewrites a segment that also holds others."""
        for segment in list(self._segments):
            if segment.last < first or segment.first > last:
                continue
            if first <= segment.first and segment.last <= last:
                self._forget(segment)
                continue
            if segment is self._segments[-1]:
                self._close_tail()
            self._rewrite(segment, lambda sequence: not first <= sequence <= last)

    def _rewrite(self, segment: _Segment, keep: Callable[[int], bool]) -> None:
        kept: list[bytes] = []
        sequences: list[int] = []
        with segment.path.open("rb") as stream:
            for frame in frames(stream):
                if keep(frame.header["sequence"]):
                    stream.seek(frame.start)
                    kept.append(stream.read(frame.body - frame.start + frame.length))
                    sequences.append(frame.header["sequence"])
                    stream.seek(frame.body + frame.length)
        if not kept:
            self._forget(segment)
            return
        new = segment.path.with_suffix(".seg.new")
        with new.open("wb") as stream:
            stream.write(b"".join(kept))
            stream.flush()
            os.fsync(stream.fileno())
        target = self.folder / f"{sequences[0]:020d}.seg"
        new.replace(target)
        if target != segment.path:
            segment.path.unlink()
        sync_folder(self.folder)
        segment.path, segment.first, segment.last = target, sequences[0], sequences[-1]
        segment.size = sum(map(len, kept))
        self._read_at = None

    def _forget(self, segment: _Segment) -> None:
        if self._segments and segment is self._segments[-1]:
            self._close_tail()
        segment.path.unlink(missing_ok=True)
        self._segments.remove(segment)
        self._read_at = None

    # ------------------------------------------------------------------------------------------------ reading

    def first(self) -> Batch | None:
        """The oldest unacknowledged batch; None if all are acknowledged. Damaged and missing ones are reported as a
        loss."""
        with self._lock:
            found = self._first_there()
            hole = self._hole(self.acknowledged + 1, found.sequence - 1 if found else self._next - 1)
            return found if hole is None else self._missing(*hole, found.created if found else self._opened)

    def _hole(self, first: int, last: int) -> tuple[int, int] | None:
        """The first range of these numbers that is missing without a recorded reason."""
        for a, b in sorted(self._dropped):
            if first < a <= last:
                return first, a - 1
            first = max(first, b + 1) if a <= first else first
        return (first, last) if first <= last else None

    def _first_there(self) -> Batch | None:
        for segment in list(self._segments):
            if segment.last > self.acknowledged and (found := self._first_in(segment)) is not None:
                return found
        return None

    def _missing(self, first: int, last: int, until: float) -> Batch:
        """Reports batches that are no longer on disk. The service can have the original only if a single one is
        missing."""
        since = self._created_before(first) or until
        loss = Loss(first, last, {}, min(since, until), until, "missing on the node's disk")
        return Batch(last, self.report(loss), {}, until, loss.as_json())

    def _created_before(self, sequence: int) -> float | None:
        created = None
        for segment in self._segments:
            if segment.first < sequence:
                with segment.path.open("rb") as stream:
                    for frame in frames(stream, segment.size):
                        if frame.header["sequence"] < sequence:
                            created = float(frame.header["created"])
        return created

    def _first_in(self, segment: _Segment) -> Batch | None:
        start = self._read_at[1] if self._read_at and self._read_at[0] == segment.path else 0
        with segment.path.open("rb") as stream:
            stream.seek(start)
            for frame in frames(stream, segment.size):
                sequence = frame.header["sequence"]
                if sequence <= self.acknowledged or any(a <= sequence <= b for a, b in self._dropped):
                    continue
                self._read_at = (segment.path, frame.start)
                payload = stream.read(frame.length)
                header = frame.header
                if not is_whole(frame, payload):
                    loss = Loss(
                        sequence, sequence, header["lines"], header["created"], header["created"],
                        "damaged on the node's disk",
                    )  # fmt: skip
                    # Its own number reports the loss: no other batch can use that number.
                    payload = self.report(loss)
                    return Batch(sequence, payload, {}, header["created"], loss.as_json())
                return Batch(sequence, payload, header["lines"], header["created"], header.get("lost"))
        return None

    def acknowledge(self, sequence: int) -> None:
        """The server has this batch on its disk: it need not be kept. Numbers arrive in order."""
        with self._lock:
            self.acknowledged = max(self.acknowledged, sequence)
            self._write_answer()
            with contextlib.suppress(OSError):  # the disk refuses: its segments are removed after a later answer
                self._drop_acknowledged()

    def _write_answer(self) -> None:
        if self._answers is not None:
            with contextlib.suppress(OSError):  # the disk refuses: the batch is offered again after a crash
                os.pwrite(self._answers, f"{self.acknowledged:020d} {self.epoch}\n".encode(), 0)

    def _drop_acknowledged(self) -> None:
        # The newest stays: it is being written to, and an emptied one would cost a state file per batch.
        done = [s for s in self._segments[:-1] if s.last <= self.acknowledged]
        if not done:
            return
        self._write_state()
        self._dropped = [entry for entry in self._dropped if entry[1] > self.acknowledged]
        for segment in done:
            self._forget(segment)

    def checkpoint(self) -> None:
        """Writes the state: fewer batches are offered again after a crash (the server knows them by number)."""
        with self._lock:
            self.sync()
            self._write_state()

    def _write_state(self) -> None:
        self.sync()  # positions must never cover lines that are not stored
        known = {key: (sequence, value) for key, (sequence, value) in self._positions.items() if value is not None}
        state = State(self.epoch, self.acknowledged, self._next, self.dropped_lines, known)
        spool_state.write(self.folder, state)

    def close(self) -> None:
        """Writes everything down and releases the folder."""
        with self._lock:
            with contextlib.suppress(OSError):  # the disk refuses: the next start rebuilds it from the segments
                self.checkpoint()
                self._close_tail()
            if self._answers is not None:
                os.close(self._answers)
                self._answers = None
            if self._lock_file is not None:
                self._lock_file.close()
                self._lock_file = None
