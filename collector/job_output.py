"""A job's output that hooks brought, as lines of its run: once, however many hooks of one job fetched the same file."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from collector.agent import wire
from store.duckdb_store import DuckStore

#: After a start, what was fetched longer ago was delivered by the service before: the keys of its lines may be forgotten.
LOOKS_BACK = timedelta(hours=20)


@dataclass
class JobOutput:
    """``keep(records, key)`` puts records of the wire into the spool under a key and returns when they are on disk; ``known`` are
    the keys of what is stored. An output is told by its job, run, kind and path, whoever fetched it."""

    store: DuckStore
    keep: Callable[[bytes, str], None]
    known: Callable[[], Container[str]]
    _seen: int = -1
    _count: int = 0

    def round(self) -> int:
        """Delivers what is new; returns how many outputs. What ``keep`` raises stops the round, and the next one goes on."""
        count = self.store.rows("SELECT count(*) AS n FROM raw.artifacts")[0]["n"]
        if count < self._count:  # retention took rows away: those that are left may have other numbers by now
            self._seen = -1
        self._count = count
        since = datetime.now(UTC).replace(tzinfo=None) - LOOKS_BACK if self._seen < 0 else datetime.min
        rows = self.store.rows(
            "SELECT rowid AS id, * FROM raw.artifacts WHERE rowid > ? AND taken_at >= ? AND kind IN ('stdout', 'stderr') ORDER BY rowid",
            [self._seen, since],
        )  # fmt: skip
        delivered = 0
        for row in rows:
            key = f"output {row['cluster']} {row['job_id']} {row['restarts'] or 0} {row['kind']} {row['path']}"
            if key not in self.known() and row["content"].strip() and row["job_id"] is not None:
                self.keep(_lines(row), key)
                delivered += 1
            self._seen = row["id"]
        return delivered


def _lines(row: dict[str, Any]) -> bytes:
    """Read when the hook ran, which is when the job had ended, however late that is told."""
    host, _, path = str(row["file"]).partition(":")
    about = wire.head(
        stream="hooks", source=f"job_{row['kind']}", path=path, host=host, cluster=row["cluster"], job_id=row["job_id"],
        restarts=row["restarts"] or 0,
    )  # fmt: skip
    read = wire.stamp(row["taken_at"].replace(tzinfo=UTC).timestamp())
    return wire.lines_record(about, row["content"].removesuffix("\n").encode(), read=read)
