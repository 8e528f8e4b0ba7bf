"""A page whose first part, its head and top bar, is sent before its content is computed.

A browser then loads styles and scripts and shows the bar while the store is asked. The status is sent with the first part,
so a route checks before what has a status of its own: whether there is such a thing and whether the user may see it. If the content
fails after that, the page says so as an error page does, and metrics count the status that it would have had.

Only people's browsers that open a page get it in parts. Scripts and programs get it whole, with its status.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from web.problems import wants_page

#: Where the first part ends, in ``base.html``. Escaped text cannot contain it.
MARK = "<!-- content -->"
#: The key of a request's scope for the status that a page had which failed after its first part.
FAILED = "faultline.failed"


def navigates(request: Request) -> bool:
    """Does a browser open the page? Over plain HTTP, browsers send the second header only. A program that
    sends one of them gets what a browser gets."""
    if not wants_page(request):  # an error would be JSON, which cannot follow the first part
        return False
    given = request.headers
    return given.get("sec-fetch-mode") == "navigate" or given.get("upgrade-insecure-requests") == "1"


def status_of(scope: Scope, sent: int) -> int:
    """The status of an answer: ``sent``, unless its page failed afterwards."""
    return int(scope.get(FAILED, sent))


def first_part(pieces: Iterable[str]) -> str:
    """A page up to :data:`MARK`; the ``pieces`` after it are never made."""
    found = []
    for piece in pieces:
        before, mark, _ = piece.partition(MARK)
        found.append(before)
        if mark:
            break
    return "".join(found)


def in_parts(request: Request, first: str, whole: Callable[[], HTMLResponse]) -> Response:
    """``first`` at once, then what ``whole`` has behind its mark."""

    async def parts() -> AsyncIterator[bytes]:
        yield first.encode()
        try:
            page: Response = await run_in_threadpool(whole)
        except Exception as error:
            page = await _problem(request, error)
            request.scope[FAILED] = page.status_code
        yield bytes(page.body).partition(MARK.encode())[2]

    # A proxy that collects the answer would undo it.
    return StreamingResponse(parts(), media_type="text/html", headers={"X-Accel-Buffering": "no"})


async def _problem(request: Request, error: Exception) -> Response:
    """The error page that the application has for this kind of exception."""
    known = request.app.exception_handlers
    handler = next((known[kind] for kind in type(error).__mro__ if kind in known), None)
    if handler is None:
        raise error
    page: Response = await handler(request, error)
    return page
