"""Signing in with an OpenID Connect provider, by Authlib: code flow with PKCE. Imported only if one is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import OAuth
from fastapi import Request, Response
from httpx2 import HTTPError
from joserfc.errors import JoseError

from web.access.authentication import ProviderError
from web.access.settings import Provider

#: Raised by Authlib if the provider is down, answers unexpectedly, or refuses.
_FAILURES = (OAuthError, HTTPError, JoseError, KeyError, ValueError, RuntimeError)


class Client:
    """One provider; its metadata and keys are fetched at first use."""

    def __init__(self, provider: Provider) -> None:
        secret = provider.secret_file.read_text(encoding="utf-8").strip() if provider.secret_file else None
        self._client: Any = OAuth().register(
            "provider", server_metadata_url=provider.metadata, client_id=provider.client_id, client_secret=secret,
            client_kwargs={"scope": provider.scopes, "code_challenge_method": "S256"},
        )  # fmt: skip

    async def redirect(self, request: Request, back: str) -> Response:
        """Redirects to the provider, which sends the browser back to the address ``back``. Raises ``ProviderError``."""
        try:
            answer: Response = await self._client.authorize_redirect(request, back)
        except _FAILURES as error:
            raise ProviderError(_error_text(error)) from error
        return answer

    async def claims(self, request: Request) -> Mapping[str, Any]:
        """The claims of the provider's signed token about the user. Raises ``ProviderError``."""
        try:
            token = await self._client.authorize_access_token(request)
        except _FAILURES as error:
            raise ProviderError(_error_text(error)) from error
        claims: Mapping[str, Any] = token.get("userinfo") or {}
        return claims


def _error_text(error: Exception) -> str:
    description = getattr(error, "description", "") or getattr(error, "error", "") or str(error)
    return str(description)[:200] or type(error).__name__
