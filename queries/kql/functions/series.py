"""series_*: arithmetic, statistics, filters, gaps and fits over numeric arrays."""

from __future__ import annotations

import cmath
import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from queries.kql.functions import series_decompose as decompose
from queries.kql.functions import series_fits as fits
from queries.kql.functions.declaration import Body, Function
from queries.kql.functions.series_items import Json, number, numbers


def _pairs(first: Json, second: Json) -> list[tuple[Any, Any]] | None:
    """Item by item; a scalar applies to every index, a missing item is null."""
    if not isinstance(first, list) and not isinstance(second, list):
        return None
    width = max(len(v) for v in (first, second) if isinstance(v, list))

    def at(values: Json, place: int) -> Any:
        if not isinstance(values, list):
            return number(values)
        return number(values[place]) if place < len(values) else None

    return [(at(first, i), at(second, i)) for i in range(width)]


def _binary(operation: Callable[[Any, Any], Any]) -> Callable[[Json, Json], list[Any] | None]:
    def run(first: Json, second: Json) -> list[Any] | None:
        pairs = _pairs(first, second)
        if pairs is None:
            return None
        return [None if a is None or b is None else _safe(operation, a, b) for a, b in pairs]

    return run


def _unary(operation: Callable[[Any], Any]) -> Callable[[Json], list[Any] | None]:
    def run(values: Json) -> list[Any] | None:
        if not isinstance(values, list):
            return None
        return [None if (n := number(v)) is None else _safe(operation, n) for v in values]

    return run


def _safe(operation: Callable[..., Any], *args: Any) -> Any:
    try:
        return operation(*args)
    except (ValueError, ArithmeticError):
        return math.nan


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a)


def _log(a: float) -> float:
    return -math.inf if a == 0 else math.log(a)


def _exact(values: Json) -> list[float] | None:
    """All items as numbers, or null if one is not."""
    found = numbers(values)
    return None if found is None or any(v is None for v in found) else [float(v) for v in found if v is not None]


def series_sum(values: Json) -> float | None:
    """The sum of a series."""
    found = _exact(values)
    return None if found is None else math.fsum(found)


def series_product(values: Json) -> float | None:
    """The product of a series."""
    found = _exact(values)
    return None if found is None else math.prod(found)


def series_magnitude(values: Json) -> float | None:
    """Square root of the sum of squares."""
    found = _exact(values)
    return None if found is None else math.sqrt(math.fsum(v * v for v in found))


def series_dot_product(first: Json, second: Json) -> float | None:
    """Sum of products, index by index."""
    pairs = _pairs(first, second)
    if pairs is None or any(a is None or b is None for a, b in pairs):
        return None
    return math.fsum(a * b for a, b in pairs)


def series_cosine_similarity(
    first: Json, second: Json, size1: float | None = None, size2: float | None = None
) -> float | None:
    """Cosine of the angle between two series."""
    top = series_dot_product(first, second)
    one = size1 if size1 is not None else series_magnitude(first)
    two = size2 if size2 is not None else series_magnitude(second)
    return None if top is None or not one or not two else top / (one * two)


def series_pearson_correlation(first: Json, second: Json) -> float | None:
    """Pearson's coefficient; null if a series is constant or an item is missing."""
    one, two = _exact(first), _exact(second)
    if one is None or two is None or len(one) != len(two) or len(one) < 2:
        return None
    mean1, mean2 = statistics.fmean(one), statistics.fmean(two)
    spread1 = math.fsum((a - mean1) ** 2 for a in one)
    spread2 = math.fsum((b - mean2) ** 2 for b in two)
    if not spread1 or not spread2:
        return math.nan
    return math.fsum((a - mean1) * (b - mean2) for a, b in zip(one, two, strict=True)) / math.sqrt(spread1 * spread2)


def _stats(values: Json, ignore: bool) -> tuple[list[float], list[int]] | None:
    found = numbers(values)
    if not found:
        return None
    kept = [(float(v), i) for i, v in enumerate(found) if v is not None and math.isfinite(v)]
    if not kept or (len(kept) < len(found) and not ignore):
        return None
    return [v for v, _ in kept], [i for _, i in kept]


def series_stats(values: Json, ignore_nonfinite: bool = False) -> list[Any] | None:
    """min, its index, max, its index, mean, standard deviation and variance (of a sample)."""
    found = _stats(values, ignore_nonfinite)
    if found is None:
        return None
    kept, places = found
    low, high = min(kept), max(kept)
    variance = statistics.variance(kept) if len(kept) > 1 else 0.0
    return [
        low,
        places[kept.index(low)],
        high,
        places[kept.index(high)],
        statistics.fmean(kept),
        math.sqrt(variance),
        variance,
    ]


