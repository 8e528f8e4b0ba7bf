"""The FastAPI application: pages, API, static files, health, and the headers that render a hostile log line harmless."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parsers.visible import visible
from store.door import Asks
from store.errors import EngineError
from web import (
    answering,
    api,
    early,
    feedback,
    fitness,
    login,
    pages,
    repairs,
    replays,
    rooms,
    shared,
    sources,
    suggesting,
    tail,
    triaging,
    what_if,
)
from web.access.audit import Audit
from web.access.authentication import Authentication, Guard
from web.access.read_audit import ReadAudit
from web.access.rights import allowed
from web.assets import PATH, assets
from web.bundle import routes as bundles
from web.dashboards import router as dashboards_router
from web.exploring import router as exploring_router
from web.fleet import routes as fleet_routes
from web.methods import as_get, methods_of
from web.metrics import CONTENT_TYPE, Metrics
from web.origin import foreign
from web.problems import ProblemError, wants_page
from web.reading import Reader
from web.replaying import Replays
from web.timerange import BadTimeError
from web.turns import Turns

log = structlog.get_logger()

#: Nothing from elsewhere, no inline script, no inline style: markup in a log line has no effect even if an escape were
#: forgotten.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin",
}  # fmt: skip
WAYS_OUT = {
    404: "Check the address, or start from the list of incidents.",
    405: "Use one of the methods in the header Allow.",
}


class Envelope:
    """Security headers on every answer, and a count of it by route (not by path: paths have no bound)."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope, send = as_get(scope, send)
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await (self.refuse if foreign(scope["method"], Headers(scope=scope)) else self.app)(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "static" if scope["path"].startswith("/static/") else "none")
            self.metrics.requests.labels(str(route), str(early.status_of(scope, status))).inc()
            self.metrics.request_seconds.labels(str(route)).inc(time.perf_counter() - began)

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses changes that another site's page requests in its reader's name."""
        problem = ProblemError(
            403, "The request comes from a page of another site.", do="Send it from Faultline's page."
        )
        await problem.response(scope["path"])(scope, receive, send)


def answer(request: Request, problem: ProblemError) -> Response:
    if not wants_page(request):
        return problem.response(request.url.path)
    page = pages.render(request, "error.html", status=problem.status, problem=problem, nav="")
    page.headers.update(problem.headers)
    return page


def _packing(request: Request) -> ProblemError | None:
    """What is wrong with a body that is packed, which only receivers unpack; None if it is not."""
    name = request.headers.get("content-encoding", "identity")
    if name.lower() in ("", "identity"):
        return None
    return ProblemError(415, f"Content-Encoding {name[:60]!r} is not taken here.", do="Send the body as it is.")


def _what(wrong: Mapping[str, Any]) -> str:
    """What is wrong with a value; pydantic's own message of broken JSON names no reason."""
    reason = (wrong.get("ctx") or {}).get("error") if wrong["type"] == "json_invalid" else None
    return f"{wrong['msg']}: {reason}" if reason else str(wrong["msg"])


def handlers(app: FastAPI) -> None:
    """All errors have one of the same two forms."""

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> Response:
        return answer(request, error)

    @app.exception_handler(BadTimeError)
    async def bad_time(request: Request, error: BadTimeError) -> Response:
        extra = {"parameter": error.name}
        return answer(request, ProblemError(400, str(error), do="Correct the range in the address.", extra=extra))

    @app.exception_handler(RequestValidationError)
    async def shape(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "")
        if request.method == "POST" and request.url.path.startswith("/api/") and "json" not in kind:
            return answer(request, ProblemError(415, f"Content-Type {kind[:60]!r}", do="Send it as application/json."))
        if packing := _packing(request):
            return answer(request, packing)
        wrong = [{"where": ".".join(map(str, item["loc"])), "what": _what(item)} for item in error.errors()]
        detail = "; ".join(f"{item['where']}: {item['what']}" for item in wrong)
        return answer(request, ProblemError(422, detail, do="See /api/v1/openapi.json.", extra={"errors": wrong}))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400 and (packing := _packing(request)):  # the bytes were no text
            return answer(request, packing)
        missing = error.status_code == 404
        detail = f"There is nothing at {request.url.path}." if missing else str(error.detail)
        extra = {"suggestions": near} if missing and (near := suggesting.pages(request.url.path)) else {}
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(sorted(methods_of(app.routes, request.url.path)))
            detail = f"{request.method} is no method of {request.url.path}."
        do = WAYS_OUT.get(error.status_code, "")
        return answer(request, ProblemError(error.status_code, detail, do=do, extra=extra, headers=headers))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        page = rooms.package_of(request.scope.get("endpoint"))
        named = {"page": page} if page else {}
        path = visible(request.url.path, lines=False)
        log.exception("a request failed", method=request.method, path=path, **named, exc_info=error)
        error.is_logged = True  # type: ignore[attr-defined]  # whoever serves this application need not log it again
        detail = f"{type(error).__name__} while answering" + (f", in {page}." if page else ".")
        return answer(request, ProblemError(500, detail, do="The service's own log has the details."))


