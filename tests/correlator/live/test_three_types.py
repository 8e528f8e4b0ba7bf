"""The result, the memory of the live engine and the change of a tick are three types."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from itertools import permutations
from typing import Any, get_type_hints

from correlator.conclusions import Basis, Conclusions, Pass
from correlator.engine import write
from correlator.live.state import LiveConclusions, Memory, TickChange, stored
from correlator.live.ticker import Ticker
from store import open_store
from tests.correlator.rows import CAPTURES, conclusions_of, rows_of, slices

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")


class Asked:
    """Notes which attributes are read."""

    def __init__(self, found: Conclusions) -> None:
        self._found, self.names = found, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._found, name)


def test_the_result_holds_what_is_stored_and_nothing_else() -> None:
    (found,) = conclusions_of(FLAP)
    asked = Asked(found)
    with open_store(None) as store:
        write(store, [asked])  # type: ignore[list-item]
    assert asked.names == {one.name for one in fields(Conclusions)}


def test_the_live_engine_holds_the_three_and_none_is_another() -> None:
    assert get_type_hints(LiveConclusions) == {"result": Conclusions, "memory": Memory, "change": TickChange}
    for one, other in permutations((Conclusions, Basis, Pass, Memory, TickChange, LiveConclusions), 2):
        assert not issubclass(one, other)


def test_a_change_is_held_until_it_is_stored() -> None:
    first, *others = slices(rows_of(FLAP), 4)
    held = []
    with open_store(None) as store:
        ticker = Ticker(store)
        for rows in (first, *others):
            store.add(rows)
            assert ticker.tick(datetime(2026, 11, 21, 12, tzinfo=UTC)).worked
            held += [known.change for known in ticker._known.values()]
    assert len(held) == 4 and all(change == stored() for change in held)
