"""Times at the edges of the calendar: years 1 to 9999, the range of both Python and the store.

Naive datetimes are UTC, as in the store. Arithmetic saturates at the edges: an hour before the first second of the year
1 is that second, not an error.
"""

from __future__ import annotations

from datetime import datetime, timedelta

EARLIEST = datetime.min
LATEST = datetime.max


def later(moment: datetime, by: timedelta) -> datetime:
    """``moment + by``, clamped to the calendar; ``by`` may be negative.

    >>> later(datetime(1, 1, 1), timedelta(days=-7))
    datetime.datetime(1, 1, 1, 0, 0)
    """
    try:
        return moment + by
    except OverflowError:
        return (LATEST if by > timedelta() else EARLIEST).replace(tzinfo=moment.tzinfo)


def utc(moment: datetime) -> datetime:
    """A time with a zone as naive UTC; one without is UTC already."""
    offset = moment.utcoffset()
    if offset is None:
        return moment
    naive = moment.replace(tzinfo=None, fold=0)
    return later(naive, -offset) if offset else naive


def rfc3339(moment: datetime) -> str:
    """Naive UTC as RFC 3339, with microseconds if there are any; the year always has four digits."""
    return f"{moment.replace(tzinfo=None).isoformat()}Z"
