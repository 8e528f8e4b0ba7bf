"""The collector of cyclic garbage around a tick: what stays is scanned once, and no garbage stays for ever."""

import gc
import math
import weakref
from collections.abc import Iterator

import pytest

from correlator import gc_pause
from correlator.gc_pause import clear_away, paused, set_aside


class Ring:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _nothing_set_aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc_pause, "_looked_through", -math.inf)
    yield
    gc.unfreeze()


def test_garbage_of_others_is_collected_before_a_tick_and_what_a_tick_keeps_is_not_looked_through() -> None:
    gc.collect()
    with paused():
        seen = weakref.ref(Ring())
        assert seen() is not None
        clear_away()
        assert seen() is None
        kept = weakref.ref(Ring())
        set_aside(everything=False)
        gc.collect()
        assert kept() is not None  # frozen
        set_aside(everything=True)
        assert kept() is None


def test_a_cycle_set_aside_that_turned_garbage_is_found_when_everything_is_looked_through() -> None:
    ring = Ring()
    seen = weakref.ref(ring)
    set_aside(everything=False)
    del ring
    gc.collect()
    assert seen() is not None  # the collector does not scan frozen objects
    set_aside(everything=True)
    assert seen() is None


def test_everything_is_looked_through_once_in_a_while_only_because_all_threads_wait_for_it() -> None:
    set_aside(everything=True)
    ring = Ring()
    seen = weakref.ref(ring)
    set_aside(everything=False)
    del ring
    set_aside(everything=True)
    assert seen() is not None


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
