"""How far back a change reaches: a cause may precede its effect, and a later line may change an event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from correlator.edges.scopes import scopes
from correlator.edges.window_values import derived_values
from correlator.live.merge import longest_logged_timeout
from correlator.live.state import LiveConclusions, index_of
from correlator.model.fact_index import by_kind
from correlator.model.kinds import REPORTED_WITHIN_S
from correlator.model.nouns import Edge
from correlator.site import windows

#: Detectors join what lies at most 300 s apart (bursts, flaps, boots), and telemetry counts for 900 s around a fault.
MARGIN_S = REPORTED_WITHIN_S

#: The rows of no longer a window are read again. Facts that still last (a drain, a hanging run) are carried further, and
#: those that ended are recalled (``far_causes``).
LONGEST_S = 6 * 3600.0


def longest_window(known: LiveConclusions, edges: Iterable[Edge]) -> float:
    """The longest causal window between different subjects, seconds: how far a cause may precede its effect. It is
    remembered."""
    memory = known.memory
    if memory.basis.site is None:
        return 0.0
    if memory.longest is not None:
        return memory.longest
    values = derived_values(memory.basis.site.values_for(None), None)
    logged_timeout = longest_logged_timeout(by_kind(known.result.facts))
    values["PrintedTimeout"] = windows.Value(0.0, max(logged_timeout, 1800.0))
    highs = [windows.window(e.window, values)[1] for e in edges if not scopes()[e.scope].own_run]
    longest = max((h for h in highs if h <= LONGEST_S), default=0.0)
    known.memory = replace(memory, longest=longest, logged_timeout=logged_timeout)
    return longest


def untouched_until(before: LiveConclusions, earliest: float) -> float:
    """No line with a timestamp at or after ``earliest`` changes an event before this moment.

    What such lines show about clocks is included.
    """
    clocks = before.memory.basis.clocks
    return index_of(before).repeated.untouched_until(clocks.evidence_from(earliest) - clocks.furthest)
