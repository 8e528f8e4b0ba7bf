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
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3] + " UTC"
