"""Identifies the user: by a session, a token, or the header of a trusted proxy in front."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from web.access.attempts import Attempts
from web.access.audit import Audit
from web.access.first import FirstLink
from web.access.passwords import Turns
from web.access.people import Person, Role, Roles
from web.access.scopes import ALL, SCOPES
from web.access.sessions import BROWSER_COOKIE, COOKIE, Sessions, cookie_named
from web.access.settings import Provider
from web.access.users import Users
from web.problems import ProblemError, wants_page

#: The scope key of the connection's peer address; behind a proxy, ``client`` is the address that the proxy reports.
PEER = "faultline.peer"
PERSON = "faultline.person"
#: The scope key of the ``Guard`` that let a request in.
GUARD = "faultline.guard"
#: Open to everybody: whether the service is up, and how to sign in.
OPEN = frozenset({"/healthz", "/readyz", "/login", "/login/provider", "/login/provider/back", "/logout", "/first"})


class ProviderError(Exception):
    """The provider is down, or refused the user; the text is its message."""


class ExpiredError(Exception):
    """The token was valid once; the text says when it ended."""


class IdentityError(Exception):
    """An identity of Slurm is not accepted; the text is for its holder, ``do`` is the remedy."""

    def __init__(self, text: str, do: str, status: int = 401) -> None:
        super().__init__(text)
        self.do, self.status = do, status


class SlurmPeople(Protocol):
    """Recognises users by what Slurm knows them by (``web.access.slurm``)."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """The accepted schemes of the header Authorization."""

    async def person(self, scheme: str, given: str, *, peer: str | None, at: str | None) -> Person:
        """Raises ``IdentityError``. ``peer``: the connection's other end; ``at``: this end's address."""


@dataclass
class Authentication:
    """The site's access control.

    ``proxies`` holds the addresses whose ``user_header`` is trusted; ``first`` is the link for the first administrator;
    ``slurm`` recognises users of the cluster.
    """

    users: Users
    roles: Roles
    sessions: Sessions
    proxies: Container[str | None] = frozenset()
    user_header: str = ""
    groups_header: str = ""
    provider: Provider | None = None
    public_url: str | None = None
    attempts: Attempts = field(default_factory=Attempts)
    turns: Turns = field(default_factory=Turns)
    first: FirstLink = field(default_factory=FirstLink)
    audit: Audit = field(default_factory=Audit)
    slurm: SlurmPeople | None = None

    def person(
        self, headers: Mapping[str, str], peer: str | None, address: str = "", *, secure: bool = False
    ) -> Person | None:
        """The user; None for a stranger. Raises ``ExpiredError``.

        ``peer`` is the address of the connection, ``address`` the one that it acts for.
        """
        self.refresh()
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() in ("bearer", "token"):  # another scheme is between browser and proxy
            return self._of_token(token.strip(), address or peer or "")
        if self.user_header and peer in self.proxies and (name := headers.get(self.user_header, "").strip()):
            groups = headers.get(self.groups_header, "") if self.groups_header else ""
            return self.roles.person(name, filter(None, (group.strip() for group in groups.split(","))))
        return self._of_session(headers.get("cookie", ""), secure=secure)

    def is_secure(self, scheme: str) -> bool:
        """Do browsers use HTTPS, terminated here or by a proxy in front?"""
        return scheme == "https" or (self.public_url or "").startswith("https:")

    def session_cookie(self, headers: Mapping[str, str], *, secure: bool) -> str | None:
        return cookie_parser(headers.get("cookie", "")).get(cookie_named(COOKIE, secure=secure))

    def browser(self, headers: Mapping[str, str], name: str, *, secure: bool) -> str | None:
        """The identity of a browser in which this name signed in before."""
        kept = cookie_parser(headers.get("cookie", "")).get(cookie_named(BROWSER_COOKIE, secure=secure))
        return self.sessions.browser(kept, name) if kept is not None else None

    def _of_token(self, given: str, address: str) -> Person | None:
        found = self.users.token(given)
        if found is None:
            self.audit.refused("token_refused", "", address)
            return None
        name, kept = found
        if kept.is_over(datetime.now(UTC)):
            self.audit.refused("token_refused", name, address)
            raise ExpiredError(f"The token {name!r} ended at {kept.expires:%Y-%m-%dT%H:%M:%SZ}.")
        person = self.roles.person(name.split()[0])
        if kept.scope != ALL:  # all others only read
            person = replace(person, role=person.role and min(person.role, Role.READ), scope=kept.scope)
        return person

    def refresh(self) -> None:
        """Reads a changed users file, and records added and removed passwords and tokens."""
        before: dict[str, Mapping[str, object]] = {"password": self.users.people, "token": self.users.tokens}
        self.users.refresh()
        after: dict[str, Mapping[str, object]] = {"password": self.users.people, "token": self.users.tokens}
        for kind, now in after.items():
            if now is not before[kind]:
                for name in sorted(before[kind].keys() | now.keys()):
                    if before[kind].get(name) != now.get(name):
                        change = "removed" if name not in now else "changed" if name in before[kind] else "added"
                        self.audit.record(f"{kind}_{change}", name)

    def _of_session(self, cookies: str, *, secure: bool) -> Person | None:
        kept = cookie_parser(cookies).get(cookie_named(COOKIE, secure=secure))
        session = self.sessions.read(kept) if kept is not None else None
        if session is None or (session.mark and session.mark != self.users.mark(session.name)):
            return None
        return self.roles.person(session.name, session.groups)


class Guard:
    """Checks all routes: redirects a stranger to the login page, and explains to a program how to authenticate."""

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self.app, self.authentication = app, authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        is_open = path in OPEN or path.startswith("/static/")
        try:
            person = await self._recognised(scope)
        except (ExpiredError, IdentityError) as error:
            if not is_open:
                problem = _expired(error) if isinstance(error, ExpiredError) else self._unaccepted(error)
                await problem.response(path)(scope, receive, send)
                return
            person = None
        scope[PERSON], scope[GUARD] = person, self
        if person is None and not is_open:
            await refused(scope, receive, send)
        elif person is not None and not is_open and not SCOPES[person.scope].permits(scope["method"], path):
            self.authentication.audit.refused(
                "denied", person.name, _client(scope) or "", method=scope["method"], path=path
            )
            await _outside(person).response(path)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _recognised(self, scope: Scope) -> Person | None:
        """As ``_person``, and by an identity of Slurm. Raises ``ExpiredError``, ``IdentityError``."""
        slurm = self.authentication.slurm
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if slurm is None or scheme.lower() not in (accepted.lower() for accepted in slurm.schemes):
            return self._person(scope)
        peer, at = scope.get(PEER) or _client(scope), (scope.get("server") or (None,))[0]
        try:
            return await slurm.person(scheme, given.strip(), peer=peer, at=at)
        except IdentityError as error:
            self.authentication.audit.refused(
                "slurm_identity_refused", "", _client(scope) or "", scheme=scheme, reason=str(error)
            )
            raise

    def _unaccepted(self, error: IdentityError) -> ProblemError:
        headers = {"WWW-Authenticate": self.challenge} if error.status == 401 else {"Retry-After": "5"}
        return ProblemError(error.status, str(error), do=error.do, headers=headers)

    @property
    def challenge(self) -> str:
        """The header WWW-Authenticate: what a program may authenticate with."""
        schemes = ("Bearer", *(self.authentication.slurm.schemes if self.authentication.slurm is not None else ()))
        return ", ".join(f'{scheme} realm="faultline"' for scheme in schemes)

    def _person(self, scope: Scope) -> Person | None:
        secure = self.authentication.is_secure(scope["scheme"])
        peer = scope.get(PEER) or _client(scope)
        return self.authentication.person(Headers(scope=scope), peer, _client(scope) or "", secure=secure)

    def still_admits(self, scope: Scope) -> bool:
        """Whether the credentials of a request that was let in still belong to the same person with the same rights."""
        try:
            admitted: Person | None = scope[PERSON]
            return self._person(scope) == admitted
        except ExpiredError:
            return False


def still_admitted(request: Request) -> bool:
    """Whether an open stream may go on; always true if the site is open to everybody."""
    guard: Guard | None = request.scope.get(GUARD)
    return guard is None or guard.still_admits(request.scope)


def to_login(request: Request) -> RedirectResponse:
    """Redirects to the login page, and from there back to the requested page."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?next={quote(asked, safe='')}", 303)


