"""Timestamps in their plainest spellings, and the times they mean: compiled, one line at a time.

Same results as :mod:`parsers.clock`, which reads every spelling; anything unusual is left out here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import polars as pl

from parsers.clock import AHEAD, BOOT_AHEAD, reference_of
from parsers.compiled import part
from parsers.head import INFERRED, RECEIVED, WRITTEN, Row
from parsers.lines import Array
from parsers.moments import utc
from parsers.record import Origin
from parsers.scan import (
    BLANK,
    COLON,
    COMMA,
    DASH,
    NOWHERE,
    PLUS,
    POINT,
    digits,
    is_digit,
    number,
    two_digits,
)
from parsers.zones import is_utc, known_zone, to_wall

_SECOND, _DAY = 1_000_000, 86_400_000_000
_HOUR = 3600 * _SECOND
_EPOCH = datetime(1970, 1, 1)
#: No time at all. All times are microseconds since 1970.
NO_TIME = -(2**62)
_ALWAYS = 2**61
_NO_DAY = -(2**40)
#: Accepted years. Zones are computed from slightly before to slightly after.
_FIRST_YEAR, _LAST_YEAR = 1900, 2199
#: The first day of each of these years and of the following one.
_YEARS = np.array([(datetime(year, 1, 1) - _EPOCH).days for year in range(_FIRST_YEAR, _LAST_YEAR + 2)])
#: Days before each month in a common year, and the length of each month (February: by year).
_LENGTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_BEFORE = np.cumsum(np.concatenate([[0], _LENGTH[:-1]]))
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = np.array([0, *(int.from_bytes(name.encode(), "big") for name in _NAMES)])
#: Decimals of seconds that count; further ones are read and dropped.
_FRACTION = 6


class Clock(NamedTuple):
    """Everything needed to interpret a timestamp."""

    #: Intervals with one offset, in order: rows of (first wall clock time, wall clock time of the end, offset east of
    #: UTC).
    zone: Array
    zone_known: bool
    #: A timestamp without a year means the newest time up to this one; and the year it may be in.
    latest: int
    year: int
    #: Known boots, newest first, and the newest time that an uptime may mean.
    boots: Array
    latest_uptime: int


def clock_of(origin: Origin) -> Clock:
    """The clock for reading the origin's timestamps."""
    reference = reference_of(origin)
    limit = reference + AHEAD
    boots = sorted(map(_microseconds, origin.boots), reverse=True)
    return Clock(
        _stretches(known_zone(origin.timezone)), bool(origin.timezone_known), _microseconds(limit), limit.year,
        np.array(boots, np.int64), _microseconds(reference + BOOT_AHEAD),
    )  # fmt: skip


def _microseconds(moment: datetime) -> int:
    return (utc(moment) - _EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=64)
