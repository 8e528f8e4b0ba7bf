"""Confidence: a rising line learned on known situations, ties kept together, and few wrong blames on new ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulators.situations import make
from correlator.edges import load as edge_files
from correlator.evidence.calibration import along, answered, calibrated, expected_error, fit, lines, reliability
from correlator.evidence.weigh import Weigher
from correlator.learning.feedback import standing
from correlator.verdicts.judge import judge
from tests.examples import examples


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=300))
@settings(max_examples=examples(10), deadline=None)
def test_the_fitted_line_rises(pairs):
    line = fit(pairs)
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted(y for _, y in line)
    assert all(0 < y < 1 for _, y in line)


def test_equal_values_are_one_point():
    pairs = [(0.9, i % 10 != 0) for i in range(1000)] + [(0.5, i % 2 == 0) for i in range(100)]
    (low, high) = fit(pairs)
    assert low[0] == 0.5 and abs(low[1] - 0.5) < 0.02 and high[0] == 0.9 and abs(high[1] - 0.9) < 0.02


def test_along_the_line():
    line = [(0.2, 0.1), (0.6, 0.5)]
    assert (along(line, 0.0), along(line, 0.9)) == (0.1, 0.5) and abs(along(line, 0.4) - 0.3) < 1e-9


def test_reliability_rows() -> None:
    pairs = [(0.95, True)] * 9 + [(0.95, False)] + [(0.55, True), (0.55, False), (1.0, True)]
    low, high = reliability(pairs)
    assert (low.low, low.count, low.right) == (0.5, 2, 0.5)
    assert (high.high, high.count, round(high.right, 3)) == (1.0, 11, 0.909)
    assert reliability([]) == []


def test_a_family_without_a_line_keeps_its_value():
    assert calibrated("user.cancel", 0.97) == 0.97


def test_the_shipped_lines_rise():
    assert {"app", "infra", "unknown"} <= set(lines())
    for line in lines().values():
        assert list(line) == sorted(line) and [y for _, y in line] == sorted(y for _, y in line)


def test_answers_of_operators_are_cases_to_fit():
    """A verdict with 0.9 that people keep calling wrong lowers the line there, and only there."""
    made = [(0.95, True)] * 300 + [(0.75, i % 5 > 0) for i in range(300)]
    row = {
        "said_category": "infra.network",
        "said_confidence": calibrated("infra.network", 0.75),
        "run_key": "1",
        "author": "ann",
    }
    rows = [{**row, "run_key": str(n), "answer": "wrong"} for n in range(200)]
    reported = answered(standing([*rows, {**rows[0], "answer": "confirmed"}]))["infra"]
    assert len(reported) == 200 and sum(right for _, right in reported) == 1  # each person's last answer on a run
    assert all(abs(calibrated("infra.network", raw) - row["said_confidence"]) < 0.002 for raw, _ in reported)
    without, with_them = fit(made), fit([*made, *reported])
    assert (
        along(with_them, 0.75) < along(without, 0.75) - 0.2
        and abs(along(with_them, 0.95) - along(without, 0.95)) < 0.01
    )


def test_new_situations_are_judged_as_surely_as_stated():
    edges, _ = edge_files.load()
    pairs, blamed, innocent = [], 0, 0
    for seed in range(5_000_000, 5_000_200):
        situation, where = make(seed)
        verdict = next(v for v in judge(where, Weigher(where, edges)) if v.run.key == "1")
        category, host = situation.truth
        right = verdict.category == category and (
            host is None or verdict.root is None or verdict.root.host in (host, None)
        )
        pairs.append((verdict.confidence, right))
        if not category.startswith("infra"):
            innocent += 1
            blamed += verdict.category.startswith("infra")
    assert (expected_error(pairs) or 0.0) < 0.08
    assert sum(right for _, right in pairs) >= 0.85 * len(pairs)
    assert blamed <= 0.02 * innocent + 1
