"""Windows over the site's configuration: interval arithmetic, units, and errors with positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.site import windows
from correlator.site.windows import ExpressionError, Value, window

KNOWN = {
    "SlurmdTimeout": Value(24, 24, True, "slurm.conf"),
    "MessageTimeout": Value(10, 10, True, "slurm.conf"),
    "Unknown": Value(10, 900, False, "not known"),
    "MaybeZero": Value(0, 5, False, "not known"),
}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("[0s, 60s]", 0, 60),
        ("[-2s, 1min]", -2, 60),
        ("[0, 8h]", 0, 28800),
        ("[500ms, 1.5s]", 0.5, 1.5),
        ("[2*SlurmdTimeout/3, 5*SlurmdTimeout/3 + MessageTimeout]", 16, 50),
        # A short SlurmdTimeout: ping rounds wait for MessageTimeout, not for SlurmdTimeout/3 (observed: DOWN 40.7 s
        # after the loss at 15 s).
        ("[0, max(5*15s/3 + MessageTimeout, 15s + 2*MessageTimeout + 6s)]", 0, 41),
        ("[SlurmdTimeout - MessageTimeout - 4s, (SlurmdTimeout + MessageTimeout) * 2]", 10, 68),
        ("[0, max(SlurmdTimeout, MessageTimeout)]", 0, 24),
        ("[0, min(SlurmdTimeout, max(MessageTimeout, 12s))]", 0, 12),
        ("[4.096us * 2^20 * 7, 1h]", 30.06477, 3600),
        ("[0, 2^3^2]", 0, 64),
    ],
)
def test_what_a_window_means(text: str, low: float, high: float) -> None:
    found = window(text, KNOWN)
    assert found[:2] == pytest.approx((low, high))
    assert found[2], "all settings are known"


def test_an_unknown_setting_widens_the_window_and_says_so() -> None:
    assert window("[2*Unknown/3, 5*Unknown/3 + MessageTimeout]", KNOWN) == pytest.approx((20 / 3, 1510.0, False))


def test_subtracting_an_unknown_setting_takes_the_widest_difference() -> None:
    assert window("[SlurmdTimeout - Unknown, Unknown - SlurmdTimeout]", KNOWN) == (-876, 876, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[0s, 60s", "column"),
        ("0s, 60s", "column"),
        ("[0s]", "column"),
        ("[0s, 60parsecs]", "column"),
        ("[0s, SlurmTimeout]", "SlurmTimeout"),
        ("[0s, 1/MaybeZero]", "zero"),
        ("", "column"),
        ("[0, __import__('os')]", "column"),
    ],
)
def test_a_wrong_window_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ExpressionError, match=says.replace("(", r"\(")):
        window(text, KNOWN)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("0s, 60s]", 1),
        ("[0s 60s]", 5),
        ("[0s, 60s", 9),
        ("[0s, 60parsecs]", 6),
        ("[0s, 1 + ]", 10),
        ("[0s, max(1s)]", 12),
        ("[0s, (1s + 2s]", 14),
        ("[0s, 60s] 1", 11),
    ],
)
def test_the_column_is_where_reading_stopped(text: str, column: int) -> None:
    with pytest.raises(ExpressionError, match=f"column {column};"):
        window(text, KNOWN)


def test_names_are_the_settings_and_neither_units_nor_functions() -> None:
    text = "[2*SlurmdTimeout/3 - 5s, max(KillWait, 4min) + 4.096us * 2^IbTimeout]"
    assert windows.names(text) == {"SlurmdTimeout", "KillWait", "IbTimeout"}


intervals = st.tuples(st.floats(-1000, 1000), st.floats(0, 1000)).map(lambda p: Value(p[0], p[0] + p[1], False))


@given(intervals, intervals, st.floats(0, 1), st.floats(0, 1), st.sampled_from("+-*"))
def test_a_window_holds_every_value_that_its_settings_may_have(
    a: Value, b: Value, at: float, bt: float, sign: str
) -> None:
    """Whatever the true values inside their ranges are, the true bound is inside the computed one."""
    true_a, true_b = a.low + at * (a.high - a.low), b.low + bt * (b.high - b.low)
    truth = {"+": true_a + true_b, "-": true_a - true_b, "*": true_a * true_b}[sign]
    low, high, _ = window(f"[A {sign} B, A {sign} B]", {"A": a, "B": b})
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert low - slack <= truth <= high + slack
