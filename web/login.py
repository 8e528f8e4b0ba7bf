"""Signing in and out; and the page on which the first administrator of a new service sets a password."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from web.access.addresses import of_one
from web.access.audit import address_of
from web.access.authentication import Authentication, ProviderError, asking
from web.access.passwords import LEAST_CHARS, MOST_CHARS, BusyError, hashed_password
from web.access.people import EVERYONE, GROUP, Person
from web.access.sessions import BROWSER_COOKIE, COOKIE, KNOWN_S, cookie_named
from web.access.users import UsersError
from web.forms import posted
from web.pages import render
from web.problems import ProblemError

if TYPE_CHECKING:
    from web.access.provider import Client

Next = Annotated[str, Query(description="the page to go on to")]
router = APIRouter(include_in_schema=False)


def inside(address: str) -> str:
    """A page of ours to go on to; the first page for anything that might lead elsewhere."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and "\\" not in address else "/"


def authentication_of(request: Request) -> Authentication:
    authentication: Authentication | None = getattr(request.app.state, "authentication", None)
    if authentication is None:
        raise ProblemError(
            404, "There is nothing to sign in to: [access] is not configured.", do="Go on to the incidents."
        )
    return authentication


@router.get("/login", response_class=HTMLResponse, response_model=None)
def page(request: Request, next: Next = "/") -> Response:
    authentication = authentication_of(request)
    if (person := asking(request)) is not None and person.role is not None:
        return RedirectResponse(inside(next), 303)
    return _page(request, authentication, next)


def _page(
    request: Request,
    authentication: Authentication,
    following: str,
    *,
    status: int = 200,
    wrong: str = "",
    typed: str = "",
) -> Response:
    return render(
        request, "login.html", status=status, nav="", following=inside(following), wrong=wrong, typed=typed,
        provider=authentication.provider, has_passwords=bool(authentication.users.people), stranger=asking(request),
    )  # fmt: skip


@router.post("/login", response_model=None)
async def sign_in(request: Request) -> Response:
    """Checks a name and a password of the users file."""
    authentication = authentication_of(request)
    form = await posted(request, "Programs send 'Authorization: Bearer TOKEN' with each request instead.")
    name, password = form.get("name", "").strip(), form.get("password", "")
    following, address = inside(form.get("next", "/")), address_of(request)
    browser = authentication.browser(request.headers, name, secure=authentication.is_secure(request.url.scheme))
    known = authentication.attempts.is_known(browser)
    authentication.refresh()
    try:
        # A browser that signed in here before does not wait for others behind the same address.
        async with authentication.turns.turn(
            f"browser {browser}" if known else of_one(address),
            lambda: not known and authentication.attempts.is_slow(address),
            known=known,
        ):
            if wait := authentication.attempts.wait_s(name, address, browser):
                authentication.audit.refused("sign_in_waits", name, address, way="password")
                return _wait(
                    request,
                    authentication,
                    following,
                    name,
                    wait,
                    "Too many wrong passwords. Try again in some minutes.",
                )
            fits = len(password) <= MOST_CHARS and await authentication.turns.fits(
                lambda: authentication.users.has_password(name, password), known=known
            )
            if not fits:
                authentication.attempts.failed(name, address, browser)
    except BusyError:
        authentication.audit.refused("sign_in_waits", name, address, way="password")
        return _wait(
            request,
            authentication,
            following,
            name,
            2,
            "Too many passwords wait to be looked at. Try again in a moment.",
        )
    if not fits:
        authentication.audit.attempt("sign_in_refused", name, address, way="password")
        return _page(request, authentication, following, status=403, wrong="Name or password is wrong.", typed=name)
    authentication.attempts.succeeded(name, address)
    if await authentication.turns.fits(lambda: authentication.users.rehash(name, password), known=known):
        authentication.refresh()
    return _signed_in(
        request, authentication, authentication.roles.person(name), following, authentication.users.mark(name)
    )


def _wait(
    request: Request, authentication: Authentication, following: str, typed: str, wait_s: float, wrong: str
) -> Response:
    page = _page(request, authentication, following, status=429, wrong=wrong, typed=typed)
    page.headers["Retry-After"] = str(round(wait_s) + 1)
    return page


@router.post("/logout", response_model=None)
def sign_out(request: Request) -> Response:
    """Ends the session here, not only in the browser: a copy of its cookie is invalid from now on."""
    authentication = authentication_of(request)
    if (person := asking(request)) is not None:
        authentication.audit.record("sign_out", person.name, address_of(request))
    secure = authentication.is_secure(request.url.scheme)
    if (kept := authentication.session_cookie(request.headers, secure=secure)) is not None:
        authentication.sessions.end(kept)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(cookie_named(COOKIE, secure=secure), path="/", secure=secure, httponly=True, samesite="lax")
    return answer


# -- the first administrator -------------------------------------------------------------------------------------------


@router.get("/first", response_class=HTMLResponse, response_model=None)
def first_page(request: Request, key: Annotated[str, Query(description="of the link")] = "") -> Response:
    authentication = authentication_of(request)
    return (
        _first(request, authentication, key) if _opens(authentication, key) else _link_is_over(request, authentication)
    )


