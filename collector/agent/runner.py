"""One supervised source: opened, polled, closed, reopened. Any failure in it becomes a status."""

from __future__ import annotations

import contextlib
import queue
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.agent.failure import Denied, Missing
from collector.agent.source import Context, Reading, Source, SourceKind

#: Retry interval for a missing device: drivers load late, slurmctld moves between hosts.
LOOK_AGAIN_S = 60.0
#: Retry interval after an error: short, in case it was momentary.
TRY_AGAIN_S = 10.0
#: A poll that takes longer than this is stuck in a driver or a program.
STALLED_S = 120.0


@dataclass
class Status:
    """``state``: ok, absent, denied, error or off; ``detail``: why; ``since``: when it became so."""

    state: str = "off"
    detail: str = "not started"
    since: float = 0.0


@dataclass
class Runner:
    """Polls one source. ``positions`` is how far this process has read, including what is in the spool."""

    kind: SourceKind
    options: Mapping[str, Any]
    context: Context
    positions: dict[str, Any]
    status: Status = field(default_factory=Status)
    lines: int = 0
    source: Source | None = None
    _due: float = float("-inf")
    _busy_since: float | None = None

    def due(self, monotonic: float) -> bool:
        return monotonic >= self._due

    def poll(self) -> Iterator[Reading]:
        """Yields what is new, if a poll is due. Never raises for anything a source does."""
        monotonic = self.context.monotonic()
        if monotonic < self._due:
            return
        self._busy_since = monotonic
        try:
            if self.source is None:
                source = self.kind.make(self.context, self.options)
                source.open(self.positions)
                self.source = source
            self._due = monotonic + self.source.interval if self.source.interval else float("-inf")
            for reading in self.source.poll():
                for key, value in reading.positions.items():
                    if value is None:
                        self.positions.pop(key, None)
                    else:
                        self.positions[key] = value
                self.lines += reading.lines
                yield reading
            trouble = getattr(self.source, "trouble", "")
            self._now("error" if trouble else "ok", trouble)
        except Missing as why:
            self._give_up("absent", str(why), LOOK_AGAIN_S)
        except (Denied, PermissionError) as why:
            self._give_up("denied", str(why), LOOK_AGAIN_S)
        except Exception as why:  # a source may hit anything; the others continue
            self._give_up("error", f"{type(why).__name__}: {why}", TRY_AGAIN_S)
        finally:
            self._busy_since = None

    def wait(self, why: str) -> None:
        """Skips this poll: the data stays where it is."""
        if self.source is not None:
            self._now("ok", why)

    def _give_up(self, state: str, detail: str, wait: float) -> None:
        self.close()
        self._due = self.context.monotonic() + wait
        self._now(state, " ".join(detail.split())[:300])

    def _now(self, state: str, detail: str) -> None:
        if (state, detail) != (self.status.state, self.status.detail):
            self.status = Status(state, detail, self.context.now())

    def seen(self) -> Status:
        """The status as reported: a poll that does not return is an error."""
        busy = self._busy_since
        if busy is not None and self.context.monotonic() - busy > STALLED_S:
            stuck = self.context.monotonic() - busy
            return Status("error", f"has not answered for {int(stuck // 60)} min", self.context.now() - stuck)
        return self.status

    def close(self) -> None:
        if self.source is not None:
            with contextlib.suppress(Exception):
                self.source.close()
            self.source = None


@dataclass
class SlowLane:
    """A thread for one source that may block. Its readings go into ``inbox``, whose bound throttles it."""

    runner: Runner
    inbox: queue.Queue[tuple[str, Reading]]
    stop: threading.Event
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.runner.kind.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Thousands of agents start together; their polls should not stay in step.
        wait = random.random() * 2.0
        while not self.stop.wait(wait):
            for reading in self.runner.poll():
                self._put(reading)
            wait = min(max(self.runner._due - self.runner.context.monotonic(), 0.1), LOOK_AGAIN_S)
        self.runner.close()

    def _put(self, reading: Reading) -> None:
        while not self.stop.is_set():
            with contextlib.suppress(queue.Full):
                self.inbox.put((self.runner.kind.name, reading), timeout=1.0)
                return

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)
