"""A small server for docs/sources/wire.md, for tests: it stores what it acknowledges, once per key."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import zstandard


@dataclass
class Stored:
    """One acknowledged batch."""

    key: str
    records: list[dict[str, Any]]


@dataclass
class IngestServer:
    """``refuse(key, body)`` may return an answer (code, headers, text) instead of storing.

    ``drop(key)`` stores and then closes the connection without an answer. ``log`` keeps what was stored in a file: it
    survives ``close``.
    """

    refuse: Callable[[str, bytes], tuple[int, dict[str, str], str] | None] = lambda key, body: None
    drop: Callable[[str], bool] = lambda key: False
    stored: dict[str, Stored] = field(default_factory=dict)
    repeated: int = 0
    #: Requests whose body ended too early; nothing of them is stored.
    cut: int = 0
    requests: list[tuple[str, int]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    port: int = 0
    _server: ThreadingHTTPServer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> IngestServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed while it sent: it offers the same key again
                    outer.cut += 1
                    self.close_connection = True
                    return
                answer = outer._take(self, body)
                if answer is None:
                    self.close_connection = True
                    return
                code, headers, text = answer
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def _take(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], str] | None:
        key = handler.headers.get("Idempotency-Key", "")
        with self._lock:
            self.authorizations.append(handler.headers.get("Authorization"))
            refused = self.refuse(key, body)
            self.requests.append((key, refused[0] if refused else 200))
            if refused:
                return refused
            if key and key in self.stored:
                self.repeated += 1
            else:
                self.stored[key] = Stored(key, records_of(body, handler.headers.get("Content-Encoding", "")))
            return None if self.drop(key) else (200, {}, '{"status": "stored", "duplicate": false}')

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stops listening; what was stored stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def records(self) -> list[dict[str, Any]]:
        with self._lock:
            return [row for batch in self.stored.values() for row in batch.records if "defaults" not in row]

    def lines(self, path: Path | str | None = None) -> list[str]:
        """All stored lines (of one file), in the order of storing."""
        return lines_of(row for row in self.records() if path is None or row.get("path") == str(path))

    def blind(self, stream: str | None = None) -> list[dict[str, Any]]:
        return [
            row["blind"] for row in self.records() if "blind" in row and (stream is None or row["stream"] == stream)
        ]


def lines_of(records: Iterable[dict[str, Any]]) -> list[str]:
    """The lines in records, in their order."""
    found: list[str] = []
    for row in records:
        if "lines" in row:
            found += row["lines"].split("\n")
        elif "lines_base64" in row:
            found += base64.b64decode(row["lines_base64"]).decode("utf-8", "surrogateescape").split("\n")
        elif "raw" in row and "document" not in row:
            found.append(row["raw"])
    return found


def records_of(body: bytes, encoding: str) -> list[dict[str, Any]]:
    """The records of a request's body. Raises for one that is not whole."""
    if encoding == "zstd":
        frame = zstandard.ZstdDecompressor().decompressobj()
        body = frame.decompress(body)
        assert frame.eof, "the end of the frame is missing"
    elif encoding == "gzip":
        body = gzip.decompress(body)
    return [json.loads(line) for line in body.splitlines()]
