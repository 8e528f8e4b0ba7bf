"""``POST /api/v1/enrol``: an agent without a token shows which machine it runs on, and says which token it will use.

Any process of a node, a user's job included, can ask the cloud for the node's signed document. So a document alone enrols
nobody. What must hold besides:

- the connection comes from a port below 1024, which only root of the node can use, and not through a proxy;
- it comes from an address that the service's resolver has for the name, and from the one in the document if that has one;
- Azure's document was made for this token, name and address: its nonce is the service's, and changes every minute;
- an instance that is enrolled is enrolled again only by whoever has its token, or when nobody uses that token any more: the
  machine was made anew. Its former entry ends, under another name as well. Anything else is refused and counted.

The agent makes the token and sends its digest only, so that no answer that is lost or seen gives a token away, and a
request that is repeated changes nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse

from collector.intake import PORT
from collector.senders import Sender, digest_of
from faultline.enrolment.identity import ForAnotherRequest, IdentityRefused, Instance, of_aws, of_azure
from faultline.enrolment.register import DIGEST, NAME, Done, EnrolmentRefused, Register
from faultline.enrolment.settings import Enrolment
from faultline.failure import CommandError
from web.access.addresses import Networks, of_one
from web.access.audit import Audit
from web.access.authentication import PEER
from web.problems import ProblemError

log = structlog.get_logger()

PATH = "/api/v1/enrol"
#: The folder of enrolled instances, in the data folder.
FOLDER = "enrolled"
#: A body is a document of some 6 KB in base64. Its sender gets this long for it.
MOST_BODY, BODY_S = 48 * 1024, 10.0
#: Ports that only root may use (net.ipv4.ip_unprivileged_port_start).
PRIVILEGED = 1024
#: A nonce is good in the minute in which it was made and in the two after it. Azure takes ten digits.
NONCE_S, NONCE_SPANS, NONCE_DIGITS = 60, 3, 10
#: How many requests may wait for one of the threads: a resolver that hangs holds up enrolment only.
WAITING = 64
#: How long an attempt to take a machine's place is shown, in seconds.
ALARM_S = 86400.0
#: Entries are removed this long after their token ended.
GONE_AFTER = timedelta(days=7)


@dataclass
class _Rates:
    """Requests in the present minute, by address and together."""

    settings: Enrolment
    clock: Callable[[], float]
    _minute: int = -1

    def __post_init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def check(self, address: str) -> None:
        """Counts a request. Raises ``EnrolmentRefused``."""
        now = self.clock()
        if (minute := int(now // 60)) != self._minute:
            self._minute, self._counts = minute, Counter()
        if self._counts[address] >= self.settings.per_minute or self._counts.total() >= self.settings.most_per_minute:
            raise EnrolmentRefused("too many", 429, "too many requests to enrol", "Try again later.", 60.0 - now % 60)
        self._counts[address] += 1


class Enroller(Collector):
    """Enrols agents. ``find`` is the sender of an enrolled agent's token."""

    def __init__(
        self, settings: Enrolment, data: Path, *, audit: Audit | None = None, proxies: Sequence[str] = (),
        clock: Callable[[], float] = time.time, resolve: Callable[[str], set[str]] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.settings = settings
        life = timedelta(days=settings.days)
        self.register = Register(data / FOLDER, settings.clusters, settings.data, life, steady)
        #: Set once the pages' audit log is open.
        self.audit = audit or Audit()
        self.counts: Counter[str] = Counter()
        self._proxies, self._clock, self._resolve = Networks(proxies), clock, resolve or addresses_of
        self._rates, self._secret, self._began = _Rates(settings, clock), os.urandom(32), clock()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="enrol")
        self._waiting = 0
        #: Of refusals that a working site does not have: when they began, how many, and the last one's outcome and address.
        self._alarm: tuple[float, float, int, str, str] | None = None

    @property
    def trouble(self) -> str | None:
        """That somebody may have tried to take a machine's place, for ``ALARM_S`` after the last time."""
        alarm = self._alarm
        if alarm is None or self._clock() - alarm[1] > ALARM_S:
            return None
        first, _, times, outcome, address = alarm
        since = f"{datetime.fromtimestamp(first, UTC):%Y-%m-%d %H:%M} UTC"
        return f"enrolment: {times} refused since {since}, the last from {address} ({outcome}): see enrolment_refused in the audit log"

    def find(self, token: str) -> Sender | None:
        return self.register.find(token)

    def purge(self) -> None:
        """Removes entries of machines that are long gone. Called periodically."""
        for host in self.register.purge(self._now(), GONE_AFTER):
            log.info("an enrolled instance is gone", node=host)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------------------------------------ requests

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answers a request for ``PATH``."""
        client = scope.get("client")
        peer = str(scope.get(PEER) or (client[0] if client else ""))
        try:
            answer: Any = JSONResponse(await self._asked(scope, receive, peer), headers={"Cache-Control": "no-store"})
        except EnrolmentRefused as refusal:
            self._refused(refusal, peer)
            headers = {"Retry-After": str(max(1, round(refusal.retry_s)))} if refusal.retry_s is not None else {}
            problem = ProblemError(refusal.status, str(refusal), do=refusal.do, headers=headers)
            answer = problem.response(PATH)
        await answer(scope, receive, send)

    async def _asked(self, scope: MutableMapping[str, Any], receive: Any, peer: str) -> dict[str, Any]:
        if scope["method"] != "POST":
            raise EnrolmentRefused("method", 405, f"{scope['method']} is no method of {PATH}", "Use POST.")
        if peer in self._proxies:
            raise EnrolmentRefused("proxy", 403, "this came through a proxy, which hides the machine", _DIRECTLY)
        port = scope.get(PORT)
        if self.settings.privileged_port and not (isinstance(port, int) and 0 < port < PRIVILEGED):
            raise EnrolmentRefused("unprivileged", 403, "the connection comes from a port that any user can use", _ROOT)
        self._rates.check(of_one(peer))
        asked = _body(await _received(receive))
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").partition(" ")
        former = digest_of(token.strip()) if scheme.lower() == "bearer" and token else None
        if self._waiting >= WAITING:
            raise EnrolmentRefused("busy", 503, "too many agents enrol at once", "Try again later.", 10.0)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self.answer, asked, peer, former)
        finally:
            self._waiting -= 1

    def answer(self, asked: dict[str, str], peer: str, former: str | None) -> dict[str, Any]:
        """The nonce to a request without a document, else what was done. Raises ``EnrolmentRefused``."""
        host, digest, way = (asked.get(key, "") for key in ("host", "digest", "way"))
        if not NAME.fullmatch(host) or not DIGEST.fullmatch(digest):
            raise EnrolmentRefused("malformed", 400, "host or digest is missing or not one")
        if not self.settings.permits(host):
            raise EnrolmentRefused("host", 403, f"[enrolment] hosts has no {host}")
        if way not in ("azure", "aws") or getattr(self.settings, way) is None:
            raise EnrolmentRefused("way", 403, f"machines of {way[:20]!r} are not enrolled here")
        if not asked.get("document"):
            return {"nonce": self._nonce(host, digest, peer, 0)}
        instance = self._instance(way, asked["document"], host, digest, peer)
        if instance.address is not None and not _same(instance.address, peer):
            raise EnrolmentRefused("address", 403, f"the machine has the address {instance.address}, not {peer}")
        if self.settings.resolve and not any(_same(one, peer) for one in self._resolved(host)):
            raise EnrolmentRefused(
                "address", 403, f"{host} has not the address {peer}, by the service's resolver", _NAMED
            )
        try:
            done = self.register.enrol(host, instance, digest, former, peer, self._now(), sure=self.settings.resolve)
        except OSError as error:
            raise EnrolmentRefused("disk", 503, f"the entry cannot be kept: {error.strerror}", retry_s=60.0) from error
        return self._done(done)

    def _done(self, done: Done) -> dict[str, Any]:
        one = done.entry
        self.counts[done.what] += 1
        happened = [done.what] if done.what != "repeated" else []
        if done.ousted is not None and done.what != "replaced":
            happened.append("replaced")
        for what in happened:
            former = {"former": done.ousted.instance} if what == "replaced" and done.ousted is not None else {}
            if what in _UNUSUAL:
                log.warning(_UNUSUAL[what], node=one.host, instance=one.instance, **former)
            self.audit.record("enrolled", one.host, one.address, what=what, instance=one.instance, **former)
        expires = datetime.fromtimestamp(one.expires, UTC)
        return {"status": done.what, "host": one.host, "expires": f"{expires:%Y-%m-%dT%H:%M:%SZ}",
                "expires_s": max(0.0, one.expires - self._clock())}  # fmt: skip

    def _instance(self, way: str, document: str, host: str, digest: str, peer: str) -> Instance:
        try:
            if way == "aws":
                assert self.settings.aws is not None
                return of_aws(document, self.settings.aws, self._now())
            assert self.settings.azure is not None
            nonces = [self._nonce(host, digest, peer, past) for past in range(NONCE_SPANS)]
            return of_azure(document, nonces, self.settings.azure, self._now())
        except ForAnotherRequest as refusal:
            # The nonces of a service end with it: an agent that asked the one before shows its document to this one.
            is_new = 0 <= self._clock() - self._began <= NONCE_S * NONCE_SPANS
            raise EnrolmentRefused("restarted" if is_new else "document", 403, str(refusal), _ANEW) from refusal
        except IdentityRefused as refusal:
            raise EnrolmentRefused("document", 403, str(refusal)) from refusal

    def _nonce(self, host: str, digest: str, peer: str, past: int) -> str:
        """A number that nobody can foresee, for this request only. It is derived, not kept: a flood fills no memory."""
        span = int(self._clock() // NONCE_S) - past
        made = hmac.digest(self._secret, "\n".join((host, digest, peer, str(span))).encode(), "sha256")
        return f"{int.from_bytes(made[:16]) % 10**NONCE_DIGITS:0{NONCE_DIGITS}}"

    def _resolved(self, host: str) -> set[str]:
        try:
            return self._resolve(host)
        except OSError:
            return set()

    def _refused(self, refusal: EnrolmentRefused, peer: str) -> None:
        self.counts[refusal.outcome] += 1
        self.audit.refused("enrolment_refused", "", peer, outcome=refusal.outcome, reason=str(refusal))
        if refusal.outcome in ALARMING:
            log.warning("an enrolment was refused", outcome=refusal.outcome, address=peer, error=str(refusal))
            now, before = self._clock(), self._alarm if self.trouble else None
            first, times = (before[0], before[2]) if before is not None else (now, 0)
            self._alarm = first, now, times + 1, refusal.outcome, peer

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of enrolment."""
        yield GaugeMetricFamily(
            "faultline_enrolled", "Instances whose enrolled token is valid.", self.register.count(self._now())
        )
        done = CounterMetricFamily(
            "faultline_enrolments", "Requests to enrol, by what became of them.", labels=("outcome",)
        )
        for outcome, count in sorted(self.counts.items()):
            done.add_metric((outcome,), count)
        yield done


