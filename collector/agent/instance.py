"""Enrolment by instance identity: without a token from a person, the agent shows which machine of a cloud it runs on.

It makes its token itself and tells the service only the token's digest, with a document that the cloud signed about this
machine. The connection comes from a port below 1024, which shows the service that root opened it: any user can ask for
the document. The token is renewed at about half of its life, and whoever renews it must have it.

``instance.token`` in the spool's folder is the token, ``instance.next`` one that the service may have accepted without
that its answer arrived, ``instance.json`` says when to renew. All are readable by their owner only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.agent.failure import AgentError
from collector.agent.sender import Answer, Connection

AZURE, AWS = "azure", "aws"
CLOUDS = (AZURE, AWS)
#: Both clouds' metadata service; only the machine itself reaches it.
METADATA = ("169.254.169.254", 80)
#: 2020-09-01 is the version of Azure's attested document with subscriptionId and sku that its documentation shows.
_AZURE_DOCUMENT = "/metadata/attested/document?api-version=2020-09-01&nonce={nonce}"
_AWS_TOKEN, _AWS_DOCUMENT = "/latest/api/token", "/latest/dynamic/instance-identity/rsa2048"
#: Limits of a question to the metadata service: a document has some 6 KB.
METADATA_S, METADATA_BYTES = 5.0, 64 * 1024
SERVICE_S = 15.0
#: Ports that only root may use, from the one on that Linux gives to NFS (sunrpc.min_resvport): many BMCs take what comes to
#: 623 and 664. Without those on which daemons listen: Lustre (988), Kerberos, rndc, rsync, FTP, IMAP and POP over TLS.
PORTS = [port for port in range(665, 1024) if port not in {749, 873, 953, 988, 989, 990, 992, 993, 995}]
#: How many of them are tried: each may be in use.
TRIES = 16
#: Waits after failures double from the first to the last; up to half of each is random.
FIRST_WAIT_S, LAST_WAIT_S = 2.0, 900.0
#: How long at most until it looks again whether the token is due or was removed.
LOOK_S = 300.0
#: Random bytes of a token, as `faultline access` makes them.
TOKEN_BYTES = 32


class _NoDocumentError(Exception):
    """The metadata service did not give a document; the text says why."""


@dataclass
class Metadata:
    """The machine's metadata service. ``at``: host and port."""

    at: tuple[str, int] = METADATA
    clock: Callable[[], float] = time.monotonic

    def document(self, cloud: str, nonce: str) -> str:
        """A signed document about this machine. Raises ``_NoDocumentError``."""
        if cloud == AWS:
            token = self._ask("PUT", _AWS_TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            return self._ask("GET", _AWS_DOCUMENT, {"X-aws-ec2-metadata-token": token.strip()})
        text = self._ask("GET", _AZURE_DOCUMENT.format(nonce=nonce), {"Metadata": "true"})
        try:
            return str(json.loads(text)["signature"])
        except (ValueError, KeyError, TypeError) as error:
            raise _NoDocumentError("the metadata service's answer has no signature") from error

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        """Directly, without a proxy, and for ``METADATA_S`` in all."""
        end = self.clock() + METADATA_S
        connection = http.client.HTTPConnection(*self.at, timeout=METADATA_S / 2)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = b""
            while part := answer.read1(8192):
                text += part
                if len(text) > METADATA_BYTES or self.clock() > end:
                    raise _NoDocumentError("the metadata service's answer is too long")
            if answer.status != 200:
                raise _NoDocumentError(f"the metadata service answers HTTP {answer.status}")
            return text.decode("ascii")
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            raise _NoDocumentError(f"the metadata service: {error or type(error).__name__}") from error
        finally:
            connection.close()


def ports() -> Iterable[int]:
    """Source ports to try, in no order that others could occupy beforehand."""
    return random.SystemRandom().sample(PORTS, TRIES)


@dataclass
class RootConnection(Connection):
    """A connection from a port that only root may use. Raises ``AgentError`` if this process may not."""

    ports: Callable[[], Iterable[int]] = ports

    def _connect(self) -> http.client.HTTPConnection:
        for port in self.ports():
            made = self._made(("", port))
            try:
                made.connect()
                return made
            except OSError as error:
                made.close()
                if error.errno == errno.EACCES:
                    raise AgentError("this process may not use a port below 1024 (CAP_NET_BIND_SERVICE)") from error
                if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                    raise
        raise OSError(errno.EADDRINUSE, "no port below 1024 is free")


class Enrolment:
    """Keeps a valid token in ``folder``. ``run`` is a thread; ``trouble`` says why there is none, "" if all is well."""

    def __init__(
        self, folder: Path, host: str, cloud: str, connect: Callable[[], Connection], *, metadata: Metadata | None = None,
        now: Callable[[], float] = time.time, enrolled: Callable[[], None] = lambda: None,
        refused: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        #: ``refused``: whether the service does not know the token any more: its entry was removed, or its data are new.
        self._refused, self.trouble = refused, ""
        self._folder, self._host, self._cloud, self._connect = folder, host, cloud, connect
        self._metadata, self._now, self._enrolled = metadata or Metadata(), now, enrolled
        self._failures = 0

    def run(self, stopping: threading.Event) -> None:
        wait = 0.0
        while not stopping.wait(wait):
            wait = self.step()

    def step(self) -> float:
        """Enrols or renews if that is due. Returns how long to wait, in seconds. Never raises for what may go wrong."""
        if (left := self._due()) > 0:
            return min(left, LOOK_S)
        try:
            answer = self._ask()
        except (AgentError, OSError, _NoDocumentError) as error:
            answer = Answer(0, str(error) or type(error).__name__)
        if answer.code == 200:
            self._failures, self.trouble = 0, ""
            self._enrolled()
            return LOOK_S
        self.trouble = f"HTTP {answer.code}: {answer.detail}" if answer.code else answer.detail
        self._failures += 1
        wait = max(min(LAST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 12)), answer.wait or 0.0)
        return wait * (0.5 + 0.5 * random.random())

    def _due(self) -> float:
        """Seconds until the token must be renewed; 0 or less: now, or there is none that the service takes."""
        if self._refused():
            return 0.0
        try:
            renew_at = float(json.loads((self._folder / "instance.json").read_text(encoding="ascii"))["renew_at"])
            return renew_at - self._now() if (self._folder / "instance.token").exists() else 0.0
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def _ask(self) -> Answer:
        token = self._next()
        asked = {
            "host": self._host,
            "digest": "sha256:" + hashlib.sha256(token.encode()).hexdigest(),
            "way": self._cloud,
        }
        connection = self._connect()
        try:
            answer = _posted(connection, asked)
            if answer.code != 200:
                return answer
            nonce = _document_of(answer).get("nonce")
            if not isinstance(nonce, str) or not nonce.isascii() or not nonce.isalnum():
                return Answer(0, "the service gives no nonce; is it a Faultline service?")
            answer = _posted(connection, {**asked, "document": self._metadata.document(self._cloud, nonce)})
        finally:
            connection.close()
        if answer.code == 409:  # not accepted, and it will not be
            (self._folder / "instance.next").unlink(missing_ok=True)
        elif answer.code == 200:
            self._keep(_document_of(answer))
        return answer

    def _next(self) -> str:
        """The token to enrol with: the same one until the service answered."""
        path = self._folder / "instance.next"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if kept := path.read_text(encoding="ascii").strip():
                return kept
        token = secrets.token_urlsafe(TOKEN_BYTES)
        _write(path, token + "\n")
        return token

    def _keep(self, stated: dict[str, Any]) -> None:
        life = stated.get("expires_s")
        if not isinstance(life, int | float) or isinstance(life, bool):
            life = 0.0
        (self._folder / "instance.next").replace(self._folder / "instance.token")
        # Machines that were started together would all renew together otherwise.
        renew_in = max(60.0, life / 2 * (0.8 + 0.4 * random.random()))
        _write(self._folder / "instance.json", json.dumps({"renew_at": self._now() + renew_in}))


def bearer(folder: Path) -> str:
    """The token of this instance, "" while there is none."""
    try:
        return (folder / "instance.token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _posted(connection: Connection, asked: dict[str, str]) -> Answer:
    body = json.dumps(asked).encode()
    return connection.request("POST", "/api/v1/enrol", body, {"Content-Type": "application/json"})


def _document_of(answer: Answer) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        stated = json.loads(answer.text)
        if isinstance(stated, dict):
            return stated
    return {}


def _write(path: Path, text: str) -> None:
    """Whole or not at all, for the owner only."""
    new = path.with_name(path.name + ".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)


__all__ = ["AWS", "AZURE", "CLOUDS", "Enrolment", "Metadata", "RootConnection", "bearer"]
