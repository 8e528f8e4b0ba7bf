"""What was stored since the last look: a few questions about new rows only, asked once for all clusters."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from correlator.model import Run

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: Events that may end something: links, nodes, daemons and targets that come back.
ENDING = ("nic.", "switch.", "fabric.", "slurm.node_", "slurm.daemon_", "kernel.boot", "storage.")


@dataclass(frozen=True)
class Change:
    """What was stored since the last look: the earliest moment told by it, the jobs it speaks of, those of them whose
    output it brings without stamps, the hosts of which it tells something that may have ended there, or whose own log it
    holds, whether it holds states of nodes, and behind which row id of ``raw.jobs`` its rows lie."""

    earliest: float
    jobs: frozenset[int]
    ending: frozenset[str] = frozenset()
    voices: frozenset[str] = frozenset()
    unstamped: frozenset[int] = frozenset()
    states: bool = True
    jobs_since: int = -1


@dataclass
class _Lines:
    """What the new log lines of one cluster tell."""

    count: int = 0
    earliest: float | None = None
    jobs: set[int] = field(default_factory=set)
    unstamped: set[int] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)


class Arrivals:
    """Rows behind ``since`` (table of ``raw`` -> highest row id seen)."""

    def __init__(self, store: DuckStore, since: Mapping[str, int]) -> None:
        self.store, self.since = store, since
        self._lines: defaultdict[str | None, _Lines] = defaultdict(_Lines)
        self._read_lines()

    def _read_lines(self) -> None:
        last = [self.since["logs"]]
        for row in self.store.rows("SELECT cluster, epoch(min(time)) AS t, count(*) AS n FROM raw.logs WHERE rowid > ? GROUP BY cluster", last):  # fmt: skip
            self._lines[row["cluster"]].count, self._lines[row["cluster"]].earliest = row["n"], row["t"]
        for row in self.store.rows("SELECT DISTINCT cluster, job_id, time IS NULL AS unstamped FROM raw.logs WHERE rowid > ? AND job_id IS NOT NULL", last):  # fmt: skip
            found = self._lines[row["cluster"]]
            found.jobs.add(row["job_id"])
            if row["unstamped"]:
                found.unstamped.add(row["job_id"])
        for row in self.store.rows(f"""SELECT DISTINCT cluster, host, json_extract(entities, '$.nodes') AS nodes FROM raw.logs WHERE rowid > ?
                AND event IS NOT NULL AND ({' OR '.join(f"starts_with(event, '{k}')" for k in ENDING)})""", last):  # fmt: skip
            ending = self._lines[row["cluster"]].ending
            ending.update([row["host"]] if row["host"] else [])
            ending.update(_names(row["nodes"]) if row["nodes"] else [])

    def clusters(self) -> set[str | None]:
        """Clusters that new lines or job records speak of."""
        told = self.store.rows("SELECT DISTINCT cluster FROM raw.jobs WHERE rowid > ?", [self.since["jobs"]])
        return {*self._lines, *(r["cluster"] for r in told)}

    def change(self, cluster: str | None, last_runs: Callable[[Collection[int]], Mapping[int, Run]], latest: float) -> Change | None:  # fmt: skip
        """What the new rows say of a cluster, None if nothing. ``last_runs`` gives the last run that is known of each of
        some jobs; what tells no time counts as said at ``latest``."""
        lines = self._lines.get(cluster, _Lines())
        moments = [lines.earliest]
        jobs = set(lines.jobs)
        told = self.store.rows(
            '''SELECT job_id, epoch(min(coalesce("end", observed_at, start, submit))) AS t, epoch(min(coalesce(start, submit, "end"))) AS begun
            FROM raw.jobs WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ? AND job_id IS NOT NULL GROUP BY job_id''', [self.since["jobs"], cluster])  # fmt: skip
        jobs.update(row["job_id"] for row in told)
        jobs |= {r["job_id"] for r in self.store.rows(
            "SELECT DISTINCT job_id FROM raw.steps WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ?", [self.since["steps"], cluster])}  # fmt: skip
        known = last_runs(jobs) if jobs else {}
        for row in told:
            # A run that nothing told of before may have been there since its start.
            run = known.get(row["job_id"])
            going_on = run is not None and run.start is not None and run.nodes and run.end is None
            moments.append(row["t"] if going_on else row["begun"])
        moments += [run.end for run in known.values()]
        states = False
        for table in ("metrics", "node_states"):
            sample = self.store.rows(f"SELECT epoch(min(time)) AS t FROM raw.{table} WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ?", [self.since[table], cluster])  # fmt: skip
            moments.append(sample[0]["t"])
            states = sample[0]["t"] is not None
        times = [m for m in moments if m is not None]
        if not lines.count and not jobs and not times:
            return None
        return Change(
            min(times, default=latest), frozenset(jobs), frozenset(lines.ending), self._voices(cluster) if lines.count else frozenset(),
            frozenset(lines.unstamped), states, self.since["jobs"],
        )  # fmt: skip

    def _voices(self, cluster: str | None) -> frozenset[str]:
        rows = self.store.rows("""SELECT DISTINCT host FROM raw.logs WHERE rowid > ? AND host IS NOT NULL
            AND source IN ('kernel', 'syslog', 'journal', 'dmesg') AND cluster IS NOT DISTINCT FROM ?""", [self.since["logs"], cluster])  # fmt: skip
        return frozenset(r["host"] for r in rows)


def _names(text: str) -> list[str]:
    told = json.loads(text)
    return [str(n) for n in told] if isinstance(told, list) else [str(told)]
