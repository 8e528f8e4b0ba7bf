"""The time zone of a page: UTC, or the one that its reader chose.

The store, the API, addresses and downloads keep UTC. ``?zone=Europe/Berlin`` pins a page, then the cookie of the top
bar's switch, else it is UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from parsers.moments import later
from parsers.zones import find

UTC_NAME = "UTC"
#: No name of IANA's database is longer than 32 letters.
_LONGEST = 64
_shown: ContextVar[str] = ContextVar("zone", default=UTC_NAME)


def chosen(*choices: str | None) -> str:
    """The first of these names that the time zone database knows; UTC if none is."""
    for name in choices:
        if name and len(name) <= _LONGEST and find(name):
            return name
    return UTC_NAME


@contextmanager
def shown_in(name: str) -> Iterator[None]:
    """A context in which ``local`` and ``name_at`` use this zone."""
    token = _shown.set(name)
    try:
        yield
    finally:
        _shown.reset(token)


def local(moment: datetime) -> datetime:
    """Naive UTC as the naive wall clock of the zone."""
    name = _shown.get()
    return moment if name == UTC_NAME else later(moment, _offset(moment, name))


def name_at(moment: datetime | None = None) -> str:
    """The zone's offset from UTC at a moment (naive UTC; now by default): UTC, UTC+02, UTC−03:30.

    Abbreviations are not used: CST is three zones.
    """
    name = _shown.get()
    if name == UTC_NAME:
        return UTC_NAME
    offset = _offset(moment or datetime.now(UTC).replace(tzinfo=None), name)
    minutes = round(offset.total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'−' if minutes < 0 else '+'}{hours:02d}" + (f":{rest:02d}" if rest else "")


def _offset(moment: datetime, name: str) -> timedelta:
    """East of UTC; at the edges of the calendar as a day within them."""
    zone = find(name) or UTC
    try:
        aware = moment.replace(tzinfo=UTC).astimezone(zone)
    except OverflowError:
        day = timedelta(days=1)
        aware = (moment + day if moment.year == 1 else moment - day).replace(tzinfo=UTC).astimezone(zone)
    return aware.utcoffset() or timedelta()
