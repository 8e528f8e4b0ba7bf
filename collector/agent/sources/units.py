"""Failed systemd units, queried from systemd: works even if neither journal nor syslog reaches the service."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind

#: A valid systemd unit name (src/basic/unit-name.c): no blanks, so it cannot hold a sentence.
_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass
class Units:
    context: Context
    program: str
    interval: float
    _sent: dict[str, str] = field(default_factory=dict)

    def open(self, positions: Mapping[str, Any]) -> None:
        if not self.context.path("/run/systemd/system").exists():
            raise Missing("this host was not booted with systemd")
        kept = positions.get("units") or {}
        self._sent = dict(kept.get("told", {})) if kept.get("boot") == self.context.boot_id() else {}

    def poll(self) -> Iterator[Reading]:
        listing = self.context.answer(
            [self.program, "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager"], timeout=20
        )
        failed = [line.split()[0] for line in listing.splitlines() if line.split() and _NAME.fullmatch(line.split()[0])]
        lines: list[str] = []
        states: dict[str, str] = {}
        for unit in failed:
            about = self._about(unit)
            once = about.get("InvocationID") or about.get("InactiveEnterTimestamp", "")
            states[unit] = once
            if self._sent.get(unit) != once:
                lines.append(self._line(unit, about))
        changed, self._sent = states != self._sent, states
        if changed:
            now = wire.stamp(self.context.now())
            body = wire.lines_record(
                b'{"stream":"units","source":"syslog","timezone":"UTC"', "\n".join(lines).encode(), read=now
            ) if lines else b""  # fmt: skip
            yield Reading(body, len(lines), {"units": {"boot": self.context.boot_id(), "told": states}})

    def _about(self, unit: str) -> dict[str, str]:
        asked = "--property=Result,InvocationID,InactiveEnterTimestamp,ExecMainStatus,NRestarts"
        rows = self.context.answer([self.program, "show", asked, "--", unit], timeout=20).splitlines()
        return dict(row.split("=", 1) for row in rows if "=" in row)

    def _line(self, unit: str, about: Mapping[str, str]) -> str:
        """The line that systemd writes to syslog (src/core/unit.c: unit_log_failure), with the time of the failure."""
        found = _STAMP.search(about.get("InactiveEnterTimestamp", ""))
        at = wire.stamp(self.context.now())
        if found:  # programs run with TZ=UTC here
            at = wire.stamp(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
        return f"{at} {self.context.host} systemd[1]: {unit}: Failed with result '{about.get('Result') or 'unknown'}'."

    def close(self) -> None:
        """Nothing is held open."""


def _make(context: Context, options: Mapping[str, Any]) -> Units:
    return Units(context, options["program"], options["every_s"])


SOURCE = SourceKind(
    "units", _make, {"program": "systemctl", "every_s": 30.0},
    reads="systemd units in the state failed, each failure once",
    costs="one systemctl every 30 s (5 ms)",
    blind_to="a unit that failed and was restarted between two polls (the journal has it)",
)  # fmt: skip
