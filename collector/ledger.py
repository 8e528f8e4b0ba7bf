"""What the store knows about the way in: positions, keys, sources, nodes, blind periods, quarantine.

Changes are gathered in a :class:`Step`, written inside the transaction of the rows they belong to, and applied to memory
when that transaction has been committed. So memory never knows more than the disk.
"""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars as pl

from collector.sequence import Ranges, StreamKey
from collector.spool import Position
from store.duckdb_store import DuckStore, insert
from store.intake import STATEMENTS

#: Opaque keys are remembered so long, never fewer than ``KEYS_KEPT`` (a clock that jumps must not forget them) and never
#: more than ``MOST_KEYS`` (about 150 MB).
KEY_LIFE = timedelta(hours=24)
KEYS_KEPT, MOST_KEYS = 100_000, 1_000_000
#: Output of jobs that ended so long ago is no source any more.
OUTPUT_LIFE = timedelta(days=7)
_OUTPUT = ("job_stdout", "job_stderr")
#: The write-ahead log grows to this between checkpoints; it is read again in about a second after a crash.
CHECKPOINT = "256MB"
#: Rates are averages that forget with this time constant, seconds.
RATE_S = 60.0

SourceKey = tuple[str, str, str]


@dataclass
class Source:
    """One stream of one host: ``lag_s`` of the newest line, ``gap_s`` the usual time between two arrivals."""

    host: str
    source: str
    file: str
    transport: str
    first_seen: datetime
    last_seen: datetime
    last_time: datetime | None = None
    lines: int = 0
    events: int = 0
    unparsed: int = 0
    bytes: int = 0
    lag_s: float | None = None
    max_lag_s: float | None = None
    late: int = 0
    gap_s: float | None = None

    @property
    def key(self) -> SourceKey:
        return (self.host, self.source, self.file)


@dataclass
class Node:
    host: str
    cluster: str | None
    first_seen: datetime
    last_seen: datetime
    boot_id: str | None = None
    boot_time: datetime | None = None
    boots: int = 0
    status: str | None = None
    status_at: datetime | None = None


