"""Does an edge explain an effect by a cause, by scope, window and requirements?

The weigher asks it of possible causes, and exposure of other runs that the same cause reached.
"""

from __future__ import annotations

import math

from correlator.edges.conditions.registry import tests
from correlator.edges.scopes import scopes
from correlator.edges.window_values import derived_values
from correlator.facts.world import World
from correlator.model.attributes import INFERRED, TIMEOUT
from correlator.model.attrs import attr
from correlator.model.nouns import Edge, Fact
from correlator.site import windows

#: The largest everyday difference between the clocks of two hosts kept by NTP, seconds.
CLOCK_S = 1.0

#: Accounting has whole seconds.
WHOLE_S = 1.0


class EdgeFit:
    """The tests of one world's edges."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._windows: dict[tuple[str, str | None, float | None], tuple[float, float, bool]] = {}
        self.scopes, self.conditions = scopes(), tests()

    def window(self, edge: Edge, effect: Fact) -> tuple[float, float, bool]:
        """The window of an edge: the same for all effects without settings and a timeout of their own."""
        own = effect.run if effect.run in self._world.site.job_settings else None
        key = (edge.id, own, effect.attrs.get(TIMEOUT))
        if key not in self._windows:
            values = derived_values(self._world.site.values_for(effect.run), effect)
            self._windows[key] = windows.window(edge.window, values)
        return self._windows[key]

    def holds(self, edge: Edge, cause: Fact, effect: Fact) -> bool:
        """Would the edge explain the effect, by scope, window and requirements?"""
        low, high, _ = self.window(edge, effect)
        return (
            self.scopes[edge.scope].test(self._world, cause, effect)
            and outside(edge, cause, effect, low, high)[0] <= 3 * sigma_of(cause, effect)
            and not self.too_late(edge, cause, effect, low)
            and all(self.conditions[name](self._world, cause, effect) is None for name in edge.requires)
        )

    def too_late(self, edge: Edge, cause: Fact, effect: Fact, low: float) -> str:
        """Why a cause came too late for an effect in the run's output; empty if it did not.

        Output without a timestamp was written before the run ended, however uncertain its time is. A cause that came
        later, or too short before the end to show, did not cause it.
        """
        run = self._world.run.get(effect.run or "")
        if run is None or run.end is None or effect.kind.startswith("run."):
            return ""
        left = run.end - _onset(edge, cause)[0]
        if left >= low - 3 * math.hypot(cause.sigma, CLOCK_S) - WHOLE_S:
            return ""
        return f"it came {-left:.1f} s after the run had ended" if left < 0 else f"it came {left:.1f} s before the run ended, {low:.0f} s at least allowed"  # fmt: skip


def sigma_of(cause: Fact, effect: Fact) -> float:
    """How far two timestamps of one moment may differ, seconds."""
    clock_sigma = 0.0 if cause.host is not None and cause.host == effect.host else CLOCK_S
    return math.hypot(cause.sigma, effect.sigma, clock_sigma) + 0.001


def outside(edge: Edge, cause: Fact, effect: Fact, low: float, high: float) -> tuple[float, float, float]:
    """How far the delay is outside the window, and its smallest and largest value.

    A fact with an unknown onset may have begun anywhere in its interval.
    """
    earliest, latest = _onset(edge, cause)
    lag_low, lag_high = effect.start - latest, effect.start - earliest
    return max(low - lag_high, lag_low - high, 0.0), lag_low, lag_high


def _onset(edge: Edge, cause: Fact) -> tuple[float, float]:
    if edge.anchor != "start" and cause.attrs.get(attr(edge.anchor)) is not None:
        moment = float(cause.attrs[attr(edge.anchor)])
        return moment, moment
    if cause.attrs.get(INFERRED) and cause.end is not None:
        return cause.start, cause.end
    return cause.start, cause.start
