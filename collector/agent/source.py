"""Defines a source. A new source is one file that defines ``SOURCE`` and one line in ``collector.agent.sources``.

The agent polls a *source* repeatedly (``poll``) for new data. The source yields *readings*: records ready for the wire,
and the position to continue from. Records and position are stored together, so a source keeps no state of its own:
after a crash, ``open`` receives the last stored positions.

A source whose device, file or tool is absent raises ``Missing`` (or ``Denied``) from ``open`` or ``poll``: that becomes
a status, and the source is reopened later. Any other exception becomes a status too and never ends the agent.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from collector.agent import wire
from collector.agent.failure import Denied, Missing
from collector.agent.running_jobs import RunningJobs

#: No program produces this much on purpose: memory is capped, and the agent of a controller serves all its sources.
_MOST_OUTPUT = 64 * 1024 * 1024

Option = str | int | float | bool | list[str]


@dataclass(slots=True)
class Reading:
    """The result of a poll: ``body`` (records, one JSON object per line), how many lines or samples it holds, and the
    position (key -> value) reached with it. A value of None deletes a key. ``kept`` is called, by another thread, once
    the records are on the agent's disk: the original may be removed then.
    """

    body: bytes
    lines: int
    positions: dict[str, Any] = field(default_factory=dict)
    kept: Callable[[], None] | None = None


class Source(Protocol):
    """A running source. ``interval``: seconds between polls; 0 means every turn of the agent's loop. A source may also
    have ``trouble`` (a sentence, or empty): what fails while the rest works.
    """

    interval: float

    def open(self, positions: Mapping[str, Any]) -> None:
        """Prepares to read from the stored positions on. Raises ``Missing``, ``Denied`` or what the system raises."""

    def poll(self) -> Iterator[Reading]:
        """Yields what is new; at most about 1 MiB per call if there may be more."""

    def close(self) -> None:
        """Releases handles and children."""


@dataclass(frozen=True)
class Run:
    """The output and exit status of a program."""

    code: int
    out: str
    err: str


def _output_of(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """Everything a program prints until it ends. Raises ``TimeoutError``, and ``OverflowError`` for one that does not
    stop printing."""
    assert child.stdout is not None and child.stderr is not None
    kept: dict[int, list[bytes]] = {child.stdout.fileno(): [], child.stderr.fileno(): []}
    waiting = select.poll()
    for handle in kept:
        waiting.register(handle, select.POLLIN)
    size, open_ = 0, len(kept)
    while open_:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        for handle, _ in waiting.poll(left * 1000):
            piece = os.read(handle, 64 * 1024)
            kept[handle].append(piece)
            size += len(piece)
            if not piece:
                waiting.unregister(handle)
                open_ -= 1
        if size > _MOST_OUTPUT:
            raise OverflowError
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    out, err = (b"".join(pieces) for pieces in kept.values())
    return out, err


@dataclass
class Context:
    """The host as sources see it: time, programs and the file system are values that tests can replace."""

    host: str = field(default_factory=socket.gethostname)
    root: Path = Path("/")
    now: Callable[[], float] = time.time
    uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    monotonic: Callable[[], float] = time.monotonic
    #: Slurm's names of hosts that have another one (``node_names`` of the configuration).
    node_names: Mapping[str, str] = field(default_factory=dict)
    #: What the source of hooks knows of jobs, for the one that follows their output.
    jobs: RunningJobs = field(default_factory=RunningJobs)

    def path(self, name: str) -> Path:
        """A path below the root of the file system."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """A small file's text, stripped; None if it does not exist or the device does not answer."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """A small file's content as a number."""
        try:
            return int(self.text(name) or "")
        except ValueError:
            return None

    def boot_id(self) -> str:
        """The kernel's random ID of this boot; empty if there is none."""
        return self.text("/proc/sys/kernel/random/boot_id") or ""

    def run(self, command: Sequence[str], timeout: float = 60.0) -> Run:
        """Runs a program to its end. Raises ``Missing`` if it is not installed, ``TimeoutError`` after ``timeout``
        seconds."""
        try:
            # Times in a program's output must have one format on every host: UTC has no repeated hour.
            environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise Missing(f"{command[0]} is not installed") from error
        except PermissionError as error:
            raise Denied(f"{command[0]} may not be run by this user") from error
        with child:
            try:
                out, err = _output_of(child, time.monotonic() + timeout)
            except BaseException as error:
                # Kill its whole process group: leftovers of a wrapper would hang beside its successors, one per poll.
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                if isinstance(error, TimeoutError):
                    raise TimeoutError(f"{command[0]} did not end within {timeout:g} s") from error
                if isinstance(error, OverflowError):
                    raise OSError(f"{command[0]} printed more than {_MOST_OUTPUT >> 20} MiB") from error
                raise
        return Run(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def answer(self, command: Sequence[str], timeout: float = 60.0) -> str:
        """A program's output. Raises ``OSError`` with the first line of stderr if it failed."""
        done = self.run(command, timeout)
        if done.code:
            complaint = (done.err.strip() or done.out.strip() or f"exit code {done.code}").splitlines()[0]
            raise OSError(f"{command[0]}: {complaint}")
        return done.out


@dataclass(frozen=True)
class SourceKind:
    """A kind of source: its name in the configuration, its options with their defaults, and its factory.

    ``role``: "node" sources run everywhere, "controller" ones where ``controller = true`` is set. ``slow`` ones may
    block on a device or a program: each polls in a thread of its own, so that a hanging GPU driver stops nothing else.
    ``waits``: its data stays available for days, so it is not read while the spool is nearly full. ``reads``, ``costs``
    and ``blind_to`` are for people (docs/agent.md lists them).
    """

    name: str
    make: Callable[[Context, Mapping[str, Any]], Source]
    options: Mapping[str, Option]
    reads: str
    costs: str
    blind_to: str
    role: str = "node"
    slow: bool = True
    waits: bool = False


def metrics_reading(
    samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], stream: str, now: float,
    positions: dict[str, Any] | None = None,
) -> Reading:  # fmt: skip
    """Samples, (metric, labels) -> value, as one Prometheus text with the time of the reading."""
    body = wire.document("prometheus", exposition(samples, now), stream, now)
    return Reading(body, len(samples), positions or {})