async def refused(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    if wants_page(request):
        await to_login(request)(scope, receive, send)
        return
    guard: Guard = scope[GUARD]
    problem = ProblemError(
        401, "This service answers people and programs that it knows.",
        do="Sign in at /login, or send 'Authorization: Bearer TOKEN'; the command line takes it from FAULTLINE_ACCESS_TOKEN.",
        headers={"WWW-Authenticate": guard.challenge},
    )  # fmt: skip
    await problem.response(scope["path"])(scope, receive, send)


def _expired(error: ExpiredError) -> ProblemError:
    return ProblemError(
        401, str(error), do="Ask who runs this service for a new one: faultline access token NAME --users FILE.",
        headers={"WWW-Authenticate": 'Bearer realm="faultline", error="invalid_token"'},
    )  # fmt: skip


def _outside(person: Person) -> ProblemError:
    return ProblemError(
        403, f"This token of {person.name} has the scope {person.scope}: {SCOPES[person.scope].text}.",
        do="Use a token of another scope: faultline access token NAME --scope SCOPE --users FILE.",
        headers={"WWW-Authenticate": 'Bearer realm="faultline", error="insufficient_scope"'},
    )  # fmt: skip


def _client(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def asking(request: Request) -> Person | None:
    """The user of a request; None if the site is open to everybody."""
    person: Person | None = request.scope.get(PERSON)
    return person
