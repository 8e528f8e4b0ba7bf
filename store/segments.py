"""Closing segments: log lines are put in order once there are enough of them, and get a text filter.

New lines lie in ``raw.logs`` as they came, with block 0. ``seal`` takes them when there are enough for whole segments,
orders them by hour, host and time (so that the zone maps of the columns skip what a query cannot want; in each segment
the lines that are events come first), numbers them in blocks of 256 lines, and writes a text filter (``store.text_filter``) for every 512 blocks. All of that is one
transaction: a reader sees the lines before or after, never twice and never not at all.

Numbers of blocks only grow. Lines may be deleted from a closed segment and columns other than ``raw`` and ``message``
updated; the filter stays right, since it only says where a text cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from store.text_filter import BLOCK_ROWS, SEGMENT_BLOCKS, FilterBuilder, TextFilter

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

SEGMENT_ROWS = BLOCK_ROWS * SEGMENT_BLOCKS
#: One round of sealing: about 100 MB of lines in memory, and writers wait for two or three seconds at most.
ROUND_ROWS = 4 * SEGMENT_ROWS
#: Lines are read into a filter in pieces that fit the processor's cache.
_PIECE_BLOCKS = 32
#: More different words than this are not language; completing half a word then helps no more.
MOST_VOCABULARY = 400_000

SCHEMA = [
    "ALTER TABLE raw.logs ADD COLUMN IF NOT EXISTS block INTEGER DEFAULT 0",
    """CREATE TABLE IF NOT EXISTS raw.log_segments (
  segment UUID, first_block INTEGER, last_block INTEGER, lines BIGINT, first_time TIMESTAMP, last_time TIMESTAMP,
  filter_rows INTEGER, filter BLOB, always BLOB, words_known BOOLEAN
)""",
    "CREATE TABLE IF NOT EXISTS raw.log_words (word VARCHAR)",
]


@dataclass(frozen=True)
class Sealed:
    """What one call did."""

    lines: int = 0
    segments: int = 0


def unsealed(store: DuckStore) -> int:
    """Lines that wait in no segment yet; a zone map answers this in about a millisecond."""
    row = store.cursor().execute("SELECT count(*) FROM raw.logs WHERE block = 0").fetchone()
    return int(row[0]) if row else 0


def seal(store: DuckStore, *, least: int = SEGMENT_ROWS) -> Sealed:
    """Closes segments if at least ``least`` lines wait; call it after every few batches, it is cheap when there is
    nothing to do. Takes the store's write lock for each round of at most ``ROUND_ROWS`` lines."""
    done = Sealed()
    while (waiting := unsealed(store)) >= max(1, least):
        with store.transaction() as connection:
            lines = _take(connection)
            connection.execute("DELETE FROM raw.logs WHERE block = 0 AND rowid <= ?", [lines["rowid"].max()])
            segments = insert_sealed(connection, lines.drop("rowid", "block"))
        done = Sealed(done.lines + lines.height, done.segments + segments)
        if lines.height >= waiting:
            break
    return done


