"""Events that belong to no fact are stored before a tick has concluded: they stand there once, whatever becomes of the tick."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from correlator import early, streaming
from correlator.engine import correlate
from correlator.patching import Storing
from correlator.streaming import Ticker
from store import open_store
from tests.correlator.test_streaming import add, made_rows, stored, with_settings


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were stored ahead, each time; few are enough."""
    found: list[int] = []
    usual = Storing.store_ahead
    monkeypatch.setattr(early, "AHEAD_EVENTS", 1)
    monkeypatch.setattr(Storing, "store_ahead", lambda self, c, lines: (found.append(len(lines.events)), usual(self, c, lines)))  # fmt: skip
    return found


def test_after_each_tick_they_stand_there_as_a_full_pass_says(ahead: list[int]) -> None:
    rng = random.Random(3)
    rows = made_rows(3, 900)
    late = [(t + timedelta(seconds=3000.0 * rng.random() * (rng.random() < 0.2)), n, r) for t, n, r in rows]
    late += rng.sample(late, 60)  # a delivery that was repeated
    late.sort(key=lambda a: a[0])
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        for place in range(0, len(late), 200):
            add(store, late[place : place + 200])
            ticker.tick()
            ticked = stored(store)
            correlate(store)
            assert ticked == stored(store)
    assert sum(n > 5 for n in ahead) >= 3


@pytest.mark.parametrize("broken", ["store_incidents", "same_objects"])
def test_a_tick_that_breaks_off_leaves_nothing_behind_for_the_next(broken: str, ahead: list[int], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise KeyError(broken)

    rows = sorted(made_rows(3, 900), key=lambda a: a[0])
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store)
        cut = len(rows) // 3
        for place in (0, cut):
            add(store, rows[place : place + cut])
            ticker.tick()
        add(store, rows[2 * cut :])
        ahead.clear()
        with monkeypatch.context() as patched, pytest.raises(KeyError):
            patched.setattr(streaming, broken, fail)
            ticker.tick()
        assert ahead, "nothing was stored ahead"
        assert ticker.tick().full, "also where no row is new"
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)
        assert not ticker.tick().worked
