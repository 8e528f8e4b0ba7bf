"""The service's intake: spool, HTTP receivers, listeners, pipeline; it works even while the store cannot be opened."""

from __future__ import annotations

import asyncio
import contextlib
import html
import ipaddress
import socket
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from collector.connections import Connections
from collector.identity.identity import Identity
from collector.intake import Intake
from collector.inventory import Inventory, utc_now
from collector.pipeline import Pipeline
from collector.receivers import all_receivers
from collector.receivers.refusals import ListenFailed
from collector.receivers.syslog_udp import DatagramListener
from collector.senders import Sender
from collector.spool import Spool, SpoolHeld
from collector.stored_until import StoredUntil
from faultline import node_gate
from faultline.config import Config
from faultline.enrolment import door
from faultline.failure import CommandError
from faultline.tls import App
from store.door import Door
from web import origin
from web.access.users import Users, UsersError
from web.methods import as_get
from web.problems import ProblemError, wants_page

log = structlog.get_logger()

#: Keys of ``Receiving.state`` that are metrics.
_METRICS = (
    ("ok", GaugeMetricFamily, "1 while batches are taken in and stored."),
    ("waiting_bytes", GaugeMetricFamily, "Bytes in the spool that are not in the store yet."),
    ("free_bytes", GaugeMetricFamily, "Free bytes on the disk of the spool."),
    ("appended_batches", CounterMetricFamily, "Batches taken in since the start."),
    ("appended_bytes", CounterMetricFamily, "Bytes taken in since the start."),
    ("stored_lines", CounterMetricFamily, "Lines stored since the start."),
    ("stored_batches", CounterMetricFamily, "Batches stored since the start."),
    ("duplicates", CounterMetricFamily, "Batches that were stored before."),
    ("quarantined", GaugeMetricFamily, "Batches set aside."),
    ("blind_periods", GaugeMetricFamily, "Known periods in which lines were not seen."),
    (
        "udp_lost",
        CounterMetricFamily,
        "UDP datagrams lost since the start: refused for want of room, or dropped by the kernel.",
    ),
)


def _senders(config: Config) -> Callable[[], Sequence[Sender]] | None:
    """The current senders, following their file. None if the configuration names none."""
    if config.ingest.senders is None and not config.ingest.bound:
        return None
    bound = config.ingest.bound
    try:
        file = Users.load(config.ingest.senders)
    except UsersError as error:
        raise CommandError(str(error)) from error

    def now() -> Sequence[Sender]:
        file.refresh()
        return (*bound, *file.senders.values())

    return now