def operations(app: FastAPI) -> None:
    """The routes for supervisors and Prometheus."""

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> dict[str, Any]:
        try:
            troubles: list[str] = getattr(app.state, "troubles", list)()
            return {"status": "ready", "rows": app.state.reader.ready(), **({"troubles": troubles} if troubles else {})}
        except EngineError as error:
            raise ProblemError(
                503, f"The store does not answer: {error}", do="Wait, or run faultline check."
            ) from error

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> PlainTextResponse:
        return PlainTextResponse(app.state.metrics.text(), media_type=CONTENT_TYPE)


def guard(app: FastAPI, authentication: Authentication) -> None:
    """Requires a known user.

    The cookie of the second middleware lasts from the redirect to a provider until the return.
    """
    if authentication.provider is not None:
        from web.access.provider import Client  # importing Authlib takes a third of a second

        app.state.provider = Client(authentication.provider)
        app.add_middleware(
            SessionMiddleware, secret_key=authentication.sessions.key.hex(), session_cookie="faultline_provider", max_age=600, same_site="lax",
            https_only=(authentication.public_url or "").startswith("https:"),
        )  # fmt: skip
    app.add_middleware(Guard, authentication=authentication)


@cache
def _routes() -> list[BaseRoute]:
    """The built-in routes. The apps of a process share them: FastAPI prepares them in 60 ms of CPU, at the first requests."""
    router = APIRouter(dependencies=[Depends(allowed)])
    for one in (
        api.router,
        dashboards_router,
        exploring_router,
        feedback.router,
        fitness.router,
        fleet_routes.router,
        sources.router,
        tail.router,
        pages.router,
        repairs.router,
        replays.router,
        what_if.router,
        shared.router,
        answering.router,
        triaging.router,
        bundles.router,
        login.router,
    ):
        router.include_router(one)
    return router.routes


def create_app(
    store: Asks,
    *,
    settings: Mapping[str, object] | None = None,
    authentication: Authentication | None = None,
    audit: Audit | None = None,
) -> FastAPI:
    """The web application over one store.

    ``settings``: ``reports`` (list or function), ``cluster`` (name shown), ``user_header`` (the header in which a proxy
    in front names the user), ``dashboards`` and ``queries`` (a site's own files or folders), ``correlating`` (``settings`` and
    ``edges`` of the service's engine). ``authentication``: the access control; None: open to everybody. ``audit``: the audit log; None: no
    log.
    """
    app = FastAPI(
        title="Faultline", version="1", openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None,
        description="Why did this job die? Errors are RFC 9457 problem details.", dependencies=[Depends(allowed)],
    )  # fmt: skip
    app.state.store, app.state.reader = store, Reader(store)
    app.state.settings, app.state.metrics = dict(settings or {}), Metrics()
    app.state.repairs, app.state.fitness = repairs.Memory(), fitness.Memory(app.state.reader)
    correlating = app.state.settings.get("correlating") or {}
    app.state.replays = Replays(app.state.reader, correlating.get("settings"), correlating.get("edges") or ())
    app.state.templates, app.state.turns = pages.environment(), Turns()
    handlers(app)
    operations(app)
    app.router.routes.extend(_routes())
    for page in rooms.all_pages():
        if page.router is not None:
            app.include_router(page.router)
    app.mount(PATH, assets(), name="static")
    app.state.authentication, app.state.audit, app.state.reads = authentication, audit or Audit(), ReadAudit()
    if authentication is not None:
        authentication.audit = app.state.audit
        guard(app, authentication)
    app.add_middleware(Envelope, metrics=app.state.metrics)
    return app
