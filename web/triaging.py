"""Triage: POST /api/v1/incidents/{id}/state, and the form of the incident's page, which works without JavaScript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from correlator.learning import feedback
from store.errors import EngineError
from web import triage
from web.access.audit import address_of, audit_of
from web.answering import AGAIN, NAME_KEPT_S
from web.api import Read
from web.feedback import NAME_CHARS, asker, record_feedback
from web.forms import posted
from web.pages import kept_of, linked
from web.problems import ProblemError
from web.reading import Reader
from web.shaping import wire

router = APIRouter()
Row = dict[str, Any]


class Asked(BaseModel):
    """A change of an incident; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")
    state: Literal["new", "acknowledged", "resolved", "wrong"] | None = Field(None, examples=["acknowledged"])
    comment: str | None = Field(None, max_length=4000, examples=["cable reseated"])
    assignee: str | None = Field(None, max_length=NAME_CHARS, description="a name; empty: nobody", examples=["ada"])
    author: str = Field("", max_length=NAME_CHARS, description="who says it, if nobody is signed in")
    last: int | None = Field(
        None, ge=0, description="`triage.changes` as it was read: 409 if somebody changed the incident since"
    )
    category: str | None = Field(None, description="with state wrong: what it was, a category of corr-result/1")
    event: str | None = Field(None, max_length=200, description="with state wrong: the true cause")
    host: str | None = Field(None, max_length=NAME_CHARS, description="with state wrong: the true cause's host")
    device: str | None = Field(None, max_length=NAME_CHARS, description="with state wrong: the true cause's device")


@router.post("/api/v1/incidents/{incident_id}/state", tags=["incidents"])
def set_state(request: Request, read: Read, incident_id: str, asked: Asked) -> Row:
    """Sets the state of an incident, assigns it, or comments on it; every change is kept with who and when.

    Answers what stands now, with the history, and `before`, what stood. An incident that is marked wrong also answers
    the verdicts that blame it as wrong (`feedback`: their runs), with `category`, else unknown, as what it was.
    """
    row, before, runs = changed(request, read, incident_id, asked)
    found: Row = wire({
        "incident_id": row["incident_id"], **row["triage"], "history": triage.history(read, row["incident_id"]),
        "before": before, "feedback": runs,
    })  # fmt: skip
    return found


async def fields(request: Request) -> dict[str, str]:
    """The fields of the posted form, without surrounding spaces; empty ones are left out."""
    form = await posted(request, "Programs post JSON to /api/v1/incidents/{id}/state.")
    return {name: value.strip() for name, value in form.items() if value.strip()}


@router.post("/incidents/{incident_id}/state", include_in_schema=False)
def on_page(
    request: Request, read: Read, incident_id: str, form: Annotated[dict[str, str], Depends(fields)]
) -> RedirectResponse:
    """The form of the incident's page: a change, and the page again."""
    stood = read.incident(incident_id)["triage"]
    if form.get("state") != "wrong":
        # Fields of the other buttons: the browser sends what was typed before.
        form = {name: value for name, value in form.items() if name not in {"category", "event", "host", "device"}}
    if form.get("state") == "comment":
        form.pop("state")
    # A field that was emptied is not sent. One that was left as it is changes nothing.
    assignee = form.pop("assignee", "")
    try:
        asked = Asked.model_validate({**form, "assignee": assignee if assignee != (stood["assignee"] or "") else None})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProblemError(422, f"{where}: {first['msg']}.", do=AGAIN) from error
    row, _, _ = changed(request, read, incident_id, asked)
    path = f"/incidents/{quote(str(row['incident_id']), safe='')}"
    back = RedirectResponse(linked(path, kept_of(request)) + "#triage", 303)
    if asked.author:
        back.set_cookie("author", quote(asked.author), max_age=NAME_KEPT_S, httponly=True, samesite="strict")
    return back


def changed(request: Request, read: Reader, incident_id: str, asked: Asked) -> tuple[Row, Row, list[str]]:
    """Keeps a change: the incident as it stands then, what stood before, and the runs whose verdicts were answered."""
    if asked.state is None and asked.assignee is None and not (asked.comment or "").strip():
        raise ProblemError(422, "Nothing to change was sent.", do="Send a state, an assignee or a comment.")
    row = read.incident(incident_id)
    signed = asker(request)
    wish = triage.Wish(
        state=asked.state, assignee=_text(asked.assignee), comment=_text(asked.comment) or None,
        author=signed or _text(asked.author) or "", signed=bool(signed), last=asked.last,
    )  # fmt: skip
    answer = answered(asked, wish) if wish.state == "wrong" else None
    try:
        before = triage.change(request.app.state.store, row, wish)
        runs = disown(request, read, row["incident_id"], answer) if answer else []
    except triage.ChangedMeanwhileError as error:
        who = error.standing["by"] or "Somebody"
        raise ProblemError(
            409, f"{who} changed incident {row['incident_id']} meanwhile: it is {error.standing['state']}.",
            do="Load the incident again, and decide then.", extra={"triage": wire(error.standing)},
        ) from error  # fmt: skip
    except EngineError as error:
        do = "See whether the store's disk is full or read-only."
        raise ProblemError(503, f"The change was not kept: {error}", do=do) from error
    audit_of(request).record(
        "triage", wish.author, address_of(request), incident=row["incident_id"], state=wish.state, was=before["state"],
        assignee=wish.assignee, commented=wish.comment is not None, signed=wish.signed,
    )  # fmt: skip
    triage.attach(read, [row])
    return row, before, runs


def answered(asked: Asked, wish: triage.Wish) -> feedback.Answer:
    """The answer to the verdicts that blame an incident that is wrong."""
    given = feedback.Answer(
        "wrong", asked.category or "unknown", _text(asked.event), _text(asked.host), _text(asked.device),
        note=wish.comment or "", author=wish.author,
    )  # fmt: skip
    try:
        feedback.checked(given)
    except feedback.FeedbackError as error:
        raise ProblemError(422, f"{error}.", do=AGAIN) from error
    return given


def disown(request: Request, read: Reader, incident_id: str, answer: feedback.Answer) -> list[str]:
    """Answers the verdicts that blame an incident as wrong. A verdict for which the same person already named what it
    was keeps that answer, unless this one names a category, too."""
    standing: dict[str, Mapping[str, Any]] = {
        str(row["run_key"]): row
        for row in read.feedback(incident_id=incident_id)
        if row["counts"] and (row["author"] or "") == answer.author
    }
    runs = []
    for key in read.run_keys(incident_id):
        given = standing.get(key)
        if given is not None and given["answer"] == "wrong" and answer.category == "unknown":
            continue
        feedback.give(request.app.state.store, key, answer)
        record_feedback(request, key, answer)
        runs.append(key)
    return runs


def _text(value: str | None) -> str | None:
    """What was typed, without spaces around it."""
    return None if value is None else value.strip()
