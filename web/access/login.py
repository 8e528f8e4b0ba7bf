"""Signing in and out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from web.access.audit import address_of
from web.access.gate import Gate, ProviderError, asking
from web.access.people import Person
from web.access.sessions import COOKIE
from web.forms import posted
from web.pages import render
from web.problems import ProblemError

if TYPE_CHECKING:
    from web.access.provider import Client

Next = Annotated[str, Query(description="the page to go on to")]
#: Passwords that are looked at at once: each takes a core for some tenths of a second.
_AT_ONCE = asyncio.Semaphore(2)
router = APIRouter(include_in_schema=False)


def inside(address: str) -> str:
    """A page of ours to go on to; the first one for whatever might lead elsewhere."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and "\\" not in address else "/"


def gate_of(request: Request) -> Gate:
    gate: Gate | None = getattr(request.app.state, "gate", None)
    if gate is None:
        raise ProblemError(
            404, "There is nothing to sign in to: [access] is not configured.", do="Go on to the incidents."
        )
    return gate


@router.get("/login", response_class=HTMLResponse, response_model=None)
def page(request: Request, next: Next = "/") -> Response:
    gate = gate_of(request)
    if (person := asking(request)) is not None and person.role is not None:
        return RedirectResponse(inside(next), 303)
    return _page(request, gate, next)


def _page(
    request: Request, gate: Gate, following: str, *, status: int = 200, wrong: str = "", typed: str = ""
) -> Response:
    return render(
        request, "login.html", status=status, nav="", following=inside(following), wrong=wrong, typed=typed,
        provider=gate.provider, has_passwords=bool(gate.users.people), stranger=asking(request),
    )  # fmt: skip


@router.post("/login", response_model=None)
async def sign_in(request: Request) -> Response:
    """A name and a password of the users file."""
    gate = gate_of(request)
    form = await posted(request, "Programs send 'Authorization: Bearer TOKEN' with each request instead.")
    name, following = form.get("name", "").strip(), inside(form.get("next", "/"))
    address = address_of(request)
    if wait := gate.attempts.wait_s(name, address):
        gate.audit.refused("sign_in_waits", name, address, way="password")
        wrong = "Too many wrong passwords. Try again in some minutes."
        said = _page(request, gate, following, status=429, wrong=wrong, typed=name)
        said.headers["Retry-After"] = str(round(wait) + 1)
        return said
    gate.refresh()
    async with _AT_ONCE:
        fits = await asyncio.to_thread(gate.users.has_password, name, form.get("password", ""))
    if not fits:
        gate.attempts.failed(name, address)
        gate.audit.attempt("sign_in_refused", name, address, way="password")
        return _page(request, gate, following, status=403, wrong="Name or password is wrong.", typed=name)
    return _signed_in(request, gate, gate.roles.person(name), following, gate.users.mark(name))


@router.post("/logout", response_model=None)
def sign_out(request: Request) -> Response:
    gate = gate_of(request)
    if (person := asking(request)) is not None:
        gate.audit.tell("sign_out", person.name, address_of(request))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


@router.get("/login/provider", response_model=None)
async def to_provider(request: Request, next: Next = "/") -> Response:
    gate, client, called = _provider_of(request)
    request.session["next"] = inside(next)
    base = (gate.public_url or str(request.base_url)).rstrip("/")
    try:
        return await client.redirect(request, f"{base}/login/provider/back")
    except ProviderError as error:
        return _page(request, gate, next, status=503, wrong=f"{called} cannot be reached: {error}")


@router.get("/login/provider/back", response_model=None)
async def from_provider(request: Request) -> Response:
    gate, client, called = _provider_of(request)
    following = inside(str(request.session.pop("next", "/")))
    try:
        claims = await client.claims(request)
    except ProviderError as error:
        gate.audit.refused("sign_in_refused", "", address_of(request), way="provider")
        return _page(request, gate, following, status=403, wrong=f"{called} did not let you in: {error}")
    assert gate.provider is not None
    wanted, name = gate.provider.name_claim, claims.get(gate.provider.name_claim)
    if not isinstance(name, str) or not name.strip():
        wrong = f"{called} told no {wanted}; name_claim in [access.provider] says which claim holds the name."
        return _page(request, gate, following, status=403, wrong=wrong)
    told = claims.get(gate.provider.groups_claim) or []
    groups = [told] if isinstance(told, str) else [group for group in told if isinstance(group, str)]
    return _signed_in(request, gate, gate.roles.person(name.strip(), groups), following)


def _provider_of(request: Request) -> tuple[Gate, Client, str]:
    gate = gate_of(request)
    if gate.provider is None:
        raise ProblemError(404, "No provider is configured in [access.provider].", do="Sign in at /login.")
    return gate, request.app.state.provider, gate.provider.name


def _signed_in(request: Request, gate: Gate, person: Person, following: str, mark: str = "") -> Response:
    way = "password" if mark else "provider"
    role = person.role.name.lower() if person.role is not None else None
    gate.audit.tell("sign_in", person.name, address_of(request), way=way, role=role)
    answer = RedirectResponse(following, 303)
    value = gate.sessions.write(person.name, person.groups, mark)
    secure = request.url.scheme == "https" or (gate.public_url or "").startswith("https:")
    answer.set_cookie(
        COOKIE, value, max_age=gate.sessions.lasting_s, httponly=True, samesite="lax", secure=secure, path="/"
    )
    return answer
