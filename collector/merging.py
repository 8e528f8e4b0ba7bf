"""Chooses the lines of one transaction: whole segments, and as few lines as possible beyond them.

The store takes lines that fill segments (``store.line_order``) at a third of the cost of others; the remainder is first
written to a file (``collector.carry``) and stored with the following lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from store.line_order import SEGMENT_ROWS

#: Most segments stored at once: their lines are in memory several times meanwhile.
MOST_SEGMENTS = 3


def fitting(sizes: Sequence[int], carried: int) -> int:
    """How many pieces (given their line counts) to store now, after ``carried`` lines, so that the remainder per
    segment is smallest. All of them if they fill none."""
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


def numbered_on(parts: Sequence[pl.DataFrame], before: Mapping[str, int]) -> list[pl.DataFrame]:
    """Renumbers lines (``store.line_frames.coded``) whose parts each count a file's lines from 1, so that they continue
    after the earlier parts and after ``before``, the counts by file."""
    codes = [part["file"].to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1 for part in parts]
    most = max((int(found.max(initial=0)) for found in codes), default=0) + 1
    base, known = np.zeros(most, np.int64), np.zeros(most, bool)
    known[0] = True  # lines without a file
    numbered = []
    for part, found in zip(parts, codes, strict=True):
        counts = np.bincount(found, minlength=most)
        new = np.flatnonzero((counts > 0) & ~known)
        if len(new):
            places = np.zeros(most, np.int64)
            places[found] = np.arange(len(found))
            files = part["file"].gather(places[new]).cast(pl.String).to_list()
            base[new] = [before.get(file, 0) for file in files]
            known[new] = True
        numbered.append(part.with_columns(pl.Series("line", part["line"].to_numpy() + base[found])))
        counts[0] = 0
        base += counts
    return numbered
