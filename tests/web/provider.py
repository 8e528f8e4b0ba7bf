"""A small OpenID Connect provider at an address: discovery, keys, authorization with PKCE, signed tokens."""

from __future__ import annotations

import base64
import hashlib
import html
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from joserfc import jwt
from joserfc.jwk import RSAKey


class SmallProvider:
    """``claims`` is who signs in next; ``denied`` an error to answer instead; ``audience`` that of its tokens; ``asks``: does it
    show a page first, as those do where nobody is signed in yet?"""

    def __init__(self, address: str, client_id: str, secret: str) -> None:
        self.address, self.client_id, self.secret = address, client_id, secret
        self.claims: dict[str, Any] = {}
        self.denied = ""
        self.asks = False
        self.audience = client_id
        self.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        #: The signing key; a forged one is not among the published keys.
        self.signing = self.key
        self.codes: dict[str, dict[str, str]] = {}

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/.well-known/openid-configuration")
        def metadata() -> dict[str, Any]:
            return {
                "issuer": self.address, "authorization_endpoint": f"{self.address}/authorize", "token_endpoint": f"{self.address}/token",
                "jwks_uri": f"{self.address}/keys", "id_token_signing_alg_values_supported": ["RS256"],
            }  # fmt: skip

        @app.get("/keys")
        def keys() -> dict[str, Any]:
            return {"keys": [self.key.as_dict(private=False)]}

        @app.get("/authorize")
        def authorize(request: Request) -> Response:
            asked = dict(request.query_params)
            if self.asks and "sure" not in asked:
                go = html.escape(f"{self.address}/authorize?{request.url.query}&sure=1")
                return HTMLResponse(f'<link rel="icon" href="data:,"><h1>Who are you?</h1><a href="{go}">Continue</a>')
            back, state = asked["redirect_uri"], asked["state"]
            if self.denied:
                return RedirectResponse(f"{back}?error={self.denied}&state={state}", 303)
            assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
            code = secrets.token_urlsafe(8)
            self.codes[code] = asked
            return RedirectResponse(f"{back}?code={code}&state={state}", 303)

        @app.post("/token")
        async def token(request: Request) -> JSONResponse:
            form = dict(parse_qsl((await request.body()).decode()))
            asked = self.codes.pop(form["code"], None)
            given = base64.b64decode(request.headers["authorization"].split()[1]).decode()
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if (
                asked is None
                or given != f"{self.client_id}:{self.secret}"
                or asked["code_challenge"] != challenge
                or asked["redirect_uri"] != form["redirect_uri"]
            ):
                return JSONResponse({"error": "invalid_grant"}, 400)
            now = int(time.time())
            reported = {
                "iss": self.address,
                "aud": self.audience,
                "sub": "1",
                "iat": now,
                "exp": now + 60,
                "nonce": asked["nonce"],
            }
            signed = jwt.encode({"alg": "RS256", "kid": "k1"}, reported | self.claims, self.signing)
            return JSONResponse({"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": signed})

        return app


def running(client_id: str, secret: str) -> Iterator[SmallProvider]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    provider = SmallProvider(f"http://127.0.0.1:{port}", client_id, secret)
    server = uvicorn.Server(uvicorn.Config(provider.app(), port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    yield provider
    server.should_exit = True
    thread.join(10)
