"""The pages. Each one is a template over the same functions that the API answers with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote, urlencode

import jinja2
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup

from correlator.facts.registry import event_names
from correlator.model.categories import CATEGORIES
from parsers.record import JOB_OUTPUT
from parsers.visible import visible
from store.questions import incidents as incident_questions
from store.questions import nodes as node_questions
from store.questions import runs as run_questions
from store.run_names import named_runs
from web import (
    api,
    chain,
    early,
    fitness,
    hook_losses,
    job_accounting,
    job_environment,
    job_files,
    job_software,
    node_history,
    node_states,
    pace,
    replays,
    shared,
    suggesting,
    triage,
    what_if,
)
from web.access import read_audit
from web.access.authentication import asking
from web.access.people import Person, Role
from web.assets import assets
from web.feedback import asker, remembered
from web.glyphs import GLYPHS, LEGEND, glyph_of
from web.reading import PAGE, Reader
from web.rooms import all_pages
from web.rooms import names as all_rooms
from web.shaping import (
    BAD_STATES,
    CATEGORY_WORDS,
    FILTERS,
    LAYERS,
    OUT_OF_SERVICE,
    STOPPED_STATES,
    between,
    moment,
    open_rival,
    state_kind,
)
from web.timerange import BadTimeError, Range, parse_range, rfc3339
from web.user_messages import messages_about
from web.zones import chosen, shown_in

HERE = Path(__file__).parent
THEMES = {"dark", "light"}
#: Parameters of an address that apply to all pages reached from it, beside the range.
PINNED = {"theme", "zone"}
#: A job's page shows this many last lines of a file of its output, and this many files.
OUTPUT_LINES, OUTPUT_FILES = 40, 4
#: Seconds after which a page about something in progress reloads.
POLL_S = 5
#: A search shows at most this many results of each kind.
FOUND = 10
SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL|PRIVATE)", re.IGNORECASE)
#: How lines and people name a job: JobId=15, job 15, job:15.
SLURMS_WORD = re.compile(r"^job(?:id)?\s*[=: #]\s*", re.IGNORECASE)
#: Periods that reports are offered for, besides everything.
REPORT_DAYS = (7, 30)
#: Causes offered in an operator's answer; other texts are accepted as well.
ROOT_CAUSES = sorted(event_names())
Read = Annotated[Reader, Depends(api.reader)]
Within = Annotated[Range, Depends(api.time_range)]
router = APIRouter(include_in_schema=False)


def environment() -> jinja2.Environment:
    """The templates of all pages. The apps of a process share them: compiling those of a page costs a tenth of a second."""
    return _environment((HERE / "templates", *(page.templates for page in all_pages() if page.templates)))


@cache
def _environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    """Templates with escaping always on: every log line on a page may be hostile."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= FILTERS
    made.tests["open_rival"] = open_rival
    made.globals |= {
        "GLYPHS": GLYPHS, "LEGEND": LEGEND, "LAYERS": LAYERS, "BAD_STATES": BAD_STATES, "STOPPED_STATES": STOPPED_STATES, "CATEGORIES": CATEGORY_WORDS,
        "ANSWERABLE": CATEGORIES, "ROOT_CAUSES": ROOT_CAUSES, "between": between, "zone_at": FILTERS["zone"], "glyph_of": glyph_of, "marked": marked, "moment": moment,
        "POLL_S": POLL_S, "asset": assets().address, "scripts": assets().scripts,
    }  # fmt: skip
    return made


def marked(text: object) -> Markup:
    """A raw line with the word that made it an error highlighted; everything is escaped first."""
    safe = str(Markup.escape(str(text or "")))
    return Markup(re.sub(r"\b(error|fatal|panic|critical):", r'<b class="err">\1:</b>', safe, count=1, flags=re.I))


def theme_of(request: Request) -> str:
    """?theme= pins, then the cookie of the toggle, else the system decides (empty)."""
    for value in (request.query_params.get("theme"), request.cookies.get("theme")):
        if value in THEMES:
            return str(value)
    return ""


