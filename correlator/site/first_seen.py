"""When each host was first seen: how many hosts could have had a fault by some moment."""

from __future__ import annotations

from collections.abc import Iterable

from correlator.model.nouns import Event, Run

HOUR_S = 3600.0


def hour_of(moment: float) -> float:
    """The full hour before a moment."""
    return moment // HOUR_S * HOUR_S


def first_seen(events: Iterable[Event], runs: Iterable[Run]) -> dict[str, float]:
    """Host -> the first moment (epoch seconds) of an event of its own or a run on it.

    The nodes of a run without a known time were always there. ``events``: at least the first of each host, in time
    order.
    """
    seen: dict[str, float] = {}
    for event in events:
        if event.host and event.host not in seen:
            seen[event.host] = event.time
    for run in runs:
        submit, start, end = run.submit, run.start, run.end
        if submit is not None and start is not None and end is not None:  # nearly all
            earliest = submit if submit <= start <= end else min(submit, start, end)
        else:
            earliest = min([t for t in (submit, start, end) if t is not None], default=0.0)
        for node in run.nodes:
            if (known := seen.get(node)) is None or earliest < known:
                seen[node] = earliest
    return seen
