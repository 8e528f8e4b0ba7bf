"""Stamps and numbers at known places of a :class:`~parsers.lines.LineBuffer`, read as arithmetic on bytes.

As parsers.clock, which reads every spelling; here only the plain ones, and whatever is unusual is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from parsers.clock import AHEAD, is_utc, reference_of, to_utc
from parsers.lines import Array, LineBuffer
from parsers.record import Origin

_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
#: Days before each month in a common year, and how long each month is (February: by year).
_BEFORE = np.cumsum([0, 0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
_LENGTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = sorted((int.from_bytes(name.encode(), "big"), number) for number, name in enumerate(_NAMES, 1))
_MONTH_KEYS = np.array([key for key, _ in _MONTHS], np.int64)
_MONTH_NUMBERS = np.array([number for _, number in _MONTHS], np.int64)
_POWERS = 10 ** np.arange(6, -1, -1, dtype=np.int64)
#: Numbers of more digits than this are left to others, if not asked for.
_DIGITS = 10
_PLACES = 10 ** np.arange(15, -1, -1, dtype=np.int64)


@dataclass(frozen=True)
class Stamps:
    """ISO 8601 stamps that could be read: of which lines, what they mean (microseconds UTC), and where they end."""

    rows: Array
    time: Array
    resolution: Array
    zoned: Array
    certain: Array
    end: Array


def number(buffer: LineBuffer, at: Array, length: Array, most: int = _DIGITS) -> tuple[Array, Array]:
    """The decimal numbers of ``length`` bytes at ``at``, and whether they are some, of at most ``most`` (16) digits."""
    digits = buffer.windows(np.maximum(at + length - most, 0), most) - np.uint8(48)
    counts = np.arange(most) >= most - length[:, None]
    fine = (length > 0) & (length <= most) & ((digits < 10) | ~counts).all(axis=1) & (at + length >= most)
    return np.where(counts, digits, 0).astype(np.int64) @ _PLACES[-most:], fine


def _pairs(digits: Array, *places: int) -> list[Array]:
    return [digits[:, at].astype(np.int64) * 10 + digits[:, at + 1] for at in places]


def bsd(buffer: LineBuffer, rows: Array, at: Array, origin: Origin, micros: Array | None = None) -> tuple[Array, Array]:
    """``Mon dd hh:mm:ss `` at ``at[rows]`` -> the lines where it stands and whose year is found, and their times.

    The year is the newest in which the moment is not later than the reference + 1 day, as in :mod:`parsers.clock`.
    ``micros`` come on top of the seconds.
    """
    month, day, of_day, fine = _calendar(buffer.windows(at[rows], 16))
    if micros is not None:
        of_day = of_day + micros
    rows, month, day, of_day = rows[fine], month[fine], day[fine], of_day[fine]
    times, known = _newest_years(month, day, of_day, origin)
    return rows[known], times[known]


def bsd_with_year(
    buffer: LineBuffer, day_at: Array, year_at: Array, clock_at: Array, origin: Origin, utc: bool = False
) -> tuple[Array, Array]:
    """``Mon dd``, ``yyyy`` and ``hh:mm:ss`` at places of their own -> times of the origin's zone or of UTC, and whether
    they are some."""
    blank = np.full((len(day_at), 1), 32, np.uint8)
    parts = (buffer.windows(day_at, 6), blank, buffer.windows(clock_at, 8), blank)
    month, day, of_day, fine = _calendar(np.concatenate(parts, axis=1))
    year, numeric = number(buffer, year_at, np.full(len(year_at), 4))
    days, exists = _days(year, np.where(fine, month, 0), day)
    fine &= numeric & exists
    wall = days * _DAY_US + of_day
    return (wall if utc else _utc(np.where(fine, wall, 0), origin)), fine


def _calendar(window: Array) -> tuple[Array, Array, Array, Array]:
    """Month, day, microseconds of the day, and whether it is one, of rows that read ``Mon dd hh:mm:ss ``."""
    key = (window[:, 0].astype(np.int64) << 16) | (window[:, 1].astype(np.int64) << 8) | window[:, 2]
    place = np.minimum(np.searchsorted(_MONTH_KEYS, key), 11)
    fine = _MONTH_KEYS[place] == key
    digits = window - np.uint8(48)
    digits[:, 4] = np.where(window[:, 4] == 32, 0, digits[:, 4])
    for blank in (3, 6, 15):
        fine &= window[:, blank] == 32
    for colon in (9, 12):
        fine &= window[:, colon] == 58
    for digit in (4, 5, 7, 8, 10, 11, 13, 14):
        fine &= digits[:, digit] < 10
    day, hour, minute, second = _pairs(digits, 4, 7, 10, 13)
    fine &= (day > 0) & (hour < 24) & (minute < 60) & (second < 60)
    return _MONTH_NUMBERS[place], day, (hour * 3600 + minute * 60 + second) * 1_000_000, fine


def _days(year: Array, month: Array, day: Array) -> tuple[Array, Array]:
    """Days since 1970, and whether the calendar has such a day from 1900 to 2199; month 0 has none."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    exists = (day > 0) & (day <= _LENGTH[month] + ((month == 2) & leap)) & (year >= 1900) & (year < 2200)
    # Leap days are those of the years before, from 1900 on (2000 was one, 1900 and 2100 were not).
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400 - 477
    return (year - 1970) * 365 + leaps + _BEFORE[month] + ((month > 2) & leap) + day - 1, exists