def _take(connection: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    ((last,),) = connection.execute(
        f"SELECT max(id) FROM (SELECT rowid AS id FROM raw.logs WHERE block = 0 LIMIT {ROUND_ROWS})"
    ).fetchall()
    table = connection.sql(
        "SELECT rowid, * FROM raw.logs WHERE block = 0 AND rowid <= ?", params=[last]
    ).to_arrow_table()
    data = pl.from_arrow(table)
    assert isinstance(data, pl.DataFrame)
    return data


def insert_sealed(connection: duckdb.DuckDBPyConnection, lines: pl.DataFrame) -> int:
    """Orders lines in the shape of ``raw.logs`` (without block) and stores them with their filters, inside the caller's
    transaction; gives the number of segments."""
    from store.duckdb_store import insert

    ((last,),) = connection.execute("SELECT coalesce(max(last_block), 0) FROM raw.log_segments").fetchall()
    first = int(last) + 1
    ordered = lines[_order(lines)].with_columns(
        (pl.int_range(pl.len(), dtype=pl.Int32) // BLOCK_ROWS + first).alias("block")
    )
    insert(connection, "raw.logs", ordered)
    segments = list(_filters(ordered, first))
    known = {r[0] for r in connection.execute("SELECT word FROM raw.log_words").fetchall()}
    new: set[str] = set()
    for _, builder, _ in segments:
        new.update(word.decode("ascii") for word in builder.words.values())
    new -= known
    complete = len(known) + len(new) <= MOST_VOCABULARY
    if complete and new:
        insert(connection, "raw.log_words", pl.DataFrame({"word": sorted(new)}))
    for start, _, made in segments:
        part = ordered.slice((start - first) * BLOCK_ROWS, SEGMENT_ROWS)
        connection.execute(
            "INSERT INTO raw.log_segments VALUES (uuid(), ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [start, start + made.blocks - 1, part.height, part["time"].min(), part["time"].max(), len(made.rows),
             made.to_bytes(), np.packbits(made.always).tobytes(), complete],
        )  # fmt: skip
    return len(segments)


def _order(lines: pl.DataFrame) -> pl.Series:
    """Row numbers by hour, host, time, and within each segment the lines that are events before all others.

    Events are one line in a hundred and what people search for: together they lie in a few compressed vectors of DuckDB
    instead of one in each. Zone maps speak of row groups as large as a segment and lose nothing by it.
    """
    hour = 3_600_000_000  # one integer as the key sorts several times faster than three columns
    # Lines without a time go with the oldest, those without a host before all hosts.
    time = lines["time"].dt.epoch("us").fill_null(strategy="min").fill_null(0).to_numpy()
    hosts = lines["host"].fill_null("")
    rank = hosts.cast(pl.Enum(hosts.unique().sort())).to_physical().cast(pl.Int64).to_numpy()
    hours = time // hour
    key = ((hours - hours.min()) * (rank.max() + 1) + rank) * hour + time % hour
    order = np.argsort(key, kind="stable")
    plain = (lines["event"].fill_null("other") == "other").to_numpy()[order]
    segment = np.arange(len(order)) // SEGMENT_ROWS
    return pl.Series(order[np.argsort(segment * 2 + plain, kind="stable")])


def _filters(ordered: pl.DataFrame, first: int) -> Iterator[tuple[int, FilterBuilder, TextFilter]]:
    """(first block, what was collected, the filter) of each segment."""
    text = ordered.select(
        pl.concat_str(pl.col("raw").fill_null(""), pl.col("message"), separator="\n", ignore_nulls=True)
    )
    for start in range(0, ordered.height, SEGMENT_ROWS):
        part = text.slice(start, SEGMENT_ROWS).to_series()
        builder = FilterBuilder()
        for low in range(0, len(part), _PIECE_BLOCKS * BLOCK_ROWS):
            piece = part.slice(low, _PIECE_BLOCKS * BLOCK_ROWS)
            data, offsets = _bytes_of(piece + "\n")
            ends = offsets[np.minimum(np.arange(BLOCK_ROWS, len(piece) + BLOCK_ROWS, BLOCK_ROWS), len(piece))]
            builder.add(low // BLOCK_ROWS, ends, data)
        yield first + start // BLOCK_ROWS, builder, builder.build(-(-len(part) // BLOCK_ROWS))


def _bytes_of(texts: pl.Series) -> tuple[bytes, Any]:
    """All texts one behind the other, and where each begins (and the last ends)."""
    array = texts.to_arrow().cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = memoryview(array.buffers()[2])[offsets[0] : offsets[-1]].tobytes()
    return data, offsets - offsets[0]


def forget_empty(connection: duckdb.DuckDBPyConnection) -> None:
    """Drops the filters of segments whose lines are all gone (retention calls it); inside the caller's transaction."""
    connection.execute("""DELETE FROM raw.log_segments WHERE NOT EXISTS (
        SELECT 1 FROM raw.logs WHERE block BETWEEN first_block AND last_block)""")
