"""What the store knows about the intake: positions, keys, sources, nodes, blind periods, quarantine.

Changes are gathered in a :class:`Step`, applied to memory when it is complete, and written inside the transaction of
the rows they belong to. So memory is briefly ahead of the disk; a transaction that cannot be stored leaves memory
ahead, and everything is reloaded (``load``).
"""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from collector.decoding import by_source
from collector.segment_file import Position
from collector.sequence import Ranges, StreamKey
from parsers.record import JOB_OUTPUT
from store import tables
from store.door import Door, Writer
from store.questions import intake

#: Opaque keys are remembered this long, never fewer than ``KEYS_KEPT`` (a clock that jumps must not forget them) and
#: never more than ``MOST_KEYS`` (about 150 MB).
KEY_LIFE = timedelta(hours=24)
KEYS_KEPT, MOST_KEYS = 100_000, 1_000_000
#: The output of a job that ended this long ago is no longer a source.
OUTPUT_LIFE = timedelta(days=7)
#: Rates are exponential averages with this time constant, in seconds.
RATE_S = 60.0
#: The longest gap between two arrivals fades with this time constant, in seconds: a weekend is remembered over the next.
LONGEST_LIFE_S = 14 * 86400.0

SourceKey = tuple[str, str, str]
KEY = ("host", "source", "file")
#: The columns of ``intake.sources``, one per field of ``Source``; and the average ``rate`` in lines per second at the
#: time ``rated`` (seconds of the monotonic clock), which is not stored.
SOURCES: dict[str, Any] = {
    **dict.fromkeys((*KEY, "transport"), pl.String), **dict.fromkeys(("first_seen", "last_seen", "last_time"), pl.Datetime("us")),
    **dict.fromkeys(("lines", "events", "unparsed", "bytes"), pl.Int64), "lag_s": pl.Float64, "max_lag_s": pl.Float64,
    "late": pl.Int64, "gap_s": pl.Float64, "ahead": pl.Int64,
    "longest_s": pl.Float64,
}  # fmt: skip
RATES: dict[str, Any] = {"rated": pl.Float64, "rate": pl.Float64}


@dataclass
class Source:
    """One stream of one host: ``lag_s`` of the newest line, ``gap_s`` the average time between two arrivals,
    ``longest_s`` the longest of the last two weeks or so; all in seconds."""

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
    ahead: int = 0
    longest_s: float | None = None

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
    """What goes into one transaction besides the rows. ``name`` shows whether it committed; ``carried`` is the file of
    lines before ``position`` that are not among the rows yet."""

    position: Position
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    carried: str | None = None
    keys: list[StreamKey] = field(default_factory=list)
    opaque: list[tuple[str, datetime]] = field(default_factory=list)
    #: The new state of the changed sources, in the columns of ``SOURCES``.
    sources: pl.DataFrame | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    blind: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    replayed: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    #: The new stored ranges of each stream that changed.
    streams: dict[tuple[str, str, str], Ranges] = field(default_factory=dict)