def _stretches(zone: str) -> Array:
    """``Clock.zone``: between days with different offsets, the second of the change is searched."""
    if is_utc(zone):
        return np.array([[-_ALWAYS, _ALWAYS, 0]])
    first, last = ((datetime(year, 1, 1) - _EPOCH).days for year in (_FIRST_YEAR - 1, _LAST_YEAR + 2))
    days = np.arange(first, last) * (_DAY // _SECOND)
    east = _offsets(days, zone)
    changed = np.flatnonzero(np.diff(east))
    before, after = days[changed], days[changed + 1]
    while (after - before > 1).any():
        middle = (before + after) // 2
        same = _offsets(middle, zone) == east[changed]
        before, after = np.where(same, middle, before), np.where(same, after, middle)
    changes, offsets = after * _SECOND, np.append(east[changed], east[-1])
    starts, ends = np.concatenate([[-_ALWAYS], changes]), np.concatenate([changes, [_ALWAYS]])
    return np.stack([starts + offsets, ends + offsets, offsets], axis=1)


def _offsets(seconds: Array, zone: str) -> Array:
    """Microseconds east of UTC at times in seconds since 1970."""
    moments = pl.Series(seconds * _SECOND).cast(pl.Datetime("us"))
    shown = to_wall(moments, zone)
    east: Array = (shown - moments).to_physical().to_numpy()
    return east


@part
def _shown(wall: int, zone: Array) -> int:
    """The first moment at which clocks of the zone showed ``wall``."""
    low, high = 0, len(zone) - 1
    while low < high:
        middle = (low + high) // 2
        if wall < zone[middle, 1]:
            high = middle
        else:
            low = middle + 1
    return int(wall - zone[low, 2]) if wall >= zone[low, 0] else NO_TIME


@part
def to_utc(wall: int, zone: Array) -> int:
    """Like :func:`parsers.clock.to_utc`: in an hour that does not exist, as if clocks had not been changed."""
    moment = _shown(wall, zone)
    return moment if moment != NO_TIME else _shown(wall + _HOUR, zone)


@part
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970; ``_NO_DAY`` if the calendar has no such day, or for years outside the range."""
    if not (_FIRST_YEAR <= year <= _LAST_YEAR and 1 <= month <= 12):
        return _NO_DAY
    first, next_first = _YEARS[year - _FIRST_YEAR], _YEARS[year - _FIRST_YEAR + 1]
    leap = next_first - first - 365
    if not 1 <= day <= _LENGTH[month] + (leap if month == 2 else 0):
        return _NO_DAY
    return int(first + _BEFORE[month] + (leap if month > 2 else 0) + day - 1)


@part
def month_at(data: Array, at: int) -> int:
    """1 to 12 for the English short name of a month; 0 for anything else."""
    letters = data[at] * 65536 + data[at + 1] * 256 + data[at + 2]
    for month in range(1, 13):
        if _MONTHS[month] == letters:
            return month
    return 0


@part
def _day_at(data: Array, at: int) -> int:
    """A day of a month, possibly padded with a blank."""
    if data[at] == BLANK:
        return number(data, at + 1, 1) if is_digit(data[at + 1]) else NOWHERE
    return two_digits(data, at)


@part
def clock_at(data: Array, at: int) -> int:
    """``hh:mm:ss`` in microseconds of the day; below zero for anything else."""
    hour, minute, second = two_digits(data, at), two_digits(data, at + 3), two_digits(data, at + 6)
    if hour < 0 or minute < 0 or second < 0 or hour > 23 or minute > 59 or second > 59:
        return NOWHERE
    if data[at + 2] != COLON or data[at + 5] != COLON:
        return NOWHERE
    return (hour * 3600 + minute * 60 + second) * _SECOND


@part
def bsd(data: Array, at: int, micros: int, clock: Clock) -> int:
    """The time of ``Mon dd hh:mm:ss `` plus ``micros``: in the newest year that puts it no later than ``clock.latest``,
    as in :mod:`parsers.clock`."""
    month, day, of_day = month_at(data, at), _day_at(data, at + 4), clock_at(data, at + 7)
    if of_day < 0 or data[at + 3] != BLANK or data[at + 6] != BLANK or data[at + 15] != BLANK:
        return NO_TIME
    for year in range(clock.year, clock.year - 9, -1):
        days = _days(year, month, day)
        if days != _NO_DAY:
            moment = to_utc(days * _DAY + of_day + micros, clock.zone)
            if moment != NO_TIME and moment <= clock.latest:
                return moment
    return NO_TIME


@part
def bsd_with_year(data: Array, day_at: int, year_at: int, clock_place: int) -> int:
    """The wall clock time of ``Mon dd``, ``yyyy`` and ``hh:mm:ss`` at separate offsets."""
    of_day = clock_at(data, clock_place)
    if of_day < 0 or data[day_at + 3] != BLANK or data[day_at + 6] != BLANK or digits(data, year_at) != 4:
        return NO_TIME
    days = _days(number(data, year_at, 4), month_at(data, day_at), _day_at(data, day_at + 4))
    return days * _DAY + of_day if days != _NO_DAY else NO_TIME


@part
def iso(data: Array, at: int, row: Row, clock: Clock) -> int:
    """Where ``yyyy-mm-ddThh:mm:ss[.fraction][zone]`` ends; sets the time and its quality."""
    return _iso(data, at, row, clock, POINT) if data[at + 10] == 84 else NOWHERE


@part
def written(data: Array, at: int, row: Row, clock: Clock) -> int:
    """Like :func:`iso`, also with a blank between date and time, and a comma before the fraction."""
    return _iso(data, at, row, clock, COMMA) if data[at + 10] == 84 or data[at + 10] == BLANK else NOWHERE


@part
def _iso(data: Array, at: int, row: Row, clock: Clock, mark: int) -> int:
    """Accepts ``mark`` before the fraction instead of a point."""
    if data[at + 4] != DASH or data[at + 7] != DASH:
        return NOWHERE
    century, year = two_digits(data, at), two_digits(data, at + 2)
    days = _days(century * 100 + year, two_digits(data, at + 5), two_digits(data, at + 8))
    of_day = clock_at(data, at + 11)
    if century < 0 or year < 0 or days == _NO_DAY or of_day < 0:
        return NOWHERE
    wall, end, width = days * _DAY + of_day, at + 19, 0
    if data[end] == POINT or data[end] == mark:
        width = digits(data, end + 1)
        if not 1 <= width <= 9:
            return NOWHERE
        counted = min(width, _FRACTION)
        wall += number(data, end + 1, counted) * _power(_FRACTION - counted)
        end += width + 1
    zone = _zone_length(data, end)
    if zone < 0:
        return NOWHERE
    row.time = wall - _east(data, end) if zone else to_utc(wall, clock.zone)
    row.zoned = zone > 0
    row.quality = WRITTEN if zone or clock.zone_known else INFERRED
    row.resolution = _power(_FRACTION - min(width, _FRACTION))
    row.stamp, row.stamp_length = at, end + zone - at
    return end + zone if row.time != NO_TIME else NOWHERE


@part
def _power(exponent: int) -> int:
    value = 1
    for _ in range(exponent):
        value *= 10
    return value


@part
def _zone_length(data: Array, at: int) -> int:
    """The length of ``Z``, ``+hh:mm`` or nothing; below zero for another offset."""
    if data[at] == 90:
        return 1
    if data[at] != PLUS and data[at] != DASH:
        return 0
    if two_digits(data, at + 1) < 0 or data[at + 3] != COLON or two_digits(data, at + 4) < 0:
        return NOWHERE
    return 6


@part
def _east(data: Array, at: int) -> int:
    """``Z`` or ``+hh:mm`` as microseconds east of UTC."""
    if data[at] == 90:
        return 0
    east = (two_digits(data, at + 1) * 60 + two_digits(data, at + 4)) * 60 * _SECOND
    return -east if data[at] == DASH else east


@part
def since_boot(row: Row, clock: Clock, resolution: int) -> None:
    """Sets the time of a line that has only its host's uptime, like :func:`parsers.clock.uptime`."""
    row.quality, row.resolution = RECEIVED, resolution
    for boot in clock.boots:
        if row.uptime + boot <= clock.latest_uptime:
            row.time, row.quality = row.uptime + boot, INFERRED
            return
