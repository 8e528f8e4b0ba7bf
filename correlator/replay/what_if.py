"""Which jobs would have lived with another SlurmdTimeout.

The rule is the edge's own: the window in which slurmctld gives up a node that it lost, computed with the other value. What
decides is how long the node was away.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from correlator.facts.links.kinds import LINK_OUTAGE, SWITCH_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.slurmd import SLURMD_CRASH, SLURMD_STOP
from correlator.model.nouns import Edge
from correlator.site.windows import Value, names, window

TIMEOUT = "SlurmdTimeout"
#: The largest value that Slurm takes (slurm.conf(5)); 0 would never set a node DOWN.
LEAST_S, MOST_S = 1, 65533
#: Losses after which the node, and the job's processes on it, may still have been there.
SURVIVABLE = (LINK_OUTAGE.name, SWITCH_OUTAGE.name, SLURMD_CRASH.name, SLURMD_STOP.name)
#: A job that a node took with it ended within this of the moment at which slurmctld set the node DOWN, seconds: accounting has
#: whole seconds, of another clock.
SAME_END_S = 5.0
#: The outcomes, the worst last.
LIVES, MAY_LIVE, UNKNOWN, LOST = "lives", "may live", "not known", "lost"
_ORDER = (LIVES, MAY_LIVE, UNKNOWN, LOST)


@dataclass(frozen=True)
class Loss:
    """A node that slurmctld lost at ``start`` and set DOWN ``lag_s`` later. ``away_s``: how long it was away; None: it was not seen
    to come back. ``window`` is the edge's."""

    host: str
    kind: str
    device: str | None
    start: datetime
    down: datetime
    away_s: float | None
    edge: str
    window: str

    @property
    def lag_s(self) -> float:
        return (self.down - self.start).total_seconds()


def timeout_windows(edges: Iterable[Edge]) -> Mapping[str, str]:
    """The windows, by edge, in which SlurmdTimeout decides when a node that was lost is set DOWN."""
    return {
        edge.id: edge.window
        for edge in edges
        if NODE_DOWN.name in edge.effect and set(edge.cause) <= set(SURVIVABLE) and TIMEOUT in names(edge.window)
    }


def judged(one: Loss, timeout_s: float, settings: Mapping[str, Value]) -> str:
    """What would have become of the node: ``LIVES`` if it was back before slurmctld could have given it up."""
    if one.away_s is None:
        return UNKNOWN
    low, high, _ = window(one.window, {**settings, TIMEOUT: Value.of(timeout_s)})
    return LIVES if one.away_s < low else LOST if one.away_s >= high else MAY_LIVE


def worst(outcomes: Iterable[str]) -> str:
    """The outcome of a job on nodes with these outcomes."""
    return max(outcomes, key=_ORDER.index, default=UNKNOWN)


def least_timeout(losses: Collection[Loss], settings: Mapping[str, Value]) -> int | None:
    """The least SlurmdTimeout, in whole seconds, with which no node would have been given up; None if none would do."""
    if not losses or any(judged(one, MOST_S, settings) != LIVES for one in losses):
        return None
    low, high = LEAST_S, MOST_S  # a longer timeout never gives up earlier
    while low < high:
        middle = (low + high) // 2
        if all(judged(one, middle, settings) == LIVES for one in losses):
            high = middle
        else:
            low = middle + 1
    return high


def gives_up(losses: Sequence[Loss], timeout_s: float, settings: Mapping[str, Value]) -> tuple[float, float]:
    """How many seconds after a loss slurmctld gives a node up, at the earliest and at the latest."""
    bounds = [window(text, {**settings, TIMEOUT: Value.of(timeout_s)})[:2] for text in {one.window for one in losses}]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def took(one: Loss, nodes: Collection[str], end: datetime | None) -> bool:
    """Did a run on these nodes end when this node was set DOWN?"""
    return one.host in nodes and end is not None and abs((end - one.down).total_seconds()) <= SAME_END_S


def assumed(losses: Sequence[Loss], timeout_s: float, settings: Mapping[str, Value]) -> list[str]:
    """What the answer assumes, in sentences."""
    low, high = gives_up(losses, timeout_s, settings)
    message = settings["MessageTimeout"]
    known = f"MessageTimeout={message.low:g}" if message.low == message.high else "an unknown MessageTimeout"
    edges = ", ".join(sorted({one.edge for one in losses}))
    now = settings[TIMEOUT]
    later = (timeout_s - now.high) / 3 * 2
    out = [
        f"slurmctld gives up a node {math.floor(low):,} to {math.ceil(high):,} s after it lost it, with SlurmdTimeout={timeout_s:g} and "
        f"{known} (edge {edges}). Where in its rounds of pings a loss falls is not known: in between, a node may live or not.",
        "Each node was away for as long as its lines show, and nothing else would have ended the job meanwhile: a job that needs the "
        "lost link itself, or starts a step while slurmd is away, may fail all the same.",
    ]  # fmt: skip
    if later > 0:
        out.append(
            f"A node that is really dead would be noticed {later:,.0f} s later or more; its jobs are started again only then."
        )
    return out


def setting_in_words(value: Value) -> dict[str, Any]:
    """A setting as an answer has it."""
    return {"low": value.low, "high": value.high, "known": value.known, "origin": value.origin}