def _newest_years(month: Array, day: Array, of_day: Array, origin: Origin) -> tuple[Array, Array]:
    limit = reference_of(origin) + AHEAD
    last = (limit - _EPOCH) // timedelta(microseconds=1)
    times, known = np.zeros(len(month), np.int64), np.zeros(len(month), np.bool_)
    for year in range(limit.year, limit.year - 9, -1):
        left = np.flatnonzero(~known)
        if not len(left):
            break
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        start = (datetime(year, 1, 1) - _EPOCH).days
        exists = day[left] <= _LENGTH[month[left]] + ((month[left] == 2) & leap)
        days = start + _BEFORE[month[left]] + ((month[left] > 2) & leap) + day[left] - 1
        guess = _utc(days * _DAY_US + of_day[left], origin)
        fits = exists & (guess <= last)
        times[left[fits]], known[left[fits]] = guess[fits], True
    return times, known


def _utc(wall: Array, origin: Origin) -> Array:
    """Wall clock times of the origin's zone as UTC."""
    if is_utc(origin.timezone):
        return wall
    local = pl.Series(wall, dtype=pl.Int64).cast(pl.Datetime("us"))
    moved: Array = to_utc(local, origin.timezone).to_physical().to_numpy()
    return moved


def iso(buffer: LineBuffer, rows: Array, at: Array, origin: Origin) -> Stamps:
    """``yyyy-mm-ddThh:mm:ss[.fraction][zone]`` at ``at``, of which line ``rows`` says; the others are left out."""
    window = buffer.windows(at, 30)
    digits = window - np.uint8(48)
    fine = np.ones(len(rows), np.bool_)
    for place, byte in ((4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")):
        fine &= window[:, place] == ord(byte)
    for place in (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18):
        fine &= digits[:, place] < 10
    century, years, month, day, hour, minute, second = _pairs(digits, 0, 2, 5, 8, 11, 14, 17)
    year = century * 100 + years
    month = np.where(fine & (month >= 1) & (month <= 12), month, 0)
    days, exists = _days(year, month, day)
    fine &= exists & (hour < 24) & (minute < 60) & (second < 60)
    wall = days * _DAY_US + (hour * 3600 + minute * 60 + second) * 1_000_000
    micros, width, well = _fraction(window, digits)
    fine &= well
    end = at + 19 + width + (width > 0)
    east, zone, well = _zone(buffer, end)
    fine &= well
    rows, end, wall = rows[fine], (end + zone)[fine], (wall + micros)[fine]
    zoned = zone[fine] > 0
    times = wall - east[fine]
    open_ = np.flatnonzero(~zoned)
    times[open_] = _utc(wall[open_], origin)
    return Stamps(rows, times, _POWERS[np.minimum(width[fine], 6)], zoned, zoned | origin.timezone_known, end)


def _fraction(window: Array, digits: Array) -> tuple[Array, Array, Array]:
    """Microseconds and number of digits behind the seconds, and whether they are plain: none, or one to nine."""
    pointed = window[:, 19] == ord(".")
    run = np.logical_and.accumulate(digits[:, 20:30] < 10, axis=1)
    width = np.where(pointed, run.sum(axis=1), 0)
    counted = np.where(run[:, :6], digits[:, 20:26], 0).astype(np.int64)
    micros = np.where(pointed, counted @ _POWERS[1:], 0)
    return micros, width, ~pointed | ((width > 0) & (width < 10))


def _zone(buffer: LineBuffer, at: Array) -> tuple[Array, Array, Array]:
    """Microseconds east of UTC and length of ``Z``, ``+hh:mm`` or nothing, and whether it is one of these."""
    window = buffer.windows(at, 6)
    digits = window - np.uint8(48)
    sign = window[:, 0]
    signed = (sign == ord("+")) | (sign == ord("-"))
    plain = (digits[:, [1, 2, 4, 5]] < 10).all(axis=1) & (window[:, 3] == ord(":"))
    hours, minutes = _pairs(digits, 1, 4)
    east = np.where(signed & plain, (hours * 60 + minutes) * 60_000_000, 0)
    length = np.where(signed, 6, np.where(sign == ord("Z"), 1, 0))
    return np.where(sign == ord("-"), -east, east), length, ~signed | plain


def uptime(buffer: LineBuffer, at: Array) -> tuple[Array, Array, Array]:
    """``[  123.456789] text`` at ``at``: whether it stands there, where the text begins, and the seconds."""
    window = buffer.windows(at, 24)
    line = np.arange(len(at))
    close = (window == ord("]")).argmax(axis=1)
    fine = (window[:, 0] == ord("[")) & (close >= 9) & (buffer.data[at + close + 1] == 32)
    point = np.maximum(close - 7, 1)
    fine &= window[line, point] == ord(".")
    inside = np.arange(24)
    whole = (inside >= 1) & (inside < point[:, None])
    digit = (window >= 48) & (window <= 57)
    # Blanks in front, then digits only.
    skipped = np.where(whole, window == 32, False).sum(axis=1)
    shown = whole & (inside > skipped[:, None])
    # Ten digits are seconds since 1970, as UCX writes them, and no uptime.
    fine &= (
        (~shown | digit).all(axis=1)
        & (shown.sum(axis=1) > 0)
        & (shown.sum(axis=1) < 10)
        & (shown.sum(axis=1) + skipped == point - 1)
    )
    seconds, numeric = number(buffer, at + skipped + 1, np.where(fine, point - 1 - skipped, 0))
    micros, well = number(buffer, at + point + 1, np.where(fine, 6, 0))
    fine &= numeric & well
    # One division of two exact numbers gives the nearest double, as reading the text would.
    return fine, at + close + 2, (seconds * 1_000_000 + micros) / 1_000_000