def kept_of(request: Request) -> dict[str, str]:
    """What every link and form of a page carries on: the range if it is valid, a pinned theme and zone."""
    given = request.query_params
    try:
        parse_range(given.get("from"), given.get("to"))
        kept = {name: value for name in ("from", "to") if (value := given.get(name))}
    except BadTimeError:
        kept = {}
    if given.get("theme") in THEMES:
        kept["theme"] = given["theme"]
    if given.get("zone") and chosen(given["zone"]) == given["zone"]:
        kept["zone"] = given["zone"]
    return kept


def linked(path: str, kept: Mapping[str, str], **more: object) -> str:
    """The address of a page with the kept parameters and its own, without empty ones."""
    together = {**kept, **{name: str(value) for name, value in more.items() if value not in (None, "")}}
    return f"{path}?{urlencode(together)}" if together else path


def first_steps(request: Request, read: Reader) -> dict[str, Any]:
    """For a page without content: what is stored, and where lines can be sent."""
    listening = getattr(getattr(request.app.state, "receiving", None), "listening", [])
    return {"stored": read.stored(), "address": str(request.base_url).rstrip("/"), "listening": listening}


def rooms(person: Person | None) -> tuple[str, ...]:
    """The pages in the top bar; none but the jobs for users who see only their own."""
    return all_rooms() if reads_all(person) else ("jobs",)


def reads_all(person: Person | None) -> bool:
    """May the user see more than their own jobs? Otherwise no page offers what would be refused."""
    return person is None or person.role not in (None, Role.OWN)


def may_change(request: Request) -> bool:
    """Do pages offer changes? The user must have the right, and the store must be writable."""
    person = asking(request)
    allowed = person is None or person.role is Role.OPERATE
    return allowed and not getattr(request.app.state.store, "read_only", False)


def looking_since(request: Request) -> datetime | None:
    """When a running service began its first pass over the store, while that is in progress: pages show older results."""
    since: datetime | None = getattr(request.app.state, "looking_since", lambda: None)()
    return since


def render(
    request: Request, name: str, *, status: int = 200, within: Range | None = None, **values: Any
) -> HTMLResponse:
    """A template with what every page needs: theme, range and links that keep both. ``within``: the range of a page that
    has its own if the address has none."""
    environ: jinja2.Environment = request.app.state.templates
    shared_values = shared_by_pages(request, within)
    with shown_in(shared_values["zone"]):
        body = environ.get_template(name).render(**shared_values, **values)
    return HTMLResponse(visible(body), status)


def render_early(request: Request, name: str, content: Callable[[], dict[str, Any]], **values: Any) -> Response:
    """As ``render``. A browser that opens the page gets its head and top bar, for which ``values`` suffice, before ``content`` gives
    the other values. The caller has checked before what has a status of its own."""

    def whole() -> HTMLResponse:
        return render(request, name, **values, **content())

    if not early.navigates(request):
        return whole()
    environ: jinja2.Environment = request.app.state.templates
    shared_values = shared_by_pages(request)
    with shown_in(shared_values["zone"]):
        first = early.first_part(environ.get_template(name).generate(**shared_values, **values))
    return early.in_parts(request, visible(first), whole)


def shared_by_pages(request: Request, within: Range | None = None) -> dict[str, Any]:
    """The values that every template gets."""
    kept = kept_of(request)
    within = within or parse_range(kept.get("from"), kept.get("to"))

    def link(path: str, **more: object) -> str:
        return linked(path, kept, **more)

    def every(path: str, **more: object) -> str:
        return linked(path, {name: value for name, value in kept.items() if name in PINNED}, **more)

    def moved(direction: int) -> str | None:
        shifted = within.shifted(direction)
        return f"?{urlencode({**dict(request.query_params), **shifted})}" if shifted else None

    def called(host: object, cluster: object = None) -> str:
        return whole.names().of(host, cluster)

    def several() -> bool:
        return whole.names().several

    whole: Reader = request.app.state.reader
    zone = chosen(request.query_params.get("zone"), unquote(request.cookies.get("zone", "")))
    return {
        "theme": theme_of(request), "zone": zone, "within": within, "kept": kept, "person": asking(request), "rooms": rooms(asking(request)),
        "link": link, "every": every, "moved": moved, "params": request.query_params, "path": request.url.path,
        "settings": request.app.state.settings, "asker": asker(request), "author": remembered(request), "writable": may_change(request),
        "looking": looking_since(request), "called": called, "several": several, "reads": reads_all(asking(request)),
    }  # fmt: skip


