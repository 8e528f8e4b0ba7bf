"""HTTPS spoken by the service itself, and who is at the other end of a connection.

A certificate of ``client_ca`` is asked for and not demanded: people's browsers have none, and sign in; senders show one.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from collector.intake import CERTIFICATE
from faultline.config import Tls
from faultline.failure import CommandError
from web.access.gate import PEER


class Connection(HttpToolsProtocol):
    """A connection whose requests know the address of its socket and the name in its certificate.

    ``client`` in a request's scope is whom a proxy speaks for; what is believed of a proxy hangs on the proxy's own address.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        inner, peer = self.app, self.client[0] if self.client else None
        secured = transport.get_extra_info("ssl_object")
        shown = name_in(secured.getpeercert() if secured is not None else None)

        async def known(scope: Any, receive: Any, send: Any) -> None:
            scope[PEER], scope[CERTIFICATE] = peer, shown
            await inner(scope, receive, send)

        self.app = known


def name_in(certificate: Any) -> str | None:
    """Whose a verified certificate is: its common name, or else its first alternative one; None without a certificate."""
    if not certificate:
        return None
    subject = {name: value for part in certificate.get("subject", ()) for name, value in part}
    others = [value for _kind, value in certificate.get("subjectAltName", ())]
    return str(subject.get("commonName") or (others[0] if others else "without a name"))


def options(tls: Tls | None) -> dict[str, Any]:
    """What uvicorn takes for it. Raises ``CommandError`` where a file does not fit."""
    if tls is None:
        return {}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(f"[tls] certificate {tls.certificate}, key {tls.key}: {_said(error)}") from error
    found: dict[str, Any] = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"[tls] client_ca {tls.client_ca}: {_said(error)}") from error
        found |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    return found


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
