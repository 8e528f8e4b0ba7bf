"""What is concluded about the end of one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from correlator.evidence.chains import Chain, Rejection
from correlator.model.nouns import Event, Fact, Run


class Unproven(NamedTuple):
    """What is missing in the evidence of a cause.

    ``at_most`` is the highest confidence; ``doubt`` says why, for people.
    """

    at_most: float
    doubt: str


@dataclass
class Verdict:
    """``category`` and, for infrastructure, the chain and its root.

    ``confidence`` is 0..1. ``at_most`` limits it after calibration, which does not know what was collected of this
    run's nodes.
    """

    run: Run
    end: Fact
    category: str
    confidence: float
    chain: Chain | None = None
    others: list[Chain] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    own: list[Event] = field(default_factory=list)
    reason: str = ""
    doubts: list[str] = field(default_factory=list)
    at_most: float = 1.0

    @property
    def root(self) -> Fact | None:
        return self.chain.root if self.chain else None
