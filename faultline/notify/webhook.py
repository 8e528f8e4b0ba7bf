"""A POST of JSON: to a chat's incoming webhook (its ``text`` is shown), or to a program of the site."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from faultline.notify.kind import TIMEOUT_S, Notifier, OptionError, Send
from faultline.notify.message import Message


def post(url: str, body: object, token: str = "") -> None:
    """Sends a POST request. Raises ``OSError`` unless it is answered with 2xx; redirects are not followed with the
    body, so they are errors."""
    headers = {"Content-Type": "application/json", "User-Agent": "faultline"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
        answer.read(1024)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def checked(url: str) -> str:
    """Returns a valid URL. Raises ``OptionError``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(f"options.url: {url!r} is no http:// or https:// address")
    return url


def token_of(options: Mapping[str, Any]) -> str:
    """The bearer token, from its file."""
    return Path(options["token_file"]).read_text(encoding="ascii").strip() if options["token_file"] else ""


def _make(options: Mapping[str, Any]) -> Send:
    url = checked(options["url"])

    def send(message: Message) -> None:
        post(url, message.as_json(), token_of(options))

    return send


NOTIFIER = Notifier(
    "webhook", "POST of JSON with a text; Slack, Mattermost, Teams", {"url": None, "token_file": ""}, _make
)