def series_stats_dynamic(values: Json, ignore_nonfinite: bool = False) -> dict[str, Any] | None:
    """series_stats as a bag, with sum and length."""
    found = _stats(values, ignore_nonfinite)
    if found is None:
        return None
    made = dict(zip([n for n, _ in STATS], series_stats(values, ignore_nonfinite) or [], strict=True))
    return made | {"sum": math.fsum(found[0]), "len": len(values)}


#: Steps of a filter over one series; a few seconds' worth.
MOST_STEPS = 20_000_000


def _bounded(steps: int, name: str) -> None:
    if steps > MOST_STEPS:
        raise ValueError(f"kql: {name}() would take {steps} steps over one series; the limit is {MOST_STEPS}")


def series_fir(values: Json, taps: Json, normalize: bool | None = None, center: bool = False) -> list[Any] | None:
    """Finite impulse response: a weighted sum over the window; values before the series count as 0.

    Weights are normalised to a sum of 1 unless `normalize` is false or one is negative.
    """
    found, weights = numbers(values), _exact(taps)
    if found is None or not weights:
        return None
    if normalize or (normalize is None and min(weights) >= 0):
        total = math.fsum(weights)
        if not total or any(w < 0 for w in weights):
            return None
        weights = [w / total for w in weights]
    _bounded(len(found) * len(weights), "series_fir")
    shift = len(weights) // 2 if center else 0
    out: list[float] = []
    for place in range(len(found)):
        made = 0.0
        for tap, weight in enumerate(weights):
            at = place + shift - tap
            if 0 <= at < len(found):
                made += weight * float(found[at] or 0)
        out.append(made)
    return out


def series_iir(values: Json, numerators: Json, denominators: Json) -> list[float] | None:
    """Infinite impulse response: feed-forward over the input, feed-back over the output."""
    found, top, below = numbers(values), _exact(numerators), _exact(denominators)
    if found is None or not top or not below or not below[0]:
        return None
    _bounded(len(found) * (len(top) + len(below)), "series_iir")
    out: list[float] = []
    for place in range(len(found)):
        made = sum(b * float(found[place - i] or 0) for i, b in enumerate(top) if place >= i)
        made -= sum(a * out[place - i] for i, a in enumerate(below) if 0 < i <= place)
        out.append(made / below[0])
    return out


def _hole(value: Json, mark: Json) -> bool:
    if value is None:
        return mark is None
    return value == mark or (isinstance(mark, float) and math.isnan(mark) and value == "NaN")


def series_fill_const(values: Json, constant: Json = 0, mark: Json = None) -> list[Json] | None:
    """Gaps become a constant."""
    return [constant if _hole(v, mark) else v for v in values] if isinstance(values, list) else None


def series_fill_forward(values: Json, mark: Json = None) -> list[Json] | None:
    """Gaps take the value before them; gaps at the start stay."""
    if not isinstance(values, list):
        return None
    out: list[Json] = []
    for value in values:
        out.append(out[-1] if _hole(value, mark) and out else value)
    return out


def series_fill_backward(values: Json, mark: Json = None) -> list[Json] | None:
    """Gaps take the value after them; gaps at the end stay."""
    made = series_fill_forward(values[::-1], mark) if isinstance(values, list) else None
    return made[::-1] if made is not None else None


def series_fill_linear(values: Json, mark: Json = None, edges: bool = True, constant: Json = 0) -> list[Json] | None:
    """Gaps are interpolated between their neighbours, truncated to whole numbers in a series of whole numbers.

    Gaps at the ends take the nearest value; a series without values becomes a constant.
    """
    if not isinstance(values, list):
        return None
    known = [i for i, v in enumerate(values) if not _hole(v, mark) and number(v) is not None]
    if not known:
        return [float(constant) if isinstance(constant, int) else constant] * len(values)
    out: list[Json] = list(values)
    whole = all(isinstance(values[i], int) for i in known)
    for left, right in pairwise(known):
        low, high = number(values[left]), number(values[right])
        assert low is not None and high is not None
        for place in range(left + 1, right):
            between = low + (high - low) * (place - left) / (right - left)
            out[place] = int(between) if whole else between
    if edges:
        out[: known[0]] = [values[known[0]]] * known[0]
        out[known[-1] + 1 :] = [values[known[-1]]] * (len(values) - known[-1] - 1)
    return out


