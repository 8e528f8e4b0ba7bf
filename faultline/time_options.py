"""The options --since and --until."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from faultline.failure import CommandError
from parsers.moments import later, utc


def span(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Both time options; an end that is not after its start is refused instead of giving an empty answer."""
    low, high = moment(since), moment(until)
    if low is not None and high is not None and low >= high:
        raise CommandError(f"--since {since} is not before --until {until}; give the earlier time first")
    return low, high


def moment(text: str | None) -> datetime | None:
    """A time option as naive UTC: RFC 3339, or an age (30m, 24h, 7d) before now."""
    if text is None:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdecimal():
        with suppress(OverflowError):  # longer than time can be: no time
            age = timedelta(seconds=float(text[:-1]) * units[text[-1]])
            return later(datetime.now(UTC).replace(tzinfo=None), -age)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{text!r} is not a time; use 2026-11-21T00:30:00Z, or an age such as 24h") from error
    return utc(found)