def opened(settings: Enrolment, data: Path, proxies: Sequence[str] = ()) -> Enroller | None:
    """The enrolment of a site; None if no machine may enrol. Raises ``CommandError``."""
    if not settings.is_on:
        return None
    for cloud in (settings.azure, settings.aws):
        try:
            if cloud is not None and not cloud.trusted():
                raise CommandError(f"{cloud.certificates}: no certificate is in it")
        except (OSError, ValueError) as error:
            raise CommandError(f"{cloud and cloud.certificates}: certificates cannot be read: {error}") from error
    try:
        return Enroller(settings, data, proxies=proxies)
    except OSError as error:
        raise CommandError(f"{data / FOLDER}: cannot be made: {error.strerror}") from error


#: Outcomes that a working site does not have: somebody else shows a machine's document, or takes its name.
ALARMING = frozenset({"second", "taken", "renamed", "address", "document", "reused"})
#: What the service's log says of enrolments that end an earlier one.
_UNUSUAL = {
    "replaced": "another machine has the name of an enrolled one",
    "moved": "an enrolled machine has another name",
    "anew": "an enrolled machine has lost its token, which was out of use",
}
_ANEW = "Ask for a nonce anew: each is good for two minutes, and ends with the service."
_DIRECTLY = "Let agents reach the service directly, or give them tokens."
_ROOT = "Run the agent as root with CAP_NET_BIND_SERVICE, without a NAT between; or set [enrolment] privileged_port = false."
_NAMED = "Give the name this address in the DNS or in /etc/hosts of the service's machine."


def addresses_of(host: str) -> set[str]:
    """The addresses of a name by the machine's resolver. Raises ``OSError``."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


def _same(one: str, other: str) -> bool:
    with suppress(ValueError):
        return ip_address(one.partition("%")[0]) == ip_address(other.partition("%")[0])
    return False


def _body(body: bytes) -> dict[str, str]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EnrolmentRefused("malformed", 400, "the body is no JSON") from error
    if not isinstance(asked, dict) or not all(isinstance(value, str) for value in asked.values()):
        raise EnrolmentRefused("malformed", 400, "the body is no JSON object of texts")
    return asked


async def _received(receive: Any) -> bytes:
    """The body. Raises ``EnrolmentRefused`` for one that is large or slow."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise EnrolmentRefused("malformed", 400, "the body is not complete")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MOST_BODY:
                    raise EnrolmentRefused("too large", 413, f"more than {MOST_BODY} bytes")
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError as error:
        raise EnrolmentRefused("malformed", 408, f"the body took longer than {BODY_S:g} s") from error


__all__ = ["FOLDER", "PATH", "Enroller", "addresses_of", "opened"]
