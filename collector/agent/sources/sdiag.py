"""slurmctld's own health: queue lengths and scheduler cycles from ``sdiag``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collector.agent import wire
from collector.agent.source import Context, Reading, SourceKind

#: From here on, sdiag lists every RPC type and every user: hundreds of lines that no verdict uses.
_REST = "Remote Procedure Call statistics"


@dataclass
class Sdiag:
    context: Context
    program: str
    interval: float

    def open(self, positions: Mapping[str, Any]) -> None:
        """Nothing to prepare: every answer is complete by itself."""

    def poll(self) -> Iterator[Reading]:
        text = self.context.answer([self.program], 30.0).partition(_REST)[0].rstrip() + "\n"
        yield Reading(wire.document("sdiag", text, "sdiag", self.context.now(), timezone="UTC"), 1)

    def close(self) -> None:
        """Nothing is held open."""


def _make(context: Context, options: Mapping[str, Any]) -> Sdiag:
    return Sdiag(context, options["program"], options["every_s"])


SOURCE = SourceKind(
    "sdiag", _make, {"program": "sdiag", "every_s": 300.0},
    reads="slurmctld's queues, agents and scheduler cycles",
    costs="one RPC every 5 min",
    blind_to="single RPC types and users",
    role="controller",
)  # fmt: skip
