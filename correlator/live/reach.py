"""How far back a change reaches: a cause may precede its effect, and a later line may change an event."""

from __future__ import annotations

from collections.abc import Iterable

from correlator.conclusions import Conclusions
from correlator.edges.window_values import derived_values
from correlator.live.merge import longest_logged_timeout
from correlator.live.state import LiveConclusions, index_of
from correlator.model.fact_index import by_kind
from correlator.model.kinds import TOLD_S
from correlator.model.nouns import Edge
from correlator.site import windows

#: Detectors join what lies at most 300 s apart (bursts, flaps, boots), and telemetry counts for 900 s around a fault.
MARGIN_S = TOLD_S

#: The rows of no longer a window are read again. Facts that still last (a drain, a hanging run) are carried further, and
#: those that ended are recalled (``far_causes``).
LONGEST_S = 6 * 3600.0


def longest_window(known: Conclusions, edges: Iterable[Edge]) -> float:
    """The longest causal window between different subjects, seconds: how far a cause may precede its effect."""
    if known.site is None:
        return 0.0
    if known.longest is not None:
        return known.longest
    values = derived_values(known.site.values_for(None), None)
    known.logged_timeout = longest_logged_timeout(by_kind(known.facts))
    values["PrintedTimeout"] = windows.Value(0.0, max(known.logged_timeout, 1800.0))
    highs = [windows.window(e.window, values)[1] for e in edges if e.scope != "same run"]
    known.longest = max((h for h in highs if h <= LONGEST_S), default=0.0)
    return known.longest


def untouched_until(before: LiveConclusions, earliest: float) -> float:
    """No line with a timestamp at or after ``earliest`` changes an event before this moment.

    What such lines show about clocks is included.
    """
    return index_of(before).repeated.untouched_until(before.clocks.evidence_from(earliest) - before.clocks.furthest)
