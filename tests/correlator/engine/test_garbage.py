"""The collector of cyclic garbage around a tick: what stays is scanned once, and no garbage stays for ever."""

import gc
import math
import weakref
from collections.abc import Iterator

import pytest

from correlator import gc_pause
from correlator.gc_pause import clear_away, paused, set_aside
from correlator.live.ticker import Ticker
from store import open_store
from tests.correlator.rows import CAPTURES, rows_of, slices


class Ring:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(scope="module", autouse=True)
def _collected() -> None:
    gc.collect()


@pytest.fixture(autouse=True)
def _nothing_set_aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All that other tests left is frozen before and after each: to scan it takes a third of a second of CPU each time."""
    gc.freeze()
    monkeypatch.setattr(gc_pause, "_looked_through", math.inf)
    monkeypatch.setattr(gc_pause, "_collected", math.inf)
    yield
    gc.freeze()


def set_aside_when_due() -> None:
    gc_pause._looked_through = -math.inf
    set_aside()


def test_garbage_of_others_is_collected_before_a_tick_and_what_a_tick_keeps_is_not_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc_pause, "FEW_OBJECTS", 0)  # a burst of lines made more
    with paused():
        seen = weakref.ref(Ring())
        assert seen() is not None
        clear_away()
        assert seen() is None
        kept = weakref.ref(Ring())
        set_aside()
        gc.collect()
        assert kept() is not None  # frozen


def test_garbage_of_a_tick_with_few_lines_is_collected_at_once() -> None:
    gc.collect()
    with paused():
        seen = weakref.ref(Ring())
        set_aside()
        assert seen() is None


def test_garbage_of_bursts_is_collected_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(gc_pause, "FEW_OBJECTS", 0)
    with paused():
        monkeypatch.setattr(gc_pause, "_collected", -math.inf)
        seen = weakref.ref(Ring())
        set_aside()
        assert seen() is None
        later = weakref.ref(Ring())
        set_aside()
        assert later() is not None  # a moment later: frozen


@pytest.mark.long
def test_ticks_leave_no_cycles_but_those_of_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_pause, "FEW_OBJECTS", 0)
    first, *parts = slices(rows_of(next(c for c in CAPTURES if c.name == "mgmt_flap_long")), 5)
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(first)
        ticker.tick()
        gc.unfreeze()
        gc.collect()
        worked = 0
        with paused():
            for part in parts:
                store.add(part)
                worked += ticker.tick().worked
            gc.unfreeze()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                gc.collect()
                left = {type(one).__module__ for one in gc.garbage}
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
    assert worked == len(parts)
    assert not [name for name in left if name.partition(".")[0] in ("collector", "correlator", "parsers", "store")]


def test_a_cycle_set_aside_that_turned_garbage_is_found_when_everything_is_looked_through_once_in_a_while() -> None:
    ring = Ring()
    seen = weakref.ref(ring)
    set_aside()
    del ring
    gc.collect()
    assert seen() is not None  # the collector does not scan frozen objects
    set_aside_when_due()
    assert seen() is None
    ring = Ring()
    seen = weakref.ref(ring)
    set_aside()
    del ring
    set_aside()
    assert seen() is not None  # a moment later: all threads wait while everything is looked through


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_before(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ValueError), paused():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
