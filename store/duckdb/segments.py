"""Closing segments: log lines are put in order once there are enough of them, and get a text filter.

New lines are in ``raw.logs`` in order of arrival, with block 0. ``seal`` takes them when there are enough for whole
segments, orders them by hour, host and time (so that the zone maps of the columns skip what a query cannot need; in
each segment the lines that are events come first, then others that report trouble), numbers them in blocks of 256
lines, and writes a text filter (``store.text_filter``) for every 480 blocks. All of that is one transaction: a reader
sees the lines before or after, never twice and never missing.

A segment is as many lines as a row group of DuckDB. A transaction that adds only whole row groups is compressed and
written to its final place at once, for 1.3 microseconds of CPU per line. With one line more or less, a partial row
group goes through the log and is written a second time when a checkpoint merges it with its neighbours: 3.7
microseconds (measured on the lines of benchmarks/ingest.py). So code with many lines stores them in multiples of
``SEGMENT_ROWS``.

A segment is written with its filter (``filters_of``, which needs no transaction: half a microsecond of CPU per line).
Earlier versions postponed filters under load; such a segment lets every block pass until ``add_filters`` has read it.
What waits for a segment has none. ``seal`` keeps that part small.

Block numbers only increase. Lines may be deleted from a closed segment and columns other than ``raw`` and ``message``
updated; the filter stays correct, since it only excludes blocks.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from parsers.record import conform
from store.changes import Change
from store.door import Sealed
from store.duckdb.arrow import as_arrow
from store.duckdb.incoming import incoming
from store.duckdb.open_store import OpenStore
from store.duckdb.writing import insert
from store.line_frames import logs_for_storage
from store.line_order import SEGMENT_ROWS, in_order
from store.tables import LOGS
from store.text_filter import BLOCK_ROWS, FilterBuilder, TextFilter

#: One round of sealing: about 100 MB of lines in memory, and writers wait for at most two or three seconds.
ROUND_ROWS = 4 * SEGMENT_ROWS
#: Which segments have no filter. A filter has at least 64 rows.
OPEN = "filter_rows = 1"
#: More distinct words than this are not language; completing half a word then no longer helps.
MOST_VOCABULARY = 400_000

SCHEMA = [
    "ALTER TABLE raw.logs ADD COLUMN IF NOT EXISTS block INTEGER DEFAULT 0",
    """CREATE TABLE IF NOT EXISTS raw.log_segments (
  segment UUID, first_block INTEGER, last_block INTEGER, lines BIGINT, first_time TIMESTAMP, last_time TIMESTAMP,
  filter_rows INTEGER, filter BLOB, always BLOB, words_known BOOLEAN
)""",
    # For filters made before there were pairs of words in them: null.
    "ALTER TABLE raw.log_segments ADD COLUMN IF NOT EXISTS pairs BOOLEAN",
    "CREATE TABLE IF NOT EXISTS raw.log_words (word VARCHAR)",
]


def unsealed(store: OpenStore) -> int:
    """Lines not yet in a segment; a zone map answers this in about a millisecond."""
    row = store.cursor().execute("SELECT count(*) FROM raw.logs WHERE block = 0").fetchone()
    return int(row[0]) if row else 0


def unfiltered(store: OpenStore) -> int:
    """Lines that no filter covers: not yet in a segment, or in one that an earlier version stored without."""
    if not store.rows(
        "SELECT 1 FROM duckdb_columns() WHERE table_name = 'log_segments' AND column_name = 'filter_rows'"
    ):
        return 0  # an earlier version's store, opened for reading only
    (row,) = store.rows(f"SELECT CAST(coalesce(sum(lines), 0) AS BIGINT) AS n FROM raw.log_segments WHERE {OPEN}")
    return unsealed(store) + int(row["n"])


def seal(store: OpenStore, *, least: int = SEGMENT_ROWS) -> Sealed:
    """Closes segments if at least ``least`` lines wait. Call it after every few batches; it is cheap if there is
    nothing to do. Takes the store's write lock for each round of at most ``ROUND_ROWS`` lines."""
    done = Sealed()
    while (waiting := unsealed(store)) >= max(1, least):
        with store.transaction() as connection:
            waiting = unsealed(store)
            if waiting < max(1, least):  # another thread was faster
                break
            lines = _take(connection, min(waiting, ROUND_ROWS))
            connection.execute("DELETE FROM raw.logs WHERE block = 0 AND rowid <= ?", [lines["rowid"].max()])
            segments = insert_sealed(connection, in_order(lines.drop("rowid", "block")))
            store.note(LOGS.name, Change(moved=lines.height))
        done = Sealed(done.lines + lines.height, done.segments + segments)
        if lines.height >= waiting:
            break
    return done


def _take(connection: duckdb.DuckDBPyConnection, rows: int) -> pl.DataFrame:
    """The oldest loose lines: whole segments of them, or all of them if they fill none."""
    wanted = rows - rows % SEGMENT_ROWS or rows
    ((last,),) = connection.execute(
        "SELECT max(id) FROM (SELECT rowid AS id FROM raw.logs WHERE block = 0 LIMIT ?)", [wanted]
    ).fetchall()
    table = connection.sql(
        "SELECT rowid, * FROM raw.logs WHERE block = 0 AND rowid <= ?", params=[last]
    ).to_arrow_table()
    data = pl.from_arrow(table)
    assert isinstance(data, pl.DataFrame)
    return data


@dataclass(frozen=True)
class Filtered:
    """The filter over the lines of one segment, and the words that it must be looked up with."""

    made: TextFilter
    words: Set[str]


def filters_of(lines: pl.DataFrame) -> list[Filtered]:
    """The filters of the segments that lines ``in_order`` fill, in their order."""
    return [_filtered(part, _edges(part)) for part in _parts(lines)]


