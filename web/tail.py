"""``GET /api/v1/tail``: new log lines as they are stored, as server-sent events, and the page that follows them.

A line is new if it was received after the request began; ``filter`` is a KQL condition (``Host == "gpu07" and Message
has "Xid"``) or steps after a bar (``where ... | project ...``). Each line is sent once. A client whose connection broke
asks for the lines ``since`` the ID of the last event it got: what it may have missed comes again, and a stretch that is
too old to be repeated is named.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from queries import kql
from store.door import Asks
from web import pages
from web.access import read_audit
from web.access.authentication import still_admitted
from web.api import MOST_BYTES, client_of, kql_problem
from web.problems import ProblemError
from web.shaping import wire
from web.timerange import BadTimeError, parse_time, rfc3339
from web.turns import ClientGoneError, TooManyWaitingError

log = structlog.get_logger()
router = APIRouter()

#: How often the store is queried, seconds: the pipeline itself inserts about once a second.
EVERY_S = 1.0

#: More lines than this between two queries are counted, not sent; nobody reads that fast.
MOST = 500

#: A broken connection may be continued for this long, with at most this many lines at once.
RESUMED = timedelta(minutes=15)
MOST_RESUMED = 5_000

#: Lines get their time of receipt before they are stored, so the last seconds are queried again.
STORED_WITHIN = timedelta(seconds=5)

#: An event without a line keeps proxies from closing a quiet stream.
HEARTBEAT_S = 15.0

#: How long one query may take before the stream reports it and ends.
LOOK_S = 5.0

#: Open streams per person (or address), and in total: each query takes a place among the queries.
MOST_EACH, MOST_OPEN = 4, 40

_STEPS = re.compile(r"\s*(?:Logs\s*)?\|", re.IGNORECASE)
_ARRANGED = re.compile(r"\|\s*(?:sort|order|top)\b", re.IGNORECASE)
_FIRST = re.compile(r"\s*(?:where|search|extend|project\S*|parse\S*)\s", re.IGNORECASE)


def steps_of(text: str) -> str:
    """The filter as steps after ``Logs``: a bare condition becomes ``where``."""
    text = text.strip()
    if not text or text.lower() == "logs":
        return ""
    found = _STEPS.match(text)
    if found:
        return "| " + text[found.end() :].lstrip()
    return "| " + text if _FIRST.match(text) else f"| where {text}"


class Tail:
    """One stream: its query, and the lines already sent of the latest moment. ``resumed``: until when a stream before it
    came, in UTC; ``gap`` is the stretch after that which is too old to be repeated."""

    def __init__(self, store: Asks, steps: str, since: datetime, resumed: datetime | None = None) -> None:
        self.store, self.steps, self.since, self.most = store, steps, since, MOST
        self.sent: set[str] = set()
        self.gap: tuple[datetime, datetime] | None = None
        if resumed is not None:
            self.since, self.most = min(since, max(resumed, since - RESUMED)), MOST_RESUMED
            self.gap = (resumed, self.since) if resumed < self.since else None

    def query(self) -> str:
        stamp = self.since.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return f"Logs | where ReceivedTime >= datetime({stamp}) {self.steps}"

    def next_query(self) -> kql.Query:
        """The query of the next look."""
        return kql.Query(self.query(), max_rows=self.most, max_bytes=MOST_BYTES, timeout_s=LOOK_S)

    def look(self, asked: kql.Query | None = None, until: datetime | None = None) -> tuple[list[dict[str, Any]], bool]:
        """New lines by time, and whether there were more than are returned. ``asked``: ``next_query()``, for who may
        cancel it. ``until``: everything that was received before is stored; now by default."""
        until = until or datetime.now(UTC).replace(tzinfo=None)
        result = self.store.run_kql(asked or self.next_query())
        names = [name for name, _ in result.columns]
        rows = [dict(zip(names, row, strict=True)) for row in result.rows]
        fresh = [row for row in rows if json.dumps(row, sort_keys=True) not in self.sent]
        if "Time" in names and not _ARRANGED.search(self.steps):  # rows are stored by host
            fresh.sort(key=lambda row: str(row["Time"] or ""))
        self.sent = {json.dumps(row, sort_keys=True) for row in rows}
        if (
            result.truncated and not fresh
        ):  # what waits hides what comes: the rest of it is given up, and reported as missing
            until = datetime.now(UTC).replace(tzinfo=None)
        self.since = max(self.since, until - min(STORED_WITHIN, until - datetime.min))
        self.most = min(MOST + len(self.sent), MOST_RESUMED)
        return fresh, bool(result.truncated)


def _sse_event(event: str, data: Any, identity: str = "") -> str:
    named = f"id: {identity}\n" if identity else ""
    return f"{named}event: {event}\ndata: {json.dumps(wire(data), ensure_ascii=False)}\n\n"


class Open:
    """The number of open streams of each client; used from one event loop."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def full(self, client: str) -> str | None:
        """Why this client may not open another one; empty if it may."""
        if self.of[client] >= MOST_EACH:
            return f"{MOST_EACH} streams of yours are open already."
        return f"{MOST_OPEN} streams are open already." if self.of.total() >= MOST_OPEN else None


def _open(request: Request) -> Open:
    state = request.app.state
    if not hasattr(state, "tails"):
        state.tails = Open()
    found: Open = state.tails
    return found


