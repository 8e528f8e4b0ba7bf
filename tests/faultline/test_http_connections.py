"""Requests that never finish: heads, bodies, handshakes; and connections that are only quiet."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from certificates import make

from collector import connections as module
from collector.connections import Connections
from faultline import connections
from faultline.connections import Connection, Server

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            await send({"type": f"{(await receive())['type']}.complete"})
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "WINDOW_S", 0.3)


def serving(work: Callable[[tuple[str, int], Connections], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        everybody = Connections()
        sock = socket.create_server(("127.0.0.1", 0))
        server = Server(uvicorn.Config(app, http=Connection, log_level="critical", lifespan="on", **more), everybody)
        task = asyncio.create_task(server._serve([sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            await work(sock.getsockname(), everybody)
        finally:
            server.should_exit = server.force_exit = True
            await task

    asyncio.run(run())


async def _said(address: tuple[str, int], data: bytes) -> bytes:
    """Everything that is received until the other side closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 120)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_head_that_never_ends_is_ended() -> None:
    async def work(address: tuple[str, int], everybody: Connections) -> None:
        for begun in (
            b"",
            b"GET / HT",
            b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n",
            REQUEST + b"GET /again",
        ):
            assert (await _said(address, begun)).count(b"200 OK") == begun.count(REQUEST)
        assert everybody.counts["head"] == 4 and not everybody.places

    serving(work)


def test_a_body_that_never_ends_is_ended() -> None:
    async def work(address: tuple[str, int], everybody: Connections) -> None:
        stated = await _said(address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        assert b"200" not in stated and everybody.counts["body"] == 1

    serving(work)


def test_a_head_without_end_is_refused_by_its_size() -> None:
    async def work(address: tuple[str, int], everybody: Connections) -> None:
        assert b" 431 " in await _said(address, b"GET / HTTP/1.1\r\nX-A: " + b"a" * 66_000)

    serving(work)


def test_a_quiet_connection_stays_and_is_answered_again() -> None:
    async def work(address: tuple[str, int], everybody: Connections) -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(2):
            writer.write(REQUEST)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            other = everybody.counts["head"]
            await _said(address, b"GET / HT")  # ended after our own timeout, too
            assert everybody.counts["head"] == other + 1
        (place,) = everybody.places
        assert place.proven and not place.busy
        writer.close()

    serving(work)


def test_a_handshake_that_never_ends_is_ended(tmp_path: Path) -> None:
    make(tmp_path, "service")

    async def work(address: tuple[str, int], everybody: Connections) -> None:
        assert await _said(address, b"\x16\x03\x01") == b""
        assert everybody.counts["handshake"] + everybody.counts["broken"] == 1 and not everybody.places
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(*address, ssl=trusting)
        writer.write(REQUEST)
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()

    serving(work, ssl_certfile=str(tmp_path / "service.pem"), ssl_keyfile=str(tmp_path / "service.key"))
