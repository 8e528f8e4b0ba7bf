"""A site's settings of its identity provider and of Slurm's identities, as in the configuration file."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


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


class SlurmIdentity(BaseModel):
    """Whether users of the cluster may ask for their own jobs with what Slurm knows them by.

    ``munge``: credentials of the munge realm that this machine belongs to; ``munge_socket``: munged's socket, if it is
    not the default one. ``jwt_key``: the site's ``jwt_hs256.key``, for tokens of ``scontrol token``. ``users``: names of
    uids that this machine's user database does not know, or knows by another name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    munge: bool = False
    munge_socket: Path | None = None
    jwt_key: Path | None = None
    users: dict[str, str] = Field(default_factory=dict)

    @field_validator("users")
    @classmethod
    def _by_uid(cls, value: dict[str, str]) -> dict[str, str]:
        for uid, name in value.items():
            if not (uid.isascii() and uid.isdigit()) or not name:
                raise ValueError(f"{uid!r}: must be a uid with a user's name, such as 20001 = 'alice'")
        return value

    @model_validator(mode="after")
    def _accepts_something(self) -> SlurmIdentity:
        if not self.munge and self.jwt_key is None:
            raise ValueError("accepts nothing: say munge = true, or give jwt_key")
        return self
