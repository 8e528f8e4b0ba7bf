"""Errors as RFC 9457 problem details for programs and as a page with a remedy for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "The request cannot be understood",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Changed meanwhile",
    413: "Too large",
    415: "Not this kind of content",
    422: "The request has the wrong shape",
    429: "Too many requests",
    500: "Something broke here",
    503: "Not ready",
    504: "The query took too long",
}


class _Document(JSONResponse):
    """A request may hold a single surrogate, which is no character, and the problem may repeat it."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
            "utf-8", "replace"
        )


class ProblemError(Exception):
    """Raised anywhere below a route; ``do`` is the remedy and is always shown to the reader."""

    def __init__(self, status: int, detail: str, *, do: str = "", extra: Mapping[str, Any] | None = None,
                 headers: Mapping[str, str] | None = None) -> None:  # fmt: skip
        super().__init__(detail)
        self.status, self.detail, self.do, self.extra = status, detail, do, dict(extra or {})
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        return TITLES.get(self.status, "Error")

    def document(self, instance: str) -> dict[str, Any]:
        """The problem as RFC 9457 defines it; ``do`` and the rest are extension members."""
        body: dict[str, Any] = {"type": "about:blank", "title": self.title, "status": self.status}
        body |= {"detail": self.detail, "instance": instance}
        if self.do:
            body["do"] = self.do
        return body | self.extra

    def response(self, instance: str) -> JSONResponse:
        return _Document(self.document(instance), self.status, self.headers, media_type=MEDIA_TYPE)


def wants_page(request: HTTPConnection) -> bool:
    """People get a page, programs a problem document."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")
