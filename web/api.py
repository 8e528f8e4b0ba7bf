"""The JSON API under /api/v1. Each route is a thin name for a function of ``web.reading``."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from parsers.record import JOB_OUTPUT
from queries import kql
from queries.kql import format as printing
from queries.kql.cells import dumps
from store import run_names
from store.door import Asks
from web import axis as axes
from web import job_accounting, job_environment, job_software, node_states, pace, triage
from web.access import read_audit
from web.access.authentication import asking
from web.access.own import OwnReader
from web.access.people import Role
from web.axis_ends import hops_of
from web.axis_measures import measures
from web.packing import dumped, json_answer
from web.problems import ProblemError
from web.reading import MAX_PAGE, PAGE, Reader
from web.shaping import wire
from web.timerange import Range, parse_range
from web.turns import ClientGoneError, TooManyWaitingError

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows a page")]
Cursor = Annotated[str | None, Query(description="`next` of the page before")]


async def reader(request: Request) -> Reader:  # async, or each request would switch to a thread and back for it
    found: Reader = request.app.state.reader
    person = asking(request)
    return OwnReader(found, person.name) if person is not None and person.role is Role.OWN else found


def time_range(
    start: Annotated[str | None, Query(alias="from", description="RFC 3339, now or now-6h")] = None,
    end: Annotated[str | None, Query(alias="to", description="RFC 3339 or now")] = None,
) -> Range:
    return parse_range(start, end)


Read = Annotated[Reader, Depends(reader)]
Within = Annotated[Range, Depends(time_range)]
router = APIRouter(prefix="/api/v1")


def page(name: str, rows: list[dict[str, Any]], after: str | None) -> dict[str, Any]:
    """A page of a list; ``next`` is null on the last one."""
    return {name: wire(rows), "next": after}


@router.get("/incidents", tags=["incidents"])
def incidents(
    read: Read, within: Within, severity: str | None = None, host: str | None = None, job: str | None = None,
    q: str | None = None, state: Annotated[str | None, Query(description="new, acknowledged, resolved, wrong or unhandled")] = None,
    assignee: str | None = None, limit: Limit = PAGE, cursor: Cursor = None,
) -> dict[str, Any]:  # fmt: skip
    """Incidents that overlap the range, newest first; with `job` those that ended or slowed this run."""
    run = run_names.find(read, job, "own_key", "cluster") if job else None
    if (
        run is not None and run["own_key"] != job
    ):  # called otherwise than in its own cluster, which documents name it by
        job = run["own_key"]
    else:
        run = None
    rows, after = read.incidents(
        within, severity=severity, host=host, job=job, search=q, state=state, assignee=assignee, of=run, limit=limit, cursor=cursor
    )  # fmt: skip
    return page("incidents", [incident_document(row) for row in rows], after)


def incident_document(row: Mapping[str, Any]) -> dict[str, Any]:
    """The correlator's document, completed from the columns."""
    names = ("cluster", "start", "end", "severity", "category")
    columns = {"id": row["incident_id"], **{name: row[name] for name in names}}
    root = {"event": row["root_event"], "code": None, "host": row["root_host"], "device": row["root_device"]}
    return {**columns, "root_cause": root, **row["document"], "triage": row["triage"]}


@router.get("/incidents/{incident_id}", tags=["incidents"])
def incident(read: Read, incident_id: str) -> dict[str, Any]:
    """One incident with its chain, events, rivals, advice and doubts."""
    row = read.incident(incident_id)
    document = incident_document(row)
    document["triage"] = row["triage"] | {"history": triage.history(read, row["incident_id"])}
    found: dict[str, Any] = wire(document)
    return found


