"""From the weight of the evidence to how often it is right: confidence learned on situations with known causes.

``calibration.toml`` holds, per family of categories, the points of a rising line (raw weight share -> share that was
right). ``benchmarks/calibration.py`` makes the situations, fits the line by pool-adjacent-violators and prints the
reliability on seeds of its own; docs/correlation.md shows it. A family without a line keeps its raw value.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("calibration.toml")

Line = Sequence[tuple[float, float]]

#: The highest confidence: a cause that was not collected can never be excluded.
SUREST = 0.99


def family_of(category: str) -> str:
    """``infra``, ``app``, ``user``, ``sched`` or ``unknown``: each is wrong in its own ways."""
    return category.split(".", 1)[0]


@cache
def lines() -> Mapping[str, Line]:
    """The learned lines by family."""
    table = tomllib.loads(FILE.read_text(encoding="utf-8")).get("line", {})
    return {name: tuple((float(x), float(y)) for x, y in points) for name, points in table.items()}


def calibrated(category: str, raw: float) -> float:
    """The share of verdicts of this family and raw confidence that was right; ``raw`` if nothing was learned."""
    line = lines().get(family_of(category))
    return raw if not line else min(SUREST, along(line, raw))


def along(line: Line, x: float) -> float:
    """Linear between the points, constant outside."""
    place = bisect_right([p[0] for p in line], x)
    if place == 0:
        return line[0][1]
    if place == len(line):
        return line[-1][1]
    (x0, y0), (x1, y1) = line[place - 1], line[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def raw_of(category: str, calibrated_value: float) -> float:
    """The inverse of ``calibrated``; the middle of the range where the line is level."""
    line = lines().get(family_of(category))
    if not line:
        return calibrated_value
    steps = [n / 1000.0 for n in range(1001)]
    differences = [abs(min(SUREST, along(line, x)) - calibrated_value) for x in steps]
    least = min(differences)
    near = [x for x, d in zip(steps, differences, strict=True) if d <= least + 1e-9]
    return (near[0] + near[-1]) / 2.0


def answered(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[float, bool]]]:
    """Operators' answers (each person's last one on each run) as pairs to fit: family -> (raw, right)."""
    found: dict[str, list[tuple[float, bool]]] = {}
    for row in rows:
        category = str(row["said_category"])
        pair = (raw_of(category, float(row["said_confidence"])), row["answer"] == "confirmed")
        found.setdefault(family_of(category), []).append(pair)
    return found


#: A point of the line needs at least this many cases; fewer would follow the noise.
CASES = 25


def fit(pairs: Iterable[tuple[float, bool]]) -> list[tuple[float, float]]:
    """Isotonic regression (pool adjacent violators) over (raw, right), one half case added on each side of a pool."""
    groups: dict[float, list[float]] = {}  # raw -> sum of raw, right, cases: equal values are never split
    for raw, right in pairs:
        group = groups.setdefault(round(raw, 3), [0.0, 0.0, 0.0])
        group[0], group[1], group[2] = group[0] + raw, group[1] + right, group[2] + 1
    pools: list[list[float]] = []
    for raw in sorted(groups):
        if pools and pools[-1][2] < CASES:
            pools[-1] = [a + b for a, b in zip(pools[-1], groups[raw], strict=True)]
        else:
            pools.append(groups[raw])
        while len(pools) > 1 and pools[-1][2] >= CASES and _share(pools[-2]) >= _share(pools[-1]):
            top = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], top, strict=True)]
    if len(pools) > 1 and pools[-1][2] < CASES:
        top = pools.pop()
        pools[-1] = [a + b for a, b in zip(pools[-1], top, strict=True)]
    return [(round(p[0] / p[2], 4), round(_share(p), 4)) for p in pools]


def _share(pool: Sequence[float]) -> float:
    return (pool[1] + 0.5) / (pool[2] + 1.0)


@dataclass(frozen=True)
class Bin:
    """Statements with a confidence in [low, high): how many, what was stated on average, what share was right."""

    low: float
    high: float
    count: int
    stated: float
    right: float


def reliability(pairs: Iterable[tuple[float, bool]], bins: int = 10) -> list[Bin]:
    """The reliability diagram as rows; empty bins are left out. A confidence of 1 falls into the last bin."""
    groups: dict[int, list[tuple[float, bool]]] = {}
    for stated, right in pairs:
        groups.setdefault(min(int(stated * bins), bins - 1), []).append((stated, right))
    return [
        Bin(n / bins, (n + 1) / bins, len(g), sum(s for s, _ in g) / len(g), sum(r for _, r in g) / len(g))
        for n, g in sorted(groups.items())
    ]


def expected_error(pairs: Iterable[tuple[float, bool]], bins: int = 10) -> float | None:
    """Expected calibration error: mean distance between stated and right, weighted by count; None without pairs."""
    rows = reliability(pairs, bins)
    total = sum(r.count for r in rows)
    return sum(abs(r.stated - r.right) * r.count for r in rows) / total if total else None
