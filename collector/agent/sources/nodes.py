"""Node states and drain reasons with their author: changes in ``scontrol show node``, and slurmdbd's node events."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind

#: Fields whose change is reported: state, reason with author, and when the node or its slurmd started.
_NEWS = ("State", "Reason", "BootTime", "SlurmdStartTime")
_NAME = re.compile(r"NodeName=(\S+)")
_FIELD = {name: re.compile(rf"(?:^|\s){name}=(.*?)(?=\s[A-Z][A-Za-z]*=|$)") for name in _NEWS}
#: All nodes are reported once a day, so that a late reader learns those that never change.
_EVERYTHING_S = 86_400.0
_EVENTS_EVERY_S = 300.0
_EVENT_COLUMNS = "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"


@dataclass
class Nodes:
    context: Context
    scontrol: str
    sacctmgr: str
    timeout_s: float
    interval: float
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _everything_at: float = float("-inf")
    _events_at: float = float("-inf")
    _events: set[str] = field(default_factory=set)
    _since: float | None = None

    def open(self, positions: Mapping[str, Any]) -> None:
        self._since = (positions.get("nodes") or {}).get("events")
        self._known.clear()
        self._everything_at = self._events_at = float("-inf")

    def poll(self) -> Iterator[Reading]:
        monotonic, now = self.context.monotonic(), self.context.now()
        text = self.context.answer([self.scontrol, "show", "node", "--oneliner", "--all"], self.timeout_s)
        if monotonic - self._everything_at >= _EVERYTHING_S:
            self._everything_at = monotonic
            self._known.clear()
        changed = [line for line in text.splitlines() if self._is_news(line)]
        if changed:
            body = wire.document("scontrol_nodes", "\n".join(changed) + "\n", "nodes", now, timezone="UTC")
            yield Reading(body, len(changed))
        if self.sacctmgr and monotonic - self._events_at >= _EVENTS_EVERY_S:
            self._events_at = monotonic
            # A cluster without slurmdbd still has node states.
            with contextlib.suppress(OSError, Missing, TimeoutError):
                yield self._ledger(now)

    def _is_news(self, line: str) -> bool:
        name = _NAME.search(line)
        if name is None:
            return False
        shown = tuple(found[1].strip() if (found := pattern.search(line)) else "" for pattern in _FIELD.values())
        if self._known.get(name[1]) == shown:
            return False
        self._known[name[1]] = shown
        return True

    def _ledger(self, now: float) -> Reading:
        """Who set which node down or drained, from when to when, as recorded by slurmdbd."""
        since = min(self._since, now) - 3600 if self._since is not None else now - 7 * 86_400
        start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        text = self.context.answer([
            self.sacctmgr, "--parsable2", "show", "event", f"start={start}", f"format={_EVENT_COLUMNS}",
        ], self.timeout_s)  # fmt: skip
        header, *rows = text.splitlines() or [""]
        fresh = [row for row in rows if row not in self._events]
        self._events = set(rows)
        body = b""
        if fresh and header:
            body = wire.document("sacctmgr_events", "\n".join([header, *fresh]) + "\n", "nodes", now, timezone="UTC")
        return Reading(body, len(fresh), {"nodes": {"events": now}})

    def close(self) -> None:
        """Nothing is held open."""


def _make(context: Context, options: Mapping[str, Any]) -> Nodes:
    return Nodes(context, options["scontrol"], options["sacctmgr"], options["timeout_s"], options["every_s"])


SOURCE = SourceKind(
    "nodes", _make, {"scontrol": "scontrol", "sacctmgr": "sacctmgr", "timeout_s": 30.0, "every_s": 15.0},
    reads="nodes whose state, reason (with its author and time), boot or slurmd start changed; slurmdbd's node events",
    costs="one scontrol every 15 s (1 KB per node from slurmctld), one sacctmgr every 5 min",
    blind_to="a state that came and went between two polls (slurmctld's log has it)",
    role="controller",
)  # fmt: skip