class Ledger:
    """Opens (and creates) the intake tables. One writer: the pipeline."""

    def __init__(self, store: Door, spool_id: str) -> None:
        self.store, self.spool_id = store, spool_id
        store.open_intake()
        self.load()

    def load(self) -> None:
        """Loads memory from the store."""
        ask = self.store.ask
        self.streams = {(r["agent"], r["stream"], r["epoch"]): Ranges.read(r["ranges"]) for r in ask(intake.streams())}
        self.keys: dict[str, datetime] = {r["key"]: r["received"] for r in ask(intake.keys())}
        known = pl.DataFrame(ask(intake.sources()), schema=SOURCES)
        self._keep(known.with_columns(pl.lit(0.0).alias(name) for name in RATES))
        self.nodes = {r["host"]: Node(**r) for r in ask(intake.nodes())}
        self.lines: dict[str, int] = _lines_of(known)
        self._aside = {r["id"] for r in ask(intake.set_aside())}
        self.blind_periods = int(ask(intake.blind_count())[0]["n"])

    @property
    def quarantined(self) -> int:
        """Number of batches currently set aside."""
        return len(self._aside)

    def watermark(self) -> Position | None:
        """The position up to which this spool was stored; None for a spool that the store has not seen."""
        found = self.store.ask(intake.watermark(self.spool_id))
        return Position(found[0]["segment"], found[0]["at"]) if found else None

    def last_step(self) -> tuple[str | None, str | None]:
        """Name of the last committed transaction, and its file of carried lines."""
        found = self.store.ask(intake.last_step(self.spool_id))
        return (found[0]["step"], found[0]["file"]) if found else (None, None)

    # -- building a step -----------------------------------------------------------------------------------------

    def count(self, step: Step, stats: pl.DataFrame) -> None:
        """Adds statistics (``collector.decoding``) to the step's changes of sources and nodes; once per step."""
        if any(stats[name].null_count() for name in KEY):
            stats = by_source(stats.with_columns(pl.col(*KEY).fill_null("")))  # no host and an empty one are the same
        stats = stats.with_columns(pl.col("transport").fill_null(""))
        step.sources = self._sources_after(stats)
        for file, lines in _lines_of(stats).items():
            step.lines[file] = self.lines.get(file, 0) + lines
        spoke = stats.filter(pl.col("host") != "").group_by("host", maintain_order=True)
        cluster, seen, boots = pl.col("cluster").drop_nulls().last(), pl.col("last_seen").max(), pl.col("boots").sum()
        for host, named, last, booted in spoke.agg(cluster, seen, boots).iter_rows():
            self.met(step, host, named, last, boots=booted)

    def _sources_after(self, stats: pl.DataFrame) -> pl.DataFrame:
        """The sources of ``stats`` as they are after it. With many hosts there are thousands: no loop over them."""
        rows = pl.Series(map(self._rows.get, stats.select(*KEY).iter_rows()), dtype=pl.UInt32)
        old = stats.hstack(
            self._known.select(pl.all().exclude(KEY).gather(rows)).rename(lambda n: n if n in _OWN else f"{n}_before")
        )
        gap = pl.max_horizontal((pl.col("last_seen") - pl.col("last_seen_before")).dt.total_microseconds() / 1e6, 0.0)
        # Nulls mark what was unknown before or is not given now; max_horizontal ignores them.
        now = time.monotonic()
        faded = pl.col("rate") * ((pl.col("rated") - now) / RATE_S).exp()
        return old.select(
            *KEY, pl.coalesce("transport_before", "transport").alias("transport"),
            pl.min_horizontal("first_seen", "first_seen_before"), pl.max_horizontal("last_seen", "last_seen_before"),
            pl.max_horizontal("last_time", "last_time_before"),
            *(pl.col(name) + pl.col(f"{name}_before").fill_null(0) for name in ("lines", "events", "unparsed", "bytes")),
            pl.coalesce("lag_s", "lag_s_before"), pl.max_horizontal("max_lag_s", "max_lag_s_before"),
            pl.col("late").fill_null(0) + pl.col("late_before").fill_null(0),
            # An average that adapts within about ten arrivals: the source's own rhythm.
            pl.when(pl.col("last_seen_before").is_not_null()).then(pl.coalesce(pl.col("gap_s") + (gap - pl.col("gap_s")) * 0.1, gap))
            .alias("gap_s"),
            pl.col("ahead").fill_null(0) + pl.col("ahead_before").fill_null(0),
            pl.when(pl.col("last_seen_before").is_not_null())
            .then(pl.max_horizontal(gap, pl.col("longest_s") * (-gap / LONGEST_LIFE_S).exp())).alias("longest_s"),
            pl.lit(now).alias("rated"), (faded.fill_null(0.0) + pl.col("lines") / RATE_S).alias("rate"),
        )  # fmt: skip

    def _keep(self, known: pl.DataFrame) -> None:
        """Caches ``known``, all sources, in the columns of ``SOURCES`` and ``RATES``."""
        self._known = known
        self._rows: dict[tuple[Any, ...], int] = {key: row for row, key in enumerate(known.select(*KEY).iter_rows())}
        #: The frame that ``sources`` was built from, and the result.
        self._cached: tuple[pl.DataFrame, dict[SourceKey, Source]] | None = None

    @property
    def sources(self) -> dict[SourceKey, Source]:
        """The current state of every source, by key."""
        if self._cached is None or self._cached[0] is not self._known:
            known = self._known
            made = (Source(*row) for row in known.select(*SOURCES).iter_rows())
            self._cached = (known, {source.key: source for source in made})
        return self._cached[1]

    def met(self, step: Step, host: str, cluster: str | None, seen: datetime, *, boots: int = 0, boot_id: str | None = None,
            boot_time: datetime | None = None, status: str | None = None) -> None:  # fmt: skip
        """Records a sign of life of a node. A boot ID that differs from the last one begins a new boot epoch; without
        IDs, boot lines do."""
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

    def write(self, writer: Writer, step: Step) -> None:
        """Writes an applied step inside a transaction; any thread may call it."""
        now = datetime.now(UTC).replace(tzinfo=None)
        segment, offset = step.position
        watermark = {"spool": self.spool_id, "segment": segment, "offset": offset, "moved_at": now}
        writer.replace(tables.WATERMARK, ("spool",), pl.DataFrame([watermark], schema=_WATERMARK))
        carried = {"spool": self.spool_id, "step": step.name, "file": step.carried}
        writer.replace(tables.CARRIED, ("spool",), pl.DataFrame([carried], schema=_CARRIED))
        if step.streams:
            rows = [(*name, str(ranges), now) for name, ranges in step.streams.items()]
            writer.replace(tables.STREAMS, _STREAM, pl.DataFrame(rows, schema=_STREAMS, orient="row"))
        if step.opaque:
            made = pl.DataFrame(step.opaque, schema={"key": pl.String, "received": pl.Datetime("us")}, orient="row")
            writer.insert(tables.KEYS, made)
        if step.sources is not None:
            writer.replace(tables.SOURCES, KEY, step.sources.select(*SOURCES))
        if step.nodes:
            nodes = {name: [getattr(node, name) for node in step.nodes.values()] for name in _NODES}
            writer.replace(tables.NODES, ("host",), pl.DataFrame(nodes, schema=_NODES))
        if step.blind:
            writer.insert(
                tables.BLIND, pl.DataFrame([{n: period[n] for n in _BLIND} for period in step.blind], schema=_BLIND)
            )
        if step.quarantine:
            last = {entry["id"]: {n: entry[n] for n in _QUARANTINE} for entry in step.quarantine}
            writer.replace(tables.QUARANTINE, ("id",), pl.DataFrame(list(last.values()), schema=_QUARANTINE))
        if step.replayed:
            writer.change(intake.replayed(step.replayed, now))

    def _streams_after(self, step: Step) -> dict[tuple[str, str, str], Ranges]:
        after: dict[tuple[str, str, str], Ranges] = {}
        for key in step.keys:
            if key.name not in after:
                after[key.name] = self.streams.get(key.name, Ranges()).copy()
            after[key.name].add(key.first, key.last)
        return after

    def apply(self, step: Step) -> None:
        """Applies a complete step to memory: the next one builds on it."""
        if step.sources is not None:
            self._take_over(step.sources)
        step.streams = self._streams_after(step)
        self.streams.update(step.streams)
        self.keys.update(step.opaque)
        self.nodes.update(step.nodes)
        self.lines.update(step.lines)
        self._aside.update(entry["id"] for entry in step.quarantine)
        self._aside.difference_update(step.replayed)
        self.blind_periods += len(step.blind)

    def _take_over(self, changed: pl.DataFrame) -> None:
        """Replaces the rows of changed sources, without touching the others, and appends new ones."""
        rows = pl.Series(map(self._rows.get, changed.select(*KEY).iter_rows()), dtype=pl.UInt32)
        new, at = changed.filter(rows.is_null()), rows.drop_nulls()
        kept = changed.filter(rows.is_not_null())
        known = self._known.with_columns(
            self._known[name].clone().scatter(at, kept[name]) for name in changed.columns if name not in KEY
        )
        if new.height:
            self._rows |= {key: row for row, key in enumerate(new.select(*KEY).iter_rows(), known.height)}
            known = pl.concat([known, new], rechunk=True)
        self._known = known

    def rates_now(self) -> dict[SourceKey, float]:
        """Lines per second of each source, over about the last minute."""
        now, rows = time.monotonic(), self._known.select(*KEY, *RATES).iter_rows()
        return {
            (host, source, file): rate * math.exp((rated - now) / RATE_S)
            for host, source, file, rated, rate in rows
            if rate
        }

    def prune(self, now: datetime) -> None:
        """Forgets opaque keys that are old or too many, and the output of jobs that ended long ago."""
        if len(self.keys) > KEYS_KEPT:
            newest = sorted(self.keys.values(), reverse=True)
            limit = min(now - KEY_LIFE, newest[KEYS_KEPT])
            if len(newest) > MOST_KEYS:
                limit = max(limit, newest[MOST_KEYS])
            with self.store.write() as writer:
                writer.change(intake.forget_keys(limit))
            self.keys = {key: received for key, received in self.keys.items() if received >= limit}
        old = pl.col("source").is_in(JOB_OUTPUT) & (pl.col("last_seen") < now - OUTPUT_LIFE)
        ended = self._known.filter(old)
        if ended.height:
            with self.store.write() as writer:
                writer.change(intake.forget_sources(JOB_OUTPUT, now - OUTPUT_LIFE))
            self._keep(self._known.filter(~old))
            for file in ended["file"]:
                self.lines.pop(file, None)


