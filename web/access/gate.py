"""Finds out who asks: by a session, a token, or what a trusted proxy in front says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from web.access.attempts import Attempts
from web.access.audit import Audit
from web.access.people import Person, Roles
from web.access.sessions import COOKIE, Sessions
from web.access.settings import Provider
from web.access.users import Users
from web.problems import ProblemError, wants_page

#: Where the connection wrote whose socket it is; behind a proxy ``client`` is whom the proxy speaks for.
PEER = "faultline.peer"
PERSON = "faultline.person"
#: What can be asked by anybody: whether the service lives, and how to sign in.
OPEN = frozenset({"/healthz", "/readyz", "/login", "/login/provider", "/login/provider/back", "/logout"})


class ProviderError(Exception):
    """The provider is away, or did not let somebody in; the text is its word."""


@dataclass
class Gate:
    """The site's way in. ``proxies`` are the addresses whose ``user_header`` is believed."""

    users: Users
    roles: Roles
    sessions: Sessions
    proxies: frozenset[str] = frozenset()
    user_header: str = ""
    groups_header: str = ""
    provider: Provider | None = None
    public_url: str | None = None
    attempts: Attempts = field(default_factory=Attempts)
    audit: Audit = field(default_factory=Audit)

    def person(self, headers: Mapping[str, str], peer: str | None) -> Person | None:
        """Who asks; None for a stranger."""
        self.refresh()
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() in ("bearer", "token"):  # another scheme is between browser and proxy
            holder = self.users.holder(token.strip())
            if holder is None:
                self.audit.refused("token_refused", "", peer or "")
            return self.roles.person(holder) if holder else None
        if self.user_header and peer in self.proxies and (name := headers.get(self.user_header, "").strip()):
            told = headers.get(self.groups_header, "") if self.groups_header else ""
            return self.roles.person(name, filter(None, (group.strip() for group in told.split(","))))
        return self._of_session(headers.get("cookie", ""))

    def refresh(self) -> None:
        """Takes up a changed file of people, and writes down whose password or token came or went."""
        before = {"password": self.users.people, "token": self.users.tokens}
        self.users.refresh()
        for kind, now in (("password", self.users.people), ("token", self.users.tokens)):
            if now is not before[kind]:
                for name in sorted(before[kind].keys() | now.keys()):
                    if before[kind].get(name) != now.get(name):
                        change = "removed" if name not in now else "changed" if name in before[kind] else "added"
                        self.audit.tell(f"{kind}_{change}", name)

    def _of_session(self, cookies: str) -> Person | None:
        kept = cookie_parser(cookies).get(COOKIE)
        session = self.sessions.read(kept) if kept is not None else None
        if session is None or (session.mark and session.mark != self.users.mark(session.name)):
            return None
        return self.roles.person(session.name, session.groups)


class Guard:
    """In front of all routes: a stranger is sent to the page for signing in, a program is told how to."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app, self.gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[PERSON] = person = self.gate.person(Headers(scope=scope), scope.get(PEER) or _client(scope))
        path = scope["path"]
        if person is None and path not in OPEN and not path.startswith("/static/"):
            await refused(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def to_login(request: Request) -> RedirectResponse:
    """To the page for signing in, and from there back to what was asked."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?next={quote(asked, safe='')}", 303)


async def refused(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    if wants_page(request):
        await to_login(request)(scope, receive, send)
        return
    problem = ProblemError(
        401, "This service answers people and programs that it knows.",
        do="Sign in at /login, or send 'Authorization: Bearer TOKEN'; the command line takes it from FAULTLINE_ACCESS_TOKEN.",
        headers={"WWW-Authenticate": 'Bearer realm="faultline"'},
    )  # fmt: skip
    await problem.response(scope["path"])(scope, receive, send)


def _client(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def asking(request: Request) -> Person | None:
    """Who asks; None where the site lets everybody in."""
    person: Person | None = request.scope.get(PERSON)
    return person