@router.post("/first", response_model=None)
async def first_person(request: Request) -> Response:
    """Sets a name and a password for the holder of the link, once, while there is no user with one."""
    authentication = authentication_of(request)
    form = await posted(request, "faultline access password NAME --users FILE gives a password from a shell.")
    key, name, password = form.get("key", ""), form.get("name", "").strip(), form.get("password", "")
    if not _opens(authentication, key):
        authentication.audit.refused("sign_in_refused", name, address_of(request), way="first")
        return _link_is_over(request, authentication)
    if wrong := _unfit(authentication, name, password, form.get("again", "")):
        return _first(request, authentication, key, status=422, wrong=wrong, typed=name)
    try:
        made = await asyncio.to_thread(_make_first, authentication, name, password)
    except (UsersError, OSError) as error:
        by_hand = f"{error}. Give the password from a shell: faultline access password {name} --users {authentication.users.path}"
        return _first(request, authentication, key, status=503, wrong=by_hand, typed=name)
    if not made:
        return _link_is_over(request, authentication)
    authentication.refresh()
    return _signed_in(
        request, authentication, authentication.roles.person(name), "/", authentication.users.mark(name), way="first"
    )


def _make_first(authentication: Authentication, name: str, password: str) -> bool:
    """Creates the first user; False if another one was first.

    Raises ``UsersError`` and leaves the link valid: the file's permissions can be fixed.
    """
    kept = hashed_password(password)
    with authentication.users.changing():
        if authentication.users.people:
            return False
        authentication.users.people = {name: kept}
        try:
            authentication.users.save()
        except UsersError:
            authentication.users.people = {}
            raise
        return authentication.first.use_up()


def _opens(authentication: Authentication, key: str) -> bool:
    authentication.refresh()
    return not authentication.users.people and authentication.users.path is not None and authentication.first.opens(key)


def _unfit(authentication: Authentication, name: str, password: str, again: str) -> str:
    """Why a name and a password are not accepted; empty if they are."""
    if not name or not name.isprintable() or len(name) > 200 or name.startswith(GROUP) or name == EVERYONE:
        return "Give a name, as Slurm or your directory has it."
    if authentication.first.names and name not in authentication.first.names:
        return (
            f"[access] operate names {', '.join(authentication.first.names)}: take one of these, or add the name there."
        )
    if not LEAST_CHARS <= len(password) <= MOST_CHARS:
        return f"A password has at least {LEAST_CHARS} characters and at most {MOST_CHARS}."
    return "" if password == again else "The two passwords differ."


def _first(
    request: Request, authentication: Authentication, key: str, *, status: int = 200, wrong: str = "", typed: str = ""
) -> Response:  # fmt: skip
    return render(
        request, "first.html", status=status, nav="", wrong=wrong, typed=typed, key=key, names=authentication.first.names,
        least=LEAST_CHARS, users=authentication.users.path,
    )  # fmt: skip


def _link_is_over(request: Request, authentication: Authentication) -> Response:
    """The same answer for a used link, an expired one and one that never existed."""
    return render(
        request,
        "first.html",
        status=403,
        nav="",
        over=True,
        somebody=bool(authentication.users.people),
        users=authentication.users.path,
    )


# -- single sign-on ----------------------------------------------------------------------------------------------------


@router.get("/login/provider", response_model=None)
async def to_provider(request: Request, next: Next = "/") -> Response:
    authentication, client, called = _provider_of(request)
    request.session["next"] = inside(next)
    base = (authentication.public_url or str(request.base_url)).rstrip("/")
    try:
        return await client.redirect(request, f"{base}/login/provider/back")
    except ProviderError as error:
        return _page(request, authentication, next, status=503, wrong=f"{called} cannot be reached: {error}")


@router.get("/login/provider/back", response_model=None)
async def from_provider(request: Request) -> Response:
    authentication, client, called = _provider_of(request)
    following = inside(str(request.session.pop("next", "/")))
    try:
        claims = await client.claims(request)
    except ProviderError as error:
        authentication.audit.refused("sign_in_refused", "", address_of(request), way="provider")
        return _page(request, authentication, following, status=403, wrong=f"{called} did not let you in: {error}")
    assert authentication.provider is not None
    wanted, name = authentication.provider.name_claim, claims.get(authentication.provider.name_claim)
    if not isinstance(name, str) or not name.strip():
        wrong = f"{called} told no {wanted}; name_claim in [access.provider] says which claim holds the name."
        return _page(request, authentication, following, status=403, wrong=wrong)
    claimed_groups = claims.get(authentication.provider.groups_claim) or []
    groups = (
        [claimed_groups]
        if isinstance(claimed_groups, str)
        else [group for group in claimed_groups if isinstance(group, str)]
    )
    return _signed_in(request, authentication, authentication.roles.person(name.strip(), groups), following)


def _provider_of(request: Request) -> tuple[Authentication, Client, str]:
    authentication = authentication_of(request)
    if authentication.provider is None:
        raise ProblemError(404, "No provider is configured in [access.provider].", do="Sign in at /login.")
    return authentication, request.app.state.provider, authentication.provider.name


def _signed_in(
    request: Request, authentication: Authentication, person: Person, following: str, mark: str = "", way: str = ""
) -> Response:
    way = way or ("password" if mark else "provider")
    role = person.role.name.lower() if person.role is not None else None
    authentication.audit.record("sign_in", person.name, address_of(request), way=way, role=role)
    secure = authentication.is_secure(request.url.scheme)
    if (before := authentication.session_cookie(request.headers, secure=secure)) is not None:
        authentication.sessions.end(before)  # a new login leaves no old session valid
    answer = RedirectResponse(following, 303)
    value = authentication.sessions.write(person.name, person.groups, mark)
    kept = {COOKIE: (value, authentication.sessions.lasting_s)}
    if mark:
        browser = authentication.sessions.know(
            person.name, authentication.browser(request.headers, person.name, secure=secure)
        )
        kept[BROWSER_COOKIE] = (browser, KNOWN_S)
    for name, (text, lasting_s) in kept.items():
        answer.set_cookie(
            cookie_named(name, secure=secure), text, max_age=lasting_s, httponly=True, samesite="lax", secure=secure, path="/"
        )  # fmt: skip
    return answer
