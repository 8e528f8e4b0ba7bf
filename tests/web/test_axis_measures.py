"""Measurements on the time axis: every point is a row, gaps are gaps, and counters show what they grew by."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from correlator.facts.registry import kinds
from correlator.model.gauges import GAUGES, Gauge
from web.axis_measures import pieces

TEMPERATURE = Gauge("temperature", "°C", ("t",))
ERRORS = Gauge("errors", "", ("e",), counter=True)


def rows(device: str, *samples: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"device": device, "bin": t // 10, "t": t, "low": value, "high": value} for t, value in samples]


def seconds(found: list[list[tuple[datetime, float, float]]]) -> list[list[tuple[float, float, float]]]:
    return [[((at - datetime(1970, 1, 1)).total_seconds(), low, high) for at, low, high in piece] for piece in found]


@pytest.mark.parametrize(
    ("gauge", "given", "expected"),
    [
        (TEMPERATURE, rows("0", (0, 40), (10, 41), (20, 42)), [[(0, 40, 40), (10, 41, 41), (20, 42, 42)]]),
        # Eight GPUs of 90 degrees are not 720.
        (TEMPERATURE, rows("0", (0, 40), (10, 41)) + rows("1", (1, 90), (11, 91)), [[(1, 40, 90), (11, 41, 91)]]),
        # Nothing is drawn over an hour without samples.
        (TEMPERATURE, rows("0", (0, 40), (10, 41), (20, 41), (3620, 60), (3630, 61)),
         [[(0, 40, 40), (10, 41, 41), (20, 41, 41)], [(3620, 60, 60), (3630, 61, 61)]]),
        (TEMPERATURE, rows("0", (0, 40)), []),
        # A counter that began at a million and was reset once.
        (ERRORS, rows("0", (0, 1e6), (10, 1e6 + 5), (20, 3), (30, 4)), [[(10, 5, 5), (20, 0, 0), (30, 1, 1)]]),
        (ERRORS, rows("0", (0, 10), (10, 12), (20, 12)) + rows("1", (0, 900), (10, 900), (20, 907)), [[(10, 0, 2), (20, 0, 7)]]),
    ],
)  # fmt: skip
def test_points(gauge: Gauge, given: list[dict[str, Any]], expected: list[Any]) -> None:
    assert seconds(pieces(given, gauge)) == expected


def test_kinds_name_gauges_that_exist() -> None:
    named = {gauge for kind in kinds().values() for gauge in kind.gauges}
    assert named == GAUGES.keys(), "each is drawn for some kind"
    assert "temperature" in kinds()["gpu.thermal"].gauges
