"""Paths from causes to effects, as the weigher finds them and verdicts keep them."""

from __future__ import annotations

from dataclasses import dataclass, field

from correlator.model.nouns import Edge, Fact, Hop


@dataclass(slots=True)
class Rejection:
    """A fact that might have been the cause, and why it was not; treated as immutable, as a hop is.

    ``by_time``: it happened too early or too late, by ``beyond`` seconds.
    """

    edge: Edge
    cause: Fact
    effect: Fact
    reason: str
    by_time: bool = False
    beyond: float = 0.0


@dataclass
class Chain:
    """A path from a root fact to the effect; ``hops`` lead from the root to the effect.

    ``doubted``: other runs that ran on are evidence against every possible cause of the root, so it may have an unknown
    one.
    """

    root: Fact
    hops: tuple[Hop, ...]
    weight: float
    doubted: bool = False


@dataclass
class Evidence:
    """All chains into one effect, best first, and what was rejected on the way."""

    effect: Fact
    chains: list[Chain] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