def _fft(inverse: bool) -> Callable[..., list[list[float]] | None]:
    def run(real: Json, imaginary: Json = None) -> list[list[float]] | None:
        first = _exact(real)
        second = _exact(imaginary) if imaginary is not None else [0.0] * len(first or [])
        if not first or second is None or len(first) != len(second):
            return None
        cells = [complex(a, b) for a, b in zip(first, second, strict=True)]
        made = _transform(cells, 1 if inverse else -1)
        scale = len(made) if inverse else 1
        return [[c.real / scale for c in made], [c.imag / scale for c in made]]

    return run


def _transform(cells: list[complex], sign: int) -> list[complex]:
    """Discrete Fourier transform: halves while the length is even, then the definition."""
    size = len(cells)
    if size == 1:
        return cells
    if size % 2:
        if size > 4096:
            raise ValueError("kql: series_fft() of this length is too slow; use a length that is a power of two")
        turn = [cmath.exp(sign * 2j * cmath.pi * k / size) for k in range(size)]
        return [sum((c * turn[k * i % size] for i, c in enumerate(cells)), 0j) for k in range(size)]
    even, odd = _transform(cells[::2], sign), _transform(cells[1::2], sign)
    bent = [cmath.exp(sign * 2j * cmath.pi * k / size) * c for k, c in enumerate(odd)]
    return [a + b for a, b in zip(even, bent, strict=True)] + [a - b for a, b in zip(even, bent, strict=True)]


STATS = (("min", "real"), ("min_idx", "long"), ("max", "real"), ("max_idx", "long"), ("avg", "real"), ("stdev", "real"),
         ("variance", "real"))  # fmt: skip
_REAL, _IMAGINARY = ("real", "dynamic"), ("imag", "dynamic")


def _overloads(
    kinds: str, optional: str, run: Callable[..., Any], result: str = "dynamic", **more: Any
) -> tuple[Body, ...]:
    """One body for each count of optional arguments."""
    extra = optional.split()
    return tuple(Body(" ".join([kinds, *extra[:n]]), result, run, **more) for n in range(len(extra) + 1))


def _two(result: str, run: Callable[..., Any]) -> tuple[Body, ...]:
    """One body for each place where a number may stand instead of an array."""
    return tuple(Body(kinds, result, run) for kinds in ("d d", "d l", "l d", "d r", "r d"))


def _of_each(name: str, doc: str, operation: Callable[[Any], Any]) -> Function:
    return Function(f"series_{name}", doc, Body("d", "dynamic", _unary(operation)))


def _of_both(name: str, doc: str, operation: Callable[[Any, Any], Any]) -> Function:
    return Function(f"series_{name}", doc, *_two("dynamic", _binary(operation)))