def _parts(lines: pl.DataFrame) -> list[pl.DataFrame]:
    return [lines.slice(start, SEGMENT_ROWS) for start in range(0, lines.height, SEGMENT_ROWS)]


def _edges(part: pl.DataFrame) -> Any:
    """The line after which each block ends."""
    return np.minimum(np.arange(1, -(-part.height // BLOCK_ROWS) + 1) * BLOCK_ROWS, part.height)


def insert_sealed(
    connection: duckdb.DuckDBPyConnection, lines: pl.DataFrame, filters: Sequence[Filtered] | None = None
) -> int:
    """Stores lines ``in_order``, with the columns of ``raw.logs`` (without block), as segments, inside the caller's
    transaction; returns their number. ``filters``: the result of ``filters_of``, if the caller made them before."""
    ((last,),) = connection.execute("SELECT greatest(max(last_block), 0) FROM raw.log_segments").fetchall()
    first = int(last) + 1
    ordered = lines.with_columns((pl.int_range(pl.len(), dtype=pl.Int32) // BLOCK_ROWS + first).alias("block"))
    insert(connection, "raw.logs", ordered)
    made = filters_of(lines) if filters is None else filters
    for part, one in zip(_parts(ordered), made, strict=True):
        low, high = part["block"][0], part["block"][-1]
        connection.execute(
            "INSERT INTO raw.log_segments VALUES (uuid(), ?, ?, ?, ?, ?, ?, ?, ?, ?, true)",
            [low, high, part.height, part["time"].min(), part["time"].max(), *_stored(connection, one)],
        )
    return len(made)


def add(connection: duckdb.DuckDBPyConnection, name: str, data: pl.DataFrame) -> pl.DataFrame:
    """Inserts rows into a table of ``raw`` as they arrive, and returns them as stored. Lines that fill segments are put in
    order right away, which saves writing them twice."""
    data = logs_for_storage(data) if name == LOGS.name else conform(name, data)
    if name == LOGS.name and data.height >= SEGMENT_ROWS:
        insert_sealed(connection, in_order(data))
    else:
        insert(connection, f"raw.{name}", data)
    return data


def add_filters(store: OpenStore, most: int = 1) -> int:
    """Builds the filters of at most ``most`` segments that an earlier version stored without them, oldest first;
    returns how many it built."""
    waiting = store.rows(
        f"SELECT first_block, last_block FROM raw.log_segments WHERE {OPEN} ORDER BY first_block LIMIT ?", [most]
    )
    for span in waiting:
        first, last = span["first_block"], span["last_block"]
        lines = store.frame("SELECT raw, message, block FROM raw.logs WHERE block BETWEEN ? AND ?", [first, last])
        edges = np.searchsorted(lines["block"].to_numpy(), np.arange(first, last + 1), "right")  # some may be gone
        made = _filtered(lines, edges)
        with store.transaction() as connection:
            # Under a new name: readers cache filters by the names of their segments.
            connection.execute(
                "UPDATE raw.log_segments SET segment = uuid(), filter_rows = ?, filter = ?, always = ?, words_known = ?, pairs = true"
                " WHERE first_block = ?",
                [*_stored(connection, made), first],
            )  # fmt: skip
    return len(waiting)


def _stored(connection: duckdb.DuckDBPyConnection, one: Filtered) -> tuple[int, bytes, bytes, bool]:
    """A filter in the columns of ``raw.log_segments``; adds its words to the vocabulary."""
    return len(one.made.rows), one.made.to_bytes(), np.packbits(one.made.always).tobytes(), learn(connection, one.words)


def learn(connection: duckdb.DuckDBPyConnection, words: Set[str]) -> bool:
    """Adds words to the vocabulary, inside the caller's transaction; False if there are too many."""
    if not words:
        return True
    with incoming(connection, as_arrow([pl.Series("word", sorted(words))])) as found:
        new = connection.execute(f"SELECT word FROM {found} ANTI JOIN raw.log_words USING (word)").fetchall()
    ((known,),) = connection.execute("SELECT count(*) FROM raw.log_words").fetchall()
    if int(known) + len(new) > MOST_VOCABULARY:
        return False
    if new:
        insert(connection, "raw.log_words", pl.DataFrame({"word": sorted(word for (word,) in new)}))
    return True


def _filtered(lines: pl.DataFrame, edges: Any) -> Filtered:
    """The filter over one segment's lines. ``edges``: the line after which each block ends."""
    builder, owners = FilterBuilder(), np.searchsorted(edges, np.arange(lines.height), "right")
    for name in ("raw", "message"):  # a message only if it is not part of its line
        there = lines[name].is_not_null()
        if there.all():
            builder.add_texts(*_bytes_of(lines[name]), owners)
        elif there.any():
            builder.add_texts(*_bytes_of(lines[name].drop_nulls()), owners[there.to_numpy()])
    return Filtered(builder.build(len(edges)), builder.words)


def _bytes_of(texts: pl.Series) -> tuple[memoryview, Any]:
    """The bytes of all texts, one after the other, and where each ends."""
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    held = array.buffers()[2]
    data = memoryview(held if held is not None else b"")[offsets[0] : offsets[-1]]
    return data, offsets[1:] - offsets[0]


def forget_empty(connection: duckdb.DuckDBPyConnection) -> None:
    """Drops the filters of segments whose lines are all gone, inside the caller's transaction. Negative blocks belong
    to the archive (store.duckdb.archive), which drops its own."""
    connection.execute("""DELETE FROM raw.log_segments WHERE first_block > 0 AND NOT EXISTS (
        SELECT 1 FROM (SELECT DISTINCT block FROM raw.logs) WHERE block BETWEEN first_block AND last_block)""")
