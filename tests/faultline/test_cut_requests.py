"""Senders that end in the middle of a request: nothing of it is kept or acknowledged, and it is taken when sent again.

A batch has a key. Were a part of one stored under it, the whole one would be a repetition, and its rest lost silently.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import zstandard

from collector.connections import Connections
from collector.intake import Intake
from collector.segment_file import Position, payload_of
from collector.spool import Spool
from faultline.connections import Connection, Server

LINES = b"".join(b"<13>Nov 28 01:00:00 gpu01 app: line %d\n" % n for n in range(100))
OTLP = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "a line"}}] * 100}]}]}
LOKI = {
    "streams": [{"stream": {"host": "gpu01"}, "values": [[f"17642916000000000{n}", "a line"] for n in range(10, 99)]}]
}
BULK = b'{"create":{}}\n{"message":"a line"}\n' * 100
ENTRIES = b"".join(
    b"__CURSOR=s=4f3a;i=%x;b=1\n__REALTIME_TIMESTAMP=1764291600000000\n_HOSTNAME=gpu01\nMESSAGE=a line\n\n" % n
    for n in range(1, 101)
)
JSON = {"content-type": "application/json"}
KEY = {"idempotency-key": "gpu01/logs/1764291600-abcdef/7"}
BODIES = {
    "lines": ("/api/v1/ingest", LINES, {"content-type": "text/plain", **KEY}),
    "lines, zstd": ("/api/v1/ingest", zstandard.compress(LINES), {"content-encoding": "zstd", **KEY}),
    "lines, gzip": ("/api/v1/ingest", gzip.compress(LINES), {"content-encoding": "gzip", **KEY}),
    "otlp": ("/v1/logs", json.dumps(OTLP).encode(), JSON),
    "loki": ("/loki/api/v1/push", json.dumps(LOKI).encode(), JSON),
    "bulk": ("/_bulk", BULK, {"content-type": "application/x-ndjson"}),
    "journal, gzip": ("/upload", gzip.compress(ENTRIES), {"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("kind", BODIES)
def test_of_a_request_cut_off_nothing_is_kept(kind: str, is_chunked: bool, tmp_path: Path) -> None:
    path, body, headers = BODIES[kind]
    whole = _request(path, body, headers, is_chunked)
    head = whole.index(b"\r\n\r\n") + 4
    line_end = body.find(b"\n", len(body) // 2) + 1  # a part that is a whole batch by itself
    places = [head, head + 1, head + line_end, head + len(body) // 2, len(whole) - 1]
    spool = Spool(tmp_path, min_free_bytes=0)
    served = _Served(spool)

    async def run() -> None:
        async with served:
            for place in places:
                await served.send(whole[:place], hangs_up=True)
                assert served.kept() == [], f"cut at byte {place - head} of {len(whole) - head}"
            answer = await served.send(whole)
            assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 202 ", b"HTTP/1.1 204 ")), answer

    asyncio.run(run())
    assert served.kept(), "sent again, it is taken"
    spool.close()


def _request(path: str, body: bytes, headers: dict[str, str], is_chunked: bool) -> bytes:
    size = "transfer-encoding: chunked" if is_chunked else f"content-length: {len(body)}"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if is_chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}{size}\r\n\r\n".encode() + body


class _Served:
    """The receivers behind the service's own HTTP server."""

    def __init__(self, spool: Spool) -> None:
        self.spool, self.intake, self.ended = spool, Intake(spool), 0

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.intake(scope, receive, send)
        finally:
            self.ended += 1

    async def __aenter__(self) -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        settings = uvicorn.Config(self._app, http=Connection, interface="asgi3", lifespan="off", log_config=None)
        self._address, self._server = sock.getsockname(), Server(settings, Connections())
        self._task = asyncio.create_task(self._server._serve([sock]))
        while not self._server.started:
            await asyncio.sleep(0.01)

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        await self._task

    async def send(self, request: bytes, *, hangs_up: bool = False) -> bytes:
        """Sends a request, and waits for its answer unless it ``hangs_up``. The receiver has ended when this returns."""
        before = self.ended
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(request)
        answer = b"" if hangs_up else await asyncio.wait_for(reader.read(), 120)
        writer.close()
        async with asyncio.timeout(60):
            while self.ended == before:
                await asyncio.sleep(0.01)
        return answer

    def kept(self) -> list[bytes]:
        return [
            payload_of(r.path, r.payload_offset, r.payload_bytes, r.payload_crc)
            for r in self.spool.read(Position(0, 0), 1 << 40)
        ]
