"""The agent's loop: sources -> batches -> spool. A second thread sends them from the spool to the service.

One turn reads what is new, at most every quarter of a second: a busy log costs four wake-ups a second, not one per
line. A link event wakes the loop at once, because its time is the time of reading.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.agent import wire
from collector.agent.batch import Loss
from collector.agent.config import Config
from collector.agent.console import log
from collector.agent.failure import AgentError
from collector.agent.gate.keeper import OFF, Keeper
from collector.agent.instance import SERVICE_S, Enrolment, RootConnection
from collector.agent.runner import Runner, SlowLane, Status
from collector.agent.sender import Answer, Connection, Sender
from collector.agent.source import Context, Reading
from collector.agent.spool import AgentSpool

VERSION = "0.1.0"
#: Length of a turn while lines flow, and while few or none do. The first bounds the delay, both bound the wake-ups.
BUSY_TURN_S, QUIET_TURN_S = 0.25, 0.5
#: Lines flow from this many bytes per turn on: some hundred lines a second. With fewer, the next look is half a second
#: later.
BUSY_BYTES = 8 * 1024
#: Pause after a turn that read something: a storm of kernel messages wakes the loop twenty times a second, not a
#: thousand.
BREATH_S = 0.05
#: Approximate maximum of one batch before compression: bounds memory and stays far below the service's 64 MiB.
BATCH_BYTES = 1024 * 1024
#: And of its lines, which take a worker of the service memory however short they are.
BATCH_LINES = 100_000
#: While the service is unreachable, batches are gathered up to this many times longer: nobody waits for a line then. A
#: slow service serves thousands of agents, and one line costs it as much as a hundred.
BEHIND_FLUSH = 5.0
STATUS_EVERY_S = 60.0
#: The file for commands of this host follows what hooks wrote; a busy node's hooks are not each worth a write.
SHOWN_EVERY_S = 2.0
#: Retry interval while the node's disk refuses the spool; nothing is read meanwhile.
DISK_WAIT_S = 5.0
#: Child programs inherit this limit, and some close every handle up to it when they start.
MOST_HANDLES = 1 << 17
#: How much slow sources may queue before the loop takes it.
INBOX = 64


@dataclass
class _Pending:
    """The batch that is being filled."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)
    kept: list[Callable[[], None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.parts or self.positions)


class Agent:
    """One agent. ``run`` returns 0 after a clean end; ``end`` may be called from a signal, ``stop`` from another thread."""

    def __init__(self, config: Config, context: Context | None = None) -> None:
        self.config = config
        self.context = context or Context(host=config.host, node_names=config.node_names)
        self.spool = AgentSpool(Path(config.spool), int(config.spool_mb * 1024 * 1024), self._loss_report)
        self.started = self.context.now()
        self.stopping = threading.Event()
        self._inbox: queue.Queue[tuple[str, Reading]] = queue.Queue(INBOX)
        self._pending = _Pending()
        #: Called once the spooled data is on disk.
        self._unsynced: list[Callable[[], None]] = []
        self._flushed_at = float("-inf")
        self._status_at = float("-inf")
        self._reported_status: dict[str, tuple[str, str]] = {}
        self._disk_trouble: str | None = None
        #: What the local status last had of hooks, and when it was written (monotonic seconds).
        self._shown_hooks: dict[str, list[str]] = {}
        self._shown_at = float("-inf")
        self._breathe = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._restart = self._end_requested = False
        self.fast: list[Runner] = []
        self.slow: list[SlowLane] = []
        self.sender: Sender | None = None
        self.gate: Keeper | None = None
        self.enrolment: Enrolment | None = None
        self._sending: threading.Thread | None = None
        self._defaults = b""

    # ------------------------------------------------------------------------------------------------ start and end

    def run(self) -> int:
        self.start()
        try:
            while not self.stopping.is_set():
                self._sleep(self.turn())
        finally:
            self.finish()
        if self._restart and not self._end_requested:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        return 0

    def start(self) -> None:
        """Opens the spool and starts sources and sender. Raises ``AgentError``."""
        config = self.config
        connection = Connection(config.server, config.bearer, config.ca, config.cert, config.key)
        enabled = config.enabled()
        self.spool.open(lambda: f"{int(self.context.now())}-{random.getrandbits(24):06x}", self.context.now())
        boot = self.context.now() - self.context.uptime()
        facts = {
            "agent": config.agent, "host": config.host, "cluster": config.cluster or None, "timezone": config.timezone,
            "boot_id": self.context.boot_id() or None, "boot_time": wire.stamp(boot),
        }  # fmt: skip
        self._defaults = wire.defaults({k: v for k, v in facts.items() if v is not None})
        positions = self.spool.positions()
        for kind, options in enabled.values():
            runner = Runner(kind, options, self.context, dict(positions))
            if kind.slow:
                self.slow.append(SlowLane(runner, self._inbox, self.stopping))
            else:
                self.fast.append(runner)
        self.sender = Sender(self.spool, connection, config.agent, now=self.context.now)
        self._sending = threading.Thread(target=self.sender.run, name="sender", daemon=True)
        self._sending.start()
        if config.enrol:
            sender = self.sender
            self.enrolment = Enrolment(
                Path(config.spool), config.host, config.enrol, self._as_root, now=self.context.now, enrolled=sender.hurry,
                refused=lambda: sender.refused,
            )  # fmt: skip
            threading.Thread(target=self.enrolment.run, args=(self.stopping,), name="enrolment", daemon=True).start()
        if config.gate != OFF:
            self.gate = Keeper(self.context, Path(config.spool) / "gate", self._ask_gate, config.cluster, config.gate)
            threading.Thread(target=self.gate.run, args=(self.stopping,), name="gate", daemon=True).start()
        for lane in self.slow:
            lane.start()

    def _ask_gate(self, path: str) -> Answer:
        """A question of the gate's thread, once in minutes: it keeps no connection open."""
        config = self.config
        connection = Connection(config.server, config.bearer, config.ca, config.cert, config.key, timeout=10.0)
        try:
            return connection.request("GET", path, None, {"Accept": "application/json"})
        finally:
            connection.close()

    def _as_root(self) -> Connection:
        config = self.config
        return RootConnection(config.server, config.bearer, config.ca, config.cert, config.key, timeout=SERVICE_S)

    def end(self, *_: object) -> None:
        """``stop`` for good, even if it arrives while the agent restarts."""
        self._end_requested = True
        self.stop()

    def stop(self) -> None:
        """Ends the loop. What was read is delivered as far as ``last_gasp_s`` allows; the rest stays in the spool."""
        self.stopping.set()
        os.write(self._wake_write, b"x")

    def finish(self) -> None:
        """The last gasp: read once more, keep everything, deliver what can be delivered, and write the positions
        down."""
        self.stopping.set()
        for lane in self.slow:
            lane.join(0.5)
        self.turn(last=True)
        assert self.sender is not None and self._sending is not None
        self.sender.stop(self.config.last_gasp_s)
        self._sending.join(self.config.last_gasp_s + 1.0)
        for runner in self.fast:
            runner.close()
        self.sender.connection.close()
        self.spool.close()
        self._write_local_status()

    # ------------------------------------------------------------------------------------------------ one turn

    def turn(self, last: bool = False) -> float:
        """Reads what is new and spools it. Returns how long to sleep, in seconds."""
        now = self.context.monotonic()
        if not last and self._sending is not None and not self._sending.is_alive():
            raise AgentError("delivery ended by an error of its own, above; started anew, it goes on where it was")
        if self._disk_trouble is not None and not self._flush():
            return DISK_WAIT_S  # do not read what cannot be kept: files and kernel buffers hold it
        taken = 0
        share = self.spool.size / self.spool.cap
        for runner in self.fast:
            if runner.kind.waits and share >= self.config.spool_wait < 1:
                runner.wait(f"waits where it is: the spool is above {self.config.spool_wait:.0%}")
                continue
            for reading in runner.poll():
                taken += len(reading.body)
                self._take(runner.kind.name, reading)
        while not self._inbox.empty():
            name, reading = self._inbox.get_nowait()
            taken += len(reading.body)
            self._take(name, reading)
        self._send_status(now, last)
        sender = self.sender
        behind = sender is not None and (sender.trouble is not None or self.spool.waiting > 0)
        wait = self.config.flush_s * (BEHIND_FLUSH if behind else 1.0)
        if self._pending and (last or now - self._flushed_at >= wait):
            self._flush()
        if taken >= BATCH_BYTES // 4:
            return 0.0
        self._breathe = taken > 0
        return BUSY_TURN_S if taken >= BUSY_BYTES else QUIET_TURN_S

    def _take(self, name: str, reading: Reading) -> None:
        pending = self._pending
        if reading.body:
            pending.parts.append(reading.body)
            pending.size += len(reading.body)
            pending.lines[name] = pending.lines.get(name, 0) + reading.lines
        pending.positions.update(reading.positions)
        if reading.kept is not None:
            pending.kept.append(reading.kept)
        if name in ("kmsg", "nvml") and self.gate is not None:
            self.gate.seen.note(reading.body)
        if name == "links" and b"LOWER_UP" in reading.body and self.sender is not None:
            self.sender.hurry()
        if pending.size >= BATCH_BYTES or sum(pending.lines.values()) >= BATCH_LINES:
            while not self._flush() and not self.stopping.wait(DISK_WAIT_S):
                pass  # the disk refuses: hold this one batch and read nothing more

    def _flush(self) -> bool:
        """Writes the pending batch to disk, syncs it and wakes the sender. False if the disk refused it."""
        pending = self._pending
        self._flushed_at = self.context.monotonic()
        try:
            if pending:
                # Positions without lines are sent too: an empty batch is a number that the service knows, nothing more.
                payload = wire.pack(self._defaults + b"".join(pending.parts))
                self.spool.append(payload, pending.lines, self.context.now(), pending.positions)
                # The batch is in the spool whether or not it can be synced now. Keeping it twice would deliver it
                # twice.
                self._unsynced += pending.kept
                self._pending = _Pending()
            self.spool.sync()
        except OSError as error:
            self._disk_trouble = f"{self.config.spool}: {error.strerror}"
            return False
        self._disk_trouble = None
        synced, self._unsynced = self._unsynced, []
        for kept in synced:
            kept()
        if pending and self.sender is not None:
            self.sender.wake()
        return True

    def _loss_report(self, loss: Loss) -> bytes:
        """The batch that reports to the service what was dropped, by source."""
        rows = [self._defaults]
        counted: list[tuple[str, int | None]] = [*sorted(loss.lines.items())]
        for name, lines in counted or [("agent", None)]:
            rows.append(wire.blind(
                name, None, loss.since, loss.until, f"{loss.reason}: batches {loss.first} to {loss.last}", lines
            ))  # fmt: skip
        return wire.pack(b"".join(rows))

    def _sleep(self, seconds: float) -> None:
        if seconds <= 0 or self.stopping.is_set():
            return
        if self._breathe:
            time.sleep(BREATH_S)
        waiting = select.poll()  # select() cannot handle descriptors above 1,023
        waiting.register(self._wake_read, select.POLLIN)
        for runner in self.fast:
            handle = getattr(runner.source, "handle", None)
            if isinstance(handle, int):
                waiting.register(handle, select.POLLIN)
        if any(handle == self._wake_read for handle, _ in waiting.poll(seconds * 1000)):
            os.read(self._wake_read, 64)

    # ------------------------------------------------------------------------------------------------ status

    def statuses(self) -> dict[str, Status]:
        """The status of each source."""
        runners = [*self.fast, *(lane.runner for lane in self.slow)]
        return {runner.kind.name: runner.seen() for runner in runners}

    def _delivery_trouble(self) -> str | None:
        if self.enrolment is not None and self.enrolment.trouble:
            return f"this instance is not enrolled: {self.enrolment.trouble}"
        return self.sender.trouble if self.sender is not None else None

    def _send_status(self, monotonic: float, last: bool) -> None:
        states = self.statuses()
        shown = {name: (s.state, s.detail) for name, s in states.items()}
        # Not the text of the trouble: it differs at every attempt.
        shown["delivery"] = ("trouble" if self._delivery_trouble() else "ok", "")
        settled = all(s.detail != "not started" for s in states.values()) or monotonic - self._status_at > 5.0
        due = monotonic - self._status_at >= STATUS_EVERY_S
        if (
            not last
            and not due
            and (shown == self._reported_status or not settled or monotonic - self._status_at < 1.0)
        ):
            if monotonic - self._shown_at >= SHOWN_EVERY_S and self._arrived() != self._shown_hooks:
                self._write_local_status()
            return
        self._reported_status, self._status_at = shown, monotonic
        self._take("agent", Reading(wire.record(
            status=self._status(states), stream="agent", read=wire.stamp(self.context.now())), 0))  # fmt: skip
        self._write_local_status()
        if due:
            self._mind_memory()

    def _status(self, states: dict[str, Status]) -> dict[str, Any]:
        sender = self.sender
        return {
            "version": VERSION, "pid": os.getpid(), "started": wire.stamp(self.started),
            "spool": {
                "bytes": self.spool.size, "cap": self.spool.cap, "batches": self.spool.waiting,
                "dropped_lines": self.spool.dropped_lines, "trouble": self._disk_trouble,
            },
            "delivery": {
                "trouble": self._delivery_trouble(), "lines": sender.delivered_lines if sender else 0,
                "batches": sender.delivered_batches if sender else 0,
            },
            "gate": self.gate.status() if self.gate is not None else None,
            "sources": [
                {"name": name, "state": s.state, "detail": s.detail, "since": wire.stamp(s.since)}
                for name, s in states.items()
            ],
        }  # fmt: skip

    def _arrived(self) -> dict[str, list[str]]:
        """Of the last jobs, the hooks whose records are on this agent's disk."""
        runners = [*self.fast, *(lane.runner for lane in self.slow)]
        return next((dict(getattr(one.source, "arrived", {})) for one in runners if one.kind.name == "hooks"), {})

    def _write_local_status(self) -> None:
        """Writes the status file for ``faultline agent status``, which works while the service is unreachable."""
        path = Path(self.config.spool) / "status.json"
        new = path.with_suffix(".new")
        self._shown_hooks, self._shown_at = self._arrived(), self.context.monotonic()
        shown = {**self._status(self.statuses()), "hooks": self._shown_hooks, "at": wire.stamp(self.context.now())}
        try:
            new.write_text(json.dumps(shown))
            new.replace(path)
        except OSError:
            return  # the spool's own trouble is reported where it matters

    def _mind_memory(self) -> None:
        """Above the memory cap, restart. All state is on disk, so this costs a second and loses nothing. If the cap is
        too low for the enabled sources, it costs that second once a minute at most.
        """
        if self.context.now() - self.started < STATUS_EVERY_S:
            return
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if resident <= self.config.memory_mb * 1024 * 1024:
            return
        log(f"{resident >> 20} MB resident, memory_mb is {self.config.memory_mb:g}: starting anew")
        self._restart = True
        self.stop()


def lower_priority(config: Config) -> None:
    """Sets nice (never below the value at start) and CPU pinning as configured. Raises ``AgentError`` for CPUs that
    this host does not have."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, max(config.nice, os.getpriority(os.PRIO_PROCESS, 0)))
    except OSError:
        log(f"nice {config.nice} was refused; going on as it is")
    if config.cpus:
        try:
            os.sched_setaffinity(0, config.cpus)
        except (OSError, ValueError) as error:
            raise AgentError(f"{config.where}: cpus {list(config.cpus)}: cannot be used here: {error}") from error


def more_handles() -> None:
    """Raises the handle limit: one handle for each log that a glob matches, not the 1,024 that old programs expect."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(few, min(most, MOST_HANDLES)), most))


def main(config: Config) -> int:
    """Runs the agent until SIGTERM or SIGINT."""
    lower_priority(config)
    more_handles()
    agent = Agent(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, agent.end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.stack_size(256 * 1024)
    time.tzset()
    return agent.run()
