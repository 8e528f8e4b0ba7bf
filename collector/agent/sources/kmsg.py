"""The kernel log as it is written: /dev/kmsg, with gaps in its sequence reported as blind periods."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind

#: The kernel writes one record per read; a record with its dictionary fits 8 KiB (CONSOLE_EXT_LOG_MAX).
_RECORD = 8192
_MOST = 2000
#: Kernel timestamps come from a clock that NTP does not slew: it drifts by some 10 ppm, a second a day. The offset to
#: the wall clock is measured over this time, with records that were read as they arrived.
_CALIBRATED_S = 3600.0
#: A wall clock that moved by more between two polls was stepped; NTP slews by half a millisecond a second.
_STEP_S = 0.5


@dataclass
class Kmsg:
    context: Context
    device: str
    interval: float = 0.0
    handle: int | None = None
    _boot: str = ""
    _next: int | None = None
    _drained: bool = False
    _last_time: float | None = None
    #: Wall clock minus monotonic clock at the last poll.
    _ahead: float | None = None
    _distances: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))

    def open(self, positions: Mapping[str, Any]) -> None:
        path = self.context.path(self.device)
        try:
            self.handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise Missing(f"no {self.device} here (a container without it?)") from error
        self._boot = self.context.boot_id()
        kept = positions.get("kmsg") or {}
        if kept.get("boot") == self._boot:
            self._next, self._last_time = int(kept["next"]), kept.get("time")

    def poll(self) -> Iterator[Reading]:
        now = self._wall_clock()
        rows, gaps = self._records()
        if not rows and not gaps:
            return
        if rows and self._drained:
            self._distances.append((self.context.monotonic(), now - int(rows[-1][1]) / 1e6))
        self._drained = len(rows) < _MOST
        distance = self._distance(now)
        body: list[bytes] = []
        for index, (_, micros, text) in enumerate(rows):
            at = min(now, distance + int(micros) / 1e6)
            for lost in gaps.get(index, ()):
                body.append(wire.blind(
                    "kmsg", "kernel", self._last_time or at, at, f"{lost} kernel messages were overwritten before they were read",
                    lost,
                ))  # fmt: skip
            body.append(wire.record(stream="kmsg", source="kernel", time=wire.stamp(at), raw=text))
            self._last_time = at
        position = {"boot": self._boot, "next": self._next, "time": self._last_time}
        yield Reading(b"".join(body), len(rows), {"kmsg": position})

    def _records(self) -> tuple[list[tuple[int, str, str]], dict[int, list[int]]]:
        """New records as (sequence, microseconds, text), and how many are missing before which of them."""
        assert self.handle is not None
        rows: list[tuple[int, str, str]] = []
        gaps: dict[int, list[int]] = {}
        while len(rows) < _MOST:
            try:
                data = os.read(self.handle, _RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # overwritten meanwhile: the next record's number shows how many
            if not data:
                break
            text = data.decode("utf-8", "replace")
            # After the first line come the device's names (SUBSYSTEM=, DEVICE=), which the message repeats.
            text = text.partition("\n")[0]
            parts = text.split(",", 3)
            if len(parts) < 4 or not parts[1].isdigit() or not parts[2].isdigit():
                continue
            sequence = int(parts[1])
            if self._next is not None and sequence < self._next:
                continue
            if self._next is not None and sequence > self._next:
                gaps.setdefault(len(rows), []).append(sequence - self._next)
            self._next = sequence + 1
            rows.append((sequence, parts[2], text))
        return rows, gaps

    def _wall_clock(self) -> float:
        """The current time. Offsets to a clock that was stepped meanwhile are discarded."""
        now = self.context.now()
        ahead = now - self.context.monotonic()
        if self._ahead is not None and abs(ahead - self._ahead) > _STEP_S:
            self._distances.clear()
        self._ahead = ahead
        return now

    def _distance(self, now: float) -> float:
        """Wall clock minus kernel timestamp: the smallest recent value, since reading can only be late."""
        monotonic = self.context.monotonic()
        fresh = [d for at, d in self._distances if monotonic - at <= _CALIBRATED_S]
        return min(fresh) if fresh else now - monotonic

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def _make(context: Context, options: Mapping[str, Any]) -> Kmsg:
    return Kmsg(context, options["device"])


SOURCE = SourceKind(
    "kmsg", _make, {"device": "/dev/kmsg"},
    reads="The kernel's messages, each with its number and its own time",
    costs="a wake-up and two system calls per message",
    blind_to="messages that the ring buffer lost before they were read (counted and reported); /dev/kmsg of a container's host",
    slow=False,
)  # fmt: skip
