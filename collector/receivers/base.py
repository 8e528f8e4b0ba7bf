"""Defines receivers and their decoded output.

A receiver has up to three functions: ``routes`` accept HTTP requests, ``listen`` opens sockets, and ``decode`` turns a
spooled payload into lines, in a worker process, after the sender was answered. One file per protocol;
:mod:`collector.receivers` lists them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from collector.receivers.refusals import Poison, Refused
from collector.receivers.unpacking import unpack
from collector.segment_file import short_lines
from parsers.lines import line_ends
from parsers.record import FIRST_MOMENT, LAST_MOMENT, Origin, Parsed

if TYPE_CHECKING:
    import asyncio

    import polars as pl

    from collector.arriving import Arriving
    from collector.connections import Connections
    from collector.segment_file import Position
    from collector.spool import Spool
    from parsers.engine import LineParser

#: Limit of a body as sent: a larger one is refused (413). A batch of 50 k lines of syslog is 6 MB.
MAX_BODY = 16 * 1024 * 1024
#: The maximum number of lines of one batch: a line takes 200 bytes in a worker, however short it is, and 64 MiB of log
#: lines are fewer. And of records that each have their own description, with 600 bytes.
MOST_LINES = 1_000_000
MOST_RECORDS = 500_000
#: Messages within a protobuf body, as many as values in a JSON body: the library takes about 60 bytes for an empty one.
MOST_MESSAGES = 4_000_000
#: Metadata of a packed payload: its ``Content-Encoding``, and its unpacked size in bytes.
PACKING = ("encoding", "unpacked")
#: The fixed cost of a table equals the cost of this many runs.
FEW = 32
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)


def micros(moment: object) -> int | None:
    """RFC 3339 text, or a number of seconds, milli-, micro- or nanoseconds since 1970 -> microseconds; None for
    anything else and for dates that no calendar has."""
    found = _micros(moment)
    return found if found is not None and FIRST_MOMENT <= found <= LAST_MOMENT else None


def _micros(moment: object) -> int | None:
    if isinstance(moment, bool) or moment is None:
        return None
    if isinstance(moment, str):
        try:
            found = datetime.fromisoformat(moment)
        except ValueError:
            return micros(float(moment)) if moment.replace(".", "", 1).isdecimal() and len(moment) < 25 else None
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return int((aware - _EPOCH_UTC) / timedelta(microseconds=1))
    if isinstance(moment, int | float):
        value = abs(float(moment))
        for limit, factor in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (1e20, 1e-3)):
            if value < limit:
                # Integers stay exact: a double has 53 bits, nanoseconds need 61.
                return moment // 1000 if isinstance(moment, int) and factor == 1e-3 else int(moment * factor)
    return None


def moment_of(value: int) -> datetime:
    """Microseconds since 1970 -> naive UTC."""
    return _EPOCH + timedelta(microseconds=value)


class Run(NamedTuple):
    """``lines`` lines that share the same transport information. Times are microseconds since 1970, None if unknown."""

    lines: int
    received: int
    host: str | None = None
    file: str | None = None
    time: int | None = None
    read: int | None = None
    severity: str | None = None
    unit: str | None = None
    pid: int | None = None
    facility: str | None = None
    fields: str | None = None
    tags: str | None = None
    transport: str | None = None


@dataclass
class Lines:
    """Lines that are parsed together: one source, one cluster, one zone. Either ``lines``, already split, or ``data``:
    text of whole lines with their ends, not yet split."""

    origin: Origin
    lines: list[bytes] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    #: In the order of the lines. A table has a row for each of its lines, and only those columns of a run that have
    #: values.
    runs: list[Run | pl.DataFrame] = field(default_factory=list)

    def parse(self, parser: LineParser, received: datetime, first_line: int = 1) -> pl.DataFrame:
        """One row per line."""
        origin = self.origin.but(received=received, reference=received)
        if self.data:
            return parser.parse_data(self.data, origin, first_line)
        return parser.parse(self.lines, origin, first_line)

    @property
    def count(self) -> int:
        """The number of lines."""
        return sum(map(_lines_of, self.runs))

    @property
    def received(self) -> int:
        """When the last of the lines was received, in microseconds since 1970."""
        return max(run.received if isinstance(run, Run) else cast(int, run["received"].max()) for run in self.runs)

    def slices(self, most: int) -> Iterator[Lines]:
        """The same lines in order, at most ``most`` at a time."""
        if self.count <= most:
            yield self
            return
        data = _cut(self.data, most)
        for at, runs in enumerate(_dealt(self.runs, most)):
            yield Lines(self.origin, self.lines[at * most : (at + 1) * most], next(data) if self.data else [], runs)


def _lines_of(run: Run | pl.DataFrame) -> int:
    return run.lines if isinstance(run, Run) else len(run)


def _dealt(runs: Iterable[Run | pl.DataFrame], most: int) -> Iterator[list[Run | pl.DataFrame]]:
    """The runs of ``most`` lines at a time."""
    dealt: list[Run | pl.DataFrame] = []
    room = most
    for run in runs:
        at, count = 0, _lines_of(run)
        while at < count:
            taken = min(room, count - at)
            dealt.append(run._replace(lines=taken) if isinstance(run, Run) else run[at : at + taken])
            at, room = at + taken, room - taken
            if not room:
                yield dealt
                dealt, room = [], most
    if dealt:
        yield dealt


def _cut(data: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """The text of ``most`` lines at a time."""
    dealt: list[bytes] = []
    room = most
    for part in data:
        ends, at, first = line_ends(np.frombuffer(part, np.uint8)), 0, 0
        while len(ends) - first >= room:
            end = int(ends[first + room - 1]) + 1
            dealt.append(part[at:end])
            yield dealt
            at, first, dealt, room = end, first + room, [], most
        if at < len(part):
            dealt.append(part[at:])
            room -= len(ends) - first
    if dealt:
        yield dealt


class _GroupKey(NamedTuple):
    uncut: bool
    source: str | None
    cluster: str | None
    timezone: str | None
    job_id: int | None
    restarts: int | None
    of_person: bool


@dataclass
class Decoded:
    """The result of payloads: groups of lines, tables of documents, blind periods, agents' reports."""

    groups: dict[_GroupKey, Lines] = field(default_factory=dict)
    parsed: list[Parsed] = field(default_factory=list)
    blind: list[dict[str, Any]] = field(default_factory=list)
    status: list[dict[str, Any]] = field(default_factory=list)
    #: The number of lines.
    lines: int = 0

    def add(self, lines: list[bytes], *runs: Run, source: str | None = None, cluster: str | None = None,
            timezone: str | None = None, job_id: int | None = None, restarts: int | None = None, of_person: bool = False) -> None:  # fmt: skip
        """Adds ``lines``; the counts of all ``runs`` together must equal their number. Raises ``Poison`` if there are too
        many to be parsed."""
        self._count(len(lines))
        group = self._group(_GroupKey(False, source, cluster, timezone, job_id, restarts, of_person))
        group.lines += lines
        group.runs += runs

    def add_table(self, lines: list[bytes], table: pl.DataFrame, *, source: str | None = None, cluster: str | None = None,
                  timezone: str | None = None, job_id: int | None = None, restarts: int | None = None, of_person: bool = False) -> None:  # fmt: skip
        """Like :meth:`add`, for lines with a run each: row ``i`` of ``table`` describes line ``i``."""
        self._count(len(lines))
        group = self._group(_GroupKey(False, source, cluster, timezone, job_id, restarts, of_person))
        group.lines += lines
        if len(table) < FEW:
            group.runs += [Run(1, **row) for row in table.iter_rows(named=True)]
        else:
            group.runs.append(table)

    def add_data(self, data: bytes, run: Run, *, source: str | None = None, cluster: str | None = None,
                 timezone: str | None = None, job_id: int | None = None, restarts: int | None = None, of_person: bool = False) -> None:  # fmt: skip
        """Like :meth:`add`, for ``run.lines`` lines that each end with ``\\n`` (or ``\\r\\n``): the parser splits them,
        all at once."""
        self._count(run.lines)
        group = self._group(_GroupKey(True, source, cluster, timezone, job_id, restarts, of_person))
        group.data.append(data)
        group.runs.append(run)

    def _count(self, lines: int) -> None:
        self.lines += lines
        if self.lines > MOST_LINES:
            raise Poison(f"more than {MOST_LINES:,} lines in one batch are not parsed")

    def _group(self, key: _GroupKey) -> Lines:
        group = self.groups.get(key)
        if group is None:
            origin = Origin(
                cluster=key.cluster, source=key.source, timezone=key.timezone or "UTC", timezone_known=key.timezone is not None,
                job_id=key.job_id, restarts=key.restarts, of_person=key.of_person,
            )  # fmt: skip
            group = self.groups[key] = Lines(origin)
        return group


