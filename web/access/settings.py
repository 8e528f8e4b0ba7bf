"""A site's settings of its identity provider, as in the configuration file."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Provider(BaseModel):
    """An OpenID Connect provider; its redirect URI is ``public_url``/login/provider/back. ``name`` is on the button."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    issuer: str = Field(pattern=r"^https?://")
    client_id: str
    secret_file: Path | None = None
    name: str = "single sign-on"
    scopes: str = "openid profile"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"

    @property
    def metadata(self) -> str:
        return self.issuer.rstrip("/") + "/.well-known/openid-configuration"