#: Columns of a source that statistics lack, so they need no second name beside theirs.
_OWN = ("gap_s", "longest_s", "rated", "rate")
_STREAM = ("agent", "stream", "epoch")
_STREAMS: dict[str, Any] = {**dict.fromkeys((*_STREAM, "ranges"), pl.String), "received": pl.Datetime("us")}
_NODES: dict[str, Any] = {
    **dict.fromkeys(("host", "cluster"), pl.String), **dict.fromkeys(("first_seen", "last_seen"), pl.Datetime("us")),
    "boot_id": pl.String, "boot_time": pl.Datetime("us"), "boots": pl.Int64, "status": pl.String, "status_at": pl.Datetime("us"),
}  # fmt: skip
_WATERMARK: dict[str, Any] = {
    "spool": pl.String, "segment": pl.Int64, "offset": pl.Int64, "moved_at": pl.Datetime("us"),
}  # fmt: skip
_CARRIED: dict[str, Any] = dict.fromkeys(("spool", "step", "file"), pl.String)
_BLIND: dict[str, Any] = {
    **dict.fromkeys(("host", "source", "stream"), pl.String), **dict.fromkeys(("start", "end"), pl.Datetime("us")), "reason": pl.String,
    **dict.fromkeys(("lines", "bytes"), pl.Int64), "told_by": pl.String, "received": pl.Datetime("us"),
}  # fmt: skip
_QUARANTINE: dict[str, Any] = {
    **dict.fromkeys(("id", "kind", "peer", "key", "reason"), pl.String), "bytes": pl.Int64,
    **dict.fromkeys(("received", "set_aside_at", "replayed_at"), pl.Datetime("us")),
}  # fmt: skip


def _lines_of(sources: pl.DataFrame) -> dict[str, int]:
    """Lines of each file."""
    return dict(sources.group_by("file").agg(pl.col("lines").sum()).iter_rows())
