"""Whose word about a request is believed: that of configured proxies alone. The same of a real service is in
collector/test_running_service.py."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from faultline import tls
from faultline.config import validate
from faultline.failure import CommandError
from web.access.authentication import PEER


@pytest.mark.parametrize(
    ("peer", "more", "heard"),
    [("10.0.0.1", {}, True), ("10.0.0.2", {}, False), ("127.0.0.1", {}, False),
     ("10.0.0.1", {"access": {"users": "u.toml", "read": ["*"]}}, False),
     ("10.0.0.7", {"access": {"proxies": ["10.0.0.7"], "read": ["*"], "groups_header": "X-Groups"}}, True)],
)  # fmt: skip
def test_who_asks_is_stated_by_named_proxies_only(peer: str, more: dict[str, object], heard: bool) -> None:
    """Also without [access], where answers to verdicts are signed by that header."""
    config = validate({"user_header": "X-User", "proxies": ["10.0.0.1"], **more}, "test")
    reported: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: MutableMapping[str, Any], _receive: Any, _send: Any) -> None:
        reported.append(scope["headers"])

    headers = [(b"x-user", b"ada"), (b"X-User", b"eve"), (b"x-groups", b"admins"), (b"accept", b"*/*")]
    scope = {"type": "http", PEER: peer, "headers": headers}
    asyncio.run(tls.only_of_proxies(app, config)(scope, None, None))  # type: ignore[arg-type]
    names = {name.lower() for name, _value in reported[0]}
    assert (b"x-user" in names) is heard and b"accept" in names
    assert heard or "access" in more or b"x-groups" in names, "which is no header of the configuration"


@pytest.mark.parametrize("given", ["proxy.example.org", "10.0.0.1/8", "", "*"])
def test_what_is_no_address_is_no_proxy(given: str) -> None:
    with pytest.raises(CommandError, match="proxies"):
        validate({"proxies": [given]}, "test")
    with pytest.raises(CommandError, match="proxies"):
        validate({"user_header": "X-User", "access": {"proxies": [given], "read": ["*"]}}, "test")
