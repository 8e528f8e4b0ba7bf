"""Everything the pages and the API read from the store. SQL with bound parameters only.

Pages and API share these functions, so that a number on a page is the number of its JSON.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from correlator.incidents import recurrence
from store import blocks, node_names, run_names
from store.door import Asks, Question
from store.duckdb.asking import rows_of, store_errors
from store.duckdb.derived import STATES
from store.errors import NoSuchTable
from store.node_names import NodeNames
from web import suggesting
from web.cursors import decode_cursor, encode_cursor
from web.problems import ProblemError
from web.shaping import document
from web.timerange import Range

Row = dict[str, Any]
PAGE = 50
MAX_PAGE = 500
#: An event that arrived this much after its own time is called late.
LATE_S = 5.0
SOURCES_KEPT_S = 15.0
#: Another cluster comes once in a service's life.
NAMES_KEPT_S = 15.0
#: Rows of a run's cluster, or of none that was named: what is not told of a cluster may be of this one.
OF_CLUSTER = "(cluster IS NULL OR cluster IS NOT DISTINCT FROM ?)"
#: A run that ended, and not well.
FAILED = "state NOT IN ('COMPLETED', 'RUNNING', 'PENDING', 'CONFIGURING', 'COMPLETING')"
LINE_COLUMNS = (
    "time, time_quality, received_time, cluster, host, source, unit, severity, event, job_id, message, raw, file, line"
)


class Store(Asks, Protocol):
    """What the web room needs of a store: answers to questions, in any thread, and facts about itself."""

    def info(self) -> Mapping[str, Any]: ...


def joined_states(rows: Sequence[Row]) -> list[Row]:
    """Each state of a node once, from its first record on: polls, sinfo and accounting tell the same one again and again.

    ``rows`` are in the order of host and time. A reason that only one of the records knows is the state's.
    """
    out: list[Row] = []
    for row in rows:
        last = out[-1] if out else None
        same = last is not None and last["host"] == row["host"] and _state(last) == _state(row)
        if last is not None and same and (last["reason"] == row["reason"] or not (last["reason"] and row["reason"])):
            last |= {"until": row["until"], "reason": last["reason"] or row["reason"]}
        else:
            out.append(dict(row))
    return out


def _state(row: Row) -> str:
    return str(row["state"] or "").upper()


class Where:
    """Conditions with their bound values; texts are constants of this module, values never enter them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.values: list[Any] = []

    def add(self, text: str, *values: Any) -> None:
        self.texts.append(text)
        self.values += values

    def when(self, value: Any, text: str) -> None:
        """Adds the condition only when there is a value; the value is bound once for each mark."""
        if value is not None and value != "":
            self.add(text, *[value] * text.count("?"))

    @property
    def sql(self) -> str:
        return " WHERE " + " AND ".join(f"({text})" for text in self.texts) if self.texts else ""


