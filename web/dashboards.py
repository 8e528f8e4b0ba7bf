"""Dashboards: their list, and the page of one. Each panel is asked on its own by the query API, so that one that is slow
or fails stops no other; without scripts, ``?tables=yes`` has the rows of all panels."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from parsers.moments import later
from queries import dashboards, saved
from queries.dashboards import Dashboard, Panel
from web import exploring, pages
from web.api import Question, Read, query
from web.problems import ProblemError
from web.timerange import Range, parse_range, rfc3339

router = APIRouter(include_in_schema=False)
#: Rows that a panel gets; a table of more is no panel.
MOST_ROWS = 1_000
#: Rows of a panel on the page without scripts.
PLAIN_ROWS = 100
#: About this many bins make a chart, and their widths in seconds.
BINS = 120
STEPS = (10, 30, 60, 300, 600, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400)


def known(request: Request) -> dict[str, Dashboard]:
    """All dashboards by name."""
    settings: Mapping[str, Any] = request.app.state.settings
    library = exploring.library(settings)
    found, _ = dashboards.all_dashboards([Path(path) for path in settings.get("dashboards") or ()], library)
    return found


def query_of(panel: Panel, within: Range, now: datetime) -> str:
    """The query of a panel, with ``since`` and ``step`` as the range has them. Nothing before the range is shown for it:
    the range limits every table."""
    values = {}
    span = ((within.end or now) - within.start).total_seconds() if within.start else None
    if "since" in panel.ranged:
        values["since"] = exploring.since(within, now)
    if "step" in panel.ranged and span is not None:
        values["step"] = f"{next((step for step in STEPS if span / step <= BINS), STEPS[-1])}s"
    return saved.with_values(panel.query, values)


def range_of(panel: Panel, within: Range) -> dict[str, str]:
    """The parameters from and to of a panel's query."""
    start = within.text_from if panel.range == "within" else None
    end = within.text_to if panel.range != "none" else None
    return {name: text for name, text in (("from", start), ("to", end)) if text}


def shown(number: int, panel: Panel, within: Range, now: datetime, pinned: Mapping[str, str]) -> dict[str, Any]:
    """What the template needs of a panel."""
    row = {**asdict(panel), "number": number}
    if panel.problem is None:
        row["query"] = query_of(panel, within, now)
        row["ranged"] = range_of(panel, within)
        row["explore"] = pages.linked("/explore", {**pinned, **row["ranged"]}, q=row["query"])
    else:
        row["problem"] = str(panel.problem)
    return row


async def rows_of(request: Request, read: Read, row: dict[str, Any]) -> dict[str, Any]:
    """The table of a panel, or why there is none."""
    if row["problem"]:
        return {}
    question = Question.model_validate({"query": row["query"], "max_rows": PLAIN_ROWS, **row["ranged"]})
    try:
        answer: dict[str, Any] = json.loads(bytes((await query(request, read, question)).body))
    except ProblemError as error:
        line = error.extra.get("line")
        return {"failed": f"{f'Line {line}: ' if line else ''}{error.detail} {error.do}".strip()}
    return answer


@router.get("/dashboards", response_class=HTMLResponse)
def listed(request: Request) -> HTMLResponse:
    return pages.render(request, "dashboards.html", rows=list(known(request).values()), nav="dashboards")


@router.get("/dashboards/{name}", response_class=HTMLResponse)
async def one(
    request: Request, read: Read, name: str, start: Annotated[str | None, Query(alias="from")] = None,
    end: Annotated[str | None, Query(alias="to")] = None, tables: bool = False,
) -> HTMLResponse:  # fmt: skip
    found = await asyncio.to_thread(known, request)
    board = found.get(name)
    if board is None:
        near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
        extra = {"suggestions": [{"text": near[0], "href": f"/dashboards/{near[0]}"}]} if near else {}
        raise ProblemError(404, f"There is no dashboard {name}.", do="The list of them is at /dashboards.", extra=extra)
    within = parse_range(start, end) if start is not None or end is not None else parse_range(board.range, None)
    now = datetime.now(UTC).replace(tzinfo=None)
    newest = await asyncio.to_thread(read.newest) if within.start else None
    past = None
    if newest and within.start and newest < within.start:
        ends = later(newest, -timedelta(days=1)), later(newest, timedelta(seconds=1))
        past = {"at": newest, "from": rfc3339(ends[0]), "to": rfc3339(ends[1])}
    pinned = {key: value for key, value in pages.kept_of(request).items() if key in pages.PINNED}
    panels = [shown(number, panel, within, now, pinned) for number, panel in enumerate(board.panels, 1)]
    if tables:
        answers = await asyncio.gather(*(rows_of(request, read, panel) for panel in panels))
        panels = [{**panel, "answer": answer} for panel, answer in zip(panels, answers, strict=True)]
    plain = f"{request.url.path}?{request.url.query}{'&' if request.url.query else ''}tables=yes"
    return pages.render(
        request, "dashboard.html", within=within, board=board, panels=panels, most=MOST_ROWS, tables=tables, plain=plain, past=past, nav="dashboards",
        problem=str(board.problem) if board.problem else "",
    )  # fmt: skip
