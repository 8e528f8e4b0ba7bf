"""Delivery: oldest batch first, one at a time, each until the service confirms that it is on disk."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from collector.agent import wire
from collector.agent.batch import Batch, Loss
from collector.agent.failure import AgentError
from collector.agent.spool import AgentSpool

#: Waits after failures double from the first to the last; up to half of each is random (thousands of agents lose the
#: same server in the same second).
FIRST_WAIT_S, LAST_WAIT_S = 1.0, 60.0
#: A refused token needs a person; more frequent retries would only fill the service's log.
REFUSED_WAIT_S = 30.0
TIMEOUT_S = 30.0
#: Batches that the service cannot read are kept beside the spool for a person, at most this many.
KEPT_ASIDE = 16


@dataclass(frozen=True)
class Answer:
    """The service's answer; ``code`` 0: no answer. ``wait``: its Retry-After in seconds. ``text``: the beginning of its
    body."""

    code: int
    detail: str = ""
    wait: float | None = None
    text: str = ""


@dataclass
class Connection:
    """One kept-open connection. Raises ``AgentError`` for certificates that cannot be used."""

    server: str
    token: Callable[[], str]
    ca: str = ""
    cert: str = ""
    key: str = ""
    timeout: float = TIMEOUT_S
    _open: http.client.HTTPConnection | None = None
    _tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        url = urlsplit(self.server)
        self._host, self._port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        self._base = url.path.rstrip("/")
        if url.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=self.ca or None)
                if self.cert:
                    self._tls.load_cert_chain(self.cert, self.key or None)
            except (OSError, ssl.SSLError) as error:
                named = ", ".join(x for x in (self.ca, self.cert, self.key) if x)
                raise AgentError(f"certificates {named}: cannot be used: {error}") from error

    def _connect(self) -> http.client.HTTPConnection:
        return self._made(None)

    def _made(self, source: tuple[str, int] | None) -> http.client.HTTPConnection:
        at, timeout = (self._host, self._port), self.timeout
        if self._tls is not None:
            return http.client.HTTPSConnection(*at, timeout=timeout, source_address=source, context=self._tls)
        return http.client.HTTPConnection(*at, timeout=timeout, source_address=source)

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """One exchange. A kept-open connection that the peer closed meanwhile is reopened."""
        token = self.token()
        if token:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        for fresh in (self._open is None, True):
            if self._open is None:
                self._open = self._connect()
            try:
                self._open.request(method, self._base + path, body, headers)
                response = self._open.getresponse()
                text = response.read(64 * 1024).decode("utf-8", "replace")
                if response.will_close:
                    self.close()
                return Answer(response.status, _detail(text), _seconds(response.getheader("Retry-After")), text)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if fresh:
                    return Answer(0, f"{self.server}: {error or type(error).__name__}")
        return Answer(0, f"{self.server}: no answer")

    def close(self) -> None:
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._open.close()
            self._open = None


def _detail(text: str) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        row = json.loads(text)
        return str(row.get("detail") or row.get("title") or row.get("status") or "")
    return " ".join(text.split())[:200]


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None


@dataclass
class Sender:
    """Runs in a thread of its own (``run``). ``trouble`` is None if delivery works, else a sentence."""

    spool: AgentSpool
    connection: Connection
    agent: str
    stream: str = "logs"
    chance: Callable[[], float] = random.random
    now: Callable[[], float] = time.time
    trouble: str | None = None
    #: The service did not accept the token, the last time that it answered.
    refused: bool = False
    delivered_lines: int = 0
    delivered_batches: int = 0
    _wake: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _hurry: threading.Event = field(default_factory=threading.Event)
    _unreached: bool = False
    _deadline: float | None = None
    _failures: int = 0

    def wake(self) -> None:
        """Signals new data in the spool."""
        self._wake.set()

    def hurry(self) -> None:
        """A link came back, or there is a token: an unreachable service is retried now, not in a minute."""
        self._hurry.set()

    def stop(self, within: float) -> None:
        """Delivers waiting batches for at most ``within`` seconds, then ends."""
        self._deadline = time.monotonic() + within
        self.connection.timeout = min(self.connection.timeout, max(0.5, within))
        self._stop.set()
        self._wake.set()
        self._hurry.set()

    def run(self) -> None:
        while True:
            self._wake.clear()
            wait = self._next()
            if wait is None:
                if self._stop.is_set():
                    return
                self._wake.wait()
                continue
            if self._deadline is not None and (wait or time.monotonic() >= self._deadline):
                return
            if wait and self._unreached:
                self._hurry.wait(wait)
                self._hurry.clear()
            elif wait:
                # Only the end of the process shortens a wait that the service asked for.
                self._stop.wait(wait)

    def _next(self) -> float | None:
        """Offers the oldest batch; None if none waits. A failing disk is retried like a failing service."""
        try:
            batch = self.spool.first()
            return None if batch is None else self.deliver(batch)
        except OSError as error:
            self.trouble = f"{self.spool.folder}: {error.strerror or error}"
            return self._wait(Answer(0, self.trouble))

    def deliver(self, batch: Batch) -> float:
        """Offers one batch. Returns how long to wait before the next attempt, in seconds; 0 when the batch is done."""
        self.spool.sync()
        answer = self._post(batch.payload, f"{self.agent}/{self.stream}/{self.spool.epoch}/{batch.sequence}")
        if answer.code == 413:
            answer = self._in_pieces(batch)
        if answer.code:
            self.refused = answer.code in (401, 403)
        if answer.code == 200:
            self._failures, self.trouble = 0, None
            self.delivered_lines += sum(batch.lines.values())
            self.delivered_batches += 1
            self.spool.acknowledge(batch.sequence)
            return 0.0
        self._unreached = answer.code == 0 or self.refused  # an instance may just have enrolled
        self.trouble = f"HTTP {answer.code}: {answer.detail}" if answer.code else answer.detail
        if answer.code in (400, 413, 415, 422):
            self._keep_aside(batch, answer)
            return 0.0
        return self._wait(answer)

    def _wait(self, answer: Answer) -> float:
        self._failures += 1
        doubled: float = min(LAST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 10))
        if answer.wait is not None and answer.code in (429, 503):
            return answer.wait * (1 + 0.2 * self.chance())
        if answer.code in (401, 403):
            doubled = max(doubled, REFUSED_WAIT_S)
        return doubled * (0.5 + 0.5 * self.chance())

    def _post(self, payload: bytes, key: str) -> Answer:
        return self.connection.request("POST", "/api/v1/ingest", payload, {
            "Content-Type": "application/x-ndjson", "Content-Encoding": wire.encoding_of(payload), "Idempotency-Key": key,
        })  # fmt: skip

    def _in_pieces(self, batch: Batch) -> Answer:
        """Sends a batch too large for the service in halves of halves, under keys that are the same at every
        attempt."""
        waiting = [(1, wire.unpack(batch.payload))]
        while waiting:
            number, body = waiting.pop()
            key = f"{self.agent}/{self.stream}/{self.spool.epoch}.{batch.sequence}/{number}"
            answer = self._post(wire.pack(body), key) if number > 1 else Answer(413)
            if answer.code == 413:
                both = wire.halves(body)
                if both is None:
                    self._report(batch, f"one record of {len(body)} bytes: larger than the service accepts", 1)
                    continue
                waiting += [(2 * number + 1, both[1]), (2 * number, both[0])]
            elif answer.code != 200:
                return answer
        return Answer(200)

    def _keep_aside(self, batch: Batch, answer: Answer) -> None:
        """The service cannot read the batch: keep it for a person, count it as a loss, continue."""
        folder = self.spool.folder / "refused"
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            name = f"{batch.sequence:020d}.ndjson.{'gz' if wire.encoding_of(batch.payload) == 'gzip' else 'zst'}"
            (folder / name).write_bytes(batch.payload)
            for old in sorted(folder.iterdir())[:-KEPT_ASIDE]:
                old.unlink()
        if batch.lost is None:
            reason = f"refused by the service (HTTP {answer.code}: {answer.detail}); kept in {folder}"
            self._report(batch, reason, sum(batch.lines.values()))
        self.spool.acknowledge(batch.sequence)

    def _report(self, batch: Batch, reason: str, lines: int) -> None:
        counted = dict(batch.lines) if lines == sum(batch.lines.values()) else {"files": lines}
        loss = Loss(batch.sequence, batch.sequence, counted, batch.created, self.now(), reason)
        self.spool.append(self.spool.report(loss), {}, self.now())