@dataclass(frozen=True)
class Payload:
    """A spooled payload with its description. ``stored``: ranges of entry numbers already in the store."""

    data: bytes
    meta: Mapping[str, Any]
    stored: tuple[tuple[int, int], ...] = ()

    def is_stored(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.stored)

    @property
    def received(self) -> int:
        return int(self.meta["received"])

    @property
    def peer(self) -> str | None:
        peer = self.meta.get("peer")
        return None if peer is None else str(peer)

    def unpacked(self) -> bytes:
        try:
            return unpack(self.data, self.meta.get("encoding"))
        except Refused as refusal:
            raise Poison(refusal.text) from refusal


@dataclass(frozen=True)
class Request:
    """An HTTP request with its whole body. Header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: str | None = None
    #: The unpacked body, if it is small.
    unpacked: bytes | None = None

    def plain(self) -> bytes:
        """The body unpacked; raises ``Refused``."""
        if self.unpacked is not None:
            return self.unpacked
        return unpack(self.body, self.headers.get("content-encoding"))

    def packing(self, plain: bytes, lines: int = 0) -> dict[str, Any]:
        """The compression of the body, for the description of its batch: the names of ``PACKING``, none if it is not
        packed; and ``lines``, at most how many it has, if they are very short. ``plain``: the unpacked body."""
        encoding = self.headers.get("content-encoding")
        packed = {"encoding": encoding, "unpacked": len(plain)} if encoding else {}
        return packed | short_lines(lines, len(plain))


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def answer_json(document: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document, separators=(",", ":")).encode())


@dataclass(frozen=True)
class Batch:
    """What a route wants spooled, and the answer once it is on disk. ``payload`` None: nothing is stored."""

    payload: bytes | None
    answer: Answer
    meta: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    #: If a sender may repeat a part of a batch alone: the unpacked payload in parts that concatenate to a payload.
    parts: Callable[[], list[bytes]] | None = None


@dataclass(frozen=True)
class Route:
    """``pattern`` is a regular expression for the whole path. ``accept`` must be fast: it runs in the event loop, for a large
    body in a thread.

    ``problem`` builds the protocol's own error body from the status, the message and the request's content type; None
    gives problem details.
    """

    methods: tuple[str, ...]
    pattern: str
    accept: Callable[[Request], Batch]
    problem: Callable[[int, str, str], Answer] | None = None
    #: For unbounded bodies: a coroutine function of (intake, scope, headers, chunks) instead of ``accept``.
    stream: Callable[..., Any] | None = None
    #: Bytes that ``accept`` makes of an unpacked body, if the protocol packs it once more.
    size: Callable[[bytes], int] = len


class Intake(Protocol):
    """The interface of the service for a receiver that listens, or that reads an unbounded body
    (``collector.intake.Intake``)."""

    spool: Spool
    #: All TCP connections of the service, of HTTP and of listeners.
    connections: Connections
    #: What is held for bodies that have not arrived completely.
    arriving: Arriving

    def put(self, kind: str, payload: bytes, meta: dict[str, Any]) -> asyncio.Future[Position]:
        """Spools a batch. The future is done when it is on disk. Raises ``SpoolFull``."""
        ...

    async def body(self, chunks: AsyncIterator[bytes], sender: str | None) -> bytes:
        """A whole body of at most ``MAX_BODY`` bytes. Raises ``Refused``, and ``SpoolFull`` as ``arriving`` does."""
        ...

    def unpacked(self, body: bytes, encoding: str, sender: str | None) -> contextlib.AbstractAsyncContextManager[bytes]:
        """An unpacked body, which may be held until the end of the context: few are at the same time. Raises
        ``Refused`` and ``SpoolFull``."""
        ...

    def report_blind(
        self, host: str, source: str, stream: str, start: float, end: float, reason: str, lines: int | None, size: int | None
    ) -> asyncio.Future[Position] | None:  # fmt: skip
        """Records that a stream was not seen between two times (epoch seconds). The future completes when that is on
        disk; None if the spool has no room for it."""
        ...


@dataclass(frozen=True)
class Receiver:
    """One protocol. ``kind`` is written into the spool with each batch: its meaning never changes.

    ``decode(payload, into)`` runs in a worker; raises ``Poison`` for what it cannot read. ``open`` (a coroutine
    function of (configuration, intake)) opens the configured listeners and returns objects with ``close()``.
    """

    kind: str
    what: str
    decode: Callable[[Payload, Decoded], None]
    routes: tuple[Route, ...] = ()
    open: Callable[..., Any] | None = None
