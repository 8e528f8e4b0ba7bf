"""Rejects timestamps in the future. One line dated 2099 would top every list, stretch every range, give timestamps
without a year the wrong one, and make retention and clocks believe that years went by.

A line cannot be written after it arrived. So a timestamp too far after the moment of reading is held back: a line
received over a network gets its time of arrival, a line of a file gets none; the timestamp stays in ``sender_time`` and
in the text, and the tag ``future`` marks it. The limit depends on the timestamp:

* One with an explicit zone is held back beyond ``EXACT``. munge refuses a clock that is five minutes off, so no working
  node loses its timestamps; for one whose hardware clock runs in local time, the time of arrival is more reliable.
* One without a zone is read as UTC until the correlator knows better, and may be 14 hours ahead (Kiribati). It is held
  back beyond ``UNZONED``, and beyond ``EXACT`` if the same host also sends timestamps that are right as UTC: a host has
  one zone. Others stay: the correlator infers a host's zone from just these timestamps
  (correlator/clocks/zone_votes.py).

Remaining risk: a timestamp in the future is accepted up to ten minutes ahead, and one without a zone, from a sender
that sends no other, up to 14 hours.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import polars as pl

from parsers.clock import AHEAD
from parsers.formats.base import JOB_SOURCES

#: Times at which something was observed or reported; not when a job will end or a reservation will begin.
SEEN = {
    "logs": ("received_time",), "metrics": ("time",), "node_states": ("time",), "links": ("time",), "jobs": ("observed_at",),
    "artifacts": ("taken_at",), "environments": ("seen_at",), "boots": ("boot_time",),
}  # fmt: skip
TAG = "future"

#: How far after reading a timestamp may lie: one with an explicit zone, and one without.
EXACT, UNZONED = timedelta(minutes=10), timedelta(hours=14, minutes=15)
_US = pl.Datetime("us")
_EPOCH = datetime(1970, 1, 1)


def _any_after(times: pl.Series, limit: datetime, margin: timedelta) -> bool:
    """Whether any of ``times`` is later than ``limit`` plus ``margin``. Without a query, which costs as much as reading a
    small document; of numbers, because a document may state times outside the calendar."""
    newest = times.cast(_US).cast(pl.Int64).max()
    return isinstance(newest, int) and newest > (limit - _EPOCH + margin) // timedelta(microseconds=1)


#: The rows whose stamp has the zone of their host. A container may have a zone of its own, and its programs use that in
#: their timestamps.
_OF_HOST = (pl.col("time_quality") == "inferred").fill_null(False) & ~pl.col("source").is_in(JOB_SOURCES).fill_null(
    False
)


def is_any_ahead(rows: pl.DataFrame, limit: datetime) -> bool:
    """Whether a time of ``logs`` may be too far after ``limit``."""
    return _any_after(rows["time"], limit, EXACT)


def right_hosts(rows: pl.DataFrame, limit: datetime) -> set[str]:
    """The hosts with a stamp without a zone that is right as UTC, for lines read at ``limit``."""
    right = _OF_HOST & (pl.col("time") - pl.lit(limit, _US)).abs().le(EXACT)
    return set(rows.filter(right.fill_null(False) & pl.col("host").is_not_null())["host"].unique())


def _too_far(rows: pl.DataFrame, limit: datetime, right: Collection[str]) -> pl.Series:
    """Which rows of ``logs`` have a timestamp too far after ``limit``. ``right``: hosts with right ones in other rows."""
    moment = pl.lit(limit, _US)
    own_time = pl.col("time_quality") != "received"
    ahead = rows.select((own_time & (pl.col("time") > moment + EXACT)).fill_null(False).alias("ahead")).to_series()
    if not ahead.any():
        return ahead
    unzoned = (pl.col("time_quality") == "inferred").fill_null(False)
    # Without a host the writer is unknown.
    beside = pl.col("host").is_in(right_hosts(rows, limit) | set(right)).fill_null(False) & _OF_HOST
    far = ~unzoned | (pl.col("time") > moment + UNZONED) | beside
    return ahead & rows.select(far.fill_null(True).alias("far")).to_series()


def held_lines(rows: pl.DataFrame, limit: datetime, instead: pl.Expr, right: Collection[str] = ()) -> pl.DataFrame:
    """Rows of ``logs`` whose time is too far after ``limit``, the time of reading: they get ``instead``, and their
    timestamp moves to ``sender_time``. ``right``: hosts with stamps right as UTC in other rows read with these."""
    if not is_any_ahead(rows, limit):
        return rows
    too_far = _too_far(rows, limit, right)
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
    """Tables that were read at ``read_at``: anything observed later than that is set to ``seen``. Lines with such a
    timestamp get ``instead`` as their time."""
    held = {}
    for table, rows in tables.items():
        if table == "logs":
            rows = held_lines(rows, read_at, pl.lit(instead, _US))
        for name in SEEN.get(table, ()):
            if _any_after(rows[name], read_at, AHEAD):
                ahead = pl.col(name) > pl.lit(read_at, _US) + AHEAD
                rows = rows.with_columns(pl.when(ahead).then(pl.lit(seen, _US)).otherwise(name).alias(name))
        held[table] = rows
    return held


def held(rows: pl.DataFrame) -> pl.Series:
    """The indices of the rows of ``logs`` whose timestamp is held back."""
    is_received = rows["time_quality"].cast(pl.String) == "received"
    may_be = (is_received & (rows["tags"].list.len() > 0)).fill_null(False).arg_true()
    if not len(may_be):  # nearly always, and without a query over lists
        return pl.Series([], dtype=pl.UInt32)
    return may_be.filter(rows["tags"][may_be].list.contains(TAG).fill_null(False))
