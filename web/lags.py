"""How long a step of a chain took, as its two ends are drawn.

A step's ``lag_s`` is measured as its edge says: from when a boot was noticed, to when a program first printed that it
fails. The ends may be drawn minutes apart then, and the number of an arrow has to be theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from parsers.moments import later
from web.axis_ends import CLOCKS_S, SECOND_S, End, Hop
from web.shaping import span

#: Two ends known as well as this have one lag; else it is given as a range (seconds).
EXACT_S = CLOCKS_S + SECOND_S


@dataclass(frozen=True)
class Lag:
    """``low`` and ``high``: the seconds between which it lies, equal if it is known. ``counted_from``: where ``lag_s`` is measured
    from, if not from where the cause is drawn. ``allowed``: the first and the last moment at which the edge allows the effect."""

    low: float
    high: float
    counted_from: datetime | None
    allowed: tuple[datetime, datetime] | None

    @property
    def is_range(self) -> bool:
        return self.low != self.high

    @property
    def text(self) -> str:
        """In words, without a sign: 27.3 s, up to 122 s, 90 min to 92 min."""
        low, high = span(self.low), span(self.high)
        if self.is_range and self.low <= 0:
            return f"up to {high}"
        return low if low == high else f"{low} to {high}"

    @property
    def signed(self) -> str:
        """The same, with the sign of a lag that is known."""
        return self.text if self.is_range or self.low < 0 else f"+{self.text}"


def _began(end: End) -> tuple[datetime, datetime]:
    return (end.at, end.at) if end.line is not None else (end.first, end.last)


def lag_of(hop: Hop) -> Lag:
    """The lag of a step between its ends."""
    cause, effect, measured = _began(hop.cause), _began(hop.effect), hop.step.get("lag_s")
    low, high = (effect[0] - cause[1]).total_seconds(), (effect[1] - cause[0]).total_seconds()
    fits = not isinstance(measured, int | float) or low - EXACT_S <= measured <= high + EXACT_S
    counted_from = None if fits else later(hop.effect.at, -timedelta(seconds=measured or 0))
    if high - low <= EXACT_S:  # as the edge measured it, to the microsecond, or as it is drawn
        low = high = (
            float(measured) if fits and measured is not None else (hop.effect.at - hop.cause.at).total_seconds()
        )
    elif low < 0:
        low = min(0.0, high)
    since = (counted_from, counted_from) if counted_from else cause
    pair = hop.step.get("window_s")
    if not isinstance(pair, list) or [type(room) in (int, float) for room in pair] != [True, True]:
        return Lag(low, high, counted_from, None)
    first, last = (later(at, timedelta(seconds=room)) for at, room in zip(since, pair, strict=True))
    return Lag(low, high, counted_from, (first, last))