def incident_hosts(document: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Every host in the document, each once."""
    named = [*(document.get("hosts") or []), row.get("root_host")]
    named += [item.get("host") for part in ("events", "spans") for item in document.get(part) or []]
    return list(dict.fromkeys(str(name) for name in named if name))


#: More surviving jobs than this add nothing to a time axis.
SURVIVOR_LANES = 8


def incident_jobs(document: Mapping[str, Any], survivor_count: int | None = None) -> list[str]:
    """Jobs that were hit, those that were slowed, and at most ``survivor_count`` of those that were not affected."""
    parts = [*(document.get("jobs") or []), *({"job_id": key} for key in document.get("slowed_jobs") or [])]
    parts += (document.get("unaffected_jobs") or [])[:survivor_count]
    return list(dict.fromkeys(str(item.get("job_id")) for item in parts if item.get("job_id")))


def read_axis(read: Reader, row: dict[str, Any]) -> dict[str, Any]:
    """The axis of one incident; shared by the API and the incident page's table."""
    document = row["document"]
    try:
        t0, start, end = axes.document_range(document, row)
    except ValueError as error:
        raise ProblemError(
            404, f"There is nothing to draw: {error}.", do="Read the incident's lines instead."
        ) from error
    hosts, runs = incident_hosts(document, row), read.runs_by_key(incident_jobs(document, SURVIVOR_LANES))
    event_ids = [str(event["id"]) for event in document.get("events") or [] if event.get("id")]
    # Who sees only their own jobs gets no measurements: other users' jobs show in them.
    root = incident_document(row)["root_cause"] or {}
    measured, notes = ([], []) if read.own else measures(read, hops_of(document), root, row["cluster"], start, end)
    hurt = set(incident_jobs(document, 0))
    measured += pace.lanes(read, [run for run in runs if run["run_key"] in hurt], start, end)
    return axes.build(
        row, events=read.events_around(start, end, hosts, of=row, in_document=event_ids), states=read.node_states(hosts, start, end, of=row),
        runs=runs, beats=read.output_times([int(run["job_id"]) for run in runs], start, end, of=row),
        measured=measured, notes=notes, start=start, end=end, t0=t0,
    )  # fmt: skip


@router.get("/axis/{incident_id}", tags=["incidents"])
def axis(request: Request, read: Read, incident_id: str) -> Response:
    """Lanes, marks, bands and arrows, in seconds after T0. 304 if nothing changed since the ``ETag`` of ``If-None-Match``."""
    # Serialised here: FastAPI would traverse ten thousand marks a second time, which takes longer than creating them.
    body = dumped(read_axis(read, read.incident(incident_id)), wire)
    tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'  # weak: the same for both encodings
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return json_answer(request, body, {"ETag": tag})


@router.get("/jobs", tags=["jobs"])
def jobs(
    read: Read, within: Within, state: str | None = None, user: str | None = None, host: str | None = None,
    q: str | None = None, limit: Limit = PAGE, cursor: Cursor = None,
) -> dict[str, Any]:  # fmt: skip
    """Job runs that overlap the range, newest first; `state=failed` for all that did not end well."""
    rows, after = read.runs(within, state=state, user=user, host=host, search=q, limit=limit, cursor=cursor)
    return page("jobs", rows, after)


@router.get("/jobs/{key}", tags=["jobs"])
def job(request: Request, read: Read, key: str) -> dict[str, Any]:
    """One run ("15", "15%231") with its other runs, the verdict, what made it slower (`slowed`: when, how much, why, on which of its
    nodes; `slowed_by`: the incidents, for who may read them), the environment of its steps (the user's word), what each source of
    accounting recorded of it and its steps, and what its nodes ran when it began."""
    row = read.run(key)
    verdict, attempts = row.pop("document"), read.attempts(row)
    slowed_by = [incident["incident_id"] for incident in read.slowing(row)]
    environment = job_environment.document(read, row, attempts, verdict)
    read_audit.of_run(request, row["run_key"], row["user"], ["environment"] if environment else [])
    shown = {
        "verdict": wire(verdict) or None, "runs": wire(attempts), "slowed_by": slowed_by, "slowed": read.slowdowns(row), "environment": environment,
        "accounting": job_accounting.document(read, row), "software": job_software.document(read, row, verdict),
    }  # fmt: skip
    return {**wire(row), **shown}


@router.get("/jobs/{key}/pace", tags=["jobs"])
def job_pace(read: Read, key: str) -> dict[str, Any]:
    """Seconds per step that the run's output reported: of all ranks together and of each, the slowest against the median first. The
    job's own word. `all` is null if it reported none."""
    row = read.run(key)
    found = pace.of_run(read, row, read.attempts(row)) or {"all": None, "ranks": [], "ranks_total": 0}
    return {name: wire(value) for name, value in found.items()}


@router.get("/jobs/{key}/verdict", tags=["jobs"])
def verdict(read: Read, key: str) -> dict[str, Any]:
    """Why the run ended as it did."""
    row = read.run(key)
    if not row["document"]:
        recorded = job_accounting.document(read, row) or {}
        detail = " ".join(
            filter(None, (f"Job run {key} has no verdict: it ended {row['state']}.", recorded.get("note")))
        )
        raise ProblemError(404, detail, do="Only runs that did not end COMPLETED have one.")
    found: dict[str, Any] = wire(row["document"])
    return found


@router.get("/nodes", tags=["nodes"])
def nodes(read: Read, q: str | None = None, limit: Limit = PAGE, cursor: Cursor = None) -> dict[str, Any]:
    """Every node, by name, with its newest state; a host that several clusters have is there once for each, HOST@CLUSTER. `service` is the
    class of the fleet map. `running_jobs`: where only slurmctld's log has states, so many runs of accounting's make the node ALLOCATED."""
    rows, after = read.nodes(search=q, limit=limit, cursor=cursor)
    node_states.complete(read, rows)
    return page("nodes", rows, after)


@router.get("/nodes/{name}", tags=["nodes"])
def node(read: Read, within: Within, name: str) -> dict[str, Any]:
    """One node with its states, links, incidents, jobs and newest events; ``cut`` names the lists of which it has only the newest."""
    return node_document(read, name, within)


def node_document(read: Reader, name: str, within: Range) -> dict[str, Any]:
    """The answer about one node."""
    row = read.node(name)
    node_states.complete(read, [row])
    found = about_node(read, row, within)
    more = {
        "states": found["states"], "links": found["links"], "jobs": found["runs"],
        "incidents": [incident_document(item) for item in found["incidents"]], "recent_events": found["events"], "cut": found["cut"],
    }  # fmt: skip
    return {**wire(row), **wire(more)}


#: The answer about a node has at most this many events, and ``PAGE`` incidents and jobs.
NODE_EVENTS = 500


def about_node(read: Reader, row: dict[str, Any], within: Range) -> dict[str, Any]:
    """What the store has about one node: its host, in its cluster. ``cut``: the lists that have only the newest."""
    host = row["host"]
    incidents, older_incidents = read.incidents(within, host=host, of=row)
    runs, older_runs = read.runs(within, host=host, of=row)
    events = read.events(
        start=within.start, end=within.end, hosts=[host], of=row, limit=NODE_EVENTS + 1, newest=True
    )  # fmt: skip
    cut = {"incidents": older_incidents, "jobs": older_runs, "recent_events": len(events) > NODE_EVENTS}
    return {
        "incidents": incidents, "runs": runs, "events": events[:NODE_EVENTS],
        "states": read.node_states([host], within.start, within.end, of=row), "links": read.links(row),
        "cut": [name for name, is_cut in cut.items() if is_cut],
    }  # fmt: skip


@router.get("/lines", tags=["lines"])
def lines(
    request: Request, read: Read, within: Within, host: str | None = None, source: str | None = None, job: int | None = None,
    file: str | None = None, around_line: Annotated[int | None, Query(ge=1)] = None, q: str | None = None,
    cluster: Annotated[str | None, Query(description="lines of this cluster, or of none")] = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> dict[str, Any]:  # fmt: skip
    """Raw lines of a time window, or with `file` and `around_line` the lines around one of them."""
    if around_line is not None:
        if not file:
            raise ProblemError(400, "around_line needs file.", do="Name the file that the line stands in.")
        rows, more = read.around(file, around_line, min(limit, 50)), False
    else:
        rows, more = read.lines(
            within, host=host, source=source, job=job, file=file, search=q, cluster=cluster, limit=limit
        )
    read_audit.of_lines(request, [row["job_id"] for row in rows if row["source"] in JOB_OUTPUT])
    return {"lines": wire(rows), "truncated": more}


class Question(BaseModel):
    """A KQL query as the API takes it."""

    model_config = ConfigDict(extra="forbid")
    query: str = Field(max_length=100_000)
    start: str | None = Field(default=None, alias="from", description="Limits every table: RFC 3339, now or now-6h")
    end: str | None = Field(default=None, alias="to", description="The end of that range; RFC 3339 or now")
    parameters: dict[str, Any] = Field(default_factory=dict)
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    max_rows: int = Field(default=10_000, ge=1, le=1_000_000)
    validate_only: bool = False
    explain: bool = Field(default=False, description="The plan, the SQL and the segments that can match, unrun")
    format: Literal["json", "ndjson", "csv", "parquet"] = Field(
        default="json", description="ndjson, csv and parquet hold the rows of the last table only, as a file"
    )

    def as_kql(self, timeout_s: float) -> kql.Query:
        """The query as a store takes it."""
        return kql.Query(
            self.query, self.parameters, max_rows=self.max_rows, max_bytes=MOST_BYTES, timeout_s=timeout_s,
            within=self.within(),
        )  # fmt: skip

    def within(self) -> kql.Within:
        """The range in addition to what the query says. Raises ``BadTimeError``."""
        found = parse_range(self.start, self.end)
        return kql.Within(found.start, found.end)


def kql_problem(error: Exception, limit: float) -> ProblemError | None:
    """A KQL error with its position, or None if it is another error."""
    if not isinstance(error, kql.KqlError):
        return None
    if isinstance(error, kql.QueryTimeout):
        return ProblemError(504, f"The query did not end within {limit:g} s.", do="Narrow the time range.")
    extra = {name: getattr(error, name, None) for name in ("line", "column", "message", "suggestion", "length")}
    extra["message"] = extra["message"] or str(error)
    return ProblemError(400, str(extra["message"]), do=str(extra["suggestion"] or ""), extra=extra)


@router.post("/query", tags=["query"])
async def query(request: Request, read: Read, question: Question) -> Response:
    """Runs KQL. An error is 400 with line, column, message and suggestion; 429 when too many queries wait. `from` and `to`
    limit every table to a range: by its time, or jobs and incidents to those that overlap it."""
    question.within()  # an error of the range is one of the request, before it waits for its turn
    if not (question.validate_only or question.explain):
        read_audit.of_query(request, question.query)
    return await answer_query(request, read, question)


async def answer_query(request: Request, read: Reader, question: Question) -> Response:
    """Runs KQL when it is the client's turn. Raises ``ProblemError``. Whoever calls this records who asked."""
    metrics, turns, began = request.app.state.metrics, request.app.state.turns, time.perf_counter()
    client = client_of(request)
    outcome = "error"
    try:
        async with turns.turn(client, question.timeout_s, request.is_disconnected):
            waited = time.perf_counter() - began
            left = question.timeout_s if waited < 0.1 else max(0.001, question.timeout_s - waited)
            asked = question.as_kql(left)
            answer: bytes = await turns.run(
                lambda: ask(read.store, asked, question, left), asked.cancel, request.is_disconnected
            )
        outcome = "ok"
        kind, headers = MEDIA[question.format], {}
        if question.format != "json":
            headers["Content-Disposition"] = f'attachment; filename="faultline.{question.format}"'
        return Response(answer, media_type=kind, headers=headers)
    except TooManyWaitingError as error:
        outcome = "refused"
        raise ProblemError(
            429, "Too many queries wait.", do="Ask again in a few seconds.", headers={"Retry-After": "5"}
        ) from error
    except TimeoutError as error:
        outcome = "timeout"
        detail = f"The query did not end within {question.timeout_s:g} s."
        raise ProblemError(504, detail, do="Narrow the time range.") from error
    except ClientGoneError:
        outcome = "cancelled"
        return JSONResponse({})  # nobody reads it
    except asyncio.CancelledError:
        outcome = "cancelled"
        raise
    except Exception as error:
        problem = kql_problem(error, question.timeout_s)
        if problem is None:
            raise
        outcome = "timeout" if problem.status == 504 else outcome
        raise problem from error
    finally:
        metrics.query_seconds.inc(time.perf_counter() - began)
        metrics.queries.labels(outcome).inc()


#: The media type of each format of an answer.
MEDIA = {
    "json": "application/json", "ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}  # fmt: skip
#: Bytes of an answer, of all its tables together, as columns in memory and as text; what exceeds this is left out, and
#: `truncated` says so.
MOST_BYTES = 64 * 2**20


def client_of(request: Request) -> str:
    """The client for fair queueing: the user, or the address if nobody is signed in."""
    person = asking(request)
    if person is not None:
        return f"person {person.name}"
    return f"address {request.client.host if request.client else ''}"


def ask(store: Asks, asked: kql.Query, question: Question, timeout_s: float) -> bytes:
    """The answer to one query as JSON text; runs in its own thread."""
    deadline, within = time.monotonic() + timeout_s, asked.within
    if question.explain:
        return dumps({"plan": store.explain_kql(asked)})
    if question.validate_only:
        columns = [{"name": name, "type": kind} for name, kind in store.kql_columns(asked)]
        return dumps({"columns": columns, "rows": [], "truncated": False, "elapsed_ms": 0.0})
    result = store.run_kql(asked)
    if question.format != "json":
        file = printing.render(result, question.format)
        return file if isinstance(file, bytes) else file.encode("utf-8", "replace")
    left = MOST_BYTES
    tables = []
    for one in (result, *result.others):
        made = one.document(left, deadline)
        left = max(0, left - made.bytes)
        tables.append(answered(one, made.body))
    answer = {**tables[0], "elapsed_ms": result.elapsed_ms}
    if within != kql.Within():  # in moments, so that a link to the answer stays true
        answer["range"] = {"from": wire(within.start), "to": wire(within.end or datetime.now(UTC).replace(tzinfo=None))}
    return dumps(answer | ({"others": tables[1:]} if result.others else {}))


def answered(result: kql.Result, body: dict[str, Any]) -> dict[str, Any]:
    """The table of one statement, and the chart that ``render`` requests."""
    drawn = {"render": result.chart.document()} if result.chart else {}
    named = {"name": result.name} if result.name else {}  # among the tables of fork and facet
    cut_at = {"truncated_by": "bytes"} if result.cut_at == "bytes" else {}  # by rows, else: the request gave the number
    return {**named, **body, "truncated": result.truncated, **cut_at, **drawn}


@router.get("/reports", tags=["reports"])
def reports(request: Request) -> dict[str, Any]:
    """The failure-pattern reports this installation has, always on one page."""
    return {"reports": known_reports(request.app.state.settings), "next": None}


def known_reports(settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """The available reports: ``settings["reports"]`` (a list or a function), else ``listing()``."""
    found = settings.get("reports")
    if found is None:
        try:
            found = getattr(importlib.import_module("queries.reports"), "listing", None)
        except ImportError:
            found = None
    rows = found() if callable(found) else found or []
    return [{str(name): str(value) for name, value in dict(row).items()} for row in rows]