@router.get("/", response_class=HTMLResponse, response_model=None)
@router.get("/incidents", response_class=HTMLResponse, response_model=None)
def incidents(
    request: Request, read: Read, within: Within, severity: str | None = None, q: str | None = None, state: str | None = None,
    assignee: str | None = None, root: str | None = None, device: str | None = None, group: str | None = None,
    cursor: str | None = None, sort: str | None = None,
) -> HTMLResponse | RedirectResponse:  # fmt: skip
    if read.own:  # the list covers the whole cluster
        return RedirectResponse(linked("/jobs", kept_of(request)), 303)
    wanted: dict[str, Any] = {"severity": severity, "state": state, "assignee": assignee}
    states = read.triage_counts(within)
    grouped = group == "root" and bool(states)  # a store of an older version, opened for reading, has none
    if grouped:
        rows, after = read.roots(within, search=q, cursor=cursor, limit=PAGE, **wanted)
    else:
        costly = sort == "cost"
        rows, after = read.incidents(
            within, search=q, root=root, device=device, cursor=None if costly else cursor, limit=PAGE, costly=costly, **wanted
        )  # fmt: skip
    found: dict[str, Any] = {
        "rows": rows, "after": after, "counts": read.severity_counts(within), "cost": read.cost(within), "most": PAGE,
        "states": states, "grouped": grouped,
        "filters": {**wanted, "q": q, "root": root, "device": device, "group": "root" if grouped else None,
                    "sort": "cost" if sort == "cost" and not grouped else None},
    }  # fmt: skip
    if not rows:
        found |= first_steps(request, read)
    return render(request, "incidents.html", severity=severity, q=q, state=state, nav="incidents", **found)


#: Of each way in which incidents resemble one, its page shows this many.
SIMILAR = 5


@router.get("/incidents/{incident_id}", response_class=HTMLResponse)
def incident(
    request: Request, read: Read, incident_id: str, replay: Literal["yes"] | None = None,
    slurmd_timeout: what_if.Timeout = None,
) -> Response:  # fmt: skip
    row = read.incident(incident_id)
    replayed = replays.asked(request, read, row, begin=replay == "yes")  # 429 if too many wait

    def content() -> dict[str, Any]:
        document = row["document"]
        events = {str(event.get("id")): event for event in document.get("events") or []}
        steps = chain.chain_steps(document, events)
        everything = reads_all(asking(request))
        return {
            "doc": document, "events": events, "steps": steps, "table": chain.table_rows(document), "hosts": chain.hosts_of(steps),
            "runs": {run["run_key"]: run for run in read.runs_by_key(api.incident_jobs(document))},
            "states": read.node_states(api.incident_hosts(document, row), row["start"], row["end"], of=row),
            "answers": read.feedback(incident_id=row["incident_id"]), "judged": read.run_keys(row["incident_id"]),
            "changes": triage.history(read, row["incident_id"]), "similar": read.similar(row, SIMILAR), "most_runs": shared.MOST_RUNS,
            "first": chain.first_before(document, row["start"]),
            "messages": messages_about(read, document, str(request.base_url).rstrip("/")) if everything else [],
            "both": shared.of_incident(read, row) if everything and shared.is_comparable(document) else None,
            "replay": replays.of_page(read, row, replayed),
            "other": what_if.answer(request, read, row, slurmd_timeout),
        }  # fmt: skip

    return render_early(request, "incident.html", content, row=row, nav="incidents")


