"""Everything the pages and the API read from the store, by named questions (``store.questions``).

Pages and API share these functions, so that a number on a page is the number of its JSON.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import polars as pl
import sqlalchemy as sa

from correlator.facts.slow_runs import SLOW
from correlator.incidents import recurrence
from store import blocks, disowned, node_names, run_names
from store.door import Asks, Question
from store.errors import NoSuchTable
from store.node_names import NodeNames
from store.questions import (
    concluded_facts,
    events,
    facts,
    fleet,
    incident_roots,
    incidents,
    job_files,
    lines,
    nodes,
    out_of_service,
    runs,
    sources,
)
from store.questions import triage as triage_questions
from store.tables import EVENTS, INCIDENTS, RUNS
from web import advising, slowdowns, suggesting, triage
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
#: Of too many events about this many are drawn in place of them, and at least so many in a row for each host.
GATHERED, FEWEST_BINS = 3_000, 20
#: How long names are cached, seconds: a new cluster appears once in a service's life.
NAMES_KEPT_S = 15.0


def joined_states(rows: Sequence[Row]) -> list[Row]:
    """Each state of a node once, from its first record on: polls, sinfo and accounting report the same one repeatedly.

    ``rows`` are in the order of host and time. A reason that only one of the records has is the state's. A state that was over
    before it was reported again is two: what was between is not known.
    """
    out: list[Row] = []
    for row in rows:
        last = out[-1] if out else None
        same = last is not None and last["host"] == row["host"] and _state(last) == _state(row) and _goes_on(last, row)
        if last is not None and same and (last["reason"] == row["reason"] or not (last["reason"] and row["reason"])):
            last |= {"until": row["until"], "reason": last["reason"] or row["reason"]}
        else:
            out.append(dict(row))
    return out


def _goes_on(state: Row, row: Row) -> bool:
    return state["until"] is None or row["time"] <= state["until"]


def _state(row: Row) -> str:
    return str(row["state"] or "").upper()


def clusters_of(of: Row | None) -> list[str | None]:
    """The clusters for a question: that of a node, a run or an incident; none if no object is given."""
    return [] if of is None else [of["cluster"]]


def _behind(cursor: str | None) -> tuple[datetime, str] | None:
    """The moment and the name in a cursor."""
    if cursor is None or cursor == "":
        return None
    at, name = decode_cursor(cursor, datetime, str)
    return at, name


def _of_triage(state: str | None, assignee: str | None) -> list[sa.ColumnElement[bool]]:
    """Conditions of a list of incidents: their state, and whom they are assigned to."""
    if state and state not in triage.FILTERS:
        raise ProblemError(400, f"state={state!r} is no state.", do=f"Use one of {', '.join(triage.FILTERS)}.")
    found = [triage_questions.in_state(state)] if state else []
    return found + ([triage_questions.assigned_to(assignee)] if assignee else [])


class Reader:
    """Reads one store. Holds no state except a short cache of the expensive list of sources."""

    #: True if only one user's jobs are visible.
    own = False

    def __init__(self, store: Asks) -> None:
        self.store = store
        self._sources: tuple[float, list[Row]] | None = None
        self._names: tuple[float, NodeNames] | None = None
        self._users: tuple[float, frozenset[str]] | None = None
        self._lock = threading.Lock()

    def ask(self, question: Question) -> list[Row]:
        """Rows of a named question."""
        return self.store.ask(question)

    def ask_frame(self, question: Question) -> pl.DataFrame:
        """The same as a frame."""
        return self.store.ask_frame(question)

    def one(self, question: Question) -> Row | None:
        """The first row of an answer."""
        found = self.ask(question)
        return found[0] if found else None

    # -- incidents -------------------------------------------------------------------------------------------------

    def incidents(
        self, within: Range, *, severity: str | None = None, host: str | None = None, job: str | None = None,
        search: str | None = None, state: str | None = None, assignee: str | None = None, root: str | None = None,
        device: str | None = None, of: Row | None = None, limit: int = PAGE, cursor: str | None = None, costly: bool = False,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """Incidents, newest first. ``of``: a node or a run, whose cluster they belong to. ``state``: of ``triage.FILTERS``.
        ``costly``: the costliest, without a page after it.

        An incident belongs to a range it overlaps; one without an end is still open.
        """
        wanted = incidents.conditions(
            start=within.start, end=within.end, severity=severity, host=host, job=job, search=search, clusters=clusters_of(of),
            root=root, device=device, also=_of_triage(state, assignee),
        )  # fmt: skip
        try:
            rows = self.ask(incidents.found(wanted, behind=_behind(cursor), limit=limit + 1, costly=costly))
        except NoSuchTable:  # a store of an older version, opened for reading: nobody handled anything
            if not state and not assignee:
                raise
            if assignee or state not in ("new", "unhandled"):
                return [], None
            more = {"severity": severity, "host": host, "job": job, "search": search, "root": root, "device": device}
            return self.incidents(within, of=of, limit=limit, cursor=cursor, costly=costly, **more)
        more_follow = len(rows) > limit and not costly
        rows = rows[:limit]
        self._read_documents(rows)
        return rows, encode_cursor(rows[-1]["start"], rows[-1]["incident_id"]) if more_follow else None

    def roots(
        self, within: Range, *, severity: str | None = None, search: str | None = None, state: str | None = None,
        assignee: str | None = None, limit: int = PAGE, cursor: str | None = None,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """The roots of the incidents of a list, with how many each has and ``incident``, its newest one."""
        wanted = incidents.conditions(
            start=within.start, end=within.end, severity=severity, search=search, also=_of_triage(state, assignee)
        )
        rows = self.ask(incident_roots.listed(wanted, behind=_behind(cursor), limit=limit + 1))
        more, rows = len(rows) > limit, rows[:limit]
        newest = self.ask(incidents.named([str(row["newest"]) for row in rows]))
        self._read_documents(newest)
        by_name = {row["incident_id"]: row for row in newest}
        rows = [row | {"incident": by_name[row["newest"]]} for row in rows if row["newest"] in by_name]
        return rows, encode_cursor(rows[-1]["last"], rows[-1]["newest"]) if more else None

    def similar(self, row: Row, most: int) -> list[Row]:
        """Earlier incidents with the same root as an incident, as ``store.questions.incident_roots.similar`` has them,
        with what operators did about them."""
        found = self.ask(incident_roots.similar(
            cluster=row["cluster"], before=row["start"], host=row["root_host"], device=row["root_device"],
            event=row["root_event"], limit=most,
        ))  # fmt: skip
        triage.attach(self, found)
        return found

    def triage_counts(self, within: Range) -> dict[str, int]:
        """How many incidents of a range are in each state of ``triage.FILTERS``; empty if the store has none."""
        try:
            return triage.counts(self, within.start, within.end)
        except NoSuchTable:  # a store of an older version, opened for reading
            return {}

    def incident(self, incident_id: str) -> Row:
        row = self.one(incidents.one(incident_id)) or self._heir(incident_id)
        if row is None:
            near = {"suggestions": suggesting.incidents(self, incident_id)}
            raise ProblemError(404, f"There is no incident {incident_id}.", do="See the list of incidents.", extra=near)
        self._read_documents([row])
        row["document"]["recurrence"] = self._recurrence(row)
        return row

    def _read_documents(self, rows: Sequence[Row]) -> None:
        """Loads the incidents' documents, with jobs named as in the whole store."""
        names = {cluster: run_names.differing(self, cluster) for cluster in {row["cluster"] for row in rows}}
        for row in rows:
            row["document"] = run_names.renamed(document(row["document"]), names[row["cluster"]])
        advising.keep_due(self, [] if self.own else rows)  # commands are not for owners of jobs
        triage.attach(self, rows)

    def _recurrence(self, row: Row) -> list[Row]:
        """Other incidents on the same device, linked as ``faultline incidents`` links them."""
        if not row["root_host"]:
            return []
        others = self.ask(incidents.rooted_in(row["root_host"], row["root_device"], row["cluster"]))
        root = {"host": row["root_host"], "device": row["root_device"]}
        documents = [
            {"id": r["incident_id"], "start": r["start"], "severity": r["severity"], "root_cause": {**root, "event": r["root_event"]},
             "chain": document(r["document"]).get("chain")} for r in others
        ]  # fmt: skip
        recurrence.link(documents)
        return next((list(d["recurrence"]) for d in documents if d["id"] == row["incident_id"]), [])

    def feedback(self, *, run: Row | None = None, incident_id: str | None = None) -> list[Row]:
        """Operators' answers to the verdict on a run, or to all verdicts that blame an incident, oldest first.

        ``counts`` is false if the same person answered again later.
        """
        of_run = (run["own_key"], run["cluster"]) if run is not None else None
        try:
            found = self.ask(incidents.answers(run=of_run, incident_id=incident_id))
        except NoSuchTable:  # a store of an older version, opened for reading
            return []
        names = {row["cluster"]: run_names.differing(self, row["cluster"]) for row in found[:1]}
        return [row | {"run_key": names.get(row["cluster"], {}).get(row["run_key"], row["run_key"])} for row in found]

    def run_keys(self, incident_id: str) -> list[str]:
        """The runs whose verdicts blame an incident, in the order in which they ended."""
        return [str(row["run_key"]) for row in self.ask(runs.blaming(self._runs(), incident_id))]

    def _heir(self, former_id: str) -> Row | None:
        """The present id of an incident.

        An incident whose root changed keeps its former ids as aliases, so links in tickets work.
        """
        try:
            return self.one(incidents.heir(former_id))
        except NoSuchTable:  # a store of an older version, opened for reading
            return None

    def severity_counts(self, within: Range) -> dict[str, int]:
        rows = self.ask(incidents.severities(within.start, within.end))
        return {str(row["severity"]): int(row["n"]) for row in rows}

    def cost(self, within: Range) -> Row:
        """How many runs the incidents of a range ended and slowed, their cost, and how many are not over."""
        found = self.one(incidents.cost(within.start, within.end))
        return found or {"jobs": 0, "slowed": 0, "gpu_hours": 0.0, "open": 0}

    # -- jobs ------------------------------------------------------------------------------------------------------

    def _runs(self) -> sa.Subquery:
        """The rows of runs: ``run_key`` is the name in the whole store, ``own_key`` that in the cluster."""
        return run_names.named_runs(self)

    def runs(
        self, within: Range, *, state: str | None = None, user: str | None = None, host: str | None = None,
        incident: str | None = None, search: str | None = None, of: Row | None = None, limit: int = PAGE,
        cursor: str | None = None,
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """Runs, newest first, by start (or by submission if they never started).

        ``of``: a node, whose cluster they belong to.
        """
        rows = self.ask(runs.found(
            self._runs(), start=within.start, end=within.end, state=state, user=user, host=host, incident=incident,
            search=search, clusters=clusters_of(of), behind=_behind(cursor),
            limit=limit + 1,
        ))  # fmt: skip
        more = len(rows) > limit
        rows = rows[:limit]
        after = encode_cursor(rows[-1]["ordered"], rows[-1]["run_key"]) if more else None
        for row in rows:
            del row["ordered"]
        return rows, after

    def accounted(self) -> bool:
        """Did accounting report any run? slurmctld's log names no user."""
        return self.one(runs.ACCOUNTED) is not None

    def run(self, key: str) -> Row:
        row = run_names.find(self, key, *runs.SHOWN, "document")
        if row is None:
            raise ProblemError(
                404, f"There is no job run {key}.", do="Look for the job's number in the list of jobs; run N of a "
                "job that was started again is written JOB#N.", extra={"suggestions": suggesting.runs(self, key)},
            )  # fmt: skip
        row["document"] = document(row["document"])
        advising.keep_due(self, [] if self.own else [row])
        blocks.attach(self, row["document"].get("evidence") or [])
        return row

    def slowing(self, run: Row) -> list[Row]:
        """Incidents that made a run slower, beside the one that ended it. Documents of incidents that ended none of their runs are not
        shown to users who see only their own jobs."""
        found = [
            row
            for row in self.ask(incidents.slowing(run["own_key"], run["cluster"]))
            if row["incident_id"] != run["incident_id"]
        ]
        self._read_documents(found)
        return found

    def slowdowns(self, run: Row) -> list[Row]:
        """What made a run slower, as its owner may know it too (``web.slowdowns``)."""
        incidents = self.slowing(run)
        with contextlib.suppress(NoSuchTable):  # a store of an older version, opened for reading
            facts = self.ask(concluded_facts.of_run(run["cluster"], run["own_key"], [SLOW.name])) if incidents else []
            return slowdowns.of_run(run, incidents, facts)
        return slowdowns.of_run(run, incidents, [])

    def attempts(self, run: Row) -> list[Row]:
        """All runs of a run's job, first to last."""
        return self.ask(runs.attempts(self._runs(), run["job_id"], run["cluster"]))

    def array_tasks(self, run: Row, most: int = 8) -> Row:
        """The other tasks of a run's array: how many in each state, and some of them, failed ones first."""
        if run["array_job_id"] is None:
            return {"total": 0, "states": [], "rows": []}
        of, which = self._runs(), (run["array_job_id"], run["job_id"], run["cluster"])
        states = self.ask(runs.states_of_array(of, *which))
        return {
            "total": sum(row["n"] for row in states), "states": [(row["state"], row["n"]) for row in states],
            "rows": self.ask(runs.tasks_of_array(of, *which, most)),
        }  # fmt: skip

    def runs_by_key(self, keys: Sequence[str]) -> list[Row]:
        if not keys:
            return []
        return self.ask(runs.by_keys(self._runs(), keys))

    def for_users(self, keys: Sequence[str]) -> list[Row]:
        """What the verdicts on some runs say to the runs' users."""
        return self.ask(runs.for_users(self._runs(), keys)) if keys else []

    def users(self) -> frozenset[str]:
        """All users with jobs, cached for some seconds."""
        with self._lock:
            if self._users is None or time.monotonic() - self._users[0] >= NAMES_KEPT_S:
                rows = self.ask(runs.USERS)
                self._users = (time.monotonic(), frozenset(str(row["name"]) for row in rows))
            return self._users[1]

    # -- nodes -----------------------------------------------------------------------------------------------------

    def names(self) -> NodeNames:
        """The names of nodes, for links from other pages, cached for some seconds."""
        with self._lock:
            if self._names and time.monotonic() - self._names[0] < NAMES_KEPT_S:
                return self._names[1]
            found = NodeNames(self)
            self._names = (time.monotonic(), found)
            return found

    def nodes(
        self, *, search: str | None = None, host: str | None = None, limit: int = PAGE, cursor: str | None = None
    ) -> tuple[list[Row], str | None]:  # fmt: skip
        """Every host that Slurm or a log line named, with its newest state and what happened to it."""
        after = decode_cursor(cursor, str)[0] if cursor else ""
        rows = self.ask(nodes.listed_nodes(search=search or "", behind=after, host=host, limit=limit + 1))
        more = len(rows) > limit
        rows = rows[:limit]
        return rows, encode_cursor(rows[-1]["name"]) if more else None

    def node(self, name: str) -> Row:
        """The node of that name; for a host that several clusters have, the cluster is required."""
        rows, _ = self.nodes(host=node_names.parted(name)[0], limit=MAX_PAGE)
        found = node_names.find(rows or self.nodes(host=name)[0], name)
        if found is not None:
            return dict(found)
        if len(rows) > 1 and rows[0]["host"] == name:
            several = {"suggestions": suggesting.listed("node", "/nodes/", [{"found": row["name"]} for row in rows])}
            problem = f"{len(rows)} clusters have a node {name}: {', '.join(row['name'] for row in rows)}."
            raise ProblemError(404, problem, do="Say which one is meant.", extra=several)
        if (silent := self._without_events(name)) is not None:
            return silent
        near = {"suggestions": suggesting.nodes(self, name)}
        problem = f"No line and no Slurm record names a node {name}."
        raise ProblemError(404, problem, do="See the list of nodes.", extra=near)

    def _without_events(self, host: str) -> Row | None:
        """A host with lines, none of them an event, or one that only Slurm's topology, a cable or a run names."""
        found = self.one(nodes.cluster_of_lines(host)) or self.one(fleet.place_of(host))
        nothing = dict.fromkeys(("state", "reason", "since", "last_event")) | dict.fromkeys(
            ("events", "errors", "incidents"), 0
        )
        return found and {"name": host, "host": host, **found, **nothing}

    def node_states(
        self, hosts: Sequence[str], start: datetime | None, end: datetime | None, *, of: Row | None = None,
    ) -> list[Row]:  # fmt: skip
        """States of these nodes, including the last one before the range, which still held at its start.

        ``of``: a node, a run or an incident, whose cluster they belong to.
        """
        return joined_states(self.ask(nodes.states(hosts, start, end, clusters_of(of))))

    def drains(self, node: Row, start: datetime | None, end: datetime | None) -> list[Row]:
        """A node's periods out of service that overlap a range, the newest first; none for users who see only their own
        jobs: who drained a node and why is not theirs."""
        if self.own:
            return []
        return self.ask(out_of_service.of_node(node["host"], node["cluster"], start, end))

    def links(self, node: Row) -> list[Row]:
        return self.ask(nodes.links(node["host"], node["cluster"]))

    # -- events and lines ------------------------------------------------------------------------------------------

    def events(
        self, *, start: datetime | None, end: datetime | None, hosts: Sequence[str] | None = None,
        job: int | None = None, of: Row | None = None, limit: int = 20_000, newest: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Classified lines of the hosts or the job in a range, oldest first; newest first with ``newest``.

        ``of``: a run or an incident, whose cluster they belong to.
        """
        return self.ask(events.found(
            start=start, end=end, hosts=hosts, job=job, clusters=clusters_of(of), newest=newest, limit=limit
        ))  # fmt: skip

    def events_around(
        self,
        start: datetime,
        end: datetime,
        hosts: Sequence[str],
        *,
        of: Row,
        in_document: Sequence[str],
        most: int = 20_000,
    ) -> list[Row]:
        """Events of the hosts of an incident. If there are more than ``most``, those of its document (``in_document``) are as they are, and the
        others gathered by kind and time: each then has the ``count`` of all and the time of the ``last``."""
        clusters = clusters_of(of)
        if self.ask(events.number(start, end, hosts, clusters))[0]["n"] <= most:
            return self.events(start=start, end=end, hosts=hosts, of=of, limit=most)
        bins = max(FEWEST_BINS, GATHERED // max(1, len(hosts)))
        bin_s = max(1e-3, (end - start).total_seconds() / bins)
        exact = self.ask(events.exactly(in_document, clusters))
        others = events.gathered(start=start, end=end, hosts=hosts, clusters=clusters, bin_s=bin_s, without=in_document)
        return exact + self.ask(others)

    def output_times(self, job_ids: Sequence[int], start: datetime, end: datetime, *, of: Row) -> list[Row]:
        """When jobs of an incident's cluster wrote output: the heartbeat that shows whether a program was alive."""
        if not job_ids:
            return []
        return self.ask(job_files.output_times(job_ids, start, end, of["cluster"]))

    def lines(
        self, within: Range, *, host: str | None = None, source: str | None = None, job: int | None = None,
        file: str | None = None, search: str | None = None, cluster: str | None = None, limit: int = 200,
    ) -> tuple[list[Row], bool]:  # fmt: skip
        """Raw lines in a range, oldest first, and whether there were more than ``limit``.

        ``cluster``: lines of it or of none.
        """
        hosts = [name for name in host.split(",") if name] if host else None
        rows = self.ask(lines.found(
            start=within.start, end=within.end, hosts=hosts, source=source, job=job, file=file, search=search,
            cluster=cluster, limit=limit + 1,
        ))  # fmt: skip
        return self._without_false_claims(rows[:limit]), len(rows) > limit

    def around(self, file: str, line: int, radius: int) -> list[Row]:
        """The lines of one file around one of them, in the file's own order."""
        return self._without_false_claims(self.ask(lines.around(file, line, radius)))

    def _without_false_claims(self, rows: list[Row]) -> list[Row]:
        """Lines as they are shown: what a false controller claims is no event (``store.disowned``)."""
        if not self.own:  # users who see only their own jobs see no line of a daemon
            known = self.one(facts.value(disowned.FACT))
            rows = disowned.claims(rows, known["value"] if known else None)
        return [{name: value for name, value in row.items() if name not in lines.NOT_SHOWN} for row in rows]

    def sources(self) -> list[Row]:
        """Every stream with its size and its worst lateness. Expensive on a large store, so cached for some seconds."""
        with self._lock:
            if self._sources and time.monotonic() - self._sources[0] < SOURCES_KEPT_S:
                return self._sources[1]
            rows = self.ask(sources.OF_LINES)
            for row in rows:
                row["late"] = bool(row["late_s"] and row["late_s"] > LATE_S)
            self._sources = (time.monotonic(), rows)
            return rows

    def stored(self) -> Row:
        """The size of the store, for pages without content: lines, job runs, runs that did not end well."""
        found = self.one(runs.stored())
        return found or {"runs": 0, "failed": 0, "events": 0, "lines": False}

    def newest(self) -> datetime | None:
        """When the newest event was; None if there is none."""
        at: datetime | None = (self.one(events.newest()) or {}).get("at")
        return at

    def ready(self) -> dict[str, int]:
        """Counts that prove the tables exist; raises the engine's error if they do not."""
        tables = {"model.incidents": INCIDENTS, "model.runs": RUNS, "model.events": EVENTS}
        return {name: int(self.ask(sources.counts(table))[0]["n"]) for name, table in tables.items()}
