"""The answer: whether a node is fit for a job, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from parsers.moments import rfc3339


class Fitness(StrEnum):
    """``DOUBTFUL`` is the honest answer where something is known against a node, or too little of it."""

    FIT = "fit"
    DOUBTFUL = "doubtful"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node is not fit.

    ``evidence`` is what shows it: a line, an incident, a state of Slurm's. ``since``: naive UTC, None if not known.
    ``known_to_slurm``: Slurm keeps jobs away by itself, so nothing need be done about it.
    """

    verdict: Fitness
    text: str
    evidence: str
    since: datetime | None = None
    known_to_slurm: bool = False

    def document(self) -> dict[str, Any]:
        """The reason as JSON."""
        since = None if self.since is None else rfc3339(self.since)
        return {"text": self.text, "evidence": self.evidence, "since": since}


@dataclass(frozen=True, slots=True)
class NodeFitness:
    """The answer about one node. ``node`` is its name in the whole store; the gravest reason comes first.
    ``runs_jobs``: Slurm knows it as a node."""

    node: str
    host: str
    cluster: str | None
    reasons: tuple[Reason, ...] = ()
    runs_jobs: bool = True

    @property
    def verdict(self) -> Fitness:
        """The gravest of its reasons; fit if there is none."""
        return max((reason.verdict for reason in self.reasons), key=_GRAVITY.__getitem__, default=Fitness.FIT)

    @property
    def should_drain(self) -> bool:
        """Whether a reason that Slurm does not know of yet makes the node unfit."""
        return any(reason.verdict is Fitness.UNFIT and not reason.known_to_slurm for reason in self.reasons)

    def document(self, age_s: float, by: str) -> dict[str, Any]:
        """The answer as JSON. ``age_s``: seconds since it was computed; ``by``: who computed it."""
        return {
            "node": self.node, "fitness": str(self.verdict), "reasons": [reason.document() for reason in self.reasons],
            "age_s": round(max(0.0, age_s), 1), "by": by,
        }  # fmt: skip


_GRAVITY = {verdict: place for place, verdict in enumerate(Fitness)}


def in_order(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """The gravest first, then the newest; each text once."""
    found: dict[str, Reason] = {}
    for reason in sorted(reasons, key=lambda r: (-_GRAVITY[r.verdict], r.since is None, -_seconds(r.since), r.text)):
        found.setdefault(reason.text, reason)
    return tuple(found.values())


def _seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else (moment - datetime(1970, 1, 1)).total_seconds()


@dataclass(frozen=True)
class Answers:
    """The answers about all nodes. ``made``: when they were computed (naive UTC)."""

    made: datetime
    nodes: Mapping[str, NodeFitness]

    def counts(self) -> dict[Fitness, int]:
        """How many nodes that run jobs have each answer."""
        found = dict.fromkeys(Fitness, 0)
        for node in self.nodes.values():
            if node.runs_jobs:
                found[node.verdict] += 1
        return found
