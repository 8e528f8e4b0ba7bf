"""The tick: what the service calls again and again while lines come in.

``Ticker(store).tick()`` looks at what was stored since the last tick and brings ``model`` to exactly what a full pass
over the same rows would say (``correlator.engine.correlate``). When nothing new was stored, a tick costs one count;
else it concludes anew about the stretch of time that the new and late rows can change (``correlator.window``).
What the running service said, and when, is kept beside (``kept``): first detection of each incident, versions of each
verdict, former ids of incidents that merged, split or changed their root.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator import history, samples
from correlator.engine import Conclusions, clusters_of, conclude_cluster, load_edges, write
from correlator.garbage import paused
from correlator.model import Edge
from correlator.patching import patch
from correlator.window import ENDING, Change, Window, longest_window

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: Tables of ``raw`` whose rows the correlator reads.
INPUTS = ("logs", "jobs", "steps", "settings", "links", "topology", "node_states", "metrics", "artifacts")

#: Those whose rows hold for all times: a new row there asks for a full pass.
TIMELESS = frozenset({"settings", "links", "topology"})

#: A full pass at least so often, seconds.
FULL_EVERY_S = 3600.0


@dataclass(frozen=True)
class TickReport:
    """What one tick did. Run keys and incident ids are those of ``corr-result/1``; ``seconds`` is wall time.

    ``full``: concluded about everything, not about a stretch of time. ``provisional`` and ``final`` are runs whose verdict is new or changed; ``opened``, ``changed`` and ``closed`` are
    incidents (closed: no longer concluded; ``aliases`` says under which id its story goes on, where one does).
    """

    worked: bool = False
    full: bool = False
    seconds: float = 0.0
    lines: int = 0
    provisional: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


class Ticker:
    """Keeps ``model`` up with ``raw``. One per store, called from one thread; the store's writer lock guards the rest.

    ``settings`` and ``edge_paths`` as for ``correlate``. A new ``Ticker`` on an old store begins with a full pass, and
    so does every tick after ``FULL_EVERY_S``, so that nothing rests for ever on a stretch of time alone.
    """

    def __init__(
        self, store: DuckStore, *, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = ()
    ) -> None:
        self.store = store
        self.settings = settings
        self._edges = load_edges(edge_paths)
        self._seen: dict[str, tuple[int, int]] | None = None
        self._known: dict[str | None, Conclusions] = {}
        self._full_at = 0.0

    def tick(self, now: datetime | None = None, *, full: bool = False) -> TickReport:
        """Takes in what was stored since the last tick. ``now`` (UTC) is what is noted as the time of saying so."""
        with paused():
            return self._tick(now, full)

    def _tick(self, now: datetime | None, full: bool) -> TickReport:
        begun = time.perf_counter()
        state, moment = self._state(), _naive(now)
        before, first = self._known, self._seen is None
        partly = True
        if state == self._seen and not full:
            found = list(before.values())
        else:
            full = full or first or begun - self._full_at > FULL_EVERY_S or not self._grew_only(state)
            found = []
            for cluster in clusters_of(self.store):
                conclusions = None if full else self._in_part(cluster)
                if conclusions is None:
                    partly = False
                    conclusions = conclude_cluster(self.store, cluster, self._edges, self.settings)
                found.append(conclusions)
        if not partly:
            self._full_at = begun
        found = [settled(c, self._edges, moment) for c in found]
        if state == self._seen and all(c is before.get(c.cluster) for c in found):
            return TickReport(seconds=time.perf_counter() - begun)
        lines = state["logs"][0] - (self._seen["logs"][0] if self._seen else 0)
        changed = [c for c in found if c is not before.get(c.cluster)]
        said = history.keep(self.store, changed, moment, silent=first, before=before)
        if first or not partly or len(found) != len(before):
            write(self.store, found)
        else:
            patch(self.store, [(before[c.cluster], c) for c in changed], found)
        self._seen, self._known = state, {c.cluster: c for c in found}
        return TickReport(worked=True, full=not partly, seconds=time.perf_counter() - begun, lines=lines, **said)

    def _state(self) -> dict[str, tuple[int, int]]:
        """Row count and highest row id per input table: both change with every insert and delete."""
        parts = " UNION ALL ".join(f"SELECT '{t}' AS t, count(*) AS n, max(rowid) AS top FROM raw.{t}" for t in INPUTS)
        return {r["t"]: (r["n"], -1 if r["top"] is None else r["top"]) for r in self.store.rows(parts)}

    def _grew_only(self, state: Mapping[str, tuple[int, int]]) -> bool:
        """Rows were only added, and none to what applies to all times (settings, cables, files of jobs)."""
        assert self._seen is not None
        for table, (count, top) in state.items():
            then, last = self._seen[table]
            if count - then != top - last or count < then or (table in TIMELESS and count != then):
                return False
        return True

    def _in_part(self, cluster: str | None) -> Conclusions | None:
        """Conclusions about a cluster with what was added; None where everything has to be looked at."""
        before = self._known.get(cluster)
        if before is None:
            return None
        change = self._change(cluster)
        if change is None:
            return before
        window = Window(self.store, before, self._edges, self.settings, change)
        return None if window.whole else window.again()

    def _change(self, cluster: str | None) -> Change | None:
        """What the rows say that were added to a cluster since the last tick."""
        assert self._seen is not None
        since = {table: self._seen[table][1] for table in INPUTS}
        moments, jobs = [], set()
        logs = self.store.rows(
            "SELECT epoch(min(time)) AS t, count(*) AS n FROM raw.logs WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ?", [since["logs"], cluster])  # fmt: skip
        speaking = self.store.rows(
            "SELECT DISTINCT job_id FROM raw.logs WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ? AND job_id IS NOT NULL", [since["logs"], cluster])  # fmt: skip
        runs = self.store.rows(
            '''SELECT job_id, epoch(min(coalesce("end", observed_at, start, submit))) AS t, epoch(min(coalesce(start, submit, "end"))) AS begun
            FROM raw.jobs WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ? AND job_id IS NOT NULL GROUP BY job_id''', [since["jobs"], cluster])  # fmt: skip
        steps = self.store.rows(
            "SELECT DISTINCT job_id FROM raw.steps WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ?", [since["steps"], cluster])  # fmt: skip
        for table in ("metrics", "node_states"):
            sample = self.store.rows(f"SELECT epoch(min(time)) AS t FROM raw.{table} WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ?", [since[table], cluster])  # fmt: skip
            moments.append(sample[0]["t"])
        moments.append(logs[0]["t"])
        known = {r.job_id: r for r in self._known[cluster].runs}
        for row in runs:
            jobs.add(row["job_id"])
            # A run that nothing told of before may have been there since its start.
            run = known.get(row["job_id"])
            told = run is not None and run.start is not None and run.nodes and run.end is None
            moments.append(row["t"] if told else row["begun"])
        jobs |= {r["job_id"] for r in (*speaking, *steps)}
        for job in jobs:
            run = known.get(job)
            if run is not None and run.end is not None:
                moments.append(run.end)
        times = [m for m in moments if m is not None]
        if not logs[0]["n"] and not jobs and not times:
            return None
        ending = self.store.rows(
            f"""SELECT DISTINCT host, json_extract(entities, '$.nodes') AS nodes FROM raw.logs WHERE rowid > ? AND cluster IS NOT DISTINCT FROM ?
            AND event IS NOT NULL AND ({' OR '.join(f"starts_with(event, '{k}')" for k in ENDING)})""", [since["logs"], cluster])  # fmt: skip
        hosts = {r["host"] for r in ending if r["host"]} | {n for r in ending if r["nodes"] for n in _names(r["nodes"])}
        return Change(
            min(times, default=self._known[cluster].last),
            frozenset(jobs),
            frozenset(hosts),
            samples.voices(_Added(self.store, since["logs"]), cluster),
        )


class _Added:
    """A store of which only the log lines added after row ``last`` are seen."""

    def __init__(self, store: DuckStore, last: int) -> None:
        self._store, self._part = store, f"(SELECT * FROM raw.logs WHERE rowid > {int(last)})"

    def rows(self, sql: str, parameters: object = None) -> list[dict[str, Any]]:
        return self._store.rows(sql.replace("raw.logs", self._part), parameters)

    def frame(self, sql: str, parameters: object = None) -> pl.DataFrame:
        return self._store.frame(sql.replace("raw.logs", self._part), parameters)


def _names(text: str) -> list[str]:
    told = json.loads(text)
    return [str(n) for n in told] if isinstance(told, list) else [str(told)]


#: Lines may come this late and still find the verdict provisional, seconds.
LATENESS_S = 600.0


def settled(known: Conclusions, edges: list[Edge], now: datetime) -> Conclusions:
    """Verdicts are final when the watermark (``now`` less the lateness allowed) has passed their run's end by the longest
    causal window; until then they are provisional. Incidents are when all their verdicts are. A full pass over stored
    rows (``ingest``, ``correlate``) knows that nothing more comes and calls all final. The same object where nothing turns."""
    border = (now - timedelta(seconds=LATENESS_S + longest_window(known, edges))).isoformat(
        timespec="microseconds"
    ) + "Z"
    verdicts = {
        k: v if v["final"] == _over(v["end"], border) else {**v, "final": not v["final"]}
        for k, v in known.verdicts.items()
    }
    incidents = []
    for incident in known.incidents:
        over = _over(incident["end"], border) and all(
            verdicts[j["job_id"]]["final"] for j in incident["jobs"] if j["job_id"] in verdicts
        )
        status = "final" if over else "provisional"
        incidents.append(incident if incident["status"] == status else {**incident, "status": status})
    turned = any(v is not known.verdicts[k] for k, v in verdicts.items())
    turned = turned or any(a is not b for a, b in zip(incidents, known.incidents, strict=True))
    return replace(known, verdicts=verdicts, incidents=incidents) if turned else known


def _over(end: str | None, border: str) -> bool:
    """Both are RFC 3339 in UTC with microseconds: they sort as texts."""
    return end is None or end <= border


def _naive(now: datetime | None) -> datetime:
    return (now or datetime.now(UTC)).astimezone(UTC).replace(tzinfo=None)


__all__ = ["INPUTS", "TickReport", "Ticker"]
