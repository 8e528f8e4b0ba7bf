"""Time zones by their IANA names, and conversion of their wall clock times to UTC: the only zone arithmetic.

Times are naive UTC, wall clock times naive too. An hour that occurs twice is read as its first pass, an hour that does
not exist as if clocks had not been changed (02:30 is one hour later). The zone of a timestamp without one comes from
elsewhere: from the configuration or the sender (``parsers.record.Origin``), or as an estimate from the correlator's
clocks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import polars as pl

from parsers.moments import utc

UTC_ZONE = ZoneInfo("UTC")
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "Zulu")


@lru_cache(maxsize=64)
def find(name: str) -> ZoneInfo | None:
    """The zone of that name; None for a name that the time zone database does not have, and for a path out of it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def known_zone(name: str) -> str:
    """``name`` if it is a known IANA zone, else UTC: a misspelt zone must not lose lines."""
    return "UTC" if find(name) is None else name


def is_utc(name: str) -> bool:
    """Whether wall clock times of a zone equal UTC."""
    return known_zone(name) in _UTC


def utc_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """A wall clock time of a zone as UTC, clamped to the calendar."""
    return utc(wall.replace(tzinfo=zone, fold=0))


def utc_within(wall: datetime, zone: ZoneInfo) -> datetime:
    """``utc_of`` for an answer that must be exact: raises ``OverflowError`` at the edges of the calendar."""
    offset = wall.replace(tzinfo=zone, fold=0).utcoffset()
    return wall.replace(tzinfo=None, fold=0) - (offset or timedelta())


def wall_of(moment: datetime, zone: ZoneInfo) -> datetime:
    """UTC as the wall clock time of a zone. Raises ``OverflowError`` at the edges of the calendar."""
    return moment.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def to_utc(walls: pl.Series, name: str) -> pl.Series:
    """A column of wall clock times of a zone as UTC, each as in ``utc_of``."""
    zone = known_zone(name)
    if is_utc(zone):
        return walls
    aware = walls.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    times = aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    lost = times.is_null() & walls.is_not_null()
    if lost.any():
        later = (walls + timedelta(hours=1)).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        # Skipped hour: the wall clock one hour on is the same instant seen from the old offset.
        times = times.zip_with(~lost, later.dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return times


def to_wall(moments: pl.Series, name: str) -> pl.Series:
    """A column of UTC as wall clock times of a zone."""
    return moments.dt.replace_time_zone("UTC").dt.convert_time_zone(known_zone(name)).dt.replace_time_zone(None)
