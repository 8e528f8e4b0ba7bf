"""Whether a kernel line fits the clocks that its host shows: as many of them as a user likes to make, found without a look at each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from correlator.gather.kernel_lines import (
    BARE,
    HABIT_KEPT_S,
    HABIT_LINES,
    MINUTE_S,
    NAME,
    ODD,
    REFUTED,
    STAMPED,
    UNCONFIRMED,
    _HostClocks,
    _standing,
)
from correlator.model.nouns import Event
from store.questions import kernel_lines
from tests.correlator.making import T0, event
from tests.examples import examples

_MOMENTS = st.integers(0, 8).map(lambda n: 25.0 * n) | st.sampled_from([0.0, 3 * HABIT_KEPT_S, 3 * HABIT_KEPT_S + 70.0])


@st.composite
def _row(draw: st.DrawFn) -> dict[str, Any]:
    first = draw(_MOMENTS)
    return {
        "of_ring": draw(st.booleans()), "boot": draw(st.none() | st.integers(-6, 6)), "lines": draw(st.integers(1, 3)),
        "first": first, "last": first + draw(st.sampled_from([0.0, 10.0, 100.0, 400.0])),
    }  # fmt: skip


def _line(at: float, **entities: float) -> Event:
    return replace(event("gpu.xid", at - T0, host="a", **entities), known_by=NAME)


def compared(line: Event, rows: Sequence[Mapping[str, Any]]) -> str:
    """The definition: the line compared with every row."""
    at, uptime = line.written_at, line.entities.get("uptime_s")
    itself = BARE if uptime is None else STAMPED
    before = [r for r in rows if r["first"] < at - MINUTE_S]
    shown = [r for r in before if not r["of_ring"] and r["boot"] is not None]
    missing = any(r["of_ring"] and r["last"] > at + MINUTE_S / 2 for r in before)
    if uptime is None:
        bare = min([at, *(r["first"] for r in rows if not r["of_ring"] and r["boot"] is None)])
        habit = [r for r in shown if r["first"] < bare]
        kept = habit and at - max(min(r["last"], at) for r in habit) <= HABIT_KEPT_S
        if kept and sum(r["lines"] for r in habit) >= HABIT_LINES:
            return REFUTED
        return UNCONFIRMED if missing else itself
    if missing:
        return UNCONFIRMED
    boot = at - uptime
    others = [r for r in shown if not kernel_lines.fits_clock(r["boot"], boot)]
    if not shown or len(others) < len(shown):
        return itself
    every = [r for r in rows if not r["of_ring"] and r["boot"] is not None]
    many = sum(r["lines"] for r in every if kernel_lines.fits_clock(r["boot"], boot)) >= HABIT_LINES
    return itself if many and all(kernel_lines.ends_before(r, boot) for r in others) else ODD


@given(st.lists(_row(), min_size=1, max_size=8), _MOMENTS, st.none() | st.integers(-10, 30))
@settings(max_examples=examples(300), deadline=None)
def test_a_line_is_judged_as_if_it_were_compared_with_every_clock(
    rows: list[dict[str, Any]], at: float, uptime: int | None
) -> None:
    entities = {} if uptime is None else {"uptime_s": 10.0 * uptime}
    line = _line(at, **entities)
    assert _standing(line, _HostClocks(rows)) == compared(line, rows)


class _Counted(dict[str, Any]):
    looks = 0

    def __getitem__(self, name: str) -> Any:
        _Counted.looks += 1
        return super().__getitem__(name)


def test_a_line_is_not_compared_with_every_clock() -> None:
    rows = [_Counted(of_ring=False, boot=10 * n, lines=1, first=float(n), last=float(n)) for n in range(2_000)]
    clocks = _HostClocks(rows)
    _Counted.looks = 0
    for at in range(3_000, 3_100):
        boot = 100.0 * (at % 1_000) + 50.0  # between two
        assert _standing(_line(float(at), uptime_s=at - boot), clocks) == ODD
    assert _Counted.looks < 100 * 50