class Reader:
    """Reads one store. Holds no state but a short memory of the costly list of sources."""

    #: True where only one user's jobs are seen.
    own = False

    def __init__(self, store: Store) -> None:
        self.store = store
        self._sources: tuple[float, list[Row]] | None = None
        self._names: tuple[float, NodeNames] | None = None
        self._users: tuple[float, frozenset[str]] | None = None
        self._lock = threading.Lock()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self.store.cursor()
        try:
            with store_errors():
                return rows_of(cursor.execute(sql, list(values)))
        finally:
            cursor.close()

    def ask(self, question: Question) -> list[Row]:
        return self.store.ask(question)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    # -- incidents -------------------------------------------------------------------------------------------------

    def incidents(
        self, within: Range, *, severity: str | None = None, host: str | None = None, job: str | None = None,
        search: str | None = None, of: Row | None = None, limit: int = PAGE, cursor: str | None = None,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """Newest first. An incident belongs to a range it overlaps; one without an end is still open. ``of``: a node, whose
        cluster they are of."""
        where = Where()
        if of is not None:
            where.add(OF_CLUSTER, of["cluster"])
        where.when(within.end, "start <= ?")
        where.when(within.start, 'coalesce("end", start) >= ?')
        where.when(severity, "severity = ?")
        where.when(host, "root_host = ? OR list_contains(json_extract_string(document, '$.hosts[*]'), ?)")
        where.when(job, "list_contains(json_extract_string(document, '$.jobs[*].job_id'), ?)")
        where.when(search, "document ILIKE '%' || ? || '%'")
        if cursor:
            where.add("(start, incident_id) < (CAST(? AS TIMESTAMP), ?)", *decode_cursor(cursor, datetime, str))
        rows = self.rows(
            'SELECT incident_id, cluster, start, "end", severity, category, root_event, root_host, root_device,'
            f" document FROM model.incidents{where.sql} ORDER BY start DESC, incident_id DESC LIMIT ?",
            [*where.values, limit + 1],
        )
        more = len(rows) > limit
        rows = rows[:limit]
        self._told(rows)
        return rows, encode_cursor(rows[-1]["start"], rows[-1]["incident_id"]) if more else None

    def incident(self, incident_id: str) -> Row:
        row = self.one("SELECT * FROM model.incidents WHERE incident_id = ?", [incident_id])
        row = row or self._heir(incident_id)
        if row is None:
            near = {"suggestions": suggesting.incidents(self.rows, incident_id)}
            raise ProblemError(404, f"There is no incident {incident_id}.", do="See the list of incidents.", extra=near)
        self._told([row])
        row["document"]["recurrence"] = self._recurrence(row)
        return row

    def _told(self, rows: Sequence[Row]) -> None:
        """Reads the incidents' documents, with jobs called as in the whole store."""
        names = {cluster: run_names.differing(self.rows, cluster) for cluster in {row["cluster"] for row in rows}}
        for row in rows:
            row["document"] = run_names.renamed(document(row["document"]), names[row["cluster"]])

    def _recurrence(self, row: Row) -> list[Row]:
        """Other incidents on the same device, linked as ``faultline incidents`` links them."""
        if not row["root_host"]:
            return []
        others = self.rows(
            "SELECT incident_id, start, severity, root_event, document FROM model.incidents"
            " WHERE root_host = ? AND coalesce(root_device, '') = coalesce(?, '') AND cluster IS NOT DISTINCT FROM ?",
            [row["root_host"], row["root_device"], row["cluster"]],
        )  # fmt: skip
        root = {"host": row["root_host"], "device": row["root_device"]}
        documents = [
            {"id": r["incident_id"], "start": r["start"], "severity": r["severity"], "root_cause": {**root, "event": r["root_event"]},
             "chain": document(r["document"]).get("chain")} for r in others
        ]  # fmt: skip
        recurrence.link(documents)
        return next((list(d["recurrence"]) for d in documents if d["id"] == row["incident_id"]), [])

    def feedback(self, *, run: Row | None = None, incident_id: str | None = None) -> list[Row]:
        """What operators answered to the verdict on a run, or to all verdicts that blame an incident, oldest first.

        ``counts`` is false where the same person answered again later.
        """
        where = Where()
        if run is not None:
            where.add("run_key = ? AND cluster IS NOT DISTINCT FROM ?", run["own_key"], run["cluster"])
        where.when(incident_id, "incident_id = ?")
        columns = (
            "cluster, run_key, answer, category, event, host, device, note, author, given_at, said_category, said_event"
        )
        later = "lead(given_at) OVER (PARTITION BY cluster, run_key, coalesce(author, '') ORDER BY given_at)"
        try:
            found = self.rows(
                f"SELECT {columns}, {later} IS NULL AS counts FROM kept.feedback{where.sql} ORDER BY given_at",
                where.values,
            )
        except NoSuchTable:  # a store of an older version, opened for reading
            return []
        names = {row["cluster"]: run_names.differing(self.rows, row["cluster"]) for row in found[:1]}
        return [row | {"run_key": names.get(row["cluster"], {}).get(row["run_key"], row["run_key"])} for row in found]

    def run_keys(self, incident_id: str) -> list[str]:
        """The runs whose verdicts blame an incident, in the order in which they ended."""
        sql = f'SELECT run_key FROM {self._runs()} WHERE incident_id = ? ORDER BY "end", run_key'
        return [str(row["run_key"]) for row in self.rows(sql, [incident_id])]

    def _heir(self, former_id: str) -> Row | None:
        """An incident that got another root keeps its former ids as aliases: links in tickets lead on."""
        try:
            return self.one(
                "SELECT i.* FROM model.incidents i JOIN kept.aliases a ON a.incident_id = i.incident_id"
                " WHERE a.alias = ? ORDER BY a.since DESC LIMIT 1", [former_id])  # fmt: skip
        except NoSuchTable:  # a store of an older version, opened for reading
            return None

    def severity_counts(self, within: Range) -> dict[str, int]:
        where = Where()
        where.when(within.end, "start <= ?")
        where.when(within.start, 'coalesce("end", start) >= ?')
        sql = f"SELECT severity, count(*) AS n FROM model.incidents{where.sql} GROUP BY severity"
        return {str(row["severity"]): int(row["n"]) for row in self.rows(sql, where.values)}

    def cost(self, within: Range) -> Row:
        """What the incidents of a range ended, slowed and cost, and how many of them are not over."""
        where = Where()
        where.when(within.end, "start <= ?")
        where.when(within.start, 'coalesce("end", start) >= ?')
        found = self.one(
            "SELECT coalesce(sum(json_array_length(document, '$.jobs')), 0) AS jobs,"
            " coalesce(sum(json_array_length(document, '$.slowed_jobs')), 0) AS slowed,"
            " coalesce(sum(TRY_CAST(json_extract_string(document, '$.gpu_hours_lost') AS DOUBLE)), 0) AS gpu_hours,"
            f' count(*) FILTER ("end" IS NULL) AS open FROM model.incidents{where.sql}',
            where.values,
        )
        return found or {"jobs": 0, "slowed": 0, "gpu_hours": 0.0, "open": 0}

    # -- jobs ------------------------------------------------------------------------------------------------------

    RUN_COLUMNS = (
        'run_key, own_key, cluster, job_id, attempt, array_job_id, array_task_id, name, "user", account, partition, state,'
        ' exit_code, exit_signal, submit, start, "end", node_list, nodes, node_count, gpus, gpu_index, time_limit_s,'
        " work_dir, submit_line, category, incident_id, confidence"
    )

    def _runs(self) -> str:
        """What runs are read from: there ``run_key`` is the name in the whole store, ``own_key`` that in the cluster."""
        return run_names.named_runs(self.rows)

    def runs(
        self, within: Range, *, state: str | None = None, user: str | None = None, host: str | None = None,
        incident: str | None = None, search: str | None = None, of: Row | None = None, limit: int = PAGE,
        cursor: str | None = None,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """Newest first, by start (or by submission where it never started). ``of``: a node, whose cluster they are of."""
        where = Where()
        if of is not None:
            where.add(OF_CLUSTER, of["cluster"])
        where.when(within.end, "coalesce(start, submit) <= ?")
        where.when(within.start, 'coalesce("end", start, submit) >= ?')
        if state == "failed":
            where.add(FAILED)
        else:
            where.when(state, "state = ?")
        where.when(user, '"user" = ?')
        where.when(host, "list_contains(nodes, ?)")
        where.when(incident, "incident_id = ?")
        where.when(search, "run_key = ? OR own_key = ? OR name ILIKE '%' || ? || '%' OR \"user\" = ?")
        order = "coalesce(start, submit, TIMESTAMP '1970-01-01')"
        if cursor:
            where.add(f"({order}, run_key) < (CAST(? AS TIMESTAMP), ?)", *decode_cursor(cursor, datetime, str))
        rows = self.rows(
            f"SELECT {self.RUN_COLUMNS}, {order} AS ordered FROM {self._runs()}{where.sql}"
            " ORDER BY ordered DESC, run_key DESC LIMIT ?",
            [*where.values, limit + 1],
        )
        more = len(rows) > limit
        rows = rows[:limit]
        after = encode_cursor(rows[-1]["ordered"], rows[-1]["run_key"]) if more else None
        for row in rows:
            del row["ordered"]
        return rows, after

    def accounted(self) -> bool:
        """Whether accounting told of any run; slurmctld's log names no user."""
        return self.one('SELECT 1 AS found FROM model.runs WHERE "user" IS NOT NULL LIMIT 1') is not None

    def run(self, key: str) -> Row:
        row = run_names.find(self.rows, f"{self.RUN_COLUMNS}, document", key)
        if row is None:
            raise ProblemError(
                404, f"There is no job run {key}.", do="Look for the job's number in the list of jobs; run N of a "
                "job that was started again is written JOB#N.", extra={"suggestions": suggesting.runs(self.rows, key)},
            )  # fmt: skip
        row["document"] = document(row["document"])
        blocks.attach(self.store, row["document"].get("evidence") or [])
        return row

    def attempts(self, run: Row) -> list[Row]:
        """All runs of a run's job, first to last."""
        sql = f"SELECT {self.RUN_COLUMNS} FROM {self._runs()} WHERE job_id = ? AND cluster IS NOT DISTINCT FROM ?"
        return self.rows(f"{sql} ORDER BY attempt", [run["job_id"], run["cluster"]])

    def array_tasks(self, run: Row, most: int = 8) -> Row:
        """The other tasks of a run's array: how many in each state, and the first of them, those that failed before."""
        if run["array_job_id"] is None:
            return {"total": 0, "states": [], "rows": []}
        of_it = f"FROM {self._runs()} WHERE array_job_id = ? AND job_id <> ? AND cluster IS NOT DISTINCT FROM ?"
        values = [run["array_job_id"], run["job_id"], run["cluster"]]
        states = self.rows(f"SELECT state, count(*) AS n {of_it} GROUP BY state ORDER BY n DESC, state", values)
        first = f"{of_it} ORDER BY NOT ({FAILED}), array_task_id, attempt LIMIT ?"
        return {
            "total": sum(row["n"] for row in states), "states": [(row["state"], row["n"]) for row in states],
            "rows": self.rows(f'SELECT run_key, state, start, "end" {first}', [*values, most]),
        }  # fmt: skip

    def runs_by_key(self, keys: Sequence[str]) -> list[Row]:
        if not keys:
            return []
        sql = f"SELECT {self.RUN_COLUMNS} FROM {self._runs()} WHERE list_contains(?, run_key) ORDER BY start"
        return self.rows(sql, [list(keys)])

    def users(self) -> frozenset[str]:
        """Everybody who ran a job; kept for some seconds."""
        with self._lock:
            if self._users is None or time.monotonic() - self._users[0] >= NAMES_KEPT_S:
                rows = self.rows('SELECT DISTINCT "user" AS name FROM model.runs WHERE "user" <> \'\'')
                self._users = (time.monotonic(), frozenset(str(row["name"]) for row in rows))
            return self._users[1]

    # -- nodes -----------------------------------------------------------------------------------------------------

    def names(self) -> NodeNames:
        """What nodes are called, for links from other pages; kept for some seconds."""
        with self._lock:
            if self._names and time.monotonic() - self._names[0] < NAMES_KEPT_S:
                return self._names[1]
            found = NodeNames(self.rows)
            self._names = (time.monotonic(), found)
            return found

    def nodes(
        self, *, search: str | None = None, host: str | None = None, limit: int = PAGE, cursor: str | None = None
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """Every host that Slurm or a log line named, with its newest state and what happened to it."""
        after = decode_cursor(cursor, str)[0] if cursor else ""
        rows = self.rows(node_names.LISTED, [search or "", after, host, limit + 1])
        more = len(rows) > limit
        rows = rows[:limit]
        return rows, encode_cursor(rows[-1]["name"]) if more else None

    def node(self, name: str) -> Row:
        """The node of that name; of a host that several clusters have, the cluster must be said."""
        rows, _ = self.nodes(host=node_names.parted(name)[0], limit=MAX_PAGE)
        found = node_names.find(rows or self.nodes(host=name)[0], name)
        if found is not None:
            return dict(found)
        if len(rows) > 1 and rows[0]["host"] == name:
            several = {"suggestions": suggesting.listed("node", "/nodes/", [{"found": row["name"]} for row in rows])}
            said = f"{len(rows)} clusters have a node {name}: {', '.join(row['name'] for row in rows)}."
            raise ProblemError(404, said, do="Say which one is meant.", extra=several)
        if (silent := self._without_events(name)) is not None:
            return silent
        near = {"suggestions": suggesting.nodes(self.rows, name)}
        said = f"No line and no Slurm record names a node {name}."
        raise ProblemError(404, said, do="See the list of nodes.", extra=near)

    def _without_events(self, host: str) -> Row | None:
        """A host of which there are lines, none of them an event."""
        found = self.one("SELECT cluster FROM raw.log_view WHERE host = ? ORDER BY cluster LIMIT 1", [host])
        nothing = dict.fromkeys(("state", "reason", "since", "last_event")) | dict.fromkeys(
            ("events", "errors", "incidents"), 0
        )
        return found and {"name": host, "host": host, **found, **nothing}

    def node_states(
        self, hosts: Sequence[str], start: datetime | None, end: datetime | None, *, of: Row | None = None,
    ) -> list[Row]:  # fmt: skip
        """States of these nodes; also the last one from before the range, since it still held at its start. ``of``: a node, a
        run or an incident, whose cluster they are of."""
        where = Where()
        where.add("list_contains(?, host)", list(hosts))
        if of is not None:
            where.add(OF_CLUSTER, of["cluster"])
        where.when(end, "time <= ?")
        where.when(start, "coalesce(until, TIMESTAMP '9999-01-01') >= ?")
        sql = f"SELECT time, until, host, state, reason, actor, source FROM {STATES}{where.sql}"
        return joined_states(self.rows(sql + " ORDER BY host, time LIMIT 5000", where.values))

    def links(self, node: Row) -> list[Row]:
        sql = f"SELECT DISTINCT device, switch, switch_port, plane, rail FROM raw.links WHERE host = ? AND {OF_CLUSTER}"
        return self.rows(f"{sql} ORDER BY device", [node["host"], node["cluster"]])

    # -- events and lines ------------------------------------------------------------------------------------------

    def events(
        self, *, start: datetime | None, end: datetime | None, hosts: Sequence[str] | None = None,
        job: int | None = None, of: Row | None = None, limit: int = 20_000, newest: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Classified lines of the hosts or the job in a range, oldest first; with ``newest`` the other way round. ``of``: a run
        or an incident, whose cluster they are of."""
        where = Where()
        if of is not None:
            where.add(OF_CLUSTER, of["cluster"])
        where.when(start, "time >= ?")
        where.when(end, "time <= ?")
        if hosts is not None and job is not None:
            where.add("list_contains(?, host) OR job_id = ?", list(hosts), job)
        elif hosts is not None:
            where.add("list_contains(?, host)", list(hosts))
        else:
            where.when(job, "job_id = ?")
        order = "time DESC, event_id DESC" if newest else "time, event_id"
        return self.rows(
            "SELECT event_id, time, time_quality, resolution_us, received_time, host, source, unit, layer, event,"
            ' severity, device, job_id, message, "count", incident_id, file, line'
            f" FROM model.events{where.sql} ORDER BY {order} LIMIT ?",
            [*where.values, limit],
        )

    def output_times(self, job_ids: Sequence[int], start: datetime, end: datetime, *, of: Row) -> list[Row]:
        """When jobs of an incident's cluster printed something: the beat that shows whether a program was alive."""
        if not job_ids:
            return []
        return self.rows(
            "SELECT job_id, time FROM raw.log_view WHERE list_contains(?, job_id) AND time BETWEEN ? AND ?"
            f" AND source IN ('job_stdout', 'job_stderr') AND time_quality = 'line' AND {OF_CLUSTER} ORDER BY time LIMIT 20000",
            [list(job_ids), start, end, of["cluster"]],
        )

    def lines(
        self, within: Range, *, host: str | None = None, source: str | None = None, job: int | None = None,
        file: str | None = None, search: str | None = None, cluster: str | None = None, limit: int = 200,
    ) -> tuple[list[Row], bool]:  # fmt: skip
        """Raw lines in a range, oldest first, and whether there were more than ``limit``. ``cluster``: of it or of none."""
        where = Where()
        where.when(cluster, OF_CLUSTER)
        where.when(within.start, "time >= ?")
        where.when(within.end, "time <= ?")
        if host:
            where.add("list_contains(?, host)", [name for name in host.split(",") if name])
        where.when(source, "source = ?")
        where.when(job, "job_id = ?")
        where.when(file, "file = ?")
        where.when(search, "message ILIKE '%' || ? || '%'")
        rows = self.rows(
            f"SELECT {LINE_COLUMNS} FROM raw.log_view{where.sql} ORDER BY time, file, line LIMIT ?",
            [*where.values, limit + 1],
        )
        return rows[:limit], len(rows) > limit

    def around(self, file: str, line: int, radius: int) -> list[Row]:
        """The lines of one file around one of them, in the file's own order."""
        return self.rows(
            f"SELECT {LINE_COLUMNS} FROM raw.log_view WHERE file = ? AND line BETWEEN ? AND ? ORDER BY line",
            [file, line - radius, line + radius],
        )

    def sources(self) -> list[Row]:
        """Every stream with its size and its worst lateness. Costly on a large store, so kept for some seconds."""
        with self._lock:
            if self._sources and time.monotonic() - self._sources[0] < SOURCES_KEPT_S:
                return self._sources[1]
            rows = self.rows(
                "SELECT file, host, source, count(*) AS lines, min(time) AS first, max(time) AS last,"
                " max(date_diff('microsecond', time, received_time)) / 1e6 AS late_s,"
                " count(*) FILTER (time_quality <> 'line') AS unsure, count(*) FILTER (event <> 'other') AS events,"
                " count(*) FILTER (list_contains(tags, 'unparsed')) AS unparsed,"
                " count(*) FILTER (time_quality = 'received' AND list_contains(tags, 'future')) AS ahead"
                " FROM raw.log_view GROUP BY file, host, source ORDER BY host, file LIMIT 5000"
            )
            for row in rows:
                row["late"] = bool(row["late_s"] and row["late_s"] > LATE_S)
            self._sources = (time.monotonic(), rows)
            return rows

    def stored(self) -> Row:
        """How much there is at all, for pages that have nothing to show: lines, job runs, runs that did not end well."""
        found = self.one(
            f"SELECT count(*) AS runs, count(*) FILTER ({FAILED}) AS failed, (SELECT count(*) FROM model.events)"
            " AS events, EXISTS(SELECT 1 FROM raw.log_view) AS lines FROM model.runs"
        )
        return found or {"runs": 0, "failed": 0, "events": 0, "lines": False}

    def ready(self) -> dict[str, int]:
        """Counts that prove the tables are there; raises what the engine raises when they are not."""
        tables = ("model.incidents", "model.runs", "model.events")
        return {name: int((self.one(f"SELECT count(*) AS n FROM {name}") or {"n": 0})["n"]) for name in tables}