def exposition(samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], now: float) -> str:
    """Prometheus text 0.0.4, each sample with its time in milliseconds. Not by prometheus-client, as the service's
    ``/metrics``: a node needs no package for the agent."""
    rows = []
    for (name, labels), value in samples.items():
        shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        rows.append(f"{name}{{{shown}}} {_number(value)} {int(now * 1000)}" if labels else
                    f"{name} {_number(value)} {int(now * 1000)}")  # fmt: skip
    return "\n".join(rows) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**63 else repr(float(value))


Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


@dataclass
class Changes:
    """Tracks which counters changed since the last look. Unchanged ones are reported once an hour, so that a late
    reader learns them and a silent counter differs from a missing one. Beyond that they cost nothing.
    """

    every: float = 3600.0
    _last: Samples = field(default_factory=dict)
    _sent_at: float = float("-inf")

    def of(self, samples: Samples, now: float) -> Samples:
        """``samples`` that are new or changed; each counter (``*_total``) that increased gets its increase beside it as
        ``*_increase``. A counter that fell was reset (driver reload): its increase is its current value.
        """
        everything = now - self._sent_at >= self.every
        if everything:
            self._sent_at = now
        changed: Samples = {}
        for key, value in samples.items():
            before = self._last.get(key)
            if everything or before != value:
                changed[key] = value
            if before is not None and before != value and key[0].endswith("_total"):
                name = key[0].removesuffix("_total") + "_increase"
                changed[(name, key[1])] = value - before if value >= before else value
        self._last = dict(samples)
        return changed
