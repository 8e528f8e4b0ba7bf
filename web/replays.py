"""``GET /api/v1/incidents/{id}/replay``: what could be known when, and the same for the incident's page."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from store import run_names
from web.access.own import OwnReader
from web.access.own_documents import OwnDocuments
from web.api import Read
from web.problems import ProblemError
from web.reading import Reader
from web.replay_picture import picture
from web.replaying import Made, Replays, assumptions, named
from web.shaping import wire

router = APIRouter(prefix="/api/v1")
Row = dict[str, Any]
#: When to ask again for a replay that is being made, seconds.
AGAIN_S = 2


def replays_of(request: Request) -> Replays:
    found: Replays = request.app.state.replays
    return found


def asked(request: Request, read: Reader, row: Row, *, begin: bool) -> Made | None:
    """The replay of an incident, given as the reader may see it. ``begin``: begins one if there is none."""
    whole: Reader = request.app.state.reader
    subject = whole.incident(row["incident_id"]) if read.own else row
    replays = replays_of(request)
    return replays.of(subject) if begin else replays.known(subject)


def shown(read: Reader, row: Row, document: Row) -> Row:
    """A replay as a reader may see it: of who sees only their own jobs, their part."""
    if isinstance(read, OwnReader):
        found = OwnDocuments(read).replay(row, document)
    else:
        names = run_names.differing(read, row["cluster"])
        keys = {key for one in document["moments"] for key in one["verdicts"]}
        found = named(document, {key: names.get(key, key) for key in keys})
    made: Row = wire({"status": "ready", **found, "assumes": assumptions(document)})
    return made


@router.get("/incidents/{incident_id}/replay", tags=["incidents"])
def replay(request: Request, read: Read, incident_id: str) -> Response:
    """What could be known when: at each moment at which something that matters had arrived, what had, and the verdicts that
    followed from only that. 202 while it is being made; ask again."""
    row = read.incident(incident_id)
    made = asked(request, read, row, begin=True)
    assert made is not None
    if made.failure is not None:
        raise ProblemError(
            503,
            f"The incident was not replayed: {_why_not(read, made)}.",
            do="Ask again when the service has less to do.",
        )
    if made.document is None:
        return JSONResponse(
            {"status": "making", "incident_id": row["incident_id"]}, 202, headers={"Retry-After": str(AGAIN_S)}
        )
    return JSONResponse(shown(read, row, made.document))


def _why_not(read: Reader, made: Made) -> str:
    """The reason for who may see more than their own jobs: it counts the cluster's lines and names files of the service."""
    return "the operators can see why" if read.own else str(made.failure)


def of_page(read: Reader, row: Row, made: Made | None) -> Row:
    """The replay for the incident's page: its picture, that it is being made, or why there is none."""
    if made is None:
        return {"status": "none"}
    if made.failure is not None:
        return {"status": "failed", "failure": _why_not(read, made)}
    return {"status": "making"} if made.document is None else picture(shown(read, row, made.document))
