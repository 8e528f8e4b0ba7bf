"""Moments as texts of documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1)


@lru_cache(maxsize=8192)  # an event is in its incident, in verdicts, chains and spans
def stamp(seconds: float | None) -> str | None:
    """RFC 3339 UTC with microseconds, or null."""
    if seconds is None:
        return None
    whole, fraction = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_whole_second(whole)}.{fraction:06d}Z"


@lru_cache(maxsize=1024)  # events come in bursts
def _whole_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


@lru_cache(maxsize=8192)
def clock(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC)  # strftime takes three times as long
    return f"{at.hour:02}:{at.minute:02}:{at.second:02}.{at.microsecond // 1000:03} UTC"


def lasting(seconds: float) -> str:
    """A duration that is no less exact than a reader needs: 60.4 s, 52 min, 3 h 20 min, 2 d 21 h."""
    if seconds < 600:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
