"""Slurm's accounting: new or changed rows of ``sacct``. Runs on the controller, or where slurmdbd is reachable."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from collector.agent import wire
from collector.agent.source import Context, Reading, SourceKind

#: Columns that the service reads. Free text comes last: from there on, line breaks inside it can be distinguished from
#: row ends.
_COLUMNS = (
    "JobID,JobIDRaw,DBIndex,Cluster,User,UID,Account,Partition,QOS,State,ExitCode,DerivedExitCode,Submit,Start,End,"
    "TimelimitRaw,NodeList,NNodes,AllocTRES,FailedNode,Restarts,Reason,Flags,Reservation,WorkDir,JobName"
)
#: slurmdbd learns of a job's end late (slurmctld batches, backlogs): each poll overlaps the last one by this much.
_OVERLAP_S = 900.0
#: Reported rows are remembered by checksum; beyond this many they are forgotten and reported again, harmlessly.
_REMEMBERED = 100_000


@dataclass
class Accounting:
    context: Context
    program: str
    first_hours: float
    timeout_s: float
    interval: float
    _until: float | None = None
    _columns: str = _COLUMNS
    _sent: dict[str, int] = field(default_factory=dict)

    def open(self, positions: Mapping[str, Any]) -> None:
        kept = positions.get("accounting") or {}
        self._until = kept.get("until")
        # Columns differ between versions, and one unknown name makes sacct refuse all.
        offered = set(self.context.answer([self.program, "--helpformat"], self.timeout_s).lower().split())
        self._columns = ",".join(name for name in _COLUMNS.split(",") if name.lower() in offered)

    def poll(self) -> Iterator[Reading]:
        now = self.context.now()
        since = now - self.first_hours * 3600 if self._until is None else min(self._until, now) - _OVERLAP_S
        text = self.context.answer([
            self.program, "--allusers", "--duplicates", "--parsable2", f"--format={self._columns}",
            f"--starttime={_slurm_time(since)}", "--endtime=now",
        ], self.timeout_s)  # fmt: skip
        header, *rows = text.rstrip("\n").split("\n")  # other line ends belong to free text
        changed = [row for row in rows if self._is_new(row)]
        self._until = now
        body = b""
        if changed:
            body = wire.document("sacct", "\n".join([header, *changed]) + "\n", "accounting", now, timezone="UTC")
        yield Reading(body, len(changed), {"accounting": {"until": now}})

    def _is_new(self, row: str) -> bool:
        parts = row.split("|", 3)
        key = "|".join(parts[:3])
        known = zlib.crc32(row.encode())
        if self._sent.get(key) == known:
            return False
        if len(self._sent) >= _REMEMBERED:
            self._sent.clear()
        self._sent[key] = known
        return True

    def close(self) -> None:
        """Nothing is held open."""


def _slurm_time(seconds: float) -> str:
    """A time in sacct's input format; programs run with TZ=UTC here."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _make(context: Context, options: Mapping[str, Any]) -> Accounting:
    return Accounting(context, options["program"], options["first_hours"], options["timeout_s"], options["every_s"])


SOURCE = SourceKind(
    "accounting", _make, {"program": "sacct", "first_hours": 48.0, "timeout_s": 120.0, "every_s": 60.0},
    reads="jobs and steps from sacct, each row when it is new or has changed",
    costs="one sacct per minute over the last quarter of an hour",
    blind_to="jobs that slurmdbd does not know; sites without accounting storage",
    role="controller",
)  # fmt: skip
