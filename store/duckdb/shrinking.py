"""Shrinking: a store that is open gives the free part of its database file back to the disk.

The engine uses freed blocks again, and at a checkpoint it cuts off those at the end of its file. But what was written
last lies at the end, behind the blocks that closed segments, closed days or retention left. ``shrink`` writes such
pieces again: the engine puts them into the first free blocks, and the next checkpoint cuts the file.

A piece is a row group of lines, or another table. Moving one is a transaction that deletes its rows and inserts the same:
a process that is killed leaves them in one of the two places. Readers see every row once, and other writers wait for one
piece at most (half a second for a row group of lines).

Some pieces stay where they are, and the file ends behind the last of them: those of more than ``LARGE_BYTES``, and all of
``raw.artifacts``, whose rows would be delivered again if they moved. ``store.duckdb.compacting`` moves everything, in a
store that nobody has open.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from parsers.record import TABLES
from store.changes import Change
from store.duckdb.open_store import DATABASE, OpenStore
from store.errors import StoreError
from store.line_order import SEGMENT_ROWS
from store.tables import ARTIFACTS, LOGS

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

#: For each row group of a table: its last block in the file, and how many blocks it has.
_GROUPS = """SELECT row_group_id, max(block) AS last, count(DISTINCT block) AS blocks FROM (
    SELECT row_group_id, unnest(list_append(additional_block_ids, block_id)) AS block FROM pragma_storage_info(?))
WHERE block >= 0 GROUP BY ALL"""
#: Which lines are in each row group, by the numbers of their blocks (``store.duckdb.segments``; not those of the file).
#: Numbers of rows do not show it: they have gaps, and a checkpoint may change them.
_SPANS = """SELECT row_group_id, min(CAST(stats.min AS INTEGER)) AS low, max(CAST(stats.max AS INTEGER)) AS high
FROM pragma_storage_info('raw.logs') WHERE column_name = 'block' AND segment_type = 'INTEGER' GROUP BY ALL"""
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
    """The rows of ``table`` for which ``where`` holds (SQL of ours), in ``blocks`` blocks of the file up to block ``last``;
    None: they stay."""

    table: str
    where: str | None
    last: int
    blocks: int


def shrink(store: OpenStore, share: float) -> int:
    """Shrinks the file if at least this share of it is free; returns by how many bytes. A checkpoint if less is free. Raises
    ``StoreError`` while a copy is made or days are closed."""
    # These take minutes, and whoever shrinks has other things to do.
    if not store.upkeep.acquire(blocking=False):
        raise StoreError("a copy is being made at this moment, or days are closed")
    try:
        return _shrunk(store, share)
    finally:
        store.upkeep.release()


def _shrunk(store: OpenStore, share: float) -> int:
    if store.folder is None or store.read_only:
        return 0
    database = store.folder / DATABASE
    before = database.stat().st_size
    _checkpoint(store)  # what is in the log has no place yet, and what it deletes is not free
    chosen = _chosen(_file(store), _pieces(store)) if _is_worth_it(store, share) else None
    if chosen is not None:
        for piece in chosen:
            _move(store, piece)
        with suppress(StoreError):  # somebody still reads what it would free: the next checkpoint frees it
            _cut(store)
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


def _cut(store: OpenStore) -> None:
    """A checkpoint that leaves nothing at the end of the file. Descriptions of tables that did not change would stay where
    they are; here, the engine writes all of them again. It does nothing if there was no commit since the last one."""
    cursor = store.cursor()
    cursor.execute("SET GLOBAL experimental_metadata_reuse = false")
    try:
        with store.transaction():
            pass
        _checkpoint(store)
    finally:
        cursor.execute("SET GLOBAL experimental_metadata_reuse = true")


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
    found, most = [], LARGE_BYTES // _file(store).size
    spans = {row["row_group_id"]: (row["low"], row["high"]) for row in store.rows(_SPANS)}
    for table in [row["name"] for row in store.rows(_TABLES)]:
        groups = [(row["row_group_id"], int(row["last"]), int(row["blocks"])) for row in store.rows(_GROUPS, [table])]
        if table == LOGS.fullname:
            for group, last, blocks in groups:
                found.append(Piece(table, _lines_of(group, spans) if blocks <= most else None, last, blocks))
        elif groups:
            blocks = sum(count for _, _, count in groups)
            stays = table == ARTIFACTS.fullname or blocks > most
            found.append(Piece(table, None if stays else "true", max(last for _, last, _ in groups), blocks))
    return found


def _lines_of(group: int, spans: Mapping[int, tuple[int | None, int | None]]) -> str | None:
    """The lines of a row group; None if that is not known."""
    low, high = spans.get(group, (None, None))
    if low is None or high is None or low < 0:
        return None
    if low > 0 or high == 0:
        return f"block BETWEEN {int(low)} AND {int(high)}"
    # Some are in no segment: of the others, those that are in no row group before it.
    before = max(
        (top for other, (_, top) in spans.items() if other != group and top is not None and top < high), default=0
    )
    return f"(block = 0 OR block BETWEEN {before + 1} AND {int(high)})"


def _chosen(file: _File, pieces: Sequence[Piece]) -> list[Piece] | None:
    """What to move: the pieces at the end of the file, as far as there is room before them; None if that is not worth it."""
    chosen: list[Piece] = []
    moved, end = 0, file.used
    for piece in sorted(pieces, key=lambda piece: -piece.last):
        if piece.last < file.used:
            break
        fits = moved + piece.blocks <= min(file.free - SPARE_BLOCKS, MOST_BYTES // file.size)
        if piece.where is None or not fits:
            end = piece.last + 1
            break
        chosen.append(piece)
        moved += piece.blocks
    gained = file.total - end
    return chosen if gained * file.size >= LEAST_BYTES and gained * WORTH >= moved else None


def _move(store: OpenStore, piece: Piece) -> None:
    """Deletes the rows of a piece and inserts them again, unchanged and in their order."""
    name, where = piece.table.removeprefix("raw."), piece.where
    with store.transaction() as connection:
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {piece.table} WHERE {where}").fetchall()
        if not rows or (
            name == LOGS.name and rows > 2 * SEGMENT_ROWS
        ):  # lines of other row groups have such numbers, too
            return
        connection.execute(f"CREATE OR REPLACE TEMP TABLE moving AS SELECT * FROM {piece.table} WHERE {where}")
        ((gone,),) = connection.execute(f"DELETE FROM {piece.table} WHERE {where}").fetchall()
        ((back,),) = connection.execute(f"INSERT INTO {piece.table} SELECT * FROM moving").fetchall()
        connection.execute("DROP TABLE moving")
        if not rows == gone == back:
            raise StoreError(
                f"{piece.table}: of {rows:,} rows, {gone:,} were taken and {back:,} put back: nothing was moved"
            )
        if name in TABLES:
            store.note(name, Change(moved=rows))
