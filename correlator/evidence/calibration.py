"""From the weight of the evidence to how often it is right: confidence learned on situations with known causes.

``calibration.toml`` holds, per family of categories, the points of a rising line (raw weight share -> share that was
right). ``benchmarks/calibration.py`` makes the situations, fits the line by pool-adjacent-violators and prints the
reliability on seeds of its own; docs/correlation.md shows it. A family without a line keeps its raw value.

The line of causes in the infrastructure is that of situations in which every witness was asked. For each that was not
collected, the confidence is multiplied by a fitted factor.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("calibration.toml")

Line = Sequence[tuple[float, float]]

#: The highest confidence: a cause that was not collected can never be excluded.
SUREST = 0.99

#: A cause is named with this confidence or more: for want of witnesses alone, it does not become nobody's.
NAMED = 0.5

#: Each missing witness costs at least this share: situations are made of fewer causes than there are.
LEAST_LOSS = 0.005
#: A verdict states at least this: what is seldom right in made situations is not known that well.
LEAST_STATED = 0.1
#: The line of a family whose verdicts no log of the run's nodes could contradict is named with this.
UNLOGGED = "unlogged"
#: So many missing witnesses have a factor of their own.
LEVELS = 3


def family_of(category: str) -> str:
    """``infra``, ``app``, ``user``, ``sched`` or ``unknown``: each is wrong in its own ways."""
    return category.split(".", 1)[0]


@cache
def lines() -> Mapping[str, Line]:
    """The learned lines by family."""
    table = tomllib.loads(FILE.read_text(encoding="utf-8")).get("line", {})
    return {name: tuple((float(x), float(y)) for x, y in points) for name, points in table.items()}


def calibrated(category: str, raw: float, *, unlogged: bool = False) -> float:
    """The share of verdicts of this family and raw confidence that was right; ``raw`` if nothing was learned.

    ``unlogged``: no log of most of the run's nodes was collected. That makes no verdict surer.
    """
    return calibrated_by(lines(), family_of(category), raw, unlogged=unlogged)


def calibrated_by(some: Mapping[str, Line], family: str, raw: float, *, unlogged: bool = False) -> float:
    """``calibrated`` with other lines than the learned ones."""
    names = (family, f"{family}_{UNLOGGED}") if unlogged else (family,)
    found = [along(some[name], raw) for name in names if some.get(name)]
    return min([SUREST, *found]) if found else raw


@cache
def factors() -> Sequence[float]:
    """The share of the confidence that is left without one, two, ... witnesses; each further one costs ``LEAST_LOSS``."""
    return tuple(map(float, tomllib.loads(FILE.read_text(encoding="utf-8")).get("witnesses", {}).get("left", ())))


def covered(confidence: float, missing: int, left: Sequence[float] | None = None) -> float:
    """A calibrated confidence, if ``missing`` witnesses could not be asked. ``left``: other factors than the fitted ones."""
    left = factors() if left is None else left
    if not missing or not left:
        return confidence
    further = (1.0 - LEAST_LOSS) ** max(0, missing - len(left))
    return max(min(confidence, NAMED), confidence * left[min(missing, len(left)) - 1] * further)


def along(line: Line, x: float) -> float:
    """Linear between the points, constant outside."""
    place = bisect_right(line, x, key=itemgetter(0))
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
    return [(round(p[0] / p[2], 4), round(max(LEAST_STATED, _share(p)), 4)) for p in pools]


def fit_left(pairs: Iterable[tuple[int, bool]]) -> list[float]:
    """The factors of ``covered``, from (missing witnesses, right) of verdicts that would be equally sure with all of them.

    Each is the share that was right over the share with no witness missing; neighbours that rise are pooled. ``CASES``
    further cases count as if nothing were lost.
    """
    counts = [[0, 0] for _ in range(LEVELS + 1)]
    for missing, right in pairs:
        count = counts[min(missing, LEVELS)]
        count[0], count[1] = count[0] + 1, count[1] + right
    whole = _share((0.0, float(counts[0][1]), float(counts[0][0]))) if counts[0][0] else 1.0
    pools: list[tuple[float, float, int]] = []
    for cases, rights in counts[1:]:
        pools.append((whole * cases + CASES, float(rights + CASES), 1))
        while len(pools) > 1 and pools[-2][1] / pools[-2][0] <= pools[-1][1] / pools[-1][0]:
            one, two = pools.pop(), pools.pop()
            pools.append((one[0] + two[0], one[1] + two[1], one[2] + two[2]))
    left, most = [], 1.0
    for expected, rights_of, levels in pools:
        for _ in range(levels):
            most = min(most * (1.0 - LEAST_LOSS), rights_of / expected)
            left.append(round(most, 4))
    return left


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
