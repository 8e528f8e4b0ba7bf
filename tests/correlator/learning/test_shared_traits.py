"""What the hurt share: the test of chance against exact numbers, and how often it finds something where nothing is."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb

import polars as pl
import pytest

from correlator.learning.shared_traits import CHANCE, SCHEMA, at_least, compare


def traits(*rows: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@pytest.mark.parametrize(
    ("seen", "drawn", "having", "population"),
    [(8, 8, 8, 40), (2, 2, 3, 10), (3, 5, 10, 20), (1, 5, 5, 5), (0, 3, 4, 9), (20, 300, 400, 9000)],
)
def test_the_probability_is_that_of_the_exact_counts(seen: int, drawn: int, having: int, population: int) -> None:
    ways = sum(comb(having, k) * comb(population - having, drawn - k) for k in range(seen, min(drawn, having) + 1))
    assert at_least(seen, drawn, having, population) == pytest.approx(
        float(Fraction(ways, comb(population, drawn))), rel=1e-9
    )


def test_a_shared_switch_is_found_and_named_once_for_all_that_have_the_same_members() -> None:
    jobs = [f"j{n}" for n in range(40)]
    rows = [(job, "user", f"u{n % 7}") for n, job in enumerate(jobs)]
    rows += [(job, kind, value) for job in jobs[:8] for kind, value in (("switch", "tor-3"), ("plane", "p3"))]
    rows += [(job, "partition", "gpu") for job in jobs]  # what all have tells nobody apart
    found = compare(traits(*rows, *rows), jobs[:8], jobs)
    (one,) = found.shared
    assert one.traits == (("switch", "tor-3"), ("plane", "p3")) and (one.hurt, one.others) == (8, 0)
    assert one.chance == pytest.approx(one.p * 8) and not found.says_why_not  # seven users, and one set of members


@pytest.mark.parametrize(
    ("hurt", "units", "words"),
    [
        (["a"], ["a", "b"], "One alone"),
        ([], ["a", "b"], "None was hurt"),
        (["a", "b"], ["a", "b"], "nobody to compare with"),
        (["a", "b"], ["a", "b", "c", "d"], "Nothing beyond chance in 1 traits"),
        (["x", "y"], ["a", "b"], "None was hurt"),
    ],
)
def test_where_nothing_can_be_told_it_says_why(hurt: list[str], units: list[str], words: str) -> None:
    found = compare(traits(("a", "user", "u"), ("b", "user", "u")), hurt, units)
    assert not found.shared and words in found.says_why_not


def test_with_labels_at_random_something_is_shared_no_more_often_than_chance_allows() -> None:
    draw = random.Random(7)
    units = [str(n) for n in range(60)]
    rows = [
        (unit, kind, str(draw.randrange(size)))
        for unit in units
        for kind, size in (("user", 6), ("switch", 4), ("node", 20))
    ]
    frame = traits(*rows)
    wrong = sum(bool(compare(frame, draw.sample(units, 12), units).shared) for _ in range(200))
    assert wrong <= 200 * CHANCE * 1.5