FUNCTIONS = (
    _of_each("exp", "e to the power of each item.", math.exp),
    _of_each("sign", "The sign of each item.", lambda a: (a > 0) - (a < 0)),
    _of_each("abs", "The absolute value of each item.", abs),
    _of_each("sin", "The sine of each item.", math.sin),
    _of_each("asin", "The angle whose sine each item is.", math.asin),
    _of_each("cos", "The cosine of each item.", math.cos),
    _of_each("acos", "The angle whose cosine each item is.", math.acos),
    _of_each("tan", "The tangent of each item.", math.tan),
    _of_each("atan", "The angle whose tangent each item is.", math.atan),
    _of_each("log", "The natural logarithm of each item.", _log),
    _of_each("floor", "Each item rounded down.", math.floor),
    _of_each("ceiling", "Each item rounded up.", math.ceil),
    _of_both("add", "The sum, place by place.", lambda a, b: a + b),
    _of_both("subtract", "The difference, place by place.", lambda a, b: a - b),
    _of_both("multiply", "The product, place by place.", lambda a, b: a * b),
    _of_both("divide", "The quotient, place by place.", _divide),
    _of_both("pow", "The power, place by place.", lambda a, b: math.pow(a, b)),
    _of_both("greater", "Whether the first is greater, place by place.", lambda a, b: a > b),
    _of_both("greater_equals", "Whether the first is greater or equal, place by place.", lambda a, b: a >= b),
    _of_both("less", "Whether the first is less, place by place.", lambda a, b: a < b),
    _of_both("less_equals", "Whether the first is less or equal, place by place.", lambda a, b: a <= b),
    _of_both("equals", "Whether both are equal, place by place.", lambda a, b: a == b),
    _of_both("not_equals", "Whether both differ, place by place.", lambda a, b: a != b),
    Function("series_sum", "The sum of the items.", Body("d", "real", series_sum)),
    Function("series_product", "The product of the items.", Body("d", "real", series_product)),
    Function("series_magnitude", "The square root of the sum of squares.", Body("d", "real", series_magnitude)),
    Function("series_dot_product", "The sum of the products, place by place.", *_two("real", series_dot_product)),
    Function(
        "series_cosine_similarity",
        "The cosine of the angle between two series.",
        *_overloads("d d", "r r", series_cosine_similarity, "real"),
    ),
    Function(
        "series_pearson_correlation",
        "Pearson's correlation of two series.",
        Body("d d", "real", series_pearson_correlation),
    ),
    Function(
        "series_stats",
        "Minimum, maximum, their places, mean, standard deviation and variance, a column each.",
        *_overloads("d", "b", series_stats, parts=STATS),
    ),
    Function(
        "series_stats_dynamic",
        "What series_stats gives, as a bag, with sum and length.",
        *_overloads("d", "b", series_stats_dynamic),
    ),
    Function(
        "series_fir",
        "A finite impulse response filter: a weighted sum over a window.",
        *_overloads("d d", "b b", series_fir),
    ),
    Function("series_iir", "An infinite impulse response filter.", Body("d d d", "dynamic", series_iir)),
    Function(
        "series_fill_const", "The missing items as a constant.", *_overloads("d", "D D", series_fill_const, nulls=True)
    ),
    Function(
        "series_fill_forward",
        "The missing items as the item before them.",
        *_overloads("d", "D", series_fill_forward, nulls=True),
    ),
    Function(
        "series_fill_backward",
        "The missing items as the item after them.",
        *_overloads("d", "D", series_fill_backward, nulls=True),
    ),
    Function(
        "series_fill_linear",
        "The missing items on the line between their neighbours.",
        *_overloads("d", "D b D", series_fill_linear, nulls=True),
    ),
    Function(
        "series_fft",
        "The discrete Fourier transform, real and imaginary parts.",
        *_overloads("d", "d", _fft(False), parts=(_REAL, _IMAGINARY)),
    ),
    Function(
        "series_ifft",
        "The inverse discrete Fourier transform, real and imaginary parts.",
        *_overloads("d", "d", _fft(True), parts=(_REAL, _IMAGINARY)),
    ),
    Function(
        "series_fit_line",
        "The line that fits best, a column for each figure of it.",
        Body("d", "dynamic", fits.line, parts=fits.LINE),
    ),
    Function("series_fit_line_dynamic", "What series_fit_line gives, as a bag.", Body("d", "dynamic", fits.line_bag)),
    Function(
        "series_fit_2lines",
        "The two lines that fit best, a column for each figure of them.",
        Body("d", "dynamic", fits.two_lines, parts=fits.TWO_LINES),
    ),
    Function(
        "series_fit_2lines_dynamic", "What series_fit_2lines gives, as a bag.", Body("d", "dynamic", fits.two_lines_bag)
    ),
    Function(
        "series_fit_poly",
        "The polynomial that fits best.",
        Body("d", "dynamic", fits.poly, parts=fits.POLY),
        Body("d l", "dynamic", fits.poly_degree, parts=fits.POLY),
        Body("d d", "dynamic", fits.poly, parts=fits.POLY),
        Body("d d l", "dynamic", fits.poly, parts=fits.POLY),
    ),
    Function(
        "series_outliers",
        "How far each item lies beyond Tukey's fence.",
        *_overloads("d", "s D r r", decompose.outliers, nulls=True),
    ),
    Function("series_seasonal", "The seasonal part of the series.", *_overloads("d", "l l", decompose.seasonal)),
    Function(
        "series_decompose",
        "Baseline, season, trend and residual.",
        *_overloads("d", "l s l r", decompose.decompose, parts=decompose.PARTS),
    ),
    Function(
        "series_decompose_forecast",
        "series_decompose with the last items forecast from those before.",
        *_overloads("d l", "l s r", decompose.forecast, parts=decompose.PARTS),
    ),
    Function(
        "series_decompose_anomalies",
        "Flags and scores of the items that the decomposition does not explain.",
        *_overloads("d", "r l s l s r", decompose.anomalies, parts=decompose.ANOMALY_PARTS),
    ),
)
