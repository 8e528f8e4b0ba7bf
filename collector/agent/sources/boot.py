"""Detects a new boot or a new agent process: the time without an agent is reported as a blind period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collector.agent import wire
from collector.agent.source import Context, Reading, SourceKind


@dataclass
class Boot:
    context: Context
    interval: float
    _before: Mapping[str, Any] | None = None

    def open(self, positions: Mapping[str, Any]) -> None:
        self._before = positions.get("boot")

    def poll(self) -> Iterator[Reading]:
        now = self.context.now()
        boot = self.context.boot_id()
        body = b""
        before, self._before = self._before, None
        if before is not None:
            body = self._gap(float(before["alive"]), str(before["boot"]), now, boot)
        yield Reading(body, 0, {"boot": {"boot": boot, "alive": now}})

    def _gap(self, alive: float, boot_before: str, now: float, boot: str) -> bytes:
        """The record of the time without an agent. Log files and journal continue from their positions: they are not
        blind."""
        if boot != boot_before:
            reason = f"the host was rebooted (boot {boot_before} before, {boot} now)"
        elif now - alive > 2 * self.interval:
            reason = "the agent was not running"
        else:
            return b""
        return wire.blind(
            "agent",
            None,
            min(alive, now),
            now,
            f"{reason}: no link events, counters or polls; files and journal are read on",
        )

    def close(self) -> None:
        """Nothing is held open."""


def _make(context: Context, options: Mapping[str, Any]) -> Boot:
    return Boot(context, options["every_s"])


SOURCE = SourceKind(
    "boot", _make, {"every_s": 60.0},
    reads="the kernel's boot id, and when the agent was last alive",
    costs="one small file per minute",
    blind_to="how long the agent was down, to the minute",
    slow=False,
)  # fmt: skip
