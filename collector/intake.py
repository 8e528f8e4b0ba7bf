"""HTTP receivers as one ASGI application: body in, batch on disk, answer out.

Plain ASGI without a framework: an acknowledgement costs an fsync and little else. Paths that no receiver routes are not
answered here (``routes`` lists those that are).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import structlog

from collector.arriving import Arriving
from collector.connections import Connections
from collector.large_bodies import LargeBodies
from collector.receivers import GROUP, all_receivers
from collector.receivers.base import MAX_BODY, PACKING, Answer, Batch, Receiver, Request, Route, answer_json
from collector.receivers.refusals import Refused
from collector.receivers.unpacking import MAX_UNPACKED, packing_of
from collector.repeats import Repeats
from collector.segment_file import Position
from collector.senders import Limits, Sender, found
from collector.sequence import StreamKey, read_key
from collector.spool import Spool, SpoolBroken, SpoolFull
from parsers import extensions
from parsers.host_names import short_name

if TYPE_CHECKING:
    from collector.ledger import Ledger

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_TITLES = {
    400: "The request cannot be understood", 401: "A token is needed", 403: "This token is not known", 411: "Length needed",
    413: "Too large", 415: "Not this kind of content", 429: "Too many requests", 500: "Failed", 503: "Not ready",
}  # fmt: skip
#: Retry-After for a sender after the disk refused a write, in seconds.
BROKEN_RETRY_S = 5
#: How long a request that failed for lack of memory is reported, in seconds.
NO_MEMORY_S = 30.0
NO_MEMORY = "the service is out of memory"
#: Scope key: whether the connection presented a certificate of the CA for senders.
CERTIFICATE = "faultline.certificate"
#: Scope key: the DNS names in that certificate.
NAMES = "faultline.certificate_names"
#: Scope key: the source port of the connection itself. Below 1024, only root of that machine can have opened it.
PORT = "faultline.port"
#: Scope key: the limits of the sender (``collector.senders.Limits``), set by the door; they travel with its batches.
LIMITS = "faultline.limits"


class Gone(Exception):  # noqa: N818
    """The client disconnected in the middle of its request."""


class _Nameless(NamedTuple):
    """A batch without a key, until its sender has the answer."""

    digest: str
    request: Request
    parts: Callable[[], list[bytes]] | None


class Intake:
    """Everything that receivers need of the service: the spool, who may send, what is already stored."""

    def __init__(
        self, spool: Spool, *, tokens: Iterable[str] = (), certificates: bool = False, receivers: Sequence[Receiver] | None = None,
        connections: Connections | None = None, working: Callable[[], str | None] = lambda: None,
        senders: Callable[[], Sequence[Sender]] | None = None, named: bool = False,
    ) -> None:  # fmt: skip
        #: Whether a certificate stands for the names in it only.
        self._named_certificates = named
        #: The sender of an enrolled instance's token (``faultline.enrolment``); None if no instance can enrol.
        self.enrolled: Callable[[str], Sender | None] | None = None
        #: Why nothing may be acknowledged: nobody is left to store it. None while somebody is.
        self._working = working
        self._no_memory_at = -NO_MEMORY_S
        self.spool = spool
        #: All TCP connections of the service, HTTP and listeners.
        self.connections = connections or Connections()
        self._certificates = certificates
        self._tokens = [token.encode() for token in tokens]
        #: The current senders; None if the configuration names none. If it does, a token is required.
        self._senders = senders
        #: Set once the store is open; before that, a repeated batch is only recognised when it is stored.
        self.ledger: Ledger | None = None
        self.repeats = Repeats(spool)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[str] = Counter()
        self.arriving, self.large = Arriving(), LargeBodies()
        self.answer_s: dict[str, float] = defaultdict(float)
        self.routes: list[tuple[Receiver, Route, re.Pattern[str]]] = [
            (receiver, route, re.compile(route.pattern))
            for receiver in (receivers if receivers is not None else all_receivers().values())
            for route in receiver.routes
        ]

    def find(self, method: str, path: str) -> tuple[Receiver, Route] | None:
        for receiver, route, pattern in self.routes:
            if method in route.methods and pattern.fullmatch(path):
                return receiver, route
        return None

    def methods(self, path: str) -> list[str]:
        """The methods that a path accepts; none if no receiver routes it."""
        return sorted({m for _, route, pattern in self.routes if pattern.fullmatch(path) for m in route.methods})

    def put(self, kind: str, payload: bytes, meta: dict[str, Any]) -> asyncio.Future[Position]:
        """Spools a batch. The future completes when it is on disk. Raises ``SpoolFull``."""
        if (ended := self._working()) is not None:
            raise SpoolFull(ended, BROKEN_RETRY_S)
        described = {"kind": kind, "received": time.time_ns() // 1000, **meta}
        done = self.spool.append(described, payload)
        self.bytes[kind] += len(payload)
        return asyncio.wrap_future(done)

    @property
    def trouble(self) -> str | None:
        """Which recent requests failed for lack of memory, in words."""
        return NO_MEMORY if time.monotonic() - self._no_memory_at < NO_MEMORY_S else None

    def report_blind(self, host: str, source: str, stream: str, start: float, end: float, reason: str, lines: int | None,
                   size: int | None) -> asyncio.Future[Position] | None:  # fmt: skip
        """Spools a blind period between two times (epoch seconds), like anything received. The future completes when it
        is on disk; None if the spool has no room for it."""
        period = {"from": start, "to": end, "reason": reason, "lines": lines, "bytes": size}
        record = {"blind": period, "host": host, "source": source, "stream": stream, "agent": "this service"}
        try:
            done = self.put("ingest", json.dumps(record).encode(), {"form": "records"})
        except SpoolFull:
            return None
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        return done

    def stored(self, key: StreamKey | str) -> bool:
        """True if a batch with this key is in the store."""
        if self.ledger is None:
            return False
        if isinstance(key, str):
            return key in self.ledger.keys
        ranges = self.ledger.streams.get(key.name)
        return ranges is not None and ranges.covers(key.first, key.last)

    def allowed(self, headers: dict[str, str], certified: bool = False, names: Sequence[str] = ()) -> Sender | None:
        """The sender of a request; None for one without restrictions. Raises ``Refused`` if senders must authenticate
        and this one has neither a certificate nor a valid token. ``names``: the DNS names in its certificate. A sender that
        shows both may send what both allow."""
        if not (self._with_tokens or self._certificates):
            return None
        token = _token(headers)
        if self._certificates and certified:
            by_certificate = certificate_of(names) if self._named_certificates else None
            by_token = self._of_token(token) if token and self._with_tokens else None
            return by_token if by_certificate is None else within(by_certificate, by_token)
        if not token:
            raise self._unknown_sender()
        return self._of_token(token)

    def _of_token(self, token: str) -> Sender | None:
        """The sender of a token; None for one without restrictions. Raises ``Refused``."""
        given = token.encode()
        if any(hmac.compare_digest(given, known) for known in self._tokens):
            return None
        sender = found(token, self._senders()) if self._senders is not None else None
        if sender is None and self.enrolled is not None:
            sender = self.enrolled(token)
        if sender is None:
            raise Refused(403, "the token is not one of this service's", "Enrol the sender anew.")
        if sender.is_over(datetime.now(UTC)):
            do = "Make it anew: faultline access sender NAME."
            raise Refused(403, f"the token of {sender.name!r} ended on {sender.expires:%Y-%m-%d}", do)
        return sender

    def sender_about(
        self, headers: dict[str, str], host: str, cluster: str | None, *, certified: bool, names: Sequence[str] = ()
    ) -> Sender | None:
        """The sender of a request about a host: one whose token is bound to it, or None for a service that anybody may
        send to. Raises ``Refused`` for any other."""
        if not self._with_tokens and not self._certificates:
            return None
        sender = self.allowed(headers, certified, names)
        bind = f"Bind the agent's token to its host: faultline access sender NAME --host {host}."
        if sender is None or not sender.limits.hosts:
            raise Refused(403, "this token is not bound to a node, so it may not ask about one", bind)
        if not sender.limits.stands_for(host, cluster):
            raise Refused(403, f"sender {sender.name!r} does not stand for {host}", bind)
        return sender

    @property
    def _with_tokens(self) -> bool:
        """Whether there are tokens, so that senders must show one."""
        return bool(self._tokens) or self._senders is not None or self.enrolled is not None

    def _unknown_sender(self) -> Refused:
        wanted = [*["a client certificate"] * self._certificates, *["a token"] * self._with_tokens]
        certified = "Show a certificate of the CA in [tls] client_ca."
        do = "Send 'Authorization: Bearer TOKEN'." if self._with_tokens else certified
        return Refused(401, f"this service takes batches with {' or '.join(wanted)} only", do)

    # -- ASGI ----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request that ``find`` matched."""
        found = self.find(scope["method"], scope["path"])
        assert found is not None
        receiver, route = found
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        begun = time.perf_counter()
        try:
            sender = self.allowed(headers, bool(scope.get(CERTIFICATE)), scope.get(NAMES, ()))
            scope[LIMITS] = sender.limits.as_meta() if sender is not None and sender.limits else None
            if route.stream is not None:
                answer = await route.stream(self, scope, headers, _chunks(receive))
            else:
                answer = await self._whole(receiver, route, scope, headers, receive)
        except Refused as refusal:
            answer = self._problem(route, headers, refusal.status, refusal.text, refusal.do, scope["path"])
        except SpoolFull as full:
            answer = self._problem(
                route, headers, 429, str(full), "Send the same again later.", scope["path"], full.retry_s
            )
        except SpoolBroken as broken:
            answer = self._problem(
                route, headers, 503, str(broken), "Send the same again later.", scope["path"], BROKEN_RETRY_S
            )
        except MemoryError:
            self._no_memory_at = time.monotonic()
            answer = self._problem(
                route, headers, 503, NO_MEMORY, "Send the same again later.", scope["path"], BROKEN_RETRY_S
            )
        except Gone:
            return
        self.counts[receiver.kind, str(answer.status)] += 1
        self.answer_s[receiver.kind] += time.perf_counter() - begun
        nameless: _Nameless | None = scope.get("faultline.nameless")
        hung_up = nameless is not None and await _hung_up(receive)
        await _reply(send, answer)
        if nameless is not None and answer.status < 400:
            await self._settle(nameless, hung_up)

    async def _whole(
        self, receiver: Receiver, route: Route, scope: Scope, headers: dict[str, str], receive: Receive
    ) -> Answer:
        if int(headers.get("content-length") or 0) > MAX_BODY:
            raise _too_large()
        self.spool.check_room()
        client = scope.get("client")
        body = await self.body(_chunks(receive), client[0] if client else None)
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        if not headers.get("content-encoding") and (packed := packing_of(body)):
            headers = {**headers, "content-encoding": packed}  # a compressed file posted as it is
        request = Request(scope["method"], scope["path"], query, headers, body, client[0] if client else None)
        try:
            batch = await self.large.read(request, route.accept, route.size)
        except RecursionError as error:
            raise Refused(400, "the body is nested too deeply", "Send objects of fewer levels.") from error
        except (Refused, SpoolFull, MemoryError):
            raise
        except Exception as error:
            raise _failed(receiver, error) from error
        if batch.payload is not None and not batch.key:
            batch, scope["faultline.nameless"] = await self._named(request, batch)
        if scope.get(LIMITS) is not None and batch.payload is not None:
            batch = replace(batch, meta={**batch.meta, "limits": scope[LIMITS]})
        return await self.take(receiver, request, batch)

    async def body(self, chunks: AsyncIterator[bytes], sender: str | None) -> bytes:
        """A whole body. Raises ``Refused`` for one that is too large, ``SpoolFull`` while too many are in transit."""
        parts: list[bytes] = []
        with self.arriving.body(sender, parts.clear) as held:
            async for part in chunks:
                held.resize(held.size + len(part))
                if held.size > MAX_BODY:
                    raise _too_large()
                parts.append(part)
            held.check()
            return b"".join(parts)

    def unpacked(self, body: bytes, encoding: str, sender: str | None) -> contextlib.AbstractAsyncContextManager[bytes]:
        """An unpacked body, which may be held until the end of the context. Raises ``Refused`` and ``SpoolFull``."""
        return self.large.unpacked(body, encoding, sender)

    async def _named(self, request: Request, batch: Batch) -> tuple[Batch, _Nameless]:
        """Gives a batch without a key one derived from its content; repeated content is removed."""
        digest, key, known = self.repeats.key(request)
        nameless = _Nameless(digest, request, batch.parts)
        if known or batch.parts is None or not self.repeats.has_parts:
            return replace(batch, key=key), nameless
        parts = await self._parts(request, batch.parts)
        kept = self.repeats.fresh(request.peer, parts)
        if len(kept) == len(parts):
            return replace(batch, key=key), nameless
        meta = {name: value for name, value in batch.meta.items() if name not in PACKING}
        return replace(batch, key=key, payload=b"".join(kept) or None, meta=meta), nameless

    async def _settle(self, nameless: _Nameless, hung_up: bool) -> None:
        if not hung_up:
            self.repeats.answered(nameless.digest)
        elif nameless.parts is not None:
            parts = await self._parts(nameless.request, nameless.parts, is_accepted=True)
            self.repeats.unanswered(nameless.request.peer, parts)

    async def _parts(
        self, request: Request, parts: Callable[[], list[bytes]], is_accepted: bool = False
    ) -> list[bytes]:
        return await self.large.read(request, lambda _: parts(), is_accepted=is_accepted)

    async def take(self, receiver: Receiver, request: Request, batch: Batch) -> Answer:
        """Spools what a route accepted, and returns its answer when that is on disk."""
        if batch.payload is None:
            return batch.answer
        meta = dict(batch.meta)
        if request.peer is not None:
            meta.setdefault("peer", request.peer)
        if batch.key:
            key = read_key(batch.key)
            if self.stored(key or batch.key):
                known = answer_json({"status": "stored", "duplicate": True})
                return batch.answer if receiver.kind != "ingest" else known
            meta["key"] = list(key) if key else batch.key[:1024]
        await self.put(receiver.kind, batch.payload, meta)
        return batch.answer

    def _problem(
        self,
        route: Route,
        headers: dict[str, str],
        status: int,
        text: str,
        do: str,
        path: str,
        retry_s: float | None = None,
    ) -> Answer:
        again = (("retry-after", str(max(1, round(retry_s)))),) if retry_s is not None else ()
        if route.problem is not None:
            made = route.problem(status, text, headers.get("content-type", ""))
            return Answer(made.status, made.body, made.content_type, (*made.headers, *again))
        document: dict[str, Any] = {"type": "about:blank", "title": _TITLES.get(status, "Error"), "status": status}
        document |= {"detail": text, "instance": path} | ({"do": do} if do else {})
        if status == 413:
            document |= {"max_bytes": MAX_BODY, "max_unpacked_bytes": MAX_UNPACKED}
        return Answer(status, json.dumps(document).encode(), "application/problem+json", again)


