"""Two faults close in time, on overlapping nodes or jobs: each run's verdict names its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.correlator import mixed_harder, mixed_nodes, mixed_runs, mixed_third
from tests.correlator.field import Situation, concluded, wrong

SETS = [mixed_nodes.SITUATIONS, mixed_runs.SITUATIONS, mixed_harder.SITUATIONS, mixed_third.SITUATIONS]


@cache
def all_of(quick: bool) -> dict[str, Any]:
    """Of each set, every eighth situation is quick: each costs a tenth of a second."""
    return concluded([situation for one in SETS for n, situation in enumerate(one) if (n % 8 == 0) == quick])


@pytest.mark.parametrize(
    ("situation", "quick"),
    [
        pytest.param(situation, n % 8 == 0, id=situation.name, marks=() if n % 8 == 0 else pytest.mark.long)
        for one in SETS
        for n, situation in enumerate(one)
    ],
)
def test_a_situation(situation: Situation, quick: bool) -> None:
    assert wrong(situation, *all_of(quick)[situation.name]) == []
