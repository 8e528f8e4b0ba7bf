"""What stands beside an answer on the query page: its rows over time and by columns, with true counts."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request

from queries import kql, overview
from web.access import read_audit
from web.api import Question, Read, answer_query
from web.problems import ProblemError

router = APIRouter(prefix="/api/v1")
#: The counts help to read an answer; they wait less long than the answer itself.
MOST_S = 15.0


@router.post("/query/overview", tags=["query"])
async def beside(request: Request, read: Read, question: Question) -> dict[str, Any]:
    """Rows of a query over time (`bins`) and by column (`facets`), before it limits or summarizes them (`before`), and
    where in its text a filter of them can be added (`at`);
    the query for their messages by pattern (`patterns`). Empty if they cannot be counted: the query itself says why."""
    base = overview.readable(question.query)
    if base is None:
        return {}
    try:
        columns = await asyncio.to_thread(kql.validate, base.text, timeout_s=MOST_S)
    except kql.KqlError:
        return {}
    time, facets = overview.time_column(columns), overview.facets_of(columns)

    read_audit.of_query(request, question.query)

    async def rows(text: str) -> list[list[Any]] | None:
        limits = {"timeout_s": min(MOST_S, question.timeout_s), "max_rows": 10_000}
        asked = question.model_copy(update={"query": text, **limits})
        try:
            found: list[list[Any]] = json.loads(bytes((await answer_query(request, read, asked)).body)).get("rows", [])
        except ProblemError:
            return None
        return found

    whole = await rows(overview.ends(base, time))
    if not whole:
        return {}
    total, *span = whole[0]
    step = overview.step_of(*(datetime.fromisoformat(one) for one in span)) if span and all(span) else None
    asked = overview.counts(base, time if step else None, step or 0, facets) if total else []
    counted = list(await asyncio.gather(*map(rows, asked)))
    bins = (counted.pop(0) if step and counted else None) or []
    found = {"rows": total, "at": base.end, "before": base.before, "time": time, "step_s": step}
    found["patterns"] = overview.patterns(base, columns)
    found["bins"] = [one for one in bins if one[0] is not None]
    found["undated"] = sum(n for at, n in bins if at is None)
    found["facets"] = [
        {"column": name, "values": values[: overview.MOST_VALUES], "more": len(values) > overview.MOST_VALUES}
        for name, values in zip(facets, counted, strict=False) if values
    ]  # fmt: skip
    return found
