"""What was stored since the last look: a few questions about new rows only, asked once for all clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator.documents import from_json
from correlator.events import Lines, read, seconds, stamped
from correlator.model import Event, Run
from correlator.plain_runs import likely_runs
from correlator.recent import Recent
from correlator.runs import no_rows, rows_since
from correlator.samples import SAME_BOOT_S

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: Events that may end something: links, nodes, daemons and targets that come back.
ENDING = ("nic.", "switch.", "fabric.", "slurm.node_", "slurm.daemon_", "kernel.boot", "storage.")


#: Event lines are read ahead where no more lines than these are new: after a standstill everything is looked at.
AHEAD_LINES = 4_000_000


@dataclass(frozen=True)
class Ahead:
    """The event lines of a cluster from ``since`` (epoch seconds) on, and the events that they tell: they are being read while
    the rest is asked."""

    since: float
    lines: Future[pl.DataFrame]
    events: Future[tuple[list[Event], Lines]]


@dataclass(frozen=True)
class Change:
    """What was stored since the last look: the earliest moment told by it, the jobs it speaks of, those of them whose
    output it brings without stamps, the hosts of which it tells something that may have ended there, those whose own log
    begins in it, whether it holds states of nodes, behind which row id of ``raw.jobs`` its rows lie, those rows, and
    the runs that they most likely tell (``likely_runs``)."""

    earliest: float
    jobs: frozenset[int]
    ending: frozenset[str] = frozenset()
    voices: frozenset[str] = frozenset()
    unstamped: frozenset[int] = frozenset()
    states: bool = True
    jobs_since: int = -1
    job_rows: pl.DataFrame = field(default_factory=no_rows, compare=False)
    likely: Mapping[int, Run] = field(default_factory=dict, compare=False)
    ahead: Ahead | None = field(default=None, compare=False)


@dataclass
class _Lines:
    """What the new log lines of one cluster tell."""

    count: int = 0
    timed: int = 0
    earliest: float | None = None
    jobs: set[int] = field(default_factory=set)
    unstamped: set[int] = field(default_factory=set)
    ending: Future[set[str]] | None = None
    voices: frozenset[str] = frozenset()
    ahead: Ahead | None = None

    def ended(self) -> frozenset[str]:
        """Hosts of which they tell something that may have ended there: as was asked, else by the lines read ahead."""
        if self.ending is not None:
            return frozenset(self.ending.result())
        return frozenset() if self.ahead is None else frozenset(_ending_in(self.ahead.lines.result()))


#: Lines that are read ahead and no older than this before the latest that was known are nearly all new, seconds.
AGAIN_S = 60.0

#: Rows behind the last look that tell of one cluster.
_NEW = "rowid > ? AND cluster IS NOT DISTINCT FROM ?"


class Arrivals:
    """Rows behind ``since`` (table of ``raw`` -> highest row id seen); ``grown``: tables that have such rows. What does not
    hang on each other is asked at once, here and ``beside``: most questions keep one core busy only."""

    def __init__(self, store: DuckStore, since: Mapping[str, int], grown: Collection[str], beside: Executor) -> None:
        self.store, self.since, self.grown, self.beside = store, since, grown, beside

    def _rows(self, table: str, sql: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
        """The answer to a question about the new rows of a table; nothing where it has none."""
        return self.store.rows(sql, [self.since[table], *parameters]) if table in self.grown else []

    def further(self, known: Collection[str | None]) -> set[str | None]:
        """Other clusters that new lines or job records speak of."""
        # A comparison for each cluster is vectorised; looking a name up in a list is not.
        other = " AND ".join(["rowid > ?", *("cluster IS DISTINCT FROM ?" for _ in known)])
        return {
            row["cluster"] for table in ("logs", "jobs")
            for row in self._rows(table, f"SELECT DISTINCT cluster FROM raw.{table} WHERE {other}", list(known))
        }  # fmt: skip

    def _lines(
        self, cluster: str | None, latest: float, voices: frozenset[str], since: Callable[[float], float]
    ) -> _Lines:
        """Questions for one column each: DuckDB groups by one ten times as fast as by several."""
        found = _Lines()
        for row in self._rows("logs", f"SELECT epoch(min(time)) AS t, count(*) AS n, count(time) AS timed FROM raw.logs WHERE {_NEW}", [cluster]):  # fmt: skip
            found.count, found.timed, found.earliest = row["n"], row["timed"], row["t"]
        if not found.count:
            return found
        if found.earliest is not None and found.count <= AHEAD_LINES:
            found.ahead = self._ahead(cluster, since(found.earliest))
        if found.ahead is None or found.timed < found.count or found.ahead.since < latest - AGAIN_S:
            found.ending = self.beside.submit(self._ending, cluster)
        found.jobs = self._jobs(cluster, "job_id IS NOT NULL")
        if found.timed < found.count:
            found.unstamped = self._jobs(cluster, "job_id IS NOT NULL AND time IS NULL")
        found.voices = self._voices(cluster, voices)
        return found

    def _ahead(self, cluster: str | None, since: float) -> Ahead:
        lines = self.beside.submit(stamped, Recent(self.store, since), cluster)
        return Ahead(since, lines, self.beside.submit(lambda: read(lines.result())))

    def _jobs(self, cluster: str | None, which: str) -> set[int]:
        # Very many, as a rule: a column is read in half the time that rows take.
        jobs = self.store.frame(
            f"SELECT DISTINCT job_id FROM raw.logs WHERE {_NEW} AND {which}", [self.since["logs"], cluster]
        )
        return set(jobs["job_id"].to_list())

    def _ending(self, cluster: str | None) -> set[str]:
        """Hosts of which the new lines tell something that may have ended there."""
        found: set[str] = set()
        for row in self._rows("logs", f"""SELECT DISTINCT host, json_extract(entities, '$.nodes') AS nodes FROM raw.logs WHERE {_NEW}
                AND event IS NOT NULL AND ({" OR ".join(f"starts_with(event, '{k}')" for k in ENDING)})""", [cluster]):  # fmt: skip
            found.update([row["host"]] if row["host"] else [])
            found.update(_names(row["nodes"]) if row["nodes"] else [])
        return found

    def change(
        self, cluster: str | None, last_runs: Callable[[Collection[int]], Mapping[int, Run]], latest: float, voices: frozenset[str],
        since: Callable[[float], float],
    ) -> Change | None:  # fmt: skip
        """What the new rows say of a cluster, None if nothing. ``last_runs`` gives the last run that is known of each of
        some jobs; what tells no time counts as said at ``latest``; ``voices``: hosts whose own log is known already;
        ``since``: from which stamp on lines are wanted where the first new one has a given stamp."""
        job_rows = self.beside.submit(self._job_rows, cluster)
        lines = self._lines(cluster, latest, voices, since)
        moments = [lines.earliest]
        jobs = set(lines.jobs)
        rows, told, likely = job_rows.result()
        jobs.update(job for job, _, _ in told)
        jobs |= {r["job_id"] for r in self._rows("steps", f"SELECT DISTINCT job_id FROM raw.steps WHERE {_NEW}", [cluster])}  # fmt: skip
        known = last_runs(jobs) if jobs else {}
        for job, latest_told, begun in told:
            # A run that nothing told of before may have been there since its start.
            run = known.get(job)
            going_on = run is not None and run.start is not None and run.nodes and run.end is None
            moments.append(latest_told if going_on else begun)
        moments += [run.end for run in known.values()]
        states = False
        for table in ("metrics", "node_states"):
            for row in self._rows(table, f"SELECT epoch(min(time)) AS t FROM raw.{table} WHERE {_NEW}", [cluster]):
                moments.append(row["t"])
                states = table == "node_states" and row["t"] is not None
        moments += self._boots(cluster)
        times = [m for m in moments if m is not None]
        if not lines.count and not jobs and not times:
            return None
        return Change(
            min(times, default=latest), frozenset(jobs), lines.ended(), lines.voices,
            frozenset(lines.unstamped), states, self.since["jobs"], rows, likely, lines.ahead,
        )  # fmt: skip

    def _boots(self, cluster: str | None) -> list[float | None]:
        """When the first boot was that new answers of Slurm tell of: each poll repeats those that are known."""
        rows = self._rows("boots", f"""SELECT epoch(min(boot_time)) AS t FROM raw.boots b WHERE {_NEW} AND NOT EXISTS (SELECT 1 FROM raw.boots o
            WHERE o.rowid <= ? AND o.host = b.host AND o.cluster IS NOT DISTINCT FROM b.cluster
            AND abs(epoch(o.boot_time) - epoch(b.boot_time)) <= {SAME_BOOT_S})""", [cluster, self.since["boots"]])  # fmt: skip
        return [row["t"] for row in rows]

    def _job_rows(self, cluster: str | None) -> tuple[pl.DataFrame, list[_Moments], dict[int, Run]]:
        """The new rows about jobs, ``_moments`` of them, and the runs that they most likely tell."""
        rows = rows_since(self.store, cluster, self.since["jobs"]) if "jobs" in self.grown else no_rows()
        return rows, _moments(rows), likely_runs(rows)

    def _voices(self, cluster: str | None, known: frozenset[str]) -> frozenset[str]:
        """Hosts whose own log is not ``known`` and begins in the new lines."""
        hosts = {r["host"] for r in self._rows("logs", f"SELECT DISTINCT host FROM raw.logs WHERE {_NEW}", [cluster])}
        strange = sorted(h for h in hosts - known if h)
        if not strange:
            return frozenset()
        rows = self._rows("logs", f"""SELECT DISTINCT host FROM raw.logs WHERE {_NEW} AND list_contains(?::VARCHAR[], host)
            AND source IN ('kernel', 'syslog', 'journal', 'dmesg')""", [cluster, strange])  # fmt: skip
        return frozenset(r["host"] for r in rows)


def _ending_in(lines: pl.DataFrame) -> set[str]:
    """Hosts of which event lines tell something that may have ended there."""
    kinds = [kind for kind in lines["event"].unique().to_list() if kind.startswith(ENDING)]
    told = lines.filter(pl.col("event").is_in(kinds)).select("host", "entities")
    found = {host for host in told["host"].unique().to_list() if host}
    entities = told["entities"].unique()
    for text in entities.filter(entities.str.contains('"nodes"', literal=True)).to_list():  # of very many texts a few
        nodes = from_json(text).get("nodes")
        found.update(_listed(nodes) if nodes else [])
    return found


#: A job, and the first moments of its latest news and of its beginning.
_Moments = tuple[int, float | None, float | None]


def _moments(rows: pl.DataFrame) -> list[_Moments]:
    """For each job the first moment that its rows tell, of its latest news and of its beginning."""
    found = rows.group_by("job_id").agg(
        pl.coalesce("end", "observed_at", "start", "submit").dt.epoch("us").min().alias("told"),
        pl.coalesce("start", "submit", "end").dt.epoch("us").min().alias("begun"),
    )
    return [(job, seconds(t), seconds(b)) for job, t, b in found.iter_rows()]


def _names(text: str) -> list[str]:
    return _listed(json.loads(text))


def _listed(told: object) -> list[str]:
    return [str(n) for n in told] if isinstance(told, list) else [str(told)]