@router.get("/jobs", response_class=HTMLResponse)
def jobs(
    request: Request, read: Read, within: Within, state: str | None = None, user: str | None = None,
    q: str | None = None, cursor: str | None = None,
) -> HTMLResponse:  # fmt: skip
    rows, after = read.runs(within, state=state, user=user, search=q, cursor=cursor, limit=PAGE)
    nothing: dict[str, Any] = {}
    if not rows:  # the state of the store, and how lines arrive, is hidden from users who see only their own jobs
        nothing = {"near": suggesting.runs(read, q) if q else []} | ({} if read.own else first_steps(request, read))
    return render(
        request, "jobs.html", rows=rows, after=after, accounted=read.accounted(), state=state, user=user, q=q, nav="jobs",
        **nothing,
    )  # fmt: skip


#: Slurm's report of a lost node is no evidence about any node of the run.
NODE_FAILURE_EVENTS = {"slurm.job_node_fail", "job.node_failure"}
#: Accounting has a run's end to the second; Slurm sets the node's state at the same moment.
SAME_END = timedelta(seconds=2)


def job_nodes(
    read: Reader, row: dict[str, Any], evidence: Iterable[Mapping[str, Any]], rivals: Iterable[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The nodes of a run, in order, with the evidence about each, its states out of service, and the ``rivals`` (explanations
    that were rejected, lines that do not count) that name it."""
    names = list(row["nodes"] or [])
    begin, end = row["start"], row["end"]
    states = read.node_states(names, begin, end + SAME_END if end else None, of=row) if begin else []
    out = []
    for name in names:
        lines = [item for item in evidence if item.get("host") == name and item.get("event") not in NODE_FAILURE_EVENTS]
        lost = [item for item in states if item["host"] == name and state_kind(item["state"] or "") in OUT_OF_SERVICE]
        named = [item["cause"] for item in rivals if item.get("host") == name]
        out.append(
            {
                "name": name,
                "evidence": lines,
                "states": lost,
                "rivals": named,
                "has_evidence": bool(lines or lost or named),
            }
        )
    return out


def against(incident: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What speaks against nodes in an incident: its lines, and its root if none of them is the root host's: what a switch or the
    subnet manager tells of a node's port is a line of theirs."""
    lines = [line for line in incident["document"].get("events") or [] if line.get("role") != "context"]
    root = {"host": incident["root_host"], "event": incident["root_event"], "time": incident["start"]}
    return lines if any(line.get("host") == root["host"] for line in lines) else [*lines, root]


@router.get("/jobs/{key}", response_class=HTMLResponse)
def job(request: Request, read: Read, key: str) -> HTMLResponse:
    row = read.run(key)
    doc = row["document"]
    attempts = read.attempts(row)
    artifacts = job_files.artifacts(read, row, attempts)
    found = {(item.get("source"), item.get("line")): item for item in doc.get("evidence") or []}
    output, unshown = job_files.output(
        read, row, attempts, {str(file) for file, _ in found}, files=OUTPUT_FILES, lines=OUTPUT_LINES
    )
    variables = [
        {**item, "secret": bool(SECRET.search(str(item["name"])))} for item in job_files.environment(read, row)
    ]
    brought = {
        "script" if item["kind"] == "script" else "environment" if item["kind"] == "env" else "output"
        for item in artifacts
    }
    environment = job_environment.document(read, row, attempts, doc)
    slowed, slowed_by = read.slowdowns(row), read.slowing(row)
    seen = [*(doc.get("evidence") or []), *(line for incident in slowed_by for line in against(incident))]
    if read.own:  # the lines of these incidents are not theirs to read
        seen += [{"host": node, "event": one["cause"], "time": one["start"]} for one in slowed for node in one["nodes"]]
    # Asked only where the page would show nothing.
    unbrought = not (variables or artifacts or environment or row["submit_line"])
    brought |= ({"output"} if output else set()) | ({"environment"} if variables or environment else set())
    read_audit.of_run(request, row["run_key"], row["user"], brought)
    return render(
        request, "job.html", row=row, doc=doc, answers=read.feedback(run=row), attempts=attempts, artifacts=artifacts,
        slowed=slowed, slowed_by={one["incident_id"]: one for one in slowed_by}, nodes=job_nodes(read, row, seen, doc.get("rivals") or []), output=output, unshown=unshown,
        pace=pace.picture(pace.of_run(read, row, attempts)), evidence=found, concluded=chain.unwritten(doc),
        unstarted=job_files.has_not_started(row), variables=variables, environment=environment, own_only=read.own,
        hook_losses=hook_losses.reasons(read, row) if unbrought else [],
        hooks_work=hook_losses.others_brought(read, row) if unbrought else None,
        accounting=job_accounting.document(read, row), software=job_software.document(read, row, doc), tasks=read.array_tasks(row), judged=[row["run_key"]] if doc.get("category") else [], nav="jobs",
    )  # fmt: skip


@router.get("/nodes", response_class=HTMLResponse)
def nodes(request: Request, read: Read, q: str | None = None, cursor: str | None = None) -> HTMLResponse:
    rows, after = read.nodes(search=q, cursor=cursor, limit=PAGE)
    node_states.complete(read, rows)
    nothing = {} if rows else {**first_steps(request, read), "near": suggesting.nodes(read, q) if q else []}
    return render(request, "nodes.html", rows=rows, after=after, q=q, nav="nodes", **nothing)


@router.get("/nodes/{name}", response_class=HTMLResponse)
def node(request: Request, read: Read, within: Within, name: str) -> HTMLResponse:
    row = read.node(name)
    node_states.complete(read, [row])
    found, newest = api.about_node(read, row, within), read.newest()
    past: dict[str, Any] = {
        "strip": node_history.strip(found["states"], within, newest), "families": node_history.families(read, row),
        "measures": node_history.measures(read, row, within.end or newest),
    }  # fmt: skip
    found["states"] = found["states"][::-1]
    drains = read.drains(row, within.start, within.end)
    fit = fitness.fitness_of(fitness.memory_of(request), row)
    return render(request, "node.html", row=row, fit=fit, nav="nodes", drains=drains, **past, **found)


@router.get("/reports", response_class=HTMLResponse)
def reports(request: Request) -> HTMLResponse:
    now = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    periods = [(f"last {days} days", rfc3339(now - timedelta(days=days))) for days in REPORT_DAYS]
    rows = api.known_reports(request.app.state.settings)
    return render(request, "reports.html", rows=rows, periods=periods, nav="reports")


@router.get("/search", response_class=HTMLResponse, response_model=None)
def search(request: Request, read: Read, within: Within, q: str = "") -> HTMLResponse | RedirectResponse:
    """One box for everything: an exact job, node or incident opens at once.

    Any other text lists what contains it in the range.
    """
    text = q.strip()
    named = SLURMS_WORD.sub("", text)
    exact = (
        (incident_questions.exactly(named), "/incidents/"), (run_questions.exactly(named_runs(read), named), "/jobs/"),
        (node_questions.exactly(named), "/nodes/"),
    )  # fmt: skip
    for question, where in exact:
        if named and (row := read.one(question)):
            return RedirectResponse(linked(where + quote(str(row["found"]), safe=""), kept_of(request)), 303)
    lines, more = read.lines(within, search=text, limit=50) if text else ([], False)
    read_audit.of_lines(request, [line["job_id"] for line in lines if line["source"] in JOB_OUTPUT])
    listed: dict[str, tuple[list[dict[str, Any]], str | None]] = {}
    if text:
        listed = {
            "incidents": read.incidents(within, search=text, limit=FOUND), "runs": read.runs(within, search=text, limit=FOUND),
            "nodes": read.nodes(search=text, limit=FOUND),
        }  # fmt: skip
    found: dict[str, Any] = {name: rows for name, (rows, _) in listed.items()}
    node_states.complete(read, found.get("nodes", []))
    found["further"] = {name for name, (_, after) in listed.items() if after}
    if text and not lines and not any(rows for rows, _ in listed.values()):
        kinds = (suggesting.runs, suggesting.nodes, suggesting.incidents)
        words = ", ".join(json.dumps(word) for word in text.split())
        found["apart"] = f"Logs\n| where Message has_all ({words})\n| sort by Time desc\n| take 200"
        found |= {"near": [item for kind in kinds for item in kind(read, named)], **first_steps(request, read)}
    return render(request, "search.html", q=text, lines=lines, more=more, nav="", **found)
