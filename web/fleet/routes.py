"""The map of all nodes: ``GET /api/v1/fleet`` and the page /fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import polars as pl
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from parsers.moments import later
from queries.kql.cells import dumps
from web import pages
from web.api import Read
from web.fleet.measures import MEASURES
from web.fleet.model import Fleet, fleet
from web.fleet.picture import COLUMNS, FEWEST, MOST, picture
from web.fleet.places import WAYS
from web.packing import json_answer
from web.reading import Reader
from web.timerange import parse_time, rfc3339

router = APIRouter()
At = Annotated[str | None, Query(description="RFC 3339, now or now-6h; by default the last moment on record")]
Of = Annotated[
    Literal["state", "incidents", "temperature", "flaps", "lemon"],
    Query(alias="measure", description="what nodes are coloured by"),
]
By = Annotated[
    Literal["rack", "switch", "plane", "name", ""] | None, Query(description="by default the first that is known")
]
Incident = Annotated[str | None, Query(description="an incident whose spread is shown")]
#: Nodes that are listed under the map; all are in the API's answer.
LISTED = 60
#: Groups that are described in words below it.
GROUPS = 400
#: A map of the last moment follows new data, seconds; one of a store whose last record is older than ``LIVE`` does not.
FOLLOW_S, LIVE = 15, timedelta(hours=1)
#: From the moment of the map to those that its links lead to.
STEPS = (("−1 d", -86400), ("−1 h", -3600), ("−5 min", -300), ("+5 min", 300), ("+1 h", 3600), ("+1 d", 86400))


def _asked(read: Reader, at: str | None, measure: str, by: str | None, incident: str | None) -> Fleet:
    return fleet(read, at=parse_time("at", at), measure=measure, by=by or None, incident=incident or None)


@router.get("/api/v1/fleet", tags=["nodes"])
def document(
    request: Request, read: Read, at: At = None, measure: Of = "state", by: By = None, incident: Incident = None
) -> Response:
    """Every node at one moment, grouped by place, with the value and the class of one measure. `nodes` has a list for each
    column; `class` and `says` are places in `classes` and `texts`. What is not known is the class `unknown`."""
    return json_answer(request, dumps(_asked(read, at, measure, by, incident).document()))


@router.get("/fleet", response_class=HTMLResponse, include_in_schema=False)
def page(
    request: Request, read: Read, at: At = None, measure: Of = "state", by: By = None, incident: Incident = None,
    columns: Annotated[int, Query(ge=FEWEST, le=MOST)] = COLUMNS,
) -> Response:  # fmt: skip
    parse_time("at", at)  # what is wrong with the address has a status of its own, as has an incident that there is not
    if incident:
        read.incident(incident)
    kept = {"measure": measure if measure != "state" else None, "by": by or None, "incident": incident or None}

    def content() -> dict[str, Any]:
        found = _asked(read, at, measure, by, incident)
        return _content(request, read, found, columns, is_latest=at is None and incident is None)

    return pages.render_early(
        request, "fleet.html", content, asked=kept, at=at, nav="fleet", measures=MEASURES.values(), ways=WAYS, most_groups=GROUPS, most=LISTED,
    )  # fmt: skip


def _content(request: Request, read: Reader, found: Fleet, columns: int, *, is_latest: bool) -> dict[str, Any]:
    """What the page shows of a map."""
    steps = [
        (words, rfc3339(moved)) for words, by_s in STEPS if found.first <= (moved := later(found.at, timedelta(seconds=by_s))) <= found.last
    ]  # fmt: skip
    is_live = is_latest and found.last > datetime.now(UTC).replace(tzinfo=None) - LIVE
    nothing = {} if found.nodes.height else pages.first_steps(request, read)
    return {
        "fleet": found, "counts": found.counts(), "picture": picture(found, columns), "steps": steps, "follow": FOLLOW_S if is_live else None,
        "table": _table(found), "listed": _listed(found), **nothing,
    }  # fmt: skip


def _table(found: Fleet) -> list[tuple[str, int, str]]:
    """Each group with its size, and how many of its nodes are in each class."""
    sizes = {(group, name): n for group, name, n in found.nodes.group_by("group", "class").len().iter_rows()}
    return [
        (group, size, ", ".join(f"{n} {one.words}" for one in found.measure.classes if (n := sizes.get((group, one.name)))))
        for group, size in found.groups()
    ]  # fmt: skip


def _listed(found: Fleet) -> dict[str, Any]:
    """Nodes that stand out, the gravest first; how many they are."""
    classes = [one.name for one in found.measure.classes if one.stands_out]
    words = {one.name: one.words for one in found.measure.classes}
    rank = pl.col("class").replace_strict(
        {name: n for n, name in enumerate(classes)}, default=None, return_dtype=pl.Int64
    )
    chosen = found.nodes.with_columns(rank.alias("rank")).drop_nulls("rank").sort("rank", maintain_order=True)
    return {
        "rows": [row | {"words": words[row["class"]]} for row in chosen.head(LISTED).to_dicts()],
        "all": chosen.height,
    }
