"""Moments as seconds since the epoch, from the store's timestamps and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl

#: How far from the end of a run an error line without a timestamp may have been written, seconds.
UNSTAMPED_S = 60.0
_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)


def seconds_of(moment: datetime | None) -> float | None:
    return None if moment is None else (moment - _EPOCH).total_seconds()


def seconds(microseconds: int | None) -> float | None:
    """Divides as Python does: Polars multiplies by the reciprocal, which is not the same number for all moments."""
    return None if microseconds is None else microseconds / 1e6


def all_seconds(microseconds: pl.Series) -> list[Any]:
    """``seconds`` of each: NumPy divides as Python does."""
    if nothing := microseconds.null_count():
        if nothing == len(microseconds):
            return [None] * nothing
        return [None if t is None else t / 1e6 for t in microseconds.to_list()]
    found: list[Any] = (microseconds.to_numpy() / 1e6).tolist()
    return found


def moment_of(seconds: float | None) -> datetime | None:
    return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
