"""A job's output that hooks brought, as lines of its run: once, however many hooks of one job fetched the same file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from collector.agent import wire
from store.duckdb_store import DuckStore

#: After a start, what was fetched longer ago was delivered by the service before: the keys of its lines may be forgotten.
LOOKS_BACK = timedelta(hours=20)
#: A node's clock may be so far ahead of the service's.
AHEAD = timedelta(minutes=5)

#: What is new behind a row, and whether an output that came before is the same one: of the same run, which is told by the last
#: beginning of the number before the hook ran (a hook of slurmctld's may run a moment before the start that it tells). Both are
#: told by what is known now: accounting may have named another moment since the first one was delivered.
_NEW = """
WITH fresh AS (
  SELECT rowid AS id, * FROM raw.artifacts WHERE rowid > ? AND taken_at >= ? AND kind IN ('stdout', 'stderr')
), outputs AS (
  SELECT rowid AS id, cluster, job_id, coalesce(restarts, 0) AS restarts, kind, path, taken_at FROM raw.artifacts
  WHERE kind IN ('stdout', 'stderr') AND job_id IN (SELECT job_id FROM fresh) AND trim(content, E' \\t\\r\\n') <> ''
), begins AS (
  SELECT cluster, job_id, coalesce(submit, start) - INTERVAL 60 SECOND AS begin FROM raw.jobs
  WHERE coalesce(submit, start) IS NOT NULL AND source IS DISTINCT FROM 'task_hook' AND job_id IN (SELECT job_id FROM fresh)
), runs AS (
  SELECT o.id, max(b.begin) AS begin FROM outputs o
  LEFT JOIN begins b ON b.job_id = o.job_id AND b.cluster IS NOT DISTINCT FROM o.cluster AND b.begin <= o.taken_at GROUP BY o.id
), first AS (
  SELECT o.id, min(o.id) OVER (PARTITION BY cluster, job_id, restarts, kind, path, r.begin) AS first FROM outputs o JOIN runs r USING (id)
)
SELECT fresh.* FROM fresh JOIN first USING (id) WHERE first.first = fresh.id ORDER BY id"""


@dataclass
class JobOutput:
    """``keep(records, key)`` puts records of the wire into the spool under a key and returns when they are on disk; ``known`` are
    the keys of what is stored, and when they came (naive UTC). An output is told by its job, run, kind and path, whoever fetched it;
    a job number that is used again is another run."""

    store: DuckStore
    keep: Callable[[bytes, str], None]
    known: Callable[[], Mapping[str, datetime]]
    _seen: int = -1
    _count: int = 0

    def round(self) -> int:
        """Delivers what is new; returns how many outputs. What ``keep`` raises stops the round, and the next one goes on."""
        told = self.store.rows("SELECT count(*) AS n, coalesce(max(rowid), -1) AS last FROM raw.artifacts")[0]
        if told["n"] < self._count:  # retention took rows away: those that are left may have other numbers by now
            self._seen = -1
        self._count = told["n"]
        if told["last"] <= self._seen:
            return 0
        since = datetime.now(UTC).replace(tzinfo=None) - LOOKS_BACK if self._seen < 0 else datetime.min
        delivered = 0
        for row in self.store.rows(_NEW, [self._seen, since]):
            key = self._fresh_key(row)
            if key is not None:
                self.keep(_lines(row), key)
                delivered += 1
            self._seen = row["id"]
        self._seen = told["last"]
        return delivered

    def _fresh_key(self, row: dict[str, Any]) -> str | None:
        """The key to deliver an output under; None for one that was. Versions before knew outputs without a moment: what such a
        key stands for was delivered when the key came, so an output of later is another run's."""
        known = self.known()
        before = f"output {row['cluster']} {row['job_id']} {row['restarts'] or 0} {row['kind']} {row['path']}"
        key = f"{before} {row['taken_at'].isoformat()}"
        came = known.get(before)
        return None if key in known or (came is not None and row["taken_at"] <= came + AHEAD) else key


def _lines(row: dict[str, Any]) -> bytes:
    """Read when the hook ran, which is when the job had ended, however late that is told."""
    host, _, path = str(row["file"]).partition(":")
    about = wire.head(
        stream="hooks", source=f"job_{row['kind']}", path=path, host=host, cluster=row["cluster"], job_id=row["job_id"],
        restarts=row["restarts"] or 0,
    )  # fmt: skip
    read = wire.stamp(row["taken_at"].replace(tzinfo=UTC).timestamp())
    return wire.lines_record(about, row["content"].removesuffix("\n").encode(), read=read)
