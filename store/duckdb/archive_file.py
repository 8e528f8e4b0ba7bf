"""One file of archived log lines: which lines, in which order, and the encoding of each column.

A file holds lines of one day. They are read slice by slice (``SLICE_LINES`` lines consecutive in time), ordered by host
and time in each, and written as *segments* of eight row groups. Lines that are events are collected and written last,
in segments of their own: the correlator and most queries then read only a row group or two of a day, and the statistics
of the other groups rule them out.

The row group is the block of the archive: its lines share a block number, and each segment gets a text filter with one
bit for each of its eight blocks (``store.text_filter``). Block numbers are negative; those of lines in DuckDB are not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parsers.record import TABLES
from store.duckdb.line_heads import forms
from store.errors import Unwanted
from store.files import flush_folder
from store.text_filter import FilterBuilder, TextFilter

if TYPE_CHECKING:
    import duckdb

#: About 80 MB in memory during reading and ordering; doubling it makes the file 2 % smaller at 1.5 times the memory.
SLICE_LINES = 131_072
#: A filter is one byte wide: eight blocks.
SEGMENT_BLOCKS = 8
#: More lines than this make several files of a day: this much is repeated if lines change meanwhile or the machine
#: stops.
PART_LINES = 8_000_000
#: Level 5 makes the file 6 % larger for about the same work: most of the work is proving the heads
#: (benchmarks/archive.py).
LEVEL = 9

#: The columns that date a line: its own time, else its arrival.
CLOCKS = ("time", "received_time")

#: Lines per batch from DuckDB.
_AT_ONCE = 32_768

#: The columns of a file: those of a line, with ``form`` (store.duckdb.line_heads) in place of the text before the
#: message, and ``raw`` only if there is no form.
COLUMNS = (*TABLES["logs"], "form", "block")
_REPEATED = ["time_quality", "received_time", "resolution_us", "cluster", "host", "source", "format", "unit", "facility",
             "severity", "event", "entities", "tags.list.element", "file", "form"]  # fmt: skip
_ENCODINGS = {
    "time": "DELTA_BINARY_PACKED", "sender_time": "DELTA_BINARY_PACKED", "line": "DELTA_BINARY_PACKED",
    "block": "DELTA_BINARY_PACKED", "pid": "BYTE_STREAM_SPLIT", "job_id": "BYTE_STREAM_SPLIT",
}  # fmt: skip


@dataclass(frozen=True)
class Slice:
    """Lines of the seconds from ``start`` until before ``end``; if one second has more than fit in memory, share
    ``share`` of ``of`` of them. ``clock`` is the column that dates a line: ``received_time`` for lines without a time
    of their own."""

    start: datetime
    end: datetime
    lines: int
    share: int = 0
    of: int = 1
    clock: str = "time"

    @property
    def condition(self) -> str:
        """SQL; its parameters are ``span``."""
        return condition(self.clock) + (f" AND hash(file, line) % {self.of} = {self.share}" if self.of > 1 else "")

    @property
    def span(self) -> list[datetime]:
        return [self.start, self.end]


def condition(clock: str) -> str:
    """Lines between two times of one of the two clocks: plain comparisons, which zone maps can answer."""
    return f"{clock} >= ? AND {clock} < ?" + (" AND time IS NULL" if clock != "time" else "")


@dataclass(frozen=True)
class Segment:
    """A row of ``raw.log_segments``: blocks ``first`` to ``last``."""

    first: int
    last: int
    lines: int
    first_time: datetime | None
    last_time: datetime | None
    filter_rows: int
    filter: bytes
    always: bytes


@dataclass
class Written:
    """The content of a file that is complete and on disk."""

    lines: int = 0
    bytes: int = 0
    digest: str = ""
    first_time: datetime | None = None
    last_time: datetime | None = None
    last_received: datetime | None = None
    clusters: set[str | None] = field(default_factory=set)
    segments: list[Segment] = field(default_factory=list)
    words: set[str] = field(default_factory=set)


def slices(seconds: Sequence[tuple[int, int]], day: date, clock: str) -> list[Slice]:
    """Divides a day into slices. ``seconds``: (second since 1970, number of lines), ascending."""
    found: list[Slice] = []
    midnight = datetime(day.year, day.month, day.day)
    start, held = midnight, 0
    for second, count in seconds:
        moment = datetime(1970, 1, 1) + timedelta(seconds=second)
        if held and held + count > SLICE_LINES:
            found.append(Slice(start, moment, held, clock=clock))
            start, held = moment, 0
        if count > SLICE_LINES:  # a clock that stood still, or a flood
            of = -(-count // SLICE_LINES)
            found += [Slice(moment, moment + timedelta(seconds=1), count // of, n, of, clock) for n in range(of)]
            start = moment + timedelta(seconds=1)
            continue
        held += count
    if held:
        found.append(Slice(start, midnight + timedelta(days=1), held, clock=clock))
    return found


def parts(found: Sequence[Slice], most: int) -> list[list[Slice]]:
    """The slices of each file of at most ``most`` lines, if no second has more."""
    made: list[list[Slice]] = []
    held = most
    for piece in found:
        # Shares of one second stay together: a part is a span of time.
        if held + piece.lines > most and piece.share == 0:
            made.append([])
            held = 0
        made[-1].append(piece)
        held += piece.lines
    return made


class ArchiveFile:
    """Writes one file. Its block numbers end before ``before`` (zero, or the smallest in use)."""

    def __init__(self, path: Path, before: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """``is_wanted`` is asked before each slice: if not, ``write`` raises ``Unwanted``."""
        self.path, self._draft = path, path.with_name(f".{path.name}.draft")
        self._before, self._is_wanted = before, is_wanted
        self._writer: pq.ParquetWriter | None = None
        self._events: list[pa.Table] = []
        self._events_held = 0
        self.written = Written()

    def write(
        self, cursor: duckdb.DuckDBPyConnection, found: Sequence[Slice], lines: str, *, has_forms: bool = False
    ) -> Written:
        """Writes those lines of ``lines`` (a FROM clause with a WHERE of ours) that are in the slices, and moves the
        finished file to its name. ``has_forms``: they have a ``form`` that is true of them. Raises ``OSError`` and ``duckdb.Error``; ``discard`` then removes what is left."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._draft.open("wb") as stream:
            try:
                for piece in found:
                    if not self._is_wanted():
                        raise Unwanted(f"{self.path}: not written to its end")
                    self._add(_read(cursor, piece, lines, has_forms=has_forms), stream)
                self._flush_events(stream)
            finally:
                if self._writer is not None:
                    self._writer.close()
            stream.flush()
            os.fsync(stream.fileno())
        self._settle()
        return self.written

    def discard(self) -> None:
        for path in (self._draft, self.path):
            path.unlink(missing_ok=True)

    def _add(self, table: pa.Table, stream: IO[bytes]) -> None:
        """Adds one slice, whose events come first."""
        events = table.num_rows - int(pc.sum(table.column("plain")).as_py() or 0)
        if events:
            self._events.append(table.take(np.arange(events)))  # a slice would keep all lines around it alive
            self._events_held += events
        if table.num_rows > events:
            self._segment(table.slice(events), stream)
        if self._events_held >= SLICE_LINES:
            self._flush_events(stream)

    def _flush_events(self, stream: IO[bytes]) -> None:
        if self._events:
            held = pa.concat_tables(self._events)
            for start in range(0, held.num_rows, SLICE_LINES):
                self._segment(held.slice(start, SLICE_LINES), stream)
        self._events, self._events_held = [], 0

    def _segment(self, table: pa.Table, stream: IO[bytes]) -> None:
        """Writes one segment and makes its filter."""
        rows = -(-table.num_rows // SEGMENT_BLOCKS)
        blocks = -(-table.num_rows // rows)
        first = self._before = self._before - blocks
        builder = FilterBuilder()
        for block in range(blocks):
            part = _ordered(table.slice(block * rows, rows))
            data = _texts(part)
            builder.add(block, np.array([len(data)]), data)
            whole = pc.if_else(pc.equal(part.column("form"), ""), part.column("raw"), None)
            part = part.set_column(part.schema.get_field_index("raw"), "raw", whole)
            number = pa.repeat(pa.scalar(first + block, pa.int32()), part.num_rows)
            part = part.append_column("block", number).select(COLUMNS)
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    stream, part.schema, compression="zstd", compression_level=LEVEL, use_dictionary=_REPEATED,
                    column_encoding=_ENCODINGS, store_schema=False,
                )  # fmt: skip
            self._writer.write_table(part, row_group_size=rows)
        self._note(table, first, builder, blocks)

    def _note(self, table: pa.Table, first: int, builder: FilterBuilder, blocks: int) -> None:
        """Records the description of a segment."""
        made = _halved(builder.build(blocks))
        times = pc.min_max(table.column("time")).as_py()
        done = self.written
        done.segments.append(
            Segment(first, first + blocks - 1, table.num_rows, times["min"], times["max"], len(made.rows),
                    made.to_bytes(), np.packbits(made.always).tobytes())
        )  # fmt: skip
        done.words |= builder.words
        done.lines += table.num_rows
        done.clusters.update(pc.unique(table.column("cluster")).to_pylist())
        done.first_time = min(filter(None, (done.first_time, times["min"])), default=None)
        done.last_time = max(filter(None, (done.last_time, times["max"])), default=None)
        received = pc.max(table.column("received_time")).as_py()
        done.last_received = max(filter(None, (done.last_received, received)), default=None)

    def _settle(self) -> None:
        """Completes the draft: it becomes the file, whole, readable and durable under its name."""
        if pq.read_metadata(self._draft).num_rows != self.written.lines:
            raise OSError(f"{self._draft}: does not hold the {self.written.lines} lines that were written")
        self.written.bytes = self._draft.stat().st_size
        self.written.digest = digest_of(self._draft)
        self._draft.rename(self.path)
        for folder in (self.path.parent, self.path.parent.parent):
            flush_folder(folder)


def digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _read(cursor: duckdb.DuckDBPyConnection, piece: Slice, lines: str, *, has_forms: bool) -> pa.Table:
    """One ordered slice: events first, then by host and time. ``plain``: whether a line is no event; ``apart``: its
    message if that is not part of it."""
    made = {
        "message": "CASE WHEN message IS NULL THEN substr(raw, msg_start + 1) ELSE message END",
        "event": "coalesce(event, 'other')",
    }
    columns = ", ".join(f'{made[c]} AS "{c}"' if c in made else f'"{c}"' for c in (*TABLES["logs"], "form"))
    source = f"(SELECT * {lines} AND {piece.condition})"
    if not has_forms:
        source = f"({forms(source)})"
    found = cursor.sql(
        f"""SELECT {columns}, coalesce(event, 'other') = 'other' AS plain, message AS apart
        FROM {source} ORDER BY plain, host NULLS FIRST, time, file, line""",
        params=piece.span,
    )
    return found.to_arrow_reader(_AT_ONCE).read_all()  # streamed: to_arrow_table() would hold the lines twice


def _ordered(block: pa.Table) -> pa.Table:
    """The lines of a block grouped by writer, in their order within each: texts and most columns repeat, which makes
    the file a tenth smaller."""
    key, most = np.zeros(block.num_rows, np.int64), 1
    for name in ("source", "unit", "form", "severity"):
        codes = block.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        most *= len(codes.dictionary)
        if most >= 2**63:
            values, key = np.unique(key, return_inverse=True)
            most = len(values) * len(codes.dictionary)
        key = key * len(codes.dictionary) + codes.indices.to_numpy()
    return block.take(pa.array(np.argsort(key, kind="stable")))


def _texts(block: pa.Table) -> bytes:
    """The input of the text filter: the lines, and messages that are not part of them."""
    texts = [pc.fill_null(block.column(name), "") for name in ("raw", "apart")]
    joined = pc.binary_join_element_wise(*texts, "", "\n").cast(pa.large_string()).combine_chunks()
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(joined.buffers()[2])[offsets[0] : offsets[-1]].tobytes()


def _halved(made: TextFilter) -> TextFilter:
    """The same filter at half the size: two neighbouring positions merge, as if it had been built with half as many.

    Of the blocks without a term, 9 % pass then instead of 1 %. Blocks are large here, and filters mostly hold numbers
    that occur in one line only; at full size the filters of a day would be a sixth of its archive.
    """
    return TextFilter(made.rows[0::2] | made.rows[1::2], made.blocks, made.always)