async def _in_turn(request: Request, asked: kql.Query, work: Callable[[kql.Query], Any]) -> Any:
    """Does what a query needs in turn, as every query does; it is cancelled if the client leaves."""
    turns = request.app.state.turns
    async with turns.turn(client_of(request), LOOK_S, request.is_disconnected):
        return await turns.run(lambda: work(asked), asked.cancel, request.is_disconnected)


async def _stream(request: Request, tail: Tail) -> AsyncIterator[str]:
    client, tails = client_of(request), _open(request)
    if (full := tails.full(client)) is not None:  # many arrived at the same moment
        yield _sse_event("error", {"detail": full})
        return
    tails.of[client] += 1
    try:
        async for event in _looks(request, tail):
            yield event
    finally:
        tails.of[client] -= 1


async def _looks(request: Request, tail: Tail) -> AsyncIterator[str]:
    quiet, behind = 0.0, False
    yield ": tailing\n\n"
    if tail.gap is not None:
        yield _sse_event("gap", {"from": tail.gap[0], "to": tail.gap[1]})
    while not await request.is_disconnected():
        before = rfc3339(tail.since)
        try:
            until = _stored_until(request)  # before the store is asked
            rows, truncated = await _in_turn(request, tail.next_query(), partial(tail.look, until=until))
        except ClientGoneError:
            return
        except (TooManyWaitingError, TimeoutError):
            rows, truncated = (
                [],
                False,
            )  # no place became free: nothing is lost, the next query begins where this one would
        except Exception as error:
            problem = kql_problem(error, LOOK_S)
            if problem is None:
                log.exception("a tail ended")
            yield _sse_event(
                "error",
                {"detail": problem.detail if problem else "The store could not be asked; open the stream again."},
            )
            return
        if not still_admitted(request):
            yield _sse_event("error", {"detail": "The sign-in or token of this stream has ended; sign in again."})
            return
        if truncated:
            yield _sse_event("truncated", {"most": MOST, "every_s": EVERY_S})
        for n, row in enumerate(rows, 1):
            # Until the last line of a look has come, the whole look is asked for again.
            yield _sse_event("line", row, rfc3339(tail.since) if n == len(rows) else before)
        quiet = 0.0 if rows else quiet + EVERY_S
        if quiet >= HEARTBEAT_S:
            quiet = 0.0
            yield _sse_event("quiet", {}, rfc3339(tail.since))
        # While received lines wait to be stored, they come late here, and some not at all.
        if _is_behind(request) != behind:
            behind = not behind
            yield _sse_event("behind", {"behind": behind})
        await asyncio.sleep(EVERY_S)


def _stored_until(request: Request) -> datetime | None:
    receiving = getattr(request.app.state, "receiving", None)
    return receiving.stored_until() if receiving is not None else None


def _is_behind(request: Request) -> bool:
    return bool(getattr(request.app.state, "is_behind", bool)())


def _in_the_filter(problem: ProblemError, query: str, filter: str) -> ProblemError:
    """The error with its position in the filter: the filter ends where the query does, so positions count from the end."""
    line, column = problem.extra.get("line"), problem.extra.get("column")
    if line and column:
        lines = query.split("\n")
        behind = sum(len(text) + 1 for text in lines[line - 1 :]) - 1 - (column - 1)
        before = filter.rstrip()[: max(len(filter.rstrip()) - behind, 0)]
        problem.extra |= {"line": before.count("\n") + 1, "column": len(before) - (before.rfind("\n") + 1) + 1}
    return problem


Since = Annotated[str | None, Query(description="the ID of the last event of a stream that broke: RFC 3339")]


@router.get("/api/v1/tail", tags=["lines"])
async def tail(request: Request, filter: str = "", since: Since = None) -> StreamingResponse:
    """New lines that pass ``filter`` (KQL), one ``line`` event each. ``truncated``: there were more than are sent;
    ``behind``: the store is; ``gap``: a stretch that is not repeated; ``quiet``: nothing new; ``error``: the last event."""
    try:
        resumed = parse_time("since", since or request.headers.get("last-event-id"))
    except BadTimeError as error:
        raise ProblemError(400, str(error), do="Send the ID of the last event, or nothing.") from error
    followed = Tail(request.app.state.reader.store, steps_of(filter), datetime.now(UTC).replace(tzinfo=None), resumed)
    if (full := _open(request).full(client_of(request))) is not None:
        raise ProblemError(429, full, do="Close one of them.", headers={"Retry-After": "5"})
    try:
        await _in_turn(request, followed.next_query(), kql.Query.columns)
    except (TooManyWaitingError, TimeoutError) as error:
        raise ProblemError(
            429, "Too many queries wait.", do="Ask again in a few seconds.", headers={"Retry-After": "5"}
        ) from error
    except ClientGoneError as error:
        raise ProblemError(499, "The client went away.", do="Ask again.") from error
    except Exception as error:
        problem = kql_problem(error, LOOK_S)
        if problem is None:
            raise
        raise _in_the_filter(problem, followed.query(), filter) from error
    read_audit.of_query(request, f"tail {filter}")
    return StreamingResponse(
        _stream(request, followed), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


@router.get("/tail", response_class=HTMLResponse, include_in_schema=False)
def page(request: Request, filter: str = "") -> HTMLResponse:
    return pages.render(request, "tail.html", filter=filter, nav="explore")
