"""Operators' answers to verdicts, and the risk that a node fails again: routes under /api/v1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from correlator.learning import feedback
from web import node_history
from web.access.audit import address_of, audit_of
from web.access.authentication import asking
from web.api import Read
from web.problems import ProblemError
from web.shaping import wire

router = APIRouter(prefix="/api/v1")
#: The longest name of a person, a host, a device or an event.
NAME_CHARS = 200


def asker(request: Request) -> str:
    """The name of the user: of the login, or from the configured header of a proxy in front; else empty."""
    if (person := asking(request)) is not None:
        return person.name[:NAME_CHARS]
    header = request.app.state.settings.get("user_header")
    return request.headers.get(str(header), "").strip()[:NAME_CHARS] if header else ""


def remembered(request: Request) -> str:
    """The name of this browser's last answer: a convenience, and no proof."""
    return unquote(request.cookies.get("author", ""))[:NAME_CHARS]


class Given(BaseModel):
    """ "confirmed", or "wrong" with the true cause."""

    model_config = ConfigDict(extra="forbid")
    answer: str = Field(description="confirmed or wrong", examples=["wrong"])
    category: str | None = Field(None, description="what it was: a category of corr-result/1", examples=["infra.gpu"])
    event: str | None = Field(None, max_length=200, examples=["gpu.xid"])
    host: str | None = Field(None, max_length=NAME_CHARS)
    device: str | None = Field(None, max_length=NAME_CHARS)
    note: str = Field("", max_length=4000)
    author: str = Field("", max_length=NAME_CHARS)


@router.post("/jobs/{key}/feedback", tags=["feedback"], status_code=201)
def give(request: Request, read: Read, key: str, given: Given) -> dict[str, Any]:
    """Keeps an operator's answer to the verdict on a run. It is shown, exported and counted; it changes no verdict."""
    read.run(key)
    try:
        answer = feedback.Answer(**given.model_dump() | {"author": asker(request) or given.author})
        kept = feedback.give(request.app.state.store, key, answer)
    except feedback.FeedbackError as error:
        raise ProblemError(422, str(error), do="Correct the answer and send it again.") from error
    record_feedback(request, key, answer)
    found: dict[str, Any] = wire(kept)
    return found


def record_feedback(request: Request, key: str, answer: feedback.Answer) -> None:
    """Records who answered a verdict; ``signed`` is false if the name is only what was typed."""
    audit_of(request).record(
        "feedback", answer.author, address_of(request), run=key, answer=answer.answer, signed=bool(asker(request))
    )


@router.get("/jobs/{key}/feedback", tags=["feedback"])
def of_run(request: Request, read: Read, key: str) -> dict[str, Any]:
    """Answers to the verdict on one run, oldest first."""
    read.run(key)
    return {"feedback": wire(feedback.answers(request.app.state.store, run_key=key)), "next": None}


@router.get("/incidents/{incident_id}/feedback", tags=["feedback"])
def of_incident(request: Request, read: Read, incident_id: str) -> dict[str, Any]:
    """Answers to the verdicts that blame one incident."""
    return {"feedback": wire(feedback.answers(request.app.state.store, incident_id=incident_id)), "next": None}


@router.get("/feedback", tags=["feedback"], response_model=None)
def everything(
    request: Request, format: Annotated[str, Query(pattern="^(json|ndjson)$", description="json or ndjson")] = "json"
) -> dict[str, Any] | Response:
    """All answers, and their results: confirmed per root cause, reliability of stated confidences."""
    rows = feedback.answers(request.app.state.store)
    if format == "ndjson":
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in wire(rows))
        return Response(lines, media_type="application/x-ndjson")
    lesson = feedback.lessons(rows)
    causes = [{"cause": name, "judged": n, "confirmed": right} for name, (n, right) in lesson.causes.items()]
    return {"feedback": wire(rows), "causes": causes, "reliability": [asdict(b) for b in lesson.diagram],
            "expected_calibration_error": lesson.error, "next": None}  # fmt: skip


@router.get("/nodes/{name}/risk", tags=["nodes"])
def risk(read: Read, name: str) -> dict[str, Any]:
    """Incidents rooted on a node per family of faults, beside the count of an ordinary node of the cluster."""
    return node_history.risk(read, read.node(name))
