"""The list of sources: which are received, what was not seen, what was set aside. Page and API use the same function."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from collector.inventory import AGENT, FORGOTTEN, Inventory, blind, quarantine, utc_now
from parsers import extensions
from parsers.record import JOB_OUTPUT
from store import disowned, run_names
from store.errors import NoSuchTable
from store.questions import facts
from store.questions import sources as stream_questions
from web import api, hook_losses, pages
from web.access.audit import address_of, audit_of
from web.cursors import decode_cursor, encode_cursor
from web.feedback import asker
from web.problems import ProblemError
from web.reading import MAX_PAGE, PAGE, Reader, Row
from web.shaping import wire

router = APIRouter()
Read = Annotated[Reader, Depends(api.reader)]
_KEY = ("host", "file", "source")


def receiving_of(request: Request) -> Any:
    """The running receiver (``faultline.receiving``); None if only a store is shown."""
    return getattr(request.app.state, "receiving", None)


def received(read: Reader, receiving: Any) -> list[Row]:
    """Received sources, from the ledger, without reading lines."""
    try:
        rows = read.ask(stream_questions.RECEIVED)
    except NoSuchTable:
        return []
    alerts: set[tuple[str, str]] = set()
    silent_agents: set[str] = set()
    rates: dict[tuple[str, str, str], float] = {}
    if receiving is not None and receiving.inventory is not None:
        inventory: Inventory = receiving.inventory
        found = inventory.alerts(utc_now())
        alerts, silent_agents = {(a.host, a.file) for a in found}, {a.host for a in found if a.source == AGENT}
        rates = receiving.pipeline.ledger.rates_now()
    for row in rows:
        key = (row["host"], row["source"], row["file"])
        row |= {
            "first": row["first_seen"], "last": row["last_time"] or row["last_seen"], "late_s": row["max_lag_s"],
            "silent": (row["host"], row["file"]) in alerts or (row["transport"] == AGENT and row["host"] in silent_agents),
            "late_lines": row["late"], "late": bool(row["late"]), "rate": rates.get(key, 0.0),
            "unsure": None, "ahead": row.get("ahead") or 0,  # a store of an older version has no such column
        }  # fmt: skip
    return rows


def loaded(read: Reader, known: bool) -> list[Row]:
    """Sources that were read from files. If there are none, the lines need not be read."""
    if known and not read.one(stream_questions.ANY_FILE):
        return []
    rows = read.sources()
    for row in rows:
        row |= {"transport": "file", "silent": False, "rate": 0.0, "last_seen": None, "lag_s": None}
    return rows


#: The states that a reader may filter by.
TROUBLE = ("late", "silent", "unparsed", "ahead")


def together(rows: list[Row]) -> list[Row]:
    """The list with the files of job output merged into a row for each host and kind, with the sums and the number of
    ``files``. They are no sources of their own: each ends with its job."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["source"] in JOB_OUTPUT:
            kinds.setdefault((row["host"] or "", row["source"]), []).append(row)
    merged = [_merged(members) for members in kinds.values()]
    return [row for row in rows if row["source"] not in JOB_OUTPUT] + merged


def _merged(members: list[Row]) -> Row:
    if len(members) == 1:
        return members[0]
    newest = max(members, key=lambda row: row["last"] or datetime.min)
    sums = {name: sum(row[name] or 0 for row in members) for name in ("lines", "events", "unparsed", "rate", "ahead")}
    late_s = max((row["late_s"] for row in members if row["late_s"] is not None), default=None)
    troubles = {name: any(row[name] for row in members) for name in ("late", "silent")}
    return {**newest, **sums, **troubles, "late_s": late_s, "files": len(members)}


#: A folder that all files of a page are in is shown once, above them, if its name has at least this many characters.
LONG_FOLDER = 24


def shared_folder(files: Iterable[str | None]) -> str:
    """The folder, with its slash, that contains all these paths, if it is long enough to be shown once; else ''."""
    paths = {file for file in files if file and file.startswith("/")}
    folder = os.path.commonpath(paths) if len(paths) > 1 else ""
    return f"{folder}/" if len(folder) >= LONG_FOLDER and folder not in paths else ""


