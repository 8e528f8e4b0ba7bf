"""Stamps of the future are no times. One line stamped 2099 would stand on top of every list, stretch every range, give stamps without a
year the wrong one and make retention and clocks believe that years went by.

So a stamp that lies more than ``clock.AHEAD`` after the moment at which it was read is held: what came over a network has the time at
which it came, a line of a file has none; the stamp stays in ``sender_time`` and in the text, the tag ``future`` says so.

Why a day and not minutes, although a line cannot be written after it came: a stamp without a zone is read as UTC until the correlator
knows better and may be up to 14 hours ahead (Kiribati); a hardware clock that runs in local time is ahead by as much in stamps that name
their zone; and how far a node's clock is off is worked out from just these stamps (correlator/clock_pairs.py, correlator/zones.py), which
puts them right afterwards. Without the stamps neither could be found. What is left is that a liar stands on top for a day.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

from parsers.clock import AHEAD

#: Times at which something was seen or said; not when a job is to end or a reservation to begin.
SEEN = {
    "logs": ("received_time",), "metrics": ("time",), "node_states": ("time",), "links": ("time",), "jobs": ("observed_at",),
    "artifacts": ("taken_at",), "boots": ("boot_time",),
}  # fmt: skip
TAG = "future"


def held_lines(rows: pl.DataFrame, limit: pl.Expr, instead: pl.Expr) -> pl.DataFrame:
    """Rows of ``logs`` with a time more than ``AHEAD`` after ``limit``: they have ``instead``, and their stamp in ``sender_time``."""
    ahead = (pl.col("time") > limit + AHEAD).fill_null(False)
    if not rows.select(ahead.any()).item():
        return rows
    tags = pl.col("tags").fill_null(pl.lit([], dtype=pl.List(pl.String)))
    tagged = tags.list.set_union(pl.lit([TAG], dtype=pl.List(pl.String)))
    values = {
        "sender_time": pl.col("time"), "time": instead, "time_quality": pl.lit("received"), "resolution_us": pl.lit(None, pl.Int64),
        "tags": tagged,
    }  # fmt: skip
    return rows.with_columns(pl.when(ahead).then(value).otherwise(name).alias(name) for name, value in values.items())


def held_tables(
    tables: dict[str, pl.DataFrame], read_at: datetime, seen: datetime, instead: datetime | None
) -> dict[str, pl.DataFrame]:
    """Tables that were read at ``read_at``: what they say was seen later than that, was seen at ``seen``. Lines with such a stamp
    have ``instead`` for their time."""
    us = pl.Datetime("us")
    limit = pl.lit(read_at, us)
    held = {}
    for table, rows in tables.items():
        if table == "logs":
            rows = held_lines(rows, limit, pl.lit(instead, us))
        for name in SEEN.get(table, ()):
            ahead = (pl.col(name) > limit + AHEAD).fill_null(False)
            if rows.height and rows.select(ahead.any()).item():
                rows = rows.with_columns(pl.when(ahead).then(pl.lit(seen, us)).otherwise(name).alias(name))
        held[table] = rows
    return held


def is_held() -> pl.Expr:
    """Which rows of ``logs`` have a stamp that is held."""
    return (pl.col("time_quality") == "received") & pl.col("tags").list.contains(TAG)
