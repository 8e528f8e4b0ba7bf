"""A verdict is a function of the set of rows: order, copies, lateness and restarts change no byte of it.

It depends on what is true, not on clocks: small skew and a few lost lines change hardly any category.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from correlator.engine import correlate
from correlator.live.ticker import Ticker
from store import open_store
from tests.correlator.rows import (
    CAPTURES,
    EACH,
    FEW,
    answer,
    disordered,
    lossy,
    rows_of,
    shuffled,
    skewed,
    slices,
    wanted,
)


@pytest.mark.parametrize("folder", EACH)
def test_arrival_reversed_and_shuffled_with_every_row_twice(folder: Path) -> None:
    rows = rows_of(folder)
    backwards = {t: d.reverse() for t, d in rows.items()}
    twice = {t: pl.concat([d, d]) for t, d in shuffled(rows, 2).items()}
    for arrived in (backwards, twice):
        with open_store(None) as store:
            store.add(arrived)
            correlate(store)
            assert answer(store) == wanted(folder)


@pytest.mark.parametrize("folder", EACH)
def test_ten_minutes_of_disorder_and_a_restart_in_the_middle(folder: Path) -> None:
    rows = rows_of(folder)
    late = {**rows, "logs": disordered(rows["logs"], 600.0, 3)}
    with open_store(None) as store:
        ticker = Ticker(store)
        for number, part in enumerate(slices(late, 4)):
            if number == 2:
                ticker = Ticker(store)  # the service was stopped and started
            store.add(part)
            ticker.tick()
        assert answer(store) == wanted(folder)


#: Which clocks are ahead and which lines are lost is random: several draws of each, and both at once.
DRAWS = {"skew": (11, 12), "loss": (11,), "both": (13,)}


def same_categories(folder: Path, what: str, seed: int) -> tuple[int, int]:
    """The number of verdicts of a capture that kept their category, and the number of all."""
    rows = rows_of(folder)
    before = {k: v["category"] for k, v in json.loads(wanted(folder))["verdicts"].items()}
    logs = rows["logs"] if what == "loss" else skewed(rows["logs"], 2.0, seed)
    logs = logs if what == "skew" else lossy(logs, 0.01, seed)
    with open_store(None) as store:
        store.add({**rows, "logs": logs})
        correlate(store)
        after = {k: v["category"] for k, v in json.loads(answer(store))["verdicts"].items()}
    names = before.keys() | after.keys()
    return sum(before.get(k) == after.get(k) for k in names), len(names)


def test_skewed_clocks_and_lost_lines_at_once_change_no_category_of_a_capture() -> None:
    for folder in (c for c in CAPTURES if c.name in FEW):
        same, total = same_categories(folder, "both", 13)
        assert same == total > 0, folder.name


@pytest.mark.long
@pytest.mark.parametrize("what", DRAWS)
def test_skewed_clocks_and_lost_lines_change_hardly_a_category(what: str) -> None:
    found = [same_categories(folder, what, seed) for folder in CAPTURES for seed in DRAWS[what]]
    same, total = (sum(column) for column in zip(*found, strict=True))
    assert total > 25 * len(DRAWS[what])
    assert same / total >= 0.98, f"{same} of {total}"
