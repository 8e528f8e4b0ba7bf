"""Two faults close in time, on overlapping nodes or jobs: each run's verdict names its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.correlator import mixed_harder, mixed_nodes, mixed_runs, mixed_third
from tests.correlator.field import Situation, concluded, wrong

SITUATIONS = [*mixed_nodes.SITUATIONS, *mixed_runs.SITUATIONS, *mixed_harder.SITUATIONS, *mixed_third.SITUATIONS]


@cache
def all_of_them() -> dict[str, Any]:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *all_of_them()[situation.name]) == []
