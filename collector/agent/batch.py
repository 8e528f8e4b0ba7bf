"""One delivery of the agent, and the report of batches that it could not deliver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Batch:
    """One delivery. ``lines`` is counted by source kind; ``created`` is in epoch seconds. ``lost`` marks a loss
    report."""

    sequence: int
    payload: bytes
    lines: Mapping[str, int]
    created: float
    lost: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Loss:
    """Dropped batches: their sequence numbers, their lines by source kind, and the time range."""

    first: int
    last: int
    lines: Mapping[str, int]
    since: float
    until: float
    reason: str

    def merged(self, other: Loss) -> Loss:
        lines = dict(self.lines)
        for kind, count in other.lines.items():
            lines[kind] = lines.get(kind, 0) + count
        return Loss(
            min(self.first, other.first), max(self.last, other.last), lines,
            min(self.since, other.since), max(self.until, other.until), self.reason,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        return {
            "first": self.first, "last": self.last, "lines": dict(self.lines), "since": self.since,
            "until": self.until, "reason": self.reason,
        }  # fmt: skip

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> Loss:
        return cls(row["first"], row["last"], row["lines"], row["since"], row["until"], row["reason"])