def _token(headers: dict[str, str]) -> str:
    """The token that a request shows; "" if it shows none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":  # clients of Elasticsearch and Loki send their token as the password
        with contextlib.suppress(ValueError):
            scheme, token = "bearer", base64.b64decode(token).decode().partition(":")[2]
    return token.strip() if scheme.lower() in ("bearer", "splunk", "token", "apikey") else ""


def within(certificate: Sender, token: Sender | None) -> Sender:
    """What a certificate's sender may send that shows a token as well. Raises ``Refused`` if they stand for different hosts."""
    if token is None or not token.limits:
        return certificate
    # DNS knows no case: what the token calls Gpu01 is what the certificate calls gpu01.site. A pattern's case counts.
    stated = [name for name in certificate.limits.hosts if token.limits.stands_for(name, None)]
    spelled = [name for host in certificate.limits.hosts for name in token.limits.spelled(host)]
    hosts = tuple(dict.fromkeys([*stated, *spelled]))
    if not hosts:
        raise Refused(
            403,
            f"sender {token.name!r} does not stand for the host of its certificate",
            "Show that host's token, or none.",
        )
    return replace(token, limits=replace(token.limits, hosts=hosts))


def certificate_of(names: Sequence[str]) -> Sender:
    """The sender that a certificate stands for: the hosts of these names, with and without their domain. Raises ``Refused``
    for one that names none: no limit would mean every host."""
    whole = [name for name in names if name and not set(name) & set("*?[],")]
    # DNS knows no case, and the names of nodes have one.
    spelled = (each for name in whole for each in (name, name.lower(), name.upper()))
    hosts = tuple(dict.fromkeys(host for name in spelled for host in (name, short_name(name))))
    if not hosts:
        do = "Give it a DNS name (subjectAltName), or leave [tls] client_hosts away."
        raise Refused(403, "the certificate names no host", do)
    name = f"certificate of {whole[0]}"
    return Sender(name, "", limits=Limits(name, hosts))


def _failed(receiver: Receiver, error: Exception) -> Refused:
    """Logs an exception of a route once, and gives the answer, which names the package."""
    name = extensions.brought_by(GROUP, receiver.kind) or f"receiver {receiver.kind}"
    extensions.warn_once(f"{name} raised {extensions.described(error)} in accept; nothing was kept", error)
    return Refused(500, f"{type(error).__name__} in {name}.", "The service's own log has the details.")


def _too_large() -> Refused:
    return Refused(413, f"more than {MAX_BODY:,} bytes", "Send smaller batches.")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _hung_up(receive: Receive) -> bool:
    """Whether the client is gone: an answer would reach nobody."""
    waiting = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        return False
    return waiting.result().get("type") == "http.disconnect"


async def _reply(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
