"""Which lines go into one transaction: whole segments, and as few as possible behind them.

The store takes lines that fill segments (``store.segments``) at a third of the cost of others; what is left over is written
into a file first (``collector.carry``) and stored with the lines that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from store.segments import SEGMENT_ROWS

#: More segments than this are not stored at once: their lines lie in memory several times meanwhile.
MOST_SEGMENTS = 3


def fitting(sizes: Sequence[int], carried: int) -> int:
    """How many of the pieces with so many lines are stored now, behind ``carried`` lines, so that the fewest are left over
    for each segment. All of them if they fill none."""
    best, least = len(sizes), float("inf")
    lines = carried
    for count, size in enumerate(sizes, 1):
        lines += size
        full, over = divmod(lines, SEGMENT_ROWS)
        if full > MOST_SEGMENTS and least < float("inf"):
            break
        if full and over / full < least:
            best, least = count, over / full
    return best


def cut(lines: pl.DataFrame) -> tuple[list[pl.DataFrame], pl.DataFrame | None]:
    """The segments that ``lines`` fill, and the rest."""
    full = len(lines) - len(lines) % SEGMENT_ROWS
    rest = lines.tail(len(lines) - full) if full < len(lines) else None
    return [lines.slice(at, SEGMENT_ROWS) for at in range(0, full, SEGMENT_ROWS)], rest


def numbered_on(lines: pl.DataFrame, before: Mapping[str, int]) -> pl.DataFrame:
    """Lines (``store.duckdb_store.coded``) with the numbers that follow on those which their streams have. ``before``: by
    file, all of them."""
    if len(before) == 1:
        return lines.with_columns(pl.col("line") + next(iter(before.values())))
    files = lines["file"].unique().drop_nulls()
    codes = files.to_physical().to_numpy()
    base = np.zeros(int(codes.max(initial=0)) + 2, np.int64)
    base[codes + 1] = [before.get(file, 0) for file in files.cast(pl.String).to_list()]
    at = lines["file"].to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return lines.with_columns(pl.Series("line", lines["line"].to_numpy() + base[at + 1]))
