"""The query page, and what it offers beside the editor: saved queries, built in and of the site, in groups."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from queries import describing, kql, saved
from queries.saved import Saved
from web import overview, pages
from web.api import Within
from web.problems import ProblemError
from web.timerange import Range

router = APIRouter()
router.include_router(overview.router)
EXAMPLES = (
    ("Lines around a NODE_FAIL", 'Logs\n| where Event has_any ("link", "node", "fail")\n'
     "| sort by Time desc\n| take 200\n"
     "| project Time, Host, Source, Event, Message, File, Line"),
    ("Events by host", "Events\n| summarize Count = count() by Host, Event\n| sort by Count desc"),
    ("Events over time", "Events\n| summarize Count = count() by bin(Time, 1m), Event\n| render timechart"),
    ("Jobs that did not end well", 'Jobs\n| where State != "COMPLETED"\n'
     "| project End, JobId, Name, User, State, Category, IncidentId\n"
     "| sort by End desc"),
    ("Late lines", "Logs\n| where ReceivedTime - Time > 5s\n"
     "| summarize Lines = count(), First = min(Time) by Host, File"),
    ("Incidents and what they cost", "Incidents\n"
     "| project Start, IncidentId, RootCause, RootHost, GpuHoursLost\n| sort by Start desc"),
)  # fmt: skip
#: Tables that are offered; the others are views of the same lines.
TABLES = tuple(name for name in kql.CATALOG.tables if name != "Syslog" and not name.endswith("_CL"))

#: Longer than any store is old.
ALWAYS, DAY_S = "36500d", 86_400
#: Lines of a saved query's header that are for its file only.
_FOR_FILES = re.compile(r"^// (?:group|parameters|example):.*\n", re.M)


def library(settings: Mapping[str, Any]) -> dict[str, Saved]:
    """All saved queries by name; ``settings["queries"]``: a site's files or folders."""
    return saved.library([Path(path) for path in settings.get("queries") or ()])[0]


def groups(found: Mapping[str, Saved]) -> list[tuple[str, list[Saved]]]:
    """Groups by name, the site's own first, each with its queries by title."""
    out: dict[str, list[Saved]] = {}
    for one in sorted(found.values(), key=lambda one: one.title.lower()):
        out.setdefault(one.group, []).append(one)
    return sorted(out.items(), key=lambda item: (item[0] != saved.SITE_GROUP, item[0]))


def text_of(found: Mapping[str, Saved], name: str, within: Range) -> str:
    """The text of a saved query; one that looks back by ``since`` reaches the start of the range, if there is one. Raises
    ``ProblemError``."""
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
        raise ProblemError(
            404,
            f"There is no saved query {name}.",
            do=f"Did you mean {near[0]}?" if near else "The list is at /explore.",
        )
    text = _FOR_FILES.sub("", found[name].text).rstrip()
    if within.start is None or not any(one.name == "since" for one in saved.parameters_of(text)):
        return text
    return saved.with_values(text, {"since": since(within, datetime.now(UTC).replace(tzinfo=None))})


def since(within: Range, now: datetime) -> str:
    """How far a query must look back to reach the start of a range, as a timespan of KQL: the range itself is the limit. A
    day more, since an absolute range gets older while a page is open."""
    if within.start is None:
        return ALWAYS
    return f"{int(max((now - within.start).total_seconds(), 0)) + DAY_S}s"


@router.get("/api/v1/schema", tags=["query"])
def schema() -> dict[str, Any]:
    """What a query can name: tables with their columns, operators and functions, with a sentence each."""
    return describing.schema()


@router.get("/explore", response_class=HTMLResponse, include_in_schema=False)
def explore(
    request: Request, within: Within, query: Annotated[str | None, Query(alias="q")] = None,
    name: Annotated[str | None, Query(alias="saved", description="the name of a saved query")] = None,
) -> HTMLResponse:  # fmt: skip
    found = library(request.app.state.settings)
    text = query or (text_of(found, name, within) if name else EXAMPLES[0][1])
    return pages.render(
        request, "explore.html", query=text, examples=EXAMPLES, groups=groups(found), tables=TABLES, nav="explore"
    )
