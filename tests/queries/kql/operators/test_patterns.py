"""basket, autocluster and diffpatterns compared with their definitions, written row by row in Python."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queries.kql import KqlError, run, validate
from queries.kql.catalog import CATALOG
from tests.examples import examples

Row = tuple[str, ...]
Pattern = tuple[str, ...]  # "" is a wildcard; no value of these rows is empty
WIDTH = 3
ROWS = st.lists(st.tuples(*[st.sampled_from("abc")] * WIDTH), min_size=1, max_size=24)


def ask(rows: list[Row], call: str) -> list[list[Any]]:
    """The plugin's answer over rows with the columns c0, c1, ..."""
    schema = ", ".join(f"c{i}:string" for i in range(len(rows[0])))
    cells = ", ".join(json.dumps(cell) for row in rows for cell in row)
    return run(duckdb.connect(), f"datatable({schema})[{cells}] | evaluate {call}", timeout_s=120).rows


def every(rows: list[Row]) -> Counter[Pattern]:
    """Each pattern that some row has, and the number of such rows."""
    found: Counter[Pattern] = Counter()
    for row in rows:
        for size in range(1, len(row) + 1):
            for kept in combinations(range(len(row)), size):
                found[tuple(v if i in kept else "" for i, v in enumerate(row))] += 1
    return found


def has(row: Row, pattern: Pattern) -> bool:
    return all(v in ("", cell) for v, cell in zip(pattern, row, strict=True))


def size(pattern: Pattern) -> int:
    return sum(v != "" for v in pattern)


def peaks(scores: dict[Pattern, tuple[float, int]]) -> set[Pattern]:
    """The patterns with no better neighbour of the same side."""

    def beaten(one: Pattern, other: Pattern) -> bool:
        steps = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
        if len(steps) != 1 or "" not in steps[0] or scores[one][1] != scores[other][1]:
            return False
        mine, theirs = scores[one][0], scores[other][0]
        return theirs > mine or (theirs == mine and size(other) > size(one))

    return {one for one in scores if not any(beaten(one, other) for other in scores)}


@settings(max_examples=examples(5), deadline=None)
@given(ROWS, st.sampled_from([0.1, 0.3, 0.5]))
def test_basket_is_every_frequent_pattern_with_all_its_rows_agree_in(rows: list[Row], share: float) -> None:
    wanted = {}
    for pattern, count in every(rows).items():
        if count >= share * len(rows) - 1e-9:
            mine = [row for row in rows if has(row, pattern)]
            whole = tuple(c[0] if len(set(c)) == 1 else "" for c in zip(*mine, strict=True))
            wanted[whole] = count
    got = ask(rows, f"basket({share})")
    assert {tuple(r[3:]): r[1] for r in got} == wanted and len(got) == len(wanted)
    weights = [r[1] * size(tuple(r[3:])) for r in got]
    assert weights == sorted(weights, reverse=True)
    assert ask(rows[::-1], f"basket({share})") == got


@settings(max_examples=examples(5), deadline=None)
@given(ROWS, st.sampled_from([0.2, 0.5, 0.8]), st.integers(2, 25))
@example([("a", "a", "a")], 0.5, 25)
def test_autocluster_is_the_patterns_whose_score_no_neighbour_exceeds(
    rows: list[Row], balance: float, seeds: int
) -> None:
    frequent = {p: n for p, n in every(rows).items() if n >= len(rows) / seeds - 1e-9}
    scores = {
        p: (round((n / len(rows)) ** balance * (size(p) / WIDTH) ** (1 - balance), 9), 0) for p, n in frequent.items()
    }
    got = ask(rows, f"autocluster({balance}, '~', {seeds})")
    shown = [tuple(r[3:]) for r in got]
    assert set(shown) <= peaks(scores) and len(shown) == min(len(peaks(scores)), seeds)
    assert [scores[p][0] for p in shown] == sorted((scores[p][0] for p in peaks(scores)), reverse=True)[:seeds]
    assert [r[:3] for r in got] == [[i, frequent[p], frequent[p] * 100 / len(rows)] for i, p in enumerate(shown)]
    assert ask(rows[::-1], f"autocluster({balance}, '~', {seeds})") == got


@settings(max_examples=examples(5), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ABC"), *[st.sampled_from("abc")] * WIDTH), min_size=1, max_size=24))
def test_diffpatterns_is_the_patterns_that_differ_more_than_their_neighbours(rows: list[Row]) -> None:
    halves = [[row[1:] for row in rows if row[0] == half] for half in "AB"]
    counts = [every(half) for half in halves]
    shares = {
        p: tuple(c[p] * 100 / len(h) if h else 0.0 for c, h in zip(counts, halves, strict=True))
        for p in counts[0] | counts[1]
    }
    frequent = {p: s for p, s in shares.items() if max(s) >= 5}
    scores = {p: (round(abs(a - b), 9), int(a > b)) for p, (a, b) in frequent.items()}
    wanted = {p: [counts[0][p], counts[1][p]] for p in peaks(scores) if scores[p][0] >= 5}
    got = ask(rows, "diffpatterns(c0, 'A', 'B')")
    assert {tuple(r[6:]): r[1:3] for r in got} == wanted and len(got) == len(wanted)
    assert all(r[3:5] == pytest.approx(shares[tuple(r[6:])]) and r[5] == pytest.approx(abs(r[3] - r[4])) for r in got)


def test_rare_values_cost_little() -> None:
    text = "range n from 1 to 20000 step 1 | project Id = tostring(n), Kind = iff(n % 4 == 0, 'x', 'y') | evaluate autocluster()"
    assert run(duckdb.connect(), text, timeout_s=120).rows == [[0, 15000, 75.0, "", "y"], [1, 5000, 25.0, "", "x"]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("autocluster(1.5)", "SizeWeight of autocluster lies between 0 and 1, not 1.5"),
        ("autocluster('half')", "constant number as SizeWeight"),
        ("autocluster('~', Host)", "holds numbers, not string"),
        ("autocluster('~', Line + 1)", "the name of a column as WeightColumn"),
        ("autocluster('~', '~', 0)", "NumSeeds of autocluster lies between 1 and 200"),
        ("autocluster('~', '~', 2.5)", "whole number"),
        ("autocluster('~', '~', '~', dynamic([]))", "a wildcard of autocluster"),
        ("basket(0.001)", "Threshold of basket lies between 0.015 and 1"),
        ("diffpatterns(Host)", "the two values that split"),
        ("diffpatterns(Host, 'a', 5)", "values of 'Host' as texts, not long"),
        ("diffpatterns(tolower(Host), 'a', 'b')", "name of a column as SplitColumn"),
        ("diffpatterns(Host, 'a', 'b', '~', 2)", "Threshold of diffpatterns lies between"),
    ],
)
def test_a_wrong_argument_is_named(call: str, said: str) -> None:
    with pytest.raises(KqlError) as caught:
        validate(f"Logs | project Host, Unit, Line | evaluate {call}", CATALOG)
    assert said in caught.value.message


def test_a_dynamic_column_is_named() -> None:
    with pytest.raises(KqlError, match="project 'Fields' away"):
        validate("Logs | evaluate basket()", CATALOG)