def document(
    receiving: Any, read: Reader, *, search: str | None, limit: int, cursor: str | None, only: str | None = None,
    outputs: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The document of the page. ``sources`` is one page of the list; the counts are of all of it.

    ``receiving``: the running receiver (:func:`receiving_of`). ``outputs``: each file of job output is listed, and not one
    row for those of a host.
    """
    running = receiving is not None and receiving.inventory is not None
    # Read before the rows are: what it counts as set aside is then among them.
    intake = receiving.state() if running else None
    rows = received(read, receiving)
    files = {row["file"] for row in rows}
    rows += [row for row in loaded(read, bool(rows) or receiving is not None) if row["file"] not in files]
    if search:
        wanted = search.lower()
        rows = [row for row in rows if any(wanted in str(row[name] or "").lower() for name in _KEY)]
    job_outputs = sum(row["source"] in JOB_OUTPUT for row in rows)
    if not outputs:
        rows = together(rows)
    counts = {name: sum(bool(row[name]) for row in rows) for name in TROUBLE} | {"total": len(rows)}
    nodes = len({row["host"] for row in rows if row["host"]})
    if only in TROUBLE:
        rows = [row for row in rows if row[only]]
    rows.sort(key=_order)
    after = _after(rows, cursor)
    page = rows[after : after + limit]
    more = after + limit < len(rows)
    body = {
        "sources": page, "next": encode_cursor(*(page[-1][n] or "" for n in _KEY)) if more else None, **counts,
        "alerts": [], "gone": [], "blind": [], "quarantine": [], "agents": [], "intake": intake, "nodes": nodes, "looking_since": None,
        "job_outputs": job_outputs,
        "disputed": run_names.disputed(read), "senders": _senders(read), "extensions": extensions.problems(),
        "unfiltered": read.store.info().get("unfiltered"),
    }  # fmt: skip
    with contextlib.suppress(NoSuchTable):  # a store that never received anything has no such tables
        body |= {"blind": blind(read.store), "quarantine": quarantine(read.store)}
        body["agents"] = list(hook_losses.in_trouble(read, utc_now() - FORGOTTEN))
    if running:
        inventory: Inventory = receiving.inventory
        body["alerts"] = [vars(alert) for alert in inventory.alerts(utc_now())]
        body["gone"] = [vars(one) for one in inventory.gone(utc_now())]
    return body


def _senders(read: Reader) -> list[str]:
    """Addresses that sent lines in another host's name, in words."""
    known = read.one(facts.value(disowned.FACT))
    return disowned.senders(known["value"] if known else None)


def _order(row: Mapping[str, Any]) -> tuple[bool, str, str, str]:
    """By host; streams without one, such as the output of jobs, come last."""
    return (not row["host"], row["host"] or "", row["file"] or "", row["source"] or "")


def _after(rows: list[Row], cursor: str | None) -> int:
    if cursor is None:
        return 0
    last = _order(dict(zip(_KEY, decode_cursor(cursor, *[str] * len(_KEY)), strict=True)))
    return next((at for at, row in enumerate(rows) if _order(row) > last), len(rows))


@router.get("/api/v1/sources", tags=["lines"])
def sources(
    request: Request, read: Read, q: str | None = None, limit: api.Limit = MAX_PAGE, cursor: api.Cursor = None,
    outputs: Annotated[bool, Query(description="each file of job output, not one row for those of a host")] = False,
) -> dict[str, Any]:  # fmt: skip
    """Every stream: last seen, lag, rate, and what could not be parsed.

    The files of job output are one row for each host and kind, with their number as ``files``; ``job_outputs`` counts them.
    Also alerts, blind periods, batches set aside, and errors in installed extensions.
    """
    body = document(receiving_of(request), read, search=q, limit=limit, cursor=cursor, outputs=outputs)
    found: dict[str, Any] = wire({**body, "looking_since": pages.looking_since(request)})
    return found


@router.get("/sources", response_class=HTMLResponse, include_in_schema=False)
def page(
    request: Request, read: Read, q: str | None = None, only: str | None = None, cursor: str | None = None,
    outputs: bool = False,
) -> HTMLResponse:  # fmt: skip
    body = document(receiving_of(request), read, search=q, limit=PAGE, cursor=cursor, only=only, outputs=outputs)
    now = utc_now()
    nothing = {} if body["total"] else pages.first_steps(request, read)
    return pages.render(
        request,
        "sources.html",
        body=body,
        q=q,
        only=only,
        outputs=outputs,
        now=now,
        nav="sources",
        folder=shared_folder(row["file"] for row in body["sources"]),
        **nothing,
    )


@router.post(
    "/api/v1/ingest", tags=["lines"], status_code=200,
    responses={
        400: {"description": "The body is not what its headers say"}, 401: {"description": "A token is needed"},
        413: {"description": "Too large, as sent or unpacked"}, 429: {"description": "Full: send the same again after Retry-After"},
        503: {"description": "The disk refused the write"},
    },
    openapi_extra={
        "parameters": [
            {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}, "description": "AGENT/STREAM/EPOCH/SEQUENCE, or any text"},
            {"name": "Content-Encoding", "in": "header", "schema": {"enum": ["zstd", "gzip", "identity"]}},
        ],
        "requestBody": {"content": {"application/x-ndjson": {"schema": {"type": "string"}}, "text/plain": {"schema": {"type": "string"}}}},
    },
)  # fmt: skip
def ingest() -> dict[str, Any]:
    """NDJSON of records or raw lines; 200 once the batch is on disk. A running service answers before this room is asked."""
    raise ProblemError(404, "This server receives nothing.", do="Send to the running service.")


@router.post("/api/v1/quarantine/{identity}/replay", tags=["lines"])
def replay(request: Request, identity: str) -> dict[str, Any]:
    """Has a batch that was set aside read again; it leaves the list when that worked."""
    receiving = receiving_of(request)
    if receiving is None or receiving.pipeline is None:
        raise ProblemError(404, "This server receives nothing.", do="Ask the running service.")
    if not receiving.replay(identity):
        raise ProblemError(
            404, f"No batch {identity[:60]!r} is set aside.", do="See /api/v1/sources for those that are."
        )
    audit_of(request).record("replay", asker(request), address_of(request), batch=identity)
    return {"status": "spooled", "id": identity}


@router.post("/sources/quarantine/{identity}/replay", include_in_schema=False)
def replay_from_page(request: Request, identity: str) -> RedirectResponse:
    replay(request, identity)
    return RedirectResponse(pages.linked("/sources", pages.kept_of(request)), 303)
