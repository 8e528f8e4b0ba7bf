"""Timestamps as senders write them, in microseconds since 1970: :func:`collector.receivers.base.micros` for a whole
column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from collector.columnar import otlp_tables as t
from collector.columnar.objects import PLACE, Objects
from collector.columnar.otlp_tables import Array
from parsers.compiled import compiled, part
from parsers.lines import column
from parsers.record import FIRST_MOMENT, LAST_MOMENT

#: State of a timestamp: absent, parsed, or left to the library.
_NONE, _READ, _LEFT = range(3)
#: Up to these a double represents every whole number and every power of ten exactly.
_EXACT, _POWER = 1 << 53, 22
_POWERS = np.array([10.0**power for power in range(_POWER + 1)])
_DAYS = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365], np.int64)
#: From the first day of the year 0001, which is day 1.
_DAYS_TO_1970 = 719_163
_DIGITS, _NANOSECONDS = 19, 1e17
_MINUS, _PLUS, _COLON, _POINT, _ZERO, _EIGHT, _NINE, _BIG_T, _BIG_Z, _SPACE = b"-+:.089TZ "
TEXT, INTEGER, FRACTION, OTHER = t.TEXT, t.INTEGER, t.FRACTION, t.OTHER


def moments(objects: Objects, slots: Array, micros: Callable[[Any], int | None]) -> pl.Series:
    """The values in ``slots`` as timestamps, null where there is none. ``micros`` parses rare forms."""
    found, states = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.int64)
    _moments(objects.tables.texts, objects.tables.attributes, np.ascontiguousarray(slots), found, states)
    left = np.flatnonzero(states == _LEFT)
    if len(left):
        which, values = objects.values(slots[left])
        read = [micros(value) for value in values]
        found[left] = np.array([moment or 0 for moment in read], np.int64)[which]
        states[left] = np.array([moment is not None for moment in read])[which]
    is_moment = (states == _READ) & (found >= FIRST_MOMENT) & (found <= LAST_MOMENT)
    return column(found, is_moment, pa.int64())


@part
def _digits(data: Array, at: int, count: int) -> int:
    """``count`` digits as a number; below zero if they are not digits."""
    value = 0
    for place in range(at, at + count):
        if not _ZERO <= data[place] <= _NINE:
            return -(1 << 40)
        value = 10 * value + int(data[place]) - _ZERO
    return value


@part
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970; below -1e6 if there is no such day."""
    if not (1 <= year <= 9999 and 1 <= month <= 12 and day >= 1):
        return -(1 << 30)
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    if day > _DAYS[month] - _DAYS[month - 1] + (leap and month == 2):
        return -(1 << 30)
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400 + (leap and month > 2)
    return 365 * before + leaps + int(_DAYS[month - 1]) + day - _DAYS_TO_1970


@part
def _stamp(data: Array, at: int, size: int) -> tuple[int, bool]:
    """``2026-11-21T10:00:00.123456+01:00`` with more or fewer decimals, ``Z`` or no zone; false if it is not one."""
    end = at + size
    if (
        size < 19
        or data[at + 4] != _MINUS
        or data[at + 7] != _MINUS
        or data[at + 13] != _COLON
        or data[at + 16] != _COLON
    ):
        return 0, False
    if data[at + 10] != _BIG_T and data[at + 10] != _SPACE:
        return 0, False
    days = _days(_digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2))
    hours, minutes, seconds = _digits(data, at + 11, 2), _digits(data, at + 14, 2), _digits(data, at + 17, 2)
    if days < -1_000_000 or not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60):
        return 0, False
    part_of, at = 0, at + 19
    if at < end and data[at] == _POINT:
        first, at = at + 1, at + 1
        while at < end and _ZERO <= data[at] <= _NINE:
            if at < first + 6:
                part_of = 10 * part_of + int(data[at]) - _ZERO
            at += 1
        if at == first or at > first + 9:
            return 0, False
        for _ in range(at, first + 6):
            part_of *= 10
    found = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if at < end:
        sign = data[at]
        if sign == _BIG_Z:
            at += 1
        elif sign in (_PLUS, _MINUS) and end - at == 6 and data[at + 3] == _COLON:
            hours, minutes = _digits(data, at + 1, 2), _digits(data, at + 4, 2)
            if not (0 <= hours < 24 and 0 <= minutes < 60):
                return 0, False
            found += (hours * 3600 + minutes * 60) * (1 if sign == _MINUS else -1)
            at += 6
    moment = found * 1_000_000 + part_of
    return moment, at == end and -_EXACT < moment < _EXACT


@part
def _of_number(value: float) -> tuple[int, bool]:
    """A number of seconds, milli-, micro- or nanoseconds; false if it is too large."""
    size = abs(value)
    if size < 1e11:
        return int(value * 1e6), True
    if size < 1e14:
        return int(value * 1e3), True
    if size < _NANOSECONDS:
        return int(value), True
    return (int(value * 1e-3), True) if size < 1e20 else (0, False)


@part
def _fraction(data: Array, at: int, size: int) -> tuple[int, int]:
    """A number with a decimal point: the timestamp, and whether it was parsed."""
    begin, end, whole, behind = at + (data[at] == _MINUS), at + size, 0, -1
    for place in range(begin, end):
        if data[place] == _POINT:
            behind = 0
        elif whole < _EXACT // 10 - 1 and _ZERO <= data[place] <= _NINE:
            whole = 10 * whole + int(data[place]) - _ZERO
            behind += behind >= 0
        else:
            return 0, _LEFT
    if behind < 0 or behind > _POWER:
        return 0, _LEFT
    # One division of exact numbers gives the nearest double, as in any parser.
    value = whole / _POWERS[behind]
    moment, is_one = _of_number(-value if data[at] == _MINUS else value)
    return moment, _READ if is_one else _NONE


@compiled
def _moments(data: Array, attributes: Array, slots: Array, found: Array, states: Array) -> None:
    for row in range(len(slots)):
        if slots[row] < 0:
            continue
        held = attributes[slots[row]]
        kind, at, size = held[t.KIND], held[PLACE], held[t.VALUE_SIZE]
        if kind == TEXT:
            found[row], is_one = _stamp(data, at, size)
            states[row] = _READ if is_one else _LEFT
        elif kind == INTEGER or (kind == OTHER and size == _DIGITS and data[at] <= _EIGHT and data[at] != _MINUS):
            value = held[t.VALUE] if kind == INTEGER else _digits(data, at, _DIGITS)
            # Nanoseconds stay exact: a double has 53 bits.
            found[row] = value // 1000 if abs(float(value)) >= _NANOSECONDS else _of_number(float(value))[0]
            states[row] = _READ
        elif kind == FRACTION:
            found[row], states[row] = _fraction(data, at, size)
        elif kind == OTHER:
            states[row] = _LEFT
