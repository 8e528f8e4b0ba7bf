"""The order of lines in closed segments: code that stores many lines sorts them and fills whole segments, which costs a
third.

A segment is a row group of DuckDB (``store.duckdb.segments``). The number applies to every engine: the intake splits
lines by it, and text filters (``store.text_filter``) cover as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from parsers.formats.base import SEVERITIES
from store.text_filter import BLOCK_ROWS, SEGMENT_BLOCKS

#: The event of a line that is none.
_PLAIN = "other"
#: Severities of lines that report trouble.
_TROUBLE = pl.Series("severity", SEVERITIES[: SEVERITIES.index("warning") + 1])
#: If more than this share of the lines report trouble, they are what the log consists of and stay with their hosts.
_MOST_TROUBLE = 1 / 8
#: Lines of a segment.
SEGMENT_ROWS = BLOCK_ROWS * SEGMENT_BLOCKS


def in_order(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines in the order of segments."""
    lines = lines.rechunk()  # rows of one chunk are sorted in a tenth of the time of several
    # All-null columns need no sorting.
    nulls = [column for column in lines.get_columns() if column.null_count() == len(lines)]
    moved = lines.drop(column.name for column in nulls)[_order(lines)]
    return moved.with_columns(nulls).select(lines.columns) if nulls else moved


def _order(lines: pl.DataFrame) -> pl.Series:
    """Row numbers by hour, host, time; within each segment the lines that are events come first, by event, then other
    lines that report trouble, by program.

    These are what people search for, one kind at a time: together the lines of a kind occupy a few compressed vectors of
    DuckDB instead of a part of each. Zone maps cover row groups as large as a segment and lose nothing.
    """
    hour = 3_600_000_000
    rows = np.arange(len(lines))
    # Lines without a time go with the oldest, those without a host before all hosts.
    time = lines["time"].dt.epoch("us").fill_null(strategy="min").fill_null(0).to_numpy()
    hours, rank = time // hour, _ranks(lines["host"], "faultline_host")
    plain = lines.select(pl.col("event").fill_null(_PLAIN) == _PLAIN).to_series().to_numpy()
    event, plain = _kinds(lines, plain)
    if len(lines) <= SEGMENT_ROWS and (key := _one_key(plain, hours, rank, time - hours * hour)) is not None:
        order = _sorted(key, rows)  # one sort instead of three
        events = order[: len(order) - np.count_nonzero(plain)]
        order[: len(events)] = events[_sorted(event[events], rows[: len(events)])]
        return pl.Series(order)
    order = _sorted(time - time.min(), rows)
    rank, hours = rank[order], hours[order]
    hours[1:] = np.cumsum(hours[1:] != hours[:-1])  # the index among the hours present: a small number
    hours[:1] = 0
    order = order[_sorted(hours * (rank.max(initial=0) + 1) + rank, rows)]
    return pl.Series(order[_sorted(rows // SEGMENT_ROWS * (event.max(initial=0) + 1) + event[order], rows)])


def _one_key(*keys: Any) -> Any:
    """One number per row that sorts like the first of ``keys``, then the second, and so on; None if they leave no bits
    for the row number."""
    found = np.zeros(len(keys[0]), np.int64)
    left = 63 - len(found).bit_length()
    for key in keys:
        from_zero = key.astype(np.int64) - int(key.min())
        width = int(from_zero.max(initial=0)).bit_length()
        left -= width
        if left < 0:
            return None
        found = found << width | from_zero
    return found


def _sorted(key: Any, rows: Any) -> Any:
    """``rows`` sorted by ``key`` (non-negative), stable. With the row number in the low bits, plain numbers are sorted:
    five times as fast as an argsort."""
    bits = len(rows).bit_length()
    if int(key.max(initial=0)).bit_length() + bits > 63:
        return np.argsort(key, kind="stable")
    return np.sort(key << bits | rows) & ((1 << bits) - 1)


def _kinds(lines: pl.DataFrame, plain: Any) -> tuple[Any, Any]:
    """The rank of each line's kind, and which lines are of none and come last. ``plain``: those that are no events. Kinds are
    the events by name, then the programs that report trouble in other lines."""
    ranks = _ranks(lines["event"], "faultline_event")
    rest, others = int(ranks.max(initial=0)) + 1, plain.copy()
    found = np.flatnonzero(plain & _has_trouble(lines["severity"]))
    if 0 < len(found) <= len(lines) * _MOST_TROUBLE:
        programs = _ranks(lines["unit"].gather(found), "faultline_unit")
        ranks[found] = rest + programs
        others[found] = False
        rest += int(programs.max(initial=0)) + 1
    ranks[others] = rest
    return ranks, others


def _has_trouble(severities: pl.Series) -> Any:
    """Which of the lines have a severity of trouble."""
    category = pl.Categorical(pl.Categories("faultline_severity"))
    wanted = _TROUBLE.cast(category)
    codes = severities.cast(category).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
    sought = wanted.to_physical().cast(pl.Int64).to_numpy() + 1
    is_sought = np.zeros(max(int(codes.max(initial=0)), int(sought.max())) + 1, np.bool_)
    is_sought[sought] = True
    return is_sought[codes]


def _ranks(texts: pl.Series, category: str) -> Any:
    """The rank of each text among all by name; a missing one comes first."""
    codes = texts.cast(pl.Categorical(pl.Categories(category)))
    numbers = codes.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
    stated = np.zeros(int(numbers.max(initial=0)) + 1, np.bool_)
    stated[numbers] = True
    stated[0] = False
    known = np.flatnonzero(stated)
    where = np.empty(len(stated), np.int64)
    where[numbers] = np.arange(len(numbers))  # one line of each
    ranks = np.zeros(len(stated), np.int64)
    ranks[known] = codes[where[known]].cast(pl.String).rank("dense").to_numpy()
    return ranks[numbers]
