"""Shrinking: a store that is open gives the free part of its database file back to the disk.

The engine uses freed blocks again, and at a checkpoint it cuts off those at the end of its file. But what was written
last lies at the end, behind the blocks that closed segments, closed days or retention left. ``shrink`` writes such
pieces again: the engine puts them into the first free blocks, and the next checkpoint cuts the file.

A piece is a row group of a table. Moving one is a transaction that deletes its rows and inserts the same: a process that
is killed leaves them in one of the two places. Readers see every row once, and other writers wait for one piece at most
(half a second for a row group of lines).

Some pieces stay where they are, and the file ends behind the last of them: those of more than ``LARGE_BYTES``, and all of
``raw.artifacts``, whose rows would be delivered again if they moved. ``store.duckdb.compacting`` moves everything, in a
store that nobody has open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from parsers.record import TABLES
from store.changes import Change
from store.duckdb.open_store import DATABASE, OpenStore
from store.errors import StoreError
from store.tables import ARTIFACTS

#: Less is not worth the work (bytes); a store also uses free blocks for what arrives next.
LEAST_BYTES = 8 * 2**20
#: At least so many bytes must become free for every four that are moved.
WORTH = 4
#: Bytes that one call moves; the next one goes on.
MOST_BYTES = 256 * 2**20
#: A larger piece stays where it is: it is in memory for a moment, and others wait for it.
LARGE_BYTES = 64 * 2**20
#: Attempts at a checkpoint, and seconds between them.
TRIES, PAUSE_S = 10, 0.1
#: Blocks that are left free: what is moved goes through the log, too.
SPARE_BLOCKS = 4

#: For each row group of a table: its first row's number, how many it had when it was written, its last block in the file
#: and how many blocks it has. The engine numbers rows through all row groups. No table begins with a list, of which the
#: engine would count the elements.
_GROUPS = """WITH info AS MATERIALIZED (FROM pragma_storage_info(?)),
groups AS (SELECT row_group_id, CAST(sum(count) FILTER (column_path = '[0]') AS BIGINT) AS rows FROM info GROUP BY ALL),
places AS (SELECT row_group_id, max(block) AS last, count(DISTINCT block) AS blocks FROM (
    SELECT row_group_id, unnest(list_append(additional_block_ids, block_id)) AS block FROM info) WHERE block >= 0 GROUP BY ALL)
SELECT CAST(sum(rows) OVER (ORDER BY row_group_id) AS BIGINT) - rows AS first, rows, last, blocks
FROM groups LEFT JOIN places USING (row_group_id)"""
_TABLES = """SELECT schema_name || '.' || table_name AS name FROM duckdb_tables()
WHERE database_name = current_database() AND NOT temporary ORDER BY name"""


@dataclass(frozen=True)
class _File:
    """The database file, in blocks of ``size`` bytes."""

    total: int
    used: int
    free: int
    size: int


@dataclass(frozen=True)
class Piece:
    """The rows of ``table`` with numbers from ``first`` until before ``end``, in ``blocks`` blocks of the file up to block
    ``last``. ``stays``: they are not moved."""

    table: str
    first: int
    end: int
    last: int
    blocks: int
    stays: bool = False


def shrink(store: OpenStore, share: float) -> int:
    """Shrinks the file if at least this share of it is free; returns by how many bytes. Cheap if less is free."""
    if store.folder is None or store.read_only or not _is_worth_it(store, share):
        return 0
    database = store.folder / DATABASE
    before = database.stat().st_size
    with store.upkeep:
        _checkpoint(store)  # what is in the log has no place yet
        if _is_worth_it(store, share):
            for piece in _chosen(_file(store), _pieces(store)):
                _move(store, piece)
            with suppress(StoreError):  # somebody still reads what it would free: the next checkpoint frees it
                _checkpoint(store)
    return max(0, before - database.stat().st_size)


def _checkpoint(store: OpenStore) -> None:
    """The engine refuses one that would free what somebody reads at that moment. Raises ``StoreError`` if it always is."""
    for attempt in range(1, TRIES + 1):
        try:
            store.checkpoint()
            return
        except StoreError:
            if attempt == TRIES:
                raise
            time.sleep(PAUSE_S)


def _file(store: OpenStore) -> _File:
    (row,) = store.rows(
        "SELECT total_blocks, used_blocks, free_blocks, block_size FROM pragma_database_size() WHERE database_name = current_database()"
    )
    return _File(*(int(row[name]) for name in ("total_blocks", "used_blocks", "free_blocks", "block_size")))


def _is_worth_it(store: OpenStore, share: float) -> bool:
    file = _file(store)
    return file.free * file.size >= LEAST_BYTES and file.free >= share * file.total


def _pieces(store: OpenStore) -> list[Piece]:
    """Everything that is in the file, in any order."""
    found, size = [], _file(store).size
    for table in [row["name"] for row in store.rows(_TABLES)]:
        for row in store.rows(_GROUPS, [table]):
            if row["blocks"]:
                first, rows, last, blocks = (int(row[name]) for name in ("first", "rows", "last", "blocks"))
                stays = table == ARTIFACTS.fullname or blocks * size > LARGE_BYTES
                found.append(Piece(table, first, first + rows, last, blocks, stays))
    return found


def _chosen(file: _File, pieces: Sequence[Piece]) -> list[Piece]:
    """What to move: the pieces at the end of the file, as far as there is room before them."""
    chosen: list[Piece] = []
    moved, end = 0, file.used
    for piece in sorted(pieces, key=lambda piece: -piece.last):
        if piece.last < file.used:
            break
        fits = moved + piece.blocks <= min(file.free - SPARE_BLOCKS, MOST_BYTES // file.size)
        if piece.stays or not fits:
            end = piece.last + 1
            break
        chosen.append(piece)
        moved += piece.blocks
    gained = file.total - end
    return chosen if gained * file.size >= LEAST_BYTES and gained * WORTH >= moved else []


def _move(store: OpenStore, piece: Piece) -> None:
    """Deletes the rows of a piece and inserts them again, unchanged and in their order."""
    where = f"rowid >= {int(piece.first)} AND rowid < {int(piece.end)}"
    with store.transaction() as connection:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE moving AS SELECT * FROM {piece.table} WHERE {where}")
        ((rows,),) = connection.execute("SELECT count(*) FROM moving").fetchall()
        ((gone,),) = connection.execute(f"DELETE FROM {piece.table} WHERE {where}").fetchall()
        ((back,),) = connection.execute(f"INSERT INTO {piece.table} SELECT * FROM moving").fetchall()
        connection.execute("DROP TABLE moving")
        if not rows == gone == back:
            raise StoreError(
                f"{piece.table}: of {rows:,} rows, {gone:,} were taken and {back:,} put back: nothing was moved"
            )
        name = piece.table.removeprefix("raw.")
        if name in TABLES:
            store.note(name, Change(moved=rows))