@dataclass
class Step:
    """What goes into one transaction besides the rows. ``name`` tells whether it went through; ``carried`` is the file of
    lines before ``position`` that are not among the rows yet."""

    position: Position
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    carried: str | None = None
    keys: list[StreamKey] = field(default_factory=list)
    opaque: list[tuple[str, datetime]] = field(default_factory=list)
    sources: dict[SourceKey, Source] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    blind: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    replayed: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Opens (and makes) the tables of the way in. One writer: the pipeline."""

    def __init__(self, store: DuckStore, spool_id: str) -> None:
        self.store, self.spool_id = store, spool_id
        with store.transaction() as connection:
            for statement in STATEMENTS:
                connection.execute(statement)
        self.load()

    def load(self) -> None:
        """Memory as the store has it."""
        rows = self.store.rows
        # Rows are moved into closed segments soon: compressing them in a checkpoint before that is work done twice.
        self.store.cursor().execute(f"SET GLOBAL checkpoint_threshold = '{CHECKPOINT}'")
        self.streams = {
            (r["agent"], r["stream"], r["epoch"]): Ranges.read(r["ranges"])
            for r in rows("SELECT * FROM intake.streams")
        }
        self.keys: dict[str, datetime] = {r["key"]: r["received"] for r in rows("SELECT * FROM intake.keys")}
        self.sources = {s.key: s for r in rows("SELECT * FROM intake.sources") for s in [Source(**r)]}
        self.nodes = {r["host"]: Node(**r) for r in rows("SELECT * FROM intake.nodes")}
        self.lines: dict[str, int] = {}
        for source in self.sources.values():
            self.lines[source.file] = self.lines.get(source.file, 0) + source.lines
        #: Source -> (when, lines per second then), fading over ``RATE_S``.
        self._rates: dict[SourceKey, tuple[float, float]] = {}
        self._aside = {r["id"] for r in rows("SELECT id FROM intake.quarantine WHERE replayed_at IS NULL")}
        self.blind_periods = int(rows("SELECT count(*) AS n FROM intake.blind")[0]["n"])

    @property
    def quarantined(self) -> int:
        """Batches that are set aside now."""
        return len(self._aside)

    def watermark(self) -> Position | None:
        """Up to where this spool was stored; None for a spool that the store has not met."""
        found = self.store.rows('SELECT segment, "offset" AS at FROM intake.watermark WHERE spool = ?', [self.spool_id])
        return Position(found[0]["segment"], found[0]["at"]) if found else None

    def last_step(self) -> tuple[str | None, str | None]:
        """Name of the last transaction that went through, and its file of carried lines."""
        found = self.store.rows("SELECT step, file FROM intake.carried WHERE spool = ?", [self.spool_id])
        return (found[0]["step"], found[0]["file"]) if found else (None, None)

    # -- building a step -----------------------------------------------------------------------------------------

    def count(self, step: Step, stats: pl.DataFrame) -> None:
        """Adds statistics (``collector.decoding``) to the step's copies of sources and nodes."""
        spoke: dict[str, tuple[str | None, datetime, int]] = {}
        columns = (stats[name].to_list() for name in _STATS)
        for host, source, file, transport, cluster, first, last, newest, lines, events, unparsed, size, lag, worst, late, boots in zip(*columns, strict=True):  # fmt: skip
            key = (host or "", source or "", file or "")
            known = step.sources.get(key) or self.sources.get(key)
            if known is None:
                made = Source(
                    *key, transport or "", first, last, newest, lines, events, unparsed, size, lag, worst, late or 0
                )
            else:
                gap = max(0.0, (last - known.last_seen).total_seconds())
                made = Source(
                    *key, known.transport, min(known.first_seen, first), max(known.last_seen, last),
                    _largest(known.last_time, newest), known.lines + lines, known.events + events, known.unparsed + unparsed,
                    known.bytes + size, known.lag_s if lag is None else lag, _largest(known.max_lag_s, worst),
                    known.late + (late or 0),
                    # An average that follows in about ten arrivals: what is usual for this source.
                    gap if known.gap_s is None else known.gap_s + (gap - known.gap_s) * 0.1,
                )  # fmt: skip
            step.sources[key] = made
            step.lines[key[2]] = step.lines.get(key[2], self.lines.get(key[2], 0)) + lines
            if host:
                before = spoke.get(host)
                if before is not None:
                    cluster, last, boots = cluster or before[0], max(last, before[1]), boots + before[2]
                spoke[host] = (cluster, last, boots)
        for host, (cluster, last, boots) in spoke.items():
            self.met(step, host, cluster, last, boots=boots)

    def met(self, step: Step, host: str, cluster: str | None, seen: datetime, *, boots: int = 0, boot_id: str | None = None,
            boot_time: datetime | None = None, status: str | None = None) -> None:  # fmt: skip
        """A node spoke. A boot id that is not the one before begins a new boot epoch; without ids, boot lines do."""
        known = step.nodes.get(host) or self.nodes.get(host)
        node = Node(**vars(known)) if known else Node(host, cluster, seen, seen)
        node.last_seen, node.cluster = max(node.last_seen, seen), cluster or node.cluster
        if boot_id and boot_id != node.boot_id:
            node.boot_id, node.boots = boot_id, node.boots + 1
        elif boots and node.boot_id is None:
            node.boots += boots
        node.boot_time = boot_time or node.boot_time
        if status is not None:
            node.status, node.status_at = status, seen
        step.nodes[host] = node

    # -- writing and applying ------------------------------------------------------------------------------------

    def write(self, connection: duckdb.DuckDBPyConnection, step: Step) -> None:
        """Inside a transaction."""
        connection.execute("DELETE FROM intake.watermark WHERE spool = ?", [self.spool_id])
        connection.execute(
            "INSERT INTO intake.watermark VALUES (?, ?, ?, now()::TIMESTAMP)", [self.spool_id, *step.position]
        )
        connection.execute("DELETE FROM intake.carried WHERE spool = ?", [self.spool_id])
        connection.execute("INSERT INTO intake.carried VALUES (?, ?, ?)", [self.spool_id, step.name, step.carried])
        now = datetime.now(UTC).replace(tzinfo=None)
        streams = self._streams_after(step)
        if streams:
            rows = [(*name, str(ranges), now) for name, ranges in streams.items()]
            _replace(connection, "streams", ("agent", "stream", "epoch"), rows)
        if step.opaque:
            made = pl.DataFrame(step.opaque, schema={"key": pl.String, "received": pl.Datetime("us")}, orient="row")
            insert(connection, "intake.keys", made)
        if step.sources:
            _replace(
                connection,
                "sources",
                ("host", "source", "file"),
                [tuple(vars(s).values()) for s in step.sources.values()],
            )
        if step.nodes:
            _replace(connection, "nodes", ("host",), [tuple(vars(n).values()) for n in step.nodes.values()])
        for told in step.blind:
            connection.execute("INSERT INTO intake.blind VALUES (?,?,?,?,?,?,?,?,?,?)", [told[n] for n in _BLIND])
        for entry in step.quarantine:
            connection.execute("DELETE FROM intake.quarantine WHERE id = ?", [entry["id"]])
            connection.execute(
                "INSERT INTO intake.quarantine VALUES (?,?,?,?,?,?,?,?,?)", [entry[n] for n in _QUARANTINE]
            )
        for identity in step.replayed:
            connection.execute("UPDATE intake.quarantine SET replayed_at = ? WHERE id = ?", [now, identity])

    def _streams_after(self, step: Step) -> dict[tuple[str, str, str], Ranges]:
        after: dict[tuple[str, str, str], Ranges] = {}
        for key in step.keys:
            if key.name not in after:
                after[key.name] = self.streams.get(key.name, Ranges()).copy()
            after[key.name].add(key.first, key.last)
        return after

    def apply(self, step: Step) -> None:
        """After the commit."""
        now = time.monotonic()
        for key, source in step.sources.items():
            before = self.sources.get(key)
            then, rate = self._rates.get(key, (now, 0.0))
            lines = source.lines - (before.lines if before else 0)
            self._rates[key] = (now, rate * math.exp((then - now) / RATE_S) + lines / RATE_S)
        self.streams.update(self._streams_after(step))
        self.keys.update(step.opaque)
        self.sources.update(step.sources)
        self.nodes.update(step.nodes)
        self.lines.update(step.lines)
        self._aside.update(entry["id"] for entry in step.quarantine)
        self._aside.difference_update(step.replayed)
        self.blind_periods += len(step.blind)

    def rates_now(self) -> dict[SourceKey, float]:
        """Lines per second of each source, over about the last minute."""
        now = time.monotonic()
        return {key: rate * math.exp((then - now) / RATE_S) for key, (then, rate) in list(self._rates.items())}

    def prune(self, now: datetime) -> None:
        """Forgets opaque keys that are old or too many, and the output of jobs long ended."""
        if len(self.keys) > KEYS_KEPT:
            newest = sorted(self.keys.values(), reverse=True)
            limit = min(now - KEY_LIFE, newest[KEYS_KEPT])
            if len(newest) > MOST_KEYS:
                limit = max(limit, newest[MOST_KEYS])
            with self.store.transaction() as connection:
                connection.execute("DELETE FROM intake.keys WHERE received < ?", [limit])
            self.keys = {key: received for key, received in self.keys.items() if received >= limit}
        ended = [s for s in self.sources.values() if s.source in _OUTPUT and now - s.last_seen > OUTPUT_LIFE]
        if ended:
            with self.store.transaction() as connection:
                connection.execute(
                    "DELETE FROM intake.sources WHERE source IN ('job_stdout', 'job_stderr') AND last_seen < ?",
                    [now - OUTPUT_LIFE],
                )
            for source in ended:
                del self.sources[source.key]
                self.lines.pop(source.file, None)
                self._rates.pop(source.key, None)


