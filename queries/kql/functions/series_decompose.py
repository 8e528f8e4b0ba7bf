"""Season, trend and outliers of a series, as Kusto documents them.

The season is the median of the points of one phase, the trend the mean or line of the remainder, the baseline their
sum, the score of an anomaly Tukey's fence over the residuals. Two things Kusto does not publish: how a period is found
(here: the first peak of the autocorrelation above the threshold) and how percentiles of the fence are interpolated
(here: linearly). Flags agree where the data is clear; scores may differ in the last digits.
"""

from __future__ import annotations

import math
import statistics
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from queries.kql.functions.series_fits import line_through
from queries.kql.functions.series_items import Json, numbers

PARTS = (("baseline", "dynamic"), ("seasonal", "dynamic"), ("trend", "dynamic"), ("residual", "dynamic"))
ANOMALY_PARTS = (("ad_flag", "dynamic"), ("ad_score", "dynamic"), ("baseline", "dynamic"))
# A normal sample has P90-P10 = 2.5631 sigma and Q3-Q1 = 1.3490 sigma; this makes fences of both kinds equivalent.
_CUSTOM_TO_QUARTILE = 1.3490 / 2.5631
#: Autocorrelations are at most about 1, and the error of the Fourier transform is far below this.
_AS_GOOD_AS_EQUAL = 1e-9


def _filled(values: Json) -> list[float] | None:
    """The series with its gaps interpolated linearly between their neighbours."""
    found = numbers(values)
    if not found:
        return None
    known = [i for i, v in enumerate(found) if v is not None and math.isfinite(v)]
    if not known:
        return None
    out: list[float] = [float(found[known[0]] or 0)] * known[0]
    for left, right in pairwise(known):
        low, high = float(found[left] or 0), float(found[right] or 0)
        out.append(low)
        out += [low + (high - low) * (place - left) / (right - left) for place in range(left + 1, right)]
    return out + [float(found[known[-1]] or 0)] * (len(found) - known[-1])


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def outliers(
    values: Json, kind: str = "ctukey", ignored: Json = None, low: float = 10.0, high: float = 90.0
) -> list[float] | None:
    """How far each point is beyond the fence, in interquartile ranges; 0 within."""
    found = numbers(values)
    if not found:
        return None
    custom = (kind or "ctukey").lower() == "ctukey"
    shares = (low / 100, high / 100) if custom else (0.25, 0.75)
    sample = [float(v) for v in found if v is not None and math.isfinite(v) and v != ignored]
    if len(sample) < 2:
        return [0.0] * len(found)
    bottom, top = _quantile(sample, shares[0]), _quantile(sample, shares[1])
    span = (top - bottom) * (_CUSTOM_TO_QUARTILE if custom else 1.0)
    if span <= 0:
        span = statistics.pstdev(sample)
    out = []
    for value in found:
        if value is None or not math.isfinite(value) or not span:
            out.append(0.0)
        else:
            out.append((value - top) / span if value > top else (value - bottom) / span if value < bottom else 0.0)
    return out


def _period(y: list[float], threshold: float) -> int:
    """The shift at which the series is most similar to itself, 0 if nothing passes the threshold."""
    count = len(y)
    mean = statistics.fmean(y)
    centred = [v - mean for v in y]
    whole = math.fsum(v * v for v in centred)
    if not whole or count < 8:
        return 0

    @cache
    def exact(shift: int) -> float:
        if not shift:
            return 1.0
        overlap = math.fsum(a * b for a, b in zip(centred, centred[shift:], strict=False))
        return overlap / whole * count / (count - shift)

    # All shifts at once by Fourier, exact to many digits; if two scores are nearly equal, the exact sums decide.
    spectrum = np.fft.rfft(centred, 2 * count)
    shifts = np.arange(count // 2 + 1)
    overlaps = np.fft.irfft(spectrum * spectrum.conj(), 2 * count)[: len(shifts)]
    rough = (overlaps / whole * count / (count - shifts)).tolist()

    def above(one: int, other: int, share: float = 1.0) -> float:
        """How far a score is above a share of another."""
        far = rough[one] - share * rough[other]
        return far if abs(far) > _AS_GOOD_AS_EQUAL else exact(one) - share * exact(other)

    peaks = [s for s in range(2, len(rough) - 1) if above(s, s - 1) >= 0 and above(s, s + 1) > 0]
    top = max((rough[s] for s in peaks), default=0.0) - _AS_GOOD_AS_EQUAL
    best = max((s for s in peaks if rough[s] >= top), key=exact, default=0)
    if not best or exact(best) < threshold:
        return 0
    return min(s for s in peaks if above(s, best, 0.95) >= 0)


def _season(y: list[float], period: int) -> list[float]:
    if period <= 1:
        return [0.0] * len(y)
    medians = [statistics.median(y[phase::period]) for phase in range(min(period, len(y)))]
    return [medians[i % period] for i in range(len(y))]


def _split(
    values: Json, period: int, trend: str, test_points: int, threshold: float
) -> tuple[list[float], list[float], list[float], list[float]] | None:
    y = _filled(values)
    if y is None:
        return None
    learnt = y[: len(y) - test_points] if 0 < test_points < len(y) else y
    size = period if period >= 0 else _period(learnt, threshold)
    phases = _season(learnt, size)
    seasonal = [phases[i % size] if size > 1 and size <= len(phases) else 0.0 for i in range(len(y))]
    rest = [a - b for a, b in zip(learnt, seasonal, strict=False)]
    word = (trend or "avg").lower()
    if word not in ("avg", "linefit", "none"):
        raise ValueError("kql: the trend is 'avg', 'linefit' or 'none'")
    slope, base = (
        line_through(rest)
        if word == "linefit" and len(rest) > 1
        else (0.0, statistics.fmean(rest) if word == "avg" else 0.0)
    )
    line = [base + slope * i for i in range(len(y))]
    baseline = [a + b for a, b in zip(seasonal, line, strict=True)]
    return baseline, seasonal, line, [a - b for a, b in zip(y, baseline, strict=True)]


def seasonal(values: Json, period: int = -1, test_points: int = 0) -> list[float] | None:
    """The seasonal part alone: medians of each phase."""
    made = _split(values, period, "none", test_points, 0.6)
    return None if made is None else made[1]


def decompose(
    values: Json, period: int = -1, trend: str = "avg", test_points: int = 0, threshold: float = 0.6
) -> list[list[float]] | None:
    """baseline, season, trend, residual."""
    made = _split(values, period, trend, test_points, threshold)
    return None if made is None else list(made)


def forecast(
    values: Json, points: int, period: int = -1, trend: str = "linefit", threshold: float = 0.6
) -> list[list[float]] | None:
    """decompose, with the last points forecast from those before."""
    return decompose(values, period, trend, points, threshold)


def anomalies(
    values: Json, threshold: float = 1.5, period: int = -1, trend: str = "avg", test_points: int = 0,
    method: str = "ctukey", season_threshold: float = 0.6,
) -> list[list[Any]] | None:  # fmt: skip
    """Flags +1, -1 or 0, the scores, and the baseline."""
    made = _split(values, period, trend, test_points, season_threshold)
    if made is None:
        return None
    scores = outliers(made[3], method) or []
    flags = [1 if s > threshold else -1 if s < -threshold else 0 for s in scores]
    return [flags, scores, made[0]]
