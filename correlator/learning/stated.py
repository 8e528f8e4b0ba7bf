"""The cause that one verdict states for a run, reduced to what can be compared: with an answer or another verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StatedCause:
    """One side's statement about a run: its category, the root cause's name and place, and the confidence."""

    category: str
    event: str | None
    host: str | None
    device: str | None
    confidence: float
    edges: tuple[str, ...]

    def __str__(self) -> str:
        place = " of ".join(x for x in (self.device, self.host) if x)
        cause = f" {self.event}" + (f" ({place})" if place else "") if self.event else ""
        return f"{self.category}{cause} {self.confidence:.2f}" + (f" by {', '.join(self.edges)}" if self.edges else "")


def stated_cause(verdict: Mapping[str, Any]) -> StatedCause:
    root = verdict.get("root_cause") or {}
    return StatedCause(
        verdict["category"], root.get("event"), root.get("host"), root.get("device"), verdict["confidence"],
        tuple(dict.fromkeys(hop["edge"] for hop in verdict.get("chain", ()))),
    )  # fmt: skip
