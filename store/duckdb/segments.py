"""Closing segments: log lines are put in order once there are enough of them, and get a text filter.

New lines are in ``raw.logs`` in order of arrival, with block 0. ``seal`` takes them when there are enough for whole
segments, orders them by hour, host and time (so that the zone maps of the columns skip what a query cannot need; in
each segment the lines that are events come first), numbers them in blocks of 256 lines, and writes a text filter
(``store.text_filter``) for every 480 blocks. All of that is one transaction: a reader sees the lines before or after,
never twice and never missing.

A segment is as many lines as a row group of DuckDB. A transaction that adds only whole row groups is compressed and
written to its final place at once, for 1.3 microseconds of CPU per line. With one line more or less, a partial row
group goes through the log and is written a second time when a checkpoint merges it with its neighbours: 3.7
microseconds (measured on the lines of benchmarks/ingest.py). So code with many lines stores them in multiples of
``SEGMENT_ROWS``.

Under load, filters are postponed (``filters=False``): such a segment lets every block pass until ``add_filters`` has
read it.

Block numbers only increase. Lines may be deleted from a closed segment and columns other than ``raw`` and ``message``
updated; the filter stays correct, since it only excludes blocks.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from store.changes import Change
from store.door import Sealed
from store.duckdb.open_store import OpenStore
from store.duckdb.writing import insert
from store.line_order import SEGMENT_ROWS, in_order
from store.tables import LOGS
from store.text_filter import BLOCK_ROWS, FilterBuilder, TextFilter

#: One round of sealing: about 100 MB of lines in memory, and writers wait for at most two or three seconds.
ROUND_ROWS = 4 * SEGMENT_ROWS
#: Lines are fed to a filter in pieces that fit the processor's cache.
_PIECE_BLOCKS = 32
#: More distinct words than this are not language; completing half a word then no longer helps.
MOST_VOCABULARY = 400_000

SCHEMA = [
    "ALTER TABLE raw.logs ADD COLUMN IF NOT EXISTS block INTEGER DEFAULT 0",
    """CREATE TABLE IF NOT EXISTS raw.log_segments (
  segment UUID, first_block INTEGER, last_block INTEGER, lines BIGINT, first_time TIMESTAMP, last_time TIMESTAMP,
  filter_rows INTEGER, filter BLOB, always BLOB, words_known BOOLEAN
)""",
    "CREATE TABLE IF NOT EXISTS raw.log_words (word VARCHAR)",
]


def unsealed(store: OpenStore) -> int:
    """Lines not yet in a segment; a zone map answers this in about a millisecond."""
    row = store.cursor().execute("SELECT count(*) FROM raw.logs WHERE block = 0").fetchone()
    return int(row[0]) if row else 0


def seal(store: OpenStore, *, least: int = SEGMENT_ROWS) -> Sealed:
    """Closes segments if at least ``least`` lines wait. Call it after every few batches; it is cheap if there is
    nothing to do. Takes the store's write lock for each round of at most ``ROUND_ROWS`` lines."""
    done = Sealed()
    while (waiting := unsealed(store)) >= max(1, least):
        with store.transaction() as connection:
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


