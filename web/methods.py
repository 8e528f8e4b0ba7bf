"""The methods of an address, which a 405 names, and HEAD, which is GET without its body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.types import Message, Scope, Send

#: A stream has no end, so HEAD makes no sense for it.
ENDLESS = frozenset({"/api/v1/tail"})


def methods_of(routes: Iterable[Any], path: str) -> set[str]:
    """The methods of all routes with this path, those of included routers as well."""
    found: set[str] = set()
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if inner is not None:
            found |= methods_of(inner.routes, path)
        elif getattr(route, "methods", None) and route.path_regex.match(path):
            found |= set(route.methods)
    return found | {"HEAD"} if "GET" in found and path not in ENDLESS else found


def as_get(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """A HEAD request as GET, whose body is not sent; any other request unchanged."""
    if scope["method"] != "HEAD" or scope["path"] in ENDLESS:
        return scope, send

    async def headless(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return {**scope, "method": "GET"}, headless