class Receiving(Collector):
    """Opens the spool at once; ``attach`` starts storing, ``open_listeners`` starts listening (inside the event
    loop)."""

    def __init__(self, config: Config, *, listeners: bool = True, connections: Connections | None = None) -> None:
        self.config = config
        folder = config.ingest.spool or config.data / "spool"
        try:
            self.spool = Spool(
                folder, min_free_bytes=config.ingest.min_free_mb * 1_000_000,
                max_waiting_bytes=config.ingest.max_waiting_mb * 1_000_000,
            )  # fmt: skip
        except SpoolHeld as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{folder}: cannot be made or opened: {error.strerror}") from error
        self.stored_until = StoredUntil(self.spool)
        certificates = config.tls is not None and config.tls.client_ca is not None
        self.intake = Intake(self.spool, tokens=config.ingest.all_tokens(), certificates=certificates,
                             connections=connections, working=self._working, senders=_senders(config),
                             named=config.tls is not None and config.tls.client_hosts)  # fmt: skip
        self.enroller = door.opened(config.enrolment, config.data, config.all_proxies)
        if self.enroller is not None:
            self.intake.enrolled = self.enroller.find
        self.pipeline: Pipeline | None = None
        self.inventory: Inventory | None = None
        self._with_listeners = listeners
        self._open: list[Any] = []
        #: Listeners besides HTTP, for people: "syslog udp 127.0.0.1:5514".
        self.listening: list[str] = []

    def attach(
        self, store: Door, identity: Identity | None = None, on_stored: Callable[[int], None] | None = None
    ) -> Pipeline:
        """Starts storing spooled data into the open store. ``identity``: knows its names; None: not yet available."""
        quarantine: Path = self.config.data / "quarantine"
        self.pipeline = Pipeline(
            store, self.spool, workers=self.config.ingest.workers, patterns=self.config.patterns,
            identity=identity or Identity(store, self.config.cluster), quarantine=quarantine, on_stored=on_stored,
        )  # fmt: skip
        self.intake.ledger = self.pipeline.ledger
        self.inventory = Inventory(store, self.pipeline.ledger, utc_now())
        self.pipeline.start()
        return self.pipeline

    def keep(self, records: bytes, key: str) -> None:
        """Puts wire records into the spool, as if they had been sent under this key; returns when they are on disk.
        Raises the spool's errors."""
        meta = {"kind": "ingest", "received": time.time_ns() // 1000, "form": "records", "key": key}
        self.spool.append(meta, records).result()

    async def open_listeners(self) -> None:
        """Opens the configured listeners. Raises ``CommandError`` if a configured address is unavailable."""
        if not self._with_listeners:
            return
        for receiver in all_receivers().values():
            if receiver.open is not None:
                try:
                    opened = await receiver.open(self.config, self.intake)
                except ListenFailed as error:
                    raise CommandError(str(error)) from error
                self._open += opened
                self.listening += [str(listener) for listener in opened]

    async def close_listeners(self) -> None:
        for listener in self._open:
            with contextlib.suppress(Exception):
                result = listener.close()
                if asyncio.iscoroutine(result):
                    await result
        self._open.clear()

    def close(self) -> None:
        if self.pipeline is not None:
            self.pipeline.stop()
        if self.enroller is not None:
            self.enroller.close()
        self.spool.close()

    def state(self) -> dict[str, Any]:
        """The state for the sources page and the API."""
        found = {**self.spool.state(), "trouble": self.trouble(), "listening": self.listening}
        found["udp_lost"] = sum(one.lost for one in self._open if isinstance(one, DatagramListener))
        if self.pipeline is not None:
            counts, ledger = self.pipeline.counts, self.pipeline.ledger
            found |= {
                "stored_lines": counts.lines, "stored_batches": counts.batches, "duplicates": counts.duplicates,
                "quarantined": ledger.quarantined, "blind_periods": ledger.blind_periods,
            }  # fmt: skip
        return found

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of the intake."""
        state = {**self.state(), "ok": 0 if self.trouble() else 1}
        for name, family, text in _METRICS:
            if isinstance(value := state.get(name), int | float):
                yield family(f"faultline_intake_{name}", text, value)
        requests = CounterMetricFamily(
            "faultline_intake_requests", "Batches over HTTP, by protocol and status.", labels=("protocol", "status")
        )
        for (protocol, status), count in sorted(self.intake.counts.items()):
            requests.add_metric((protocol, str(status)), count)
        yield requests
        seconds = CounterMetricFamily(
            "faultline_intake_seconds", "Seconds from a request to its answer, by protocol.", labels=("protocol",)
        )
        for protocol, answer_seconds in sorted(self.intake.answer_s.items()):
            seconds.add_metric((protocol,), answer_seconds)
        yield seconds

    def replay(self, identity: str) -> bool:
        """Spools a batch that was set aside again; False if there is none with that ID."""
        assert self.pipeline is not None
        found = self.pipeline.quarantine.get(identity)
        if found is None:
            return False
        meta, payload = found
        meta = {name: value for name, value in meta.items() if name != "key"}
        # Requested twice, it is stored once: the key changes each time that it fails.
        meta |= {"replay": identity, "key": f"replay {identity} {self.pipeline.quarantine.edition(identity)}"}
        self.spool.append(meta, payload).result(30)
        return True

    def trouble(self) -> str | None:
        """Why nothing is accepted or stored, in words; None if all is well."""
        intake = self.intake
        return (
            self.spool.trouble
            or (self.pipeline.trouble if self.pipeline is not None else "the store is not open yet")
            or intake.trouble
            or intake.connections.trouble
        )

    @property
    def ended(self) -> str | None:
        """What needs a restart; None while all parts live."""
        return self.spool.ended or (self.pipeline.ended if self.pipeline is not None else None)

    def _working(self) -> str | None:
        """Why nothing may be acknowledged although the spool accepts it; None while spooled data is or will be
        stored."""
        return self.pipeline.ended if self.pipeline is not None else None


class Front:
    """The outermost ASGI application: receivers first, then the pages, or a plain message while there is no store."""

    def __init__(self, receiving: Receiving, waiting: str) -> None:
        self.receiving = receiving
        self.pages: App | None = None
        self.node_gate: node_gate.NodeGate | None = None
        self.waiting = waiting
        self.failure: CommandError | None = None
        self._names = _own_names(receiving.config)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http" and (refusal := self._refusal(scope)):
            await _refused(scope, receive, send, refusal)
        elif scope["type"] == "http" and self.receiving.enroller is not None and scope["path"] == door.PATH:
            await self.receiving.enroller(scope, receive, send)
        elif scope["type"] == "http" and self.node_gate is not None and node_gate.is_gates(scope["path"]):
            await node_gate.respond(scope, receive, send, self.receiving.intake, self.node_gate)
        elif scope["type"] == "http" and self.receiving.intake.find(scope["method"], scope["path"]):
            await self.receiving.intake(scope, receive, send)
        elif scope["type"] == "http" and (methods := self.receiving.intake.methods(scope["path"])):
            await _not_so(scope, receive, send, methods)
        elif scope["type"] == "http" and scope["path"] == "/readyz" and (trouble := self.receiving.trouble()):
            await _not_ready(scope, receive, send, trouble)
        elif self.pages is not None:
            await self._pages(self.pages, scope, receive, send)
        elif scope["type"] == "http":
            await _not_ready(scope, receive, send, self.waiting)

    async def _pages(self, pages: App, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Starlette raises again what its handler has answered and logged, and uvicorn would log the traceback again."""
        try:
            await pages(scope, receive, send)
        except Exception as error:
            if not getattr(error, "is_logged", False):
                raise

    def _refusal(self, scope: MutableMapping[str, Any]) -> ProblemError | None:
        """The refusal for a request from another site's page: such a page may not send lines in any way, nor, through
        another host name, query a service that trusts everyone on its machine. Programs send none of a browser's
        headers, and a receiver accepts any host name from them."""
        headers = Headers(scope=scope)
        is_receivers = scope["path"] == door.PATH or bool(self.receiving.intake.methods(scope["path"]))
        if is_receivers and origin.elsewhere(headers):
            return ProblemError(403, "a page of another site sent this; lines are taken from programs only")
        if self._names is None or not (strange := origin.strange_host(headers, self._names)):
            return None
        if strange and is_receivers and not origin.by_browser(headers):
            return None
        asked = headers.get("host", "")
        return ProblemError(
            421, f"this service is not called {asked[:200]!r}",
            do="Use its address or localhost; or give the name it is reached by as public_url in the configuration.",
        )  # fmt: skip

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.receiving.open_listeners()
                except CommandError as error:
                    self.failure = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.receiving.close_listeners()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _own_names(config: Config) -> set[str] | None:
    """Valid host names of a service that trusts everyone who reaches it on its own machine; None for every other
    service: there, users must sign in, or a proxy knows the names, or the network is trusted, and so are its names."""
    host = config.address[0]
    if config.access is not None or config.user_header or not _is_loopback(host):
        return None
    public = urlsplit(config.public_url).hostname if config.public_url else None
    return {name.lower().rstrip(".") for name in (host, socket.gethostname(), socket.getfqdn(), public) if name}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _refused(scope: MutableMapping[str, Any], receive: Any, send: Any, problem: ProblemError) -> None:
    scope, send = as_get(scope, send)
    await problem.response(scope["path"])(scope, receive, send)


#: Shown by a browser until the pages are available; it reloads by itself.
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Starting · Faultline</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="dark light">
<meta http-equiv="refresh" content="2"></head><body><main><h1>Faultline is starting</h1><p>{text}</p>
<p>What is sent meanwhile is taken in and kept. This page asks again every 2 seconds.</p></main></body></html>
"""


async def _not_so(scope: MutableMapping[str, Any], receive: Any, send: Any, methods: list[str]) -> None:
    """Answers a receiver's path requested with a wrong method."""
    allowed, path = ", ".join(methods), scope["path"]
    detail = f"{scope['method']} is no method of {path}: lines are sent to it."
    headers = {"Allow": allowed, "Cache-Control": "no-store"}
    scope, send = as_get(scope, send)
    await ProblemError(405, detail, do=f"Use {allowed}.", headers=headers).response(path)(scope, receive, send)


async def _not_ready(scope: MutableMapping[str, Any], receive: Any, send: Any, text: str) -> None:
    """The answer before the pages are available: alive, but not ready."""
    headers = {"Retry-After": "2", "Cache-Control": "no-store"}
    scope, send = as_get(scope, send)
    status = 200 if scope["path"] == "/healthz" else 503
    answer: Response = ProblemError(503, text, headers=headers).response(scope["path"])
    if status == 503 and wants_page(HTTPConnection(scope)):
        answer = HTMLResponse(_PAGE.format(text=html.escape(text)), status, headers)
    elif status == 200:
        answer = JSONResponse({"status": "ok", "detail": text}, status, headers)
    await answer(scope, receive, send)
