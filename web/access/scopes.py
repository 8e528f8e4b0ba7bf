"""What a token may be used for. A scope narrows what its holder's role may, and never widens it."""

from __future__ import annotations

from dataclasses import dataclass

from web.origin import SAFE

#: Everything that the role allows.
ALL = "all"


@dataclass(frozen=True, slots=True)
class Scope:
    """``asked``: allowed paths; one that ends in / includes those below. ``posted``: those that accept a body."""

    text: str
    asked: tuple[str, ...]
    posted: tuple[str, ...] = ()

    def permits(self, method: str, path: str) -> bool:
        allowed = self.asked if method in SAFE else self.posted
        return any(path.startswith(one) if one.endswith("/") else path == one for one in allowed)


QUERY = "/api/v1/query"
OVERVIEW = f"{QUERY}/overview"
SCOPES = {
    ALL: Scope("whatever the role may", ("/",), ("/",)),
    "read": Scope("all that only reads", ("/",), (QUERY, OVERVIEW)),
    "query": Scope("KQL: questions, and lines as they come", ("/api/v1/tail",), (QUERY, OVERVIEW)),
    "jobs": Scope(
        "jobs, their verdicts and incidents",
        ("/api/v1/jobs", "/api/v1/jobs/", "/api/v1/incidents", "/api/v1/incidents/", "/api/v1/result"),
    ),
    "backup": Scope("copies of the store, on the service's machine", (), ("/api/v1/backup",)),
    "metrics": Scope("/metrics", ("/metrics",)),
}
