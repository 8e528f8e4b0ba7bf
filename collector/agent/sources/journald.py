"""systemd's journal, through ``journalctl --follow``: one child that sleeps while nothing is logged."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind

#: The fields that the service's parser uses; an entry has some forty.
_FIELDS = (
    "MESSAGE", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "_PID", "_COMM", "_SYSTEMD_UNIT", "UNIT",
    "_HOSTNAME", "_TRANSPORT", "_BOOT_ID", "_SOURCE_REALTIME_TIMESTAMP", "_UID", "_SYSTEMD_USER_UNIT",
)  # fmt: skip
#: All transports but the kernel's, which the source "kmsg" reads with exact sequence numbers.
_TRANSPORTS = ("syslog", "journal", "stdout", "audit", "driver")
_CURSOR = re.compile(rb'"__CURSOR"\s*:\s*"([^"]+)"')
_TIME = re.compile(rb'"__REALTIME_TIMESTAMP"\s*:\s*"(\d+)"')
_PIECE = 256 * 1024
_PIPE = 1024 * 1024
#: journald limits a field to 64 MiB; binary data is exported as numbers, five bytes per byte.
_LONGEST = 64 * 1024 * 1024
#: Time limit for finding the oldest entry.
_PATIENCE_S = 10.0
_SYSLOG_FILES = ("/var/log/syslog", "/var/log/messages")


@dataclass
class Journald:
    """``even_with_syslog``: run even if rsyslog writes the same lines into a followed file."""

    context: Context
    even_with_syslog: bool
    kernel: bool
    first_hours: float
    program: str
    interval: float = 0.0
    handle: int | None = None
    _child: subprocess.Popen[bytes] | None = None
    _rest: bytes = b""
    _complaint: bytes = b""
    _cursor: str | None = None

    def open(self, positions: Mapping[str, Any]) -> None:
        if not self.even_with_syslog:
            for path in _SYSLOG_FILES:
                if self.context.path(path).exists():
                    raise Missing(f"{path} holds the same lines and is tailed (set even_with_syslog to read both)")
        kept = positions.get("journald") or {}
        self._cursor = kept.get("cursor")
        self._gone = self._vacuumed(kept) if self._cursor else None
        command = [
            self.program, "--follow", "--output=json", "--all", "--quiet", "--no-pager", f"--output-fields={','.join(_FIELDS)}",
        ]  # fmt: skip
        if self._cursor:
            command += [f"--after-cursor={self._cursor}", "--no-tail"]
        else:
            command += [f"--since=-{int(self.first_hours * 60)}min", "--no-tail"]
        if not self.kernel:
            command += [f"_TRANSPORT={name}" for name in _TRANSPORTS]
        try:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
            )
        except FileNotFoundError as error:
            raise Missing(f"{self.program} is not installed") from error
        assert self._child.stdout is not None and self._child.stderr is not None
        for pipe in (self._child.stdout, self._child.stderr):
            os.set_blocking(pipe.fileno(), False)
        # A turn's worth of lines must fit, or journalctl is limited to one pipe per turn.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._child.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)

    def _vacuumed(self, kept: Mapping[str, Any]) -> tuple[float, float] | None:
        """(from, to) of entries removed before they were read: the oldest entry is younger than the cursor."""
        last = float(kept.get("time") or 0.0)
        found = _TIME.search(self._oldest()) if last else None
        if not found or int(found[1]) / 1e6 <= last:
            return None
        return last, int(found[1]) / 1e6

    def _oldest(self) -> bytes:
        """The oldest entry: the first line of an unbounded ``journalctl``, since ``-n +1`` needs systemd 254."""
        command = [self.program, "--output=json", "--quiet", "--no-pager", "--output-fields=_BOOT_ID"]
        try:
            asked = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return b""
        with asked:
            assert asked.stdout is not None
            os.set_blocking(asked.stdout.fileno(), False)
            line, until = b"", self.context.monotonic() + _PATIENCE_S
            while b"\n" not in line and (left := until - self.context.monotonic()) > 0:
                waiting = select.poll()
                waiting.register(asked.stdout, select.POLLIN)
                waiting.poll(left * 1000)
                piece = asked.stdout.read(_PIECE)
                if piece == b"":
                    break
                line += piece or b""
            asked.kill()
        return line.partition(b"\n")[0]

    def poll(self) -> Iterator[Reading]:
        child = self._child
        assert child is not None and child.stdout is not None and child.stderr is not None
        if self._gone is not None:
            since, until = self._gone
            self._gone = None
            yield Reading(
                wire.blind("journald", "journald", since, until, "the journal was vacuumed before it was read"), 0
            )
        # An unread stderr would stop the child once the pipe is full.
        self._complaint = (self._complaint + (child.stderr.read(_PIECE) or b""))[-_PIECE // 64 :]
        pieces, piece, size = [self._rest], None, 0
        while size < _PIECE and (piece := child.stdout.read(_PIECE)):
            pieces.append(piece)
            size += len(piece)
        data = b"".join(pieces)
        cut = data.rfind(b"\n")
        self._rest = data[cut + 1 :]
        if cut >= 0:
            yield self._reading(data[:cut])
        if piece == b"":  # the unfinished entry comes again after the cursor
            complaint = self._complaint.decode("utf-8", "replace").strip()
            raise OSError(f"{self.program} ended ({child.poll()}): {complaint.splitlines()[-1] if complaint else ''}")
        if len(self._rest) > _LONGEST:
            raise OSError(f"{self.program}: {len(self._rest)} bytes without the end of a line are no entry")

    def _reading(self, text: bytes) -> Reading:
        now = self.context.now()
        body = wire.lines_record(b'{"stream":"journald","source":"journald"', text, read=wire.stamp(now))
        last = text[text.rfind(b"\n") + 1 :]
        cursor, time = _CURSOR.search(last), _TIME.search(last)
        positions: dict[str, Any] = {}
        if cursor:
            # A cursor is a JSON string, with JSON's escapes.
            name = json.loads(b'"' + cursor[1] + b'"')
            positions["journald"] = {"cursor": name, "time": int(time[1]) / 1e6 if time else now}
        return Reading(body, text.count(b"\n") + 1, positions)

    def close(self) -> None:
        child, self._child = self._child, None
        self._rest = b""
        if child is None:
            return
        child.terminate()
        try:
            child.wait(2.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _make(context: Context, options: Mapping[str, Any]) -> Journald:
    return Journald(context, options["even_with_syslog"], options["kernel"], options["first_hours"], options["program"])


SOURCE = SourceKind(
    "journald", _make, {"even_with_syslog": False, "kernel": False, "first_hours": 24.0, "program": "journalctl"},
    reads="systemd's journal from a stored cursor on, without the kernel's lines",
    costs="a child journalctl (its memory is mostly the mapped journal) and one JSON object per line",
    blind_to="messages that journald suppressed (its own line gives the number) or vacuumed while the agent was down (reported)",
    slow=False,
    waits=True,
)  # fmt: skip
