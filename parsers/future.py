"""Stamps of the future are no times. One line stamped 2099 would stand on top of every list, stretch every range, give stamps without a
year the wrong one and make retention and clocks believe that years went by.

A line cannot be written after it came. So a stamp that lies too far after the moment at which it was read is held: what came over a
network has the time at which it came, a line of a file has none; the stamp stays in ``sender_time`` and in the text, the tag
``future`` says so. How far is too far depends on what the stamp shows:

* One that names its zone is held from ``EXACT`` on. munge refuses a clock that is five minutes off, so no node that is at work
  loses its stamps; of one whose hardware clock runs in local time, the moment of arrival is the better word.
* One without a zone is read as UTC until the correlator knows better, and may be 14 hours ahead (Kiribati). It is held from
  ``UNZONED`` on, and from ``EXACT`` on where the same host sends others beside it that are right as UTC: a host has one zone.
  Others stay as they are: in which zone a host writes is worked out from just these stamps (correlator/clocks/zone_votes.py).

What is left: a line with a stamp in the future is believed for ten minutes, and one without a zone, of a sender who sends no other,
for 14 hours.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from parsers.clock import AHEAD
from parsers.formats.base import JOB_SOURCES

#: Times at which something was seen or said; not when a job is to end or a reservation to begin.
SEEN = {
    "logs": ("received_time",), "metrics": ("time",), "node_states": ("time",), "links": ("time",), "jobs": ("observed_at",),
    "artifacts": ("taken_at",), "boots": ("boot_time",),
}  # fmt: skip
TAG = "future"

#: So far after it was read may lie a stamp that names its zone, and one that names none.
EXACT, UNZONED = timedelta(minutes=10), timedelta(hours=14, minutes=15)


def _too_far(rows: pl.DataFrame, limit: pl.Expr) -> pl.Series:
    """Which rows of ``logs`` have a stamp that is too far ahead of ``limit``."""
    own_time = pl.col("time_quality") != "received"
    ahead = rows.select((own_time & (pl.col("time") > limit + EXACT)).fill_null(False).alias("ahead")).to_series()
    if not ahead.any():
        return ahead
    # A container may have a zone of its own, and what runs in it prints its stamps.
    unzoned = (pl.col("time_quality") == "inferred").fill_null(False)
    of_host = unzoned & ~pl.col("source").is_in(JOB_SOURCES).fill_null(False)
    right = of_host & (pl.col("time") - limit).abs().le(EXACT)
    # Without a host nothing tells who wrote it.
    beside = right.fill_null(False).any().over("host") & pl.col("host").is_not_null() & of_host
    far = ~unzoned | (pl.col("time") > limit + UNZONED) | beside
    return ahead & rows.select(far.fill_null(True).alias("far")).to_series()


def held_lines(rows: pl.DataFrame, limit: pl.Expr, instead: pl.Expr) -> pl.DataFrame:
    """Rows of ``logs`` with a time too far after ``limit``, when they were read: they have ``instead``, and their stamp in
    ``sender_time``."""
    too_far = _too_far(rows, limit)
    if not too_far.any():
        return rows
    ahead = pl.lit(too_far)
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