def insert_sealed(connection: duckdb.DuckDBPyConnection, lines: pl.DataFrame, *, filters: bool = True) -> int:
    """Stores lines ``in_order``, with the columns of ``raw.logs`` (without block), as segments, inside the caller's
    transaction; returns their number. Without ``filters``, ``add_filters`` builds those later."""
    ((last,),) = connection.execute("SELECT greatest(max(last_block), 0) FROM raw.log_segments").fetchall()
    first = int(last) + 1
    ordered = lines.with_columns((pl.int_range(pl.len(), dtype=pl.Int32) // BLOCK_ROWS + first).alias("block"))
    insert(connection, "raw.logs", ordered)
    starts = range(0, ordered.height, SEGMENT_ROWS)
    for start in starts:
        part = ordered.slice(start, SEGMENT_ROWS)
        low, blocks = first + start // BLOCK_ROWS, -(-part.height // BLOCK_ROWS)
        edges = np.minimum(np.arange(1, blocks + 1) * BLOCK_ROWS, part.height)
        made = _filter(connection, part, edges) if filters else _stored(TextFilter.open(blocks), False)
        connection.execute(
            "INSERT INTO raw.log_segments VALUES (uuid(), ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [low, low + blocks - 1, part.height, part["time"].min(), part["time"].max(), *made],
        )
    return len(starts)


def add_filters(store: OpenStore, most: int = 1) -> int:
    """Builds the filters of at most ``most`` segments stored without them, oldest first; returns how many it built."""
    waiting = store.rows(
        "SELECT first_block, last_block FROM raw.log_segments WHERE filter_rows = 1 ORDER BY first_block LIMIT ?",
        [most],
    )
    for span in waiting:
        first, last = span["first_block"], span["last_block"]
        lines = store.frame("SELECT raw, message, block FROM raw.logs WHERE block BETWEEN ? AND ?", [first, last])
        edges = np.searchsorted(lines["block"].to_numpy(), np.arange(first, last + 1), "right")  # some may be gone
        with store.transaction() as connection:
            # Under a new name: readers cache filters by the names of their segments.
            connection.execute(
                "UPDATE raw.log_segments SET segment = uuid(), filter_rows = ?, filter = ?, always = ?, words_known = ? WHERE first_block = ?",
                [*_filter(connection, lines, edges), first],
            )  # fmt: skip
    return len(waiting)


def _stored(made: TextFilter, words_known: bool) -> tuple[int, bytes, bytes, bool]:
    """A filter in the columns of ``raw.log_segments``."""
    return len(made.rows), made.to_bytes(), np.packbits(made.always).tobytes(), words_known


def learn(connection: duckdb.DuckDBPyConnection, words: set[str]) -> bool:
    """Adds words to the vocabulary, inside the caller's transaction; False if there are too many."""
    known = {r[0] for r in connection.execute("SELECT word FROM raw.log_words").fetchall()}
    new = words - known
    if len(known) + len(new) > MOST_VOCABULARY:
        return False
    if new:
        insert(connection, "raw.log_words", pl.DataFrame({"word": sorted(new)}))
    return True


def _filter(connection: duckdb.DuckDBPyConnection, lines: pl.DataFrame, edges: Any) -> tuple[int, bytes, bytes, bool]:
    """The filter over one segment's lines, in stored form; adds their words to the vocabulary. ``edges``: the line
    after which each block ends."""
    text = lines.select(
        pl.concat_str(pl.col("raw").fill_null(""), pl.col("message"), separator="\n", ignore_nulls=True) + "\n"
    ).to_series()
    builder = FilterBuilder()
    for low in range(0, len(edges), _PIECE_BLOCKS):
        ends = edges[low : low + _PIECE_BLOCKS]
        start = edges[low - 1] if low else 0
        data, offsets = _bytes_of(text.slice(start, ends[-1] - start))
        builder.add(low, offsets[ends - start], data)
    complete = learn(connection, {word.decode("ascii") for word in builder.words.values()})
    return _stored(builder.build(len(edges)), complete)


def _bytes_of(texts: pl.Series) -> tuple[bytes, Any]:
    """All texts concatenated, and where each begins (and the last ends)."""
    array = texts.to_arrow().cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = memoryview(array.buffers()[2])[offsets[0] : offsets[-1]].tobytes()
    return data, offsets - offsets[0]


def forget_empty(connection: duckdb.DuckDBPyConnection) -> None:
    """Drops the filters of segments whose lines are all gone, inside the caller's transaction. Negative blocks belong
    to the archive (store.duckdb.archive), which drops its own."""
    connection.execute("""DELETE FROM raw.log_segments WHERE first_block > 0 AND NOT EXISTS (
        SELECT 1 FROM (SELECT DISTINCT block FROM raw.logs) WHERE block BETWEEN first_block AND last_block)""")
