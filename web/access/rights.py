"""What each role may request. An unlisted route needs ``READ`` if it only reads, else ``OPERATE``."""

from __future__ import annotations

from fastapi import Request

from web.access.audit import address_of, audit_of
from web.access.authentication import OPEN, asking
from web.access.people import Role
from web.origin import SAFE
from web.problems import ProblemError

#: Open to any role; ``web.access.own`` withholds other users' data from ``OWN``.
FOR_OWN = frozenset({
    "/", "/incidents", "/incidents/{incident_id}", "/jobs", "/jobs/{key}", "/api/v1/incidents/{incident_id}",
    "/api/v1/incidents/{incident_id}/replay", "/api/v1/incidents/{incident_id}/what-if",
    "/api/v1/axis/{incident_id}", "/api/v1/jobs", "/api/v1/jobs/{key}", "/api/v1/jobs/{key}/verdict", "/api/v1/jobs/{key}/pace",
    "/api/v1/result",
})  # fmt: skip
#: Requests with a body that only read.
ASKED_WITH_BODY = frozenset({"/api/v1/query", "/api/v1/query/overview"})


def needed(method: str, route: str) -> Role:
    """The required role. ``route`` is a route's template, such as /jobs/{key}."""
    if method not in SAFE and route not in ASKED_WITH_BODY:
        return Role.OPERATE
    return Role.OWN if route in FOR_OWN else Role.READ


async def allowed(request: Request) -> None:
    """Raises a problem if the user may not request this.

    A dependency of all routes; async, so that it stays in the loop.
    """
    person = asking(request)
    if request.app.state.authentication is None or request.url.path in OPEN:
        return
    if person is None:  # the guard in front admits no stranger; if it ever did, this would not
        raise ProblemError(401, "This service answers people and programs that it knows.", do="Sign in at /login.")
    route = str(getattr(request.scope.get("route"), "path", ""))
    need = needed(request.method, route)
    if person.role is None or person.role < need:
        audit_of(request).refused(
            "denied", person.name, address_of(request), method=request.method, path=request.url.path
        )
    if person.role is None:
        raise ProblemError(
            403,
            f"{person.name} is known and has no rights here.",
            do="Ask who runs this service for a role in [access].",
        )
    if person.role < need:
        words = {Role.READ: "read everything", Role.OPERATE: "change something"}[need]
        raise ProblemError(
            403,
            f"This needs the right to {words}; {person.name} has not got it.",
            do="Ask who runs this service for it.",
        )
