"""The form in which an operator answers a verdict. It works without JavaScript: a post, and the page again.

The answer is handled like ``POST /api/v1/jobs/{key}/feedback``: it is kept, shown and counted, and changes no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from correlator.learning import feedback
from store.errors import EngineError
from web.api import Read
from web.feedback import Given, asker, record_feedback
from web.forms import posted
from web.pages import kept_of, linked
from web.problems import ProblemError

router = APIRouter(include_in_schema=False)
#: How long the browser remembers who answered last, seconds: a person may be on the same team this long.
NAME_KEPT_S = 180 * 86_400
AGAIN = "Go back in the browser: what you wrote is still there. Correct it and send it again."


async def fields(request: Request) -> dict[str, str]:
    """The non-empty fields of the posted form, without surrounding spaces."""
    form = await posted(request, "Programs post JSON to /api/v1/jobs/{key}/feedback.")
    return {name: value.strip() for name, value in form.items() if value.strip()}


Form = Annotated[dict[str, str], Depends(fields)]


@router.post("/jobs/{key}/feedback")
def on_job(request: Request, read: Read, key: str, form: Form) -> RedirectResponse:
    """An answer to the verdict on one run."""
    read.run(key)
    return keep(request, f"/jobs/{quote(key, safe='')}", [key], form)


@router.post("/incidents/{incident_id}/feedback")
def on_incident(request: Request, read: Read, incident_id: str, form: Form) -> RedirectResponse:
    """An answer to the verdicts that blame an incident: to that on the given run, or to all of them."""
    name = read.incident(incident_id)["incident_id"]
    keys = read.run_keys(name)
    run = form.pop("run", None)
    if run is not None and run not in keys:
        raise ProblemError(422, f"The verdict on run {run} does not blame incident {name}.", do=AGAIN)
    return keep(request, f"/incidents/{quote(name, safe='')}", keys if run is None else [run], form)


def keep(request: Request, page: str, keys: Sequence[str], form: dict[str, str]) -> RedirectResponse:
    """Stores the answer for each run and shows the page again, at the answers."""
    if form.get("answer") != "wrong":
        # Fields of the other answer: the browser sends what was typed before the choice was changed.
        form = {name: value for name, value in form.items() if name in {"answer", "note", "author"}}
    try:
        given = Given.model_validate(form)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProblemError(422, f"{where}: {first['msg']}.", do=AGAIN) from error
    answer = feedback.Answer(**given.model_dump() | {"author": asker(request) or given.author})
    if not keys:
        raise ProblemError(422, "No run's verdict blames this incident.", do="Answer on the page of a job.")
    try:
        for key in keys:
            feedback.give(request.app.state.store, key, answer)
            record_feedback(request, key, answer)
    except feedback.FeedbackError as error:
        raise ProblemError(422, f"The answer was not kept: {error}.", do=AGAIN) from error
    except EngineError as error:
        raise ProblemError(503, f"The answer was not kept: {error}", do="See whether the store's disk is full or read-only.") from error  # fmt: skip
    back = RedirectResponse(linked(page, kept_of(request)) + "#answers", 303)
    if given.author:
        back.set_cookie("author", quote(given.author), max_age=NAME_KEPT_S, httponly=True, samesite="strict")
    return back
