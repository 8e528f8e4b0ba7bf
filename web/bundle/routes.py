"""``GET /api/v1/incidents/{id}/bundle``: one incident as one file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from web.access.audit import address_of, audit_of
from web.access.authentication import asking
from web.access.people import Role
from web.api import Read
from web.bundle.page import bundle
from web.problems import ProblemError

router = APIRouter()
#: For a browser that opens the answer instead of saving it: as the page's own policy, and in an origin of its own.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; sandbox allow-scripts allow-downloads"


@router.get("/api/v1/incidents/{incident_id}/bundle", tags=["incidents"], response_class=Response)
def bundled(
    request: Request, read: Read, incident_id: str,
    redact: Annotated[str, Query(pattern="^(yes|no)$", description="no: with all names; needs the role operate")] = "yes",
) -> Response:  # fmt: skip
    """One HTML file that opens offline: sentence, chain, time axis, lines and comments, with the data attached.

    Secrets, users of other jobs and addresses are replaced unless `redact=no`.
    """
    person = asking(request)
    if redact == "no" and person is not None and person.role is not Role.OPERATE:
        raise ProblemError(
            403, f"A bundle with all names needs the right to operate; {person.name} has not got it.",
            do="Leave redact=no away.",
        )  # fmt: skip
    name, body = bundle(read, incident_id, request.app.state.templates, redacted=redact != "no")
    audit_of(request).record(
        "bundle", person.name if person else "", address_of(request), incident=name, redacted=redact != "no"
    )
    return Response(
        body, media_type="text/html; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.html"', "Content-Security-Policy": POLICY},
    )  # fmt: skip
