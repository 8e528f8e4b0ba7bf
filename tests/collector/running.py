"""A real ``faultline serve`` for tests: started on free ports, killed, started again on the same data."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """A free port below those that the kernel gives to clients (32768 on).

    One of these may be taken by a client of another test before a service is started, or restarted, on it.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)  # independent of a test's seed
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, kind) as sock:
            sock.bind(("127.0.0.1", port))
            return port


class Running:
    """The service over ``data``. Ports stay the same over restarts."""

    def __init__(self, data: Path, *, extra: str = "", syslog: tuple[str, ...] = ("tcp",)) -> None:
        self.data, self.http = data, free_port()
        self.ports = {kind: free_port(socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) for kind in syslog}
        self.config = data.parent / f"{data.name}-{self.http}.toml"
        listeners = "".join(
            f'[[syslog]]\nlisten = "127.0.0.1:{port}"\ntransport = "{kind}"\n' + (self._tls() if kind == "tls" else "")
            for kind, port in self.ports.items()
        )  # fmt: skip
        head = f'listen = "127.0.0.1:{self.http}"\ndata = "{data}"\n' + ("" if syslog else "syslog = []\n")
        self.config.write_text(head + extra + "\n" + listeners)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data.parent / f"{data.name}.log"
        #: Of every request that does not give its own, or an empty one: then it has none.
        self.headers: dict[str, str] = {}

    def _tls(self) -> str:
        folder = self.data.parent
        return f'certificate = "{folder}/server.crt"\nkey = "{folder}/server.key"\n'

    def start(self, timeout_s: float = 180.0) -> Running:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "faultline.entry", "serve", "--config", str(self.config)],
                stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/healthz")[0] == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError(f"the service did not start:\n{self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        """SIGKILL to the service alone: its workers must notice by themselves."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(120)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(120)

    def request(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None,
                timeout_s: float = 120.0) -> tuple[int, bytes, dict[str, str]]:  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout_s)
        try:
            given = {**self.headers, **(headers or {})}
            connection.request(method, path, body, {name: value for name, value in given.items() if value})
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, Any]:
        status, body, _ = self.request("GET", path)
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        status, answer, _ = self.request("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer

    def query(self, kql: str) -> list[list[Any]]:
        body = json.dumps({"query": kql, "max_rows": 1_000_000}).encode()
        status, answer = self.post("/api/v1/query", body, content_type="application/json")
        assert status == 200, answer
        rows: list[list[Any]] = answer["rows"]
        return rows

    def until(self, kql: str, count: int, timeout_s: float = 120.0) -> list[list[Any]]:
        """Rows of a query, once there are at least this many; fewer after a timeout."""
        end = time.monotonic() + timeout_s
        while True:
            rows = self.query(kql)
            if len(rows) >= count or time.monotonic() > end:
                return rows
            time.sleep(0.3)  # each query costs the service ten milliseconds or more
