"""What the advisor decided, kept in the store: every step of every drain, and every refusal with its guard.

A step is kept before Slurm is asked (``INTENDED``, ``RESUMING``) and after it answered, so a service that ends in between
finds out at its next start what became of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from store.questions import drain_decisions
from store.tables import DRAIN_DECISIONS

if TYPE_CHECKING:
    from store.door import Door

#: Steps of a drain that stands, or may.
INTENDED, DRAINED, WITHDRAWN, CHECK_FAILED, RESUMING = "intended", "drained", "withdrawn", "check failed", "resuming"
#: Steps that end it: Slurm refused, we gave the node back, a person did or took it over, Slurm has no such node any more.
FAILED, RESUMED, UNDONE, TAKEN_OVER, GONE = "failed", "resumed", "undone", "taken over", "gone"
#: A decision not to drain.
REFUSED = "refused"
STANDING = frozenset({INTENDED, DRAINED, WITHDRAWN, CHECK_FAILED, RESUMING})
#: Steps are read for so long. A drain of ours that has had no step for longer is left to people: it is not resumed.
DAYS = 90.0

_SCHEMA: dict[str, Any] = {**dict.fromkeys(DRAIN_DECISIONS.c.keys(), pl.String), "at": pl.Datetime("us")}


@dataclass(frozen=True)
class Step:
    """One row: see ``store.tables.DRAIN_DECISIONS``. ``at``: naive UTC."""

    decision: str
    cluster: str | None
    host: str
    device: str
    incident_id: str | None
    step: str
    at: datetime
    guard: str = ""
    detail: str = ""
    reason: str = ""
    stamp: str = ""
    evidence: str = "[]"

    def then(self, step: str, at: datetime, detail: str = "", **more: str) -> Step:
        """The next step of the same drain."""
        return replace(self, step=step, at=at, detail=detail, guard="", **more)

    def document(self) -> dict[str, Any]:
        """The step as JSON."""
        return {"decision": self.decision, "cluster": self.cluster, "node": self.host, "device": self.device,
                "incident": self.incident_id, "step": self.step, "guard": self.guard, "detail": self.detail,
                "reason": self.reason, "at": f"{self.at:%Y-%m-%dT%H:%M:%S.%fZ}", "evidence": json.loads(self.evidence)}  # fmt: skip


class Record:
    """The steps of the last ``DAYS``, in the store."""

    def __init__(self, store: Door) -> None:
        self._store = store

    def steps(self, now: datetime) -> list[Step]:
        """All, the oldest first."""
        return [_step(row) for row in self._store.ask(drain_decisions.since(now - timedelta(days=DAYS)))]

    def keep(self, step: Step) -> None:
        """Commits a step. Raises ``StoreError``."""
        row = {name: getattr(step, name) for name in _SCHEMA}
        with self._store.write() as writer:
            newest = writer.ask(drain_decisions.newest())[0]["at"]
            if newest is not None:  # the order of steps is that of their times, also after the clock was set back
                row["at"] = max(step.at, newest + timedelta(microseconds=1))
            writer.insert(DRAIN_DECISIONS, pl.DataFrame([row], schema=_SCHEMA))


def _step(row: Mapping[str, Any]) -> Step:
    texts = {name: row[name] or "" for name in _SCHEMA if name not in ("cluster", "incident_id", "at")}
    return Step(cluster=row["cluster"], incident_id=row["incident_id"], at=row["at"], **texts)


def standing(steps: Iterable[Step]) -> dict[str, Step]:
    """By host, the last step of each drain of ours that stands."""
    last = {step.decision: step for step in steps if step.step != REFUSED}
    return {step.host: step for step in last.values() if step.step in STANDING}


def last_of_hosts(steps: Iterable[Step]) -> dict[str, Step]:
    """By host, the last step that was kept, a refusal included."""
    return {step.host: step for step in steps}
