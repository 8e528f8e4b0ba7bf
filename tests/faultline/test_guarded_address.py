"""The client address of a request: that of its socket, unless a configured proxy reports another; on a real service."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import time
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from faultline import tls
from faultline.config import validate
from faultline.failure import CommandError
from tests.collector.running import Running
from web.access.authentication import PEER

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
#: An address of this machine that the service takes for a proxy's; requests also come from 127.0.0.1, which is none.
PROXY = "127.0.0.2"
ACCESS = '[access]\nusers = "{users}"\noperate = ["ops"]\n'


def serving(folder: Path, head: str = "") -> Iterator[Running]:
    users = folder / "users.toml"
    users.write_text("[tokens]\n")
    service = Running(folder / "data", extra=head + ACCESS.format(users=users), syslog=())
    old = os.umask(0o022)  # as under systemd and login shells: the service's own umask must not depend on it
    try:
        service.start()
    finally:
        os.umask(old)
    yield service
    service.stop()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from serving(tmp_path_factory.mktemp("plain"), f'proxies = ["{PROXY}", "10.9.0.1"]\n')


def asked_from(peer: str, service: Running, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Status and cookie for a request from an address of this machine."""
    with closing(http.client.HTTPConnection("127.0.0.1", service.http, timeout=120, source_address=(peer, 0))) as made:
        made.request("POST", path, body, headers)
        answer = made.getresponse()
        answer.read()
        return answer.status, answer.headers.get("set-cookie", "")


def refused_as(service: Running, name: str, stated: str, peer: str = "127.0.0.1") -> str:
    """Signs in with a wrong password; returns the address in the audit log."""
    body = urlencode({"name": name, "password": "wrong"}).encode()
    assert asked_from(peer, service, "/login", body, {**FORM, "X-Forwarded-For": stated})[0] == 403
    reported = [json.loads(line) for line in (service.data / "audit.ndjson").read_text().splitlines()]
    (line,) = [one for one in reported if one["who"] == name]
    return str(line["address"])


def test_nobody_says_another_address_for_themselves(plain: Running) -> None:
    assert refused_as(plain, "eve", "203.0.113.9") == "127.0.0.1"


@pytest.mark.parametrize(
    ("said", "address"),
    [("203.0.113.9", "203.0.113.9"), ("198.51.100.1, 203.0.113.9", "203.0.113.9"),
     ("198.51.100.1, 203.0.113.9, 10.9.0.1", "203.0.113.9"), ("2001:db8::7", "2001:db8::7")],
)  # fmt: skip
def test_a_named_proxy_says_it_and_the_rightmost_that_is_no_proxy_counts(
    plain: Running, said: str, address: str
) -> None:
    assert refused_as(plain, f"eve by {said}", said, PROXY) == address


def test_the_scheme_too_is_believed_of_named_proxies_only(plain: Running) -> None:
    """HTTPS at the proxy: cookies are for HTTPS. A client that claims it without a proxy gains nothing."""
    body = urlencode({"name": "x", "password": "wrong"}).encode()
    for peer, secured in (("127.0.0.1", False), (PROXY, True)):
        reported = asked_from(peer, plain, "/logout", body, {**FORM, "X-Forwarded-Proto": "https"})[1]
        assert ("Secure" in reported) is secured, reported


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


def test_all_that_a_service_keeps_is_shut_to_others(plain: Running) -> None:
    """Every file and folder, and the process, after lines were stored, a batch set aside and a login refused."""
    line = b'{"raw": "Nov 23 08:00:00 gpu01 kernel: mlx5_core 0000:3b:00.0 ens1: Link down", "host": "gpu01"}\n'
    for body in (line, b'{"document": "horoscope", "raw": "x"}'):
        assert plain.post("/api/v1/ingest", body)[0] == 200
    until = time.monotonic() + 120
    while not list(plain.data.glob("quarantine/*")) and time.monotonic() < until:
        time.sleep(0.1)
    refused_as(plain, "mallory", "")
    found = {str(p.relative_to(plain.data)): p for p in plain.data.rglob("*")}
    assert {
        "faultline.duckdb",
        "audit.ndjson",
        "session.key",
        "service.json",
        "spool",
        "quarantine",
        "first.link",
    } <= set(found), found
    wide = {name: oct(p.stat().st_mode) for name, p in found.items() if p.stat().st_mode & 0o077}
    assert not wide and plain.data.stat().st_mode & 0o777 == 0o700
    assert plain.process is not None
    status = Path(f"/proc/{plain.process.pid}/status").read_text()
    assert "\nUmask:\t0077\n" in status
