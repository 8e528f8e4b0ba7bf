"""Least-squares fits of a series over its indices: one line, two lines, a polynomial."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from queries.kql.functions.series_items import Json, numbers

_QUALITY = (
    ("rsquare", "real"),
    ("slope", "real"),
    ("variance", "real"),
    ("rvariance", "real"),
    ("interception", "real"),
)
LINE = (*_QUALITY, ("line_fit", "dynamic"))
_SIDE = ("rsquare", "slope", "interception", "variance", "rvariance")
TWO_LINES = (
    ("rsquare", "real"), ("split_idx", "long"), ("variance", "real"), ("rvariance", "real"), ("line_fit", "dynamic"),
    *((f"right_{n}", "real") for n in _SIDE), *((f"left_{n}", "real") for n in _SIDE),
)  # fmt: skip
POLY = (
    ("rsquare", "real"),
    ("coefficients", "dynamic"),
    ("variance", "real"),
    ("rvariance", "real"),
    ("poly_fit", "dynamic"),
)
MAX_DEGREE = 20


def _series(values: Json) -> list[float] | None:
    found = numbers(values)
    if found is None or len(found) < 2 or any(v is None or not math.isfinite(v) for v in found):
        return None
    return [float(v) for v in found if v is not None]


def line_through(y: list[float], start: int = 0) -> tuple[float, float]:
    """Slope and the value at index 0 of the least-squares line. Kusto counts indices from 1 in `interception`."""
    count = len(y)
    middle, mean = start + (count - 1) / 2, statistics.fmean(y)
    spread = count * (count * count - 1) / 12
    slope = math.fsum((start + i - middle) * (v - mean) for i, v in enumerate(y)) / spread if spread else 0.0
    return slope, mean - slope * middle


def _variance(y: list[float]) -> float:
    return statistics.variance(y) if len(y) > 1 else 0.0


def _quality(y: list[float], fit: list[float]) -> tuple[float, float, float]:
    """R², variance of the data, variance of the residuals."""
    left = [a - b for a, b in zip(y, fit, strict=True)]
    whole, rest = _variance(y), _variance(left)
    return (1 - rest / whole if whole else 1.0), whole, rest


def line(values: Json) -> list[Any] | None:
    """One line through all points."""
    y = _series(values)
    if y is None:
        return None
    slope, base = line_through(y)
    fit = [base + slope * i for i in range(len(y))]
    rsquare, whole, rest = _quality(y, fit)
    return [rsquare, slope, whole, rest, base - slope, fit]


def line_bag(values: Json) -> dict[str, Any] | None:
    """series_fit_line as a bag."""
    made = line(values)
    return None if made is None else dict(zip([n for n, _ in LINE], made, strict=True))


def _side(y: list[float], start: int) -> tuple[dict[str, float], list[float]]:
    slope, base = line_through(y, start)
    fit = [base + slope * (start + i) for i in range(len(y))]
    rsquare, whole, rest = _quality(y, fit)
    made = {"rsquare": rsquare, "slope": slope, "interception": base - slope, "variance": whole, "rvariance": rest}
    return made, fit


def _promising(y: list[float]) -> list[int]:
    """Where to split, without the indices that are clearly worse than the best.

    The residuals of two lines are known at every index from running sums, which are slightly inexact: the exact sums
    decide among the close ones.
    """
    places = np.arange(2, len(y) - 1)
    centred = np.array(y) - statistics.fmean(y)
    along = np.arange(len(y)) - (len(y) - 1) / 2
    sums = [
        np.concatenate([[0.0], np.cumsum(v)])
        for v in (centred, centred * centred, along, along * along, along * centred)
    ]

    def left_over(first: Any, last: Any) -> Any:
        count = last - first
        s_y, s_yy, s_x, s_xx, s_xy = (total[last] - total[first] for total in sums)
        slope_part = (s_xy - s_x * s_y / count) ** 2 / (s_xx - s_x * s_x / count)
        return s_yy - s_y * s_y / count - slope_part

    rough = left_over(np.zeros_like(places), places) + left_over(places, np.full_like(places, len(y)))
    slack = 1e-6 * float(sums[1][-1]) + 2e-12
    return [int(p) for p in places[rough <= rough.min() + slack]]


def _two(values: Json) -> tuple[list[float], int, dict[str, float], dict[str, float], list[float]] | None:
    y = _series(values)
    if y is None or len(y) < 4:
        return None
    best: tuple[float, int] | None = None
    for split in _promising(y):
        _, left = _side(y[:split], 0)
        _, right = _side(y[split:], split)
        error = math.fsum((a - b) ** 2 for a, b in zip(y, left + right, strict=True))
        if best is None or error < best[0] - 1e-12:
            best = (error, split)
        if best[0] <= 1e-12:
            break  # no other can be better by more
    assert best is not None
    left_side, left = _side(y[: best[1]], 0)
    right_side, right = _side(y[best[1] :], best[1])
    return y, best[1], left_side, right_side, left + right


def two_lines(values: Json) -> list[Any] | None:
    """Two lines that meet where the fit is best."""
    made = _two(values)
    if made is None:
        return None
    y, split, left, right, fit = made
    rsquare, whole, rest = _quality(y, fit)
    return [rsquare, split, whole, rest, fit, *(right[n] for n in _SIDE), *(left[n] for n in _SIDE)]


def two_lines_bag(values: Json) -> dict[str, Any] | None:
    """series_fit_2lines as a bag with a bag for each side."""
    made = _two(values)
    if made is None:
        return None
    y, split, left, right, fit = made
    rsquare, whole, rest = _quality(y, fit)
    return {"rsquare": rsquare, "split_idx": split, "variance": whole, "rvariance": rest, "line_fit": fit,
            "left": left, "right": right}  # fmt: skip


def poly_degree(values: Json, degree: int) -> list[Any] | None:
    """A polynomial over the indices."""
    return poly(values, None, degree)


def poly(values: Json, over: Json = None, degree: int = 5) -> list[Any] | None:
    """A polynomial over x, or over the indices; coefficients from the highest power down."""
    y = _series(values)
    x = _series(over) if over is not None else (None if y is None else [float(i) for i in range(len(y))])
    if y is None or x is None or len(x) != len(y) or not 1 <= degree <= MAX_DEGREE or len(y) <= degree:
        return None
    coefficients = np.polyfit(x, y, degree)
    fit = [float(v) for v in np.polyval(coefficients, x)]
    rsquare, whole, rest = _quality(y, fit)
    return [rsquare, [float(c) for c in coefficients], whole, rest, fit]
