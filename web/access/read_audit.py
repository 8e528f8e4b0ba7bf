"""Audits reads of what a job brought with it: scripts, environments, output, and each query.

A repeated read by the same person is written once in ``QUIET_S``, with its count: a page of a running job reloads every
few seconds. Reads of many different runs have a line each, up to ``MOST_READS`` of one person in that time; one more
line gives the number of the remaining ones.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from hashlib import blake2b

from fastapi import Request

from web.access.audit import QUIET_S, Audit, address_of, audit_of
from web.access.authentication import asking

#: The maximum number of read lines of one person in ``QUIET_S``: some 120 kB a minute.
MOST_READS = 600
#: The maximum number of recorded reads in memory.
REMEMBERED = 10_000

Key = tuple[str, ...]


class ReadAudit:
    """Writes reads to an audit, each once in a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        #: Read -> when its last line was written, and how often it happened since.
        self._recorded: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        #: Person -> when the present span began, lines written in it, and reads without a line.
        self._spans: OrderedDict[Key, tuple[float, int, int]] = OrderedDict()

    def record(self, audit: Audit, act: str, who: str, address: str, **more: object) -> None:
        now = self._clock()
        what = blake2b(
            repr(sorted(more.items())).encode(errors="replace"), digest_size=16
        ).hexdigest()  # a query may be long
        key = (act, who, address, what)
        person = (who, address)
        with self._lock:
            last, times = self._recorded.pop(key, (float("-inf"), 0))
            quiet = now - last < QUIET_S
            self._recorded[key] = (last, times + 1) if quiet else (now, 0)
            begun, lines, left_out = self._spans.pop(person, (now, 0, 0))
            over = now - begun >= QUIET_S
            missed = left_out if over else 0
            if over:
                begun, lines, left_out = now, 0, 0
            fits = lines < MOST_READS
            if not quiet:
                lines, left_out = lines + fits, left_out + (not fits)
            self._spans[person] = (begun, lines, left_out)
            for kept in (self._recorded, self._spans):
                while len(kept) > REMEMBERED:
                    kept.popitem(last=False)
        if missed:
            audit.record("reads_left_out", who, address, times=missed)
        if not quiet and fits:
            audit.record(act, who, address, times=times + 1, **more)


def _record(request: Request, act: str, **more: object) -> None:
    reads: ReadAudit = request.app.state.reads
    person = asking(request)
    reads.record(audit_of(request), act, person.name if person is not None else "", address_of(request), **more)


def of_run(request: Request, run: str, owner: object, what: Collection[str]) -> None:
    """``what``: script, environment, output; nothing is written if the run has none of it."""
    for part in ("script", "environment", "output"):
        if part in what:
            _record(request, f"read_{part}", run=run, owner=owner)


def of_lines(request: Request, jobs: Collection[object]) -> None:
    """Records that lines of job output were shown."""
    for job in sorted({str(job) for job in jobs if job is not None}):
        _record(request, "read_output", run=job, owner=None)


def of_query(request: Request, query: str) -> None:
    """Records a query, or the filter of a tail: it may read any job's output."""
    _record(request, "query", query=query)
