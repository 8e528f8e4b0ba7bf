"""HTTPS served by the service itself, and what is known about the peer of a connection.

A certificate of ``client_ca`` is requested, not required: people's browsers have none, and sign in; senders present
one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from collector.intake import CERTIFICATE, NAMES, PORT
from faultline.config import Config, Tls
from faultline.failure import CommandError
from web.access.addresses import Networks, plain
from web.access.authentication import PEER

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class Connection(HttpToolsProtocol):
    """A connection whose requests carry the address of its socket, and whether the peer presented a certificate of
    ours.

    ``client`` in a request's scope is the client behind a proxy; trust in a proxy depends on the proxy's own address.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.client = (plain(self.client[0]), self.client[1])
        inner, (peer, port) = self.app, self.client or (None, None)
        secured = transport.get_extra_info("ssl_object")
        certificate = (secured.getpeercert() if secured is not None else None) or {}
        names = tuple(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")

        async def known(scope: Any, receive: Any, send: Any) -> None:
            scope[PEER], scope[PORT], scope[CERTIFICATE] = peer, port, bool(certificate)
            scope[NAMES] = names
            await inner(scope, receive, send)

        self.app = known


def options(tls: Tls | None) -> dict[str, Any]:
    """uvicorn's settings for HTTPS. Raises ``CommandError`` if a file is invalid."""
    if tls is None:
        return {}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"[tls] certificate {tls.certificate}, key {tls.key}: {_error_text(error)}") from error
    found: dict[str, Any] = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"[tls] client_ca {tls.client_ca}: {_error_text(error)}") from error
        found |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    return found


def proxied(config: Config) -> dict[str, Any]:
    """uvicorn's settings for trusted proxies. Its default trusts everyone on this machine: any user of it."""
    if not config.all_proxies:
        return {"proxy_headers": False}
    return {"proxy_headers": True, "forwarded_allow_ips": list(config.all_proxies)}


def only_of_proxies(app: App, config: Config) -> App:
    """``app`` with identity headers accepted from configured proxies only: they are removed from all other requests."""
    headers = (config.user_header, config.access.groups_header if config.access is not None else None)
    claims = {name.lower().encode("latin-1", "replace") for name in headers if name}
    believed = Networks(config.access.proxies if config.access is not None else config.proxies)

    async def door(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope.get(PEER) not in believed:
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name.lower() not in claims]
        await app(scope, receive, send)

    return door if claims else app


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
