"""The audit log: logins, refusals and changes, as lines of JSON in an append-only file.

The lines are for machines and for later investigation; ``docs/security.md`` describes them. They never contain a
password or a token. What a stranger can repeat at will (a refused token, a page without permission) is written once in
``QUIET_S`` for each address, with its count. The number of lines caused by strangers in ``QUIET_S`` is limited as well,
or a flood of names and addresses would fill the disk; one more line gives the number of the remaining ones.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import structlog
from fastapi import Request

log = structlog.get_logger()
#: Seconds in which the same refusal is written once.
QUIET_S = 60.0
#: The maximum number of refusals in memory; the counts of the oldest are lost.
REMEMBERED = 10_000
#: The maximum number of refusal lines in ``QUIET_S``, from one address and in total: at most some 40 MB a day.
MOST_OF_ADDRESS, MOST_LINES = 12, 60
#: Input from strangers is truncated to this length.
CHARS = 200


class Audit:
    """``path``: the file, None to keep nothing."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self._lock = threading.Lock()
        #: Refusal -> when its last line was written, and how often it happened since.
        self._quiet: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()
        #: When the present span of ``QUIET_S`` began, its refusal lines by address, and the omitted ones by action.
        self._begun = float("-inf")
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def record(self, act: str, who: str = "", address: str = "", **more: object) -> None:
        """Writes a line. If the disk refuses it, no request fails: the service's log reports it instead."""
        if self.path is None:
            return
        entry = {
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "act": act,
            "who": who[:CHARS] or None,
            "address": address or None,
        }
        line = json.dumps(entry | {name: _short(value) for name, value in more.items()}) + "\n"
        try:
            # Opened each time: it may be rotated.
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError:
            log.exception("an audit line could not be written", file=str(self.path))

    def attempt(self, act: str, who: str, address: str, **more: object) -> None:
        """Like ``record``, for what a stranger causes: line by line, up to the limit."""
        with self._lock:
            self._turn(self._clock())
            fits = self._written[address] < MOST_OF_ADDRESS and self._written.total() < MOST_LINES
            (self._written if fits else self._left_out)[address if fits else act] += 1
        if fits:
            self.record(act, who, address, **more)

    def settle(self) -> None:
        """Writes the counts of the last span, once that is over. Called periodically."""
        with self._lock:
            self._turn(self._clock())

    def _turn(self, now: float) -> None:
        if now - self._begun < QUIET_S:
            return
        self._begun, left_out = now, self._left_out
        self._written, self._left_out = Counter(), Counter()
        if left_out:
            self.record("refusals_left_out", times=left_out.total(), acts=dict(sorted(left_out.items())))

    def refused(self, act: str, who: str, address: str, **more: object) -> None:
        """Like ``attempt``, for what may be repeated at will."""
        # By outcome: what anybody can cause must not hide the other.
        now, key = self._clock(), (act, who, f"{address} {more.get('outcome', '')}")
        with self._lock:
            last, times = self._quiet.get(key, (float("-inf"), 0))
            quiet = now - last < QUIET_S
            self._quiet[key] = (last, times + 1) if quiet else (now, 0)
            self._quiet.move_to_end(key)
            while len(self._quiet) > REMEMBERED:
                self._quiet.popitem(last=False)
        if not quiet:
            self.attempt(act, who, address, times=times + 1, **more)


def _short(value: object) -> object:
    return value[:CHARS] if isinstance(value, str) else value


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def audit_of(request: Request) -> Audit:
    found: Audit = request.app.state.audit
    return found
