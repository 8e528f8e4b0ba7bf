"""``[enrolment]`` of the configuration: whose instances may enrol, under which names, and what must hold besides.

[enrolment]
hosts = ["gpu[001-064]"]      # the names that instances may have
days = 7                      # how long a token is valid; agents renew theirs at about half of it
privileged_port = true        # only root of a node can enrol it: the connection comes from a port below 1024
resolve = true                # and from an address that the service's resolver has for the name

[enrolment.azure]
subscriptions = ["11111111-2222-3333-4444-555555555555"]
certificates = "/etc/faultline/azure.pem"   # the roots, and the intermediates below them

[enrolment.aws]
accounts = ["123456789012"]
regions = ["eu-central-1"]
certificates = "/etc/faultline/aws.pem"     # Amazon's RSA-2048 certificates of these regions
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from collector.senders import DOCUMENTS, KINDS, LINES, METRICS, OUTPUT, Limits

if TYPE_CHECKING:
    from cryptography import x509


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Cloud(_Section):
    certificates: Path

    def trusted(self) -> list[x509.Certificate]:
        """The certificates of the file. Raises ``OSError`` and ``ValueError``."""
        from cryptography import x509  # every command reads the configuration, and few need this

        return x509.load_pem_x509_certificates(self.certificates.read_bytes())


class Azure(_Cloud):
    """``signers``: the certificate that signed must have one of these names or a name below one, as Microsoft documents
    them: metadata.azure.us and metadata.azure.cn in the sovereign clouds."""

    subscriptions: tuple[str, ...] = Field(min_length=1)
    signers: tuple[str, ...] = ("metadata.azure.com",)


class Aws(_Cloud):
    accounts: tuple[str, ...] = Field(min_length=1)
    regions: tuple[str, ...] = Field(min_length=1)


class Enrolment(_Section):
    """Who may enrol. ``data``: what enrolled agents may send (``collector.senders.KINDS``); ``per_minute``: requests from
    one address, and ``most_per_minute`` from all together."""

    hosts: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    data: tuple[str, ...] = (LINES, OUTPUT, METRICS, DOCUMENTS)
    days: float = Field(default=7, ge=0.05, le=90)
    privileged_port: bool = True
    resolve: bool = True
    per_minute: int = Field(default=12, ge=2)
    most_per_minute: int = Field(default=3000, ge=2)
    azure: Azure | None = None
    aws: Aws | None = None

    @property
    def is_on(self) -> bool:
        return self.azure is not None or self.aws is not None

    def permits(self, host: str) -> bool:
        """Whether an instance may have this name."""
        return Limits("", self.hosts).stands_for(host, None)

    @field_validator("data")
    @classmethod
    def _are_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or (odd := set(value) - set(KINDS)):
            raise ValueError(f"{min(odd) if value else 'nothing'!r} is no kind of data; there are {', '.join(KINDS)}")
        return value

    @model_validator(mode="after")
    def _names_hosts(self) -> Enrolment:
        if self.is_on and not self.hosts:
            raise ValueError("hosts is missing: the names that instances may have, such as ['gpu[001-064]']")
        return self


__all__ = ["Aws", "Azure", "Enrolment"]
