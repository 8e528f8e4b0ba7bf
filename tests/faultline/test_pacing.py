"""When rounds of concluding follow each other: promptly, unless lines wait."""

from __future__ import annotations

import pytest

from faultline import pacing
from faultline.pacing import BEHIND_PAUSE, LONGEST_PAUSE, MANY_LINES, PROMPT_S, Pacing


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture()
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pacing, "time", made)
    return made


def first_time(made: Pacing, clock: Clock, *, behind: bool, busy: bool = False, stored: int = 0) -> float:
    """Seconds until the next round begins, in tenths."""
    begun = clock.now
    while not made.is_time(behind=behind, busy=behind or busy, stored=stored):
        clock.now += 0.1
        assert clock.now < begun + 1_000.0
    return round(clock.now - begun, 1)


@pytest.mark.parametrize(
    ("behind", "busy", "full", "longest"),
    [
        (False, False, True, PROMPT_S),  # a job's end is answered in time
        (False, True, False, PROMPT_S),
        (False, True, True, LONGEST_PAUSE),  # hours of lines arrive within seconds
        (True, True, False, LONGEST_PAUSE),
        (True, True, True, LONGEST_PAUSE),
    ],
)
def test_a_round_that_took_long_is_soon_followed_by_the_next_unless_lines_come_first(
    behind: bool, busy: bool, full: bool, longest: float, clock: Clock
) -> None:
    made = Pacing()
    assert made.is_time(behind=behind, busy=busy, stored=0)
    made.done(1_000.0, 10, full=full, behind=behind, busy=busy, stored=10)
    assert first_time(made, clock, behind=behind, busy=busy, stored=10) == pytest.approx(longest, abs=0.11)


def test_while_lines_wait_a_round_over_many_begins_when_it_takes_a_twentieth_of_the_time(clock: Clock) -> None:
    made = Pacing()
    made.done(0.1, MANY_LINES, full=True, behind=True, busy=True, stored=MANY_LINES)
    pause = 0.1 * BEHIND_PAUSE
    assert first_time(made, clock, behind=True, stored=MANY_LINES) == pytest.approx(pause, abs=0.11)  # nothing arrived
    clock.now += 1.0  # five times as many arrived meanwhile: the round would take five times as long
    waited = pause + 1.0 + first_time(made, clock, behind=True, stored=6 * MANY_LINES)
    assert waited == pytest.approx(5 * pause, abs=0.25)
    assert made.is_time(behind=True, busy=True, stored=6 * MANY_LINES)


def test_a_flood_is_concluded_about_as_soon_as_no_lines_wait_and_every_half_minute_before(clock: Clock) -> None:
    made = Pacing()
    made.done(0.5, MANY_LINES, full=True, behind=True, busy=True, stored=MANY_LINES)
    clock.now += 10.0
    assert not made.is_time(behind=True, busy=True, stored=100 * MANY_LINES)
    assert made.is_time(behind=False, busy=False, stored=100 * MANY_LINES)
    clock.now += LONGEST_PAUSE - 10.0
    assert made.is_time(behind=True, busy=True, stored=100 * MANY_LINES)


def test_a_long_round_during_a_flood_holds_nothing_up_once_the_flood_is_over(clock: Clock) -> None:
    """A round of 2 s while lines wait is followed by 30 s without one; the rest of the flood must not wait for that."""
    made = Pacing()
    made.done(2.0, MANY_LINES, full=True, behind=True, busy=True, stored=MANY_LINES)
    clock.now += 1.0
    assert not made.is_time(behind=True, busy=True, stored=2 * MANY_LINES)
    assert first_time(made, clock, behind=False, stored=2 * MANY_LINES) == pytest.approx(PROMPT_S - 1.0, abs=0.11)


def test_what_a_line_costs_is_not_learned_from_few(clock: Clock) -> None:
    made = Pacing()
    made.done(0.04, 1, full=True, behind=False, busy=False, stored=1)
    assert first_time(made, clock, behind=True, stored=1_000_000) == pytest.approx(0.12, abs=0.11)