_STATS = (
    "host", "source", "file", "transport", "cluster", "first_seen", "last_seen", "last_time", "lines", "events", "unparsed",
    "bytes", "lag_s", "max_lag_s", "late", "boots",
)  # fmt: skip
_BLIND = ("host", "source", "stream", "start", "end", "reason", "lines", "bytes", "told_by", "received")
_QUARANTINE = ("id", "kind", "peer", "key", "reason", "bytes", "received", "set_aside_at", "replayed_at")


def _largest(one: Any, other: Any) -> Any:
    """The larger of two; the other one where one is None."""
    return other if one is None else one if other is None else max(one, other)


def _replace(
    connection: duckdb.DuckDBPyConnection, table: str, keys: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    """Rows of one of our tables by key: those that are there are taken out first."""
    names = [r[0] for r in connection.execute(f"DESCRIBE intake.{table}").fetchall()]
    data = pl.DataFrame(dict(zip(names, zip(*rows, strict=True), strict=True)), strict=False)
    if len(rows) == 1:
        where = " AND ".join(f'"{key}" = ?' for key in keys)
        connection.execute(f"DELETE FROM intake.{table} WHERE {where}", [rows[0][names.index(key)] for key in keys])
    else:
        connection.register("changed", data.select(keys).to_arrow())
        where = " AND ".join(f'{table}."{key}" = changed."{key}"' for key in keys)
        connection.execute(f"DELETE FROM intake.{table} USING changed WHERE {where}")
        connection.unregister("changed")
    insert(connection, f"intake.{table}", data)
