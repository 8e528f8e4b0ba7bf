"""Which machine a signed document is about: Azure's attested document, Amazon's instance identity document.

A document proves that some process on that machine asked for it. Every user of the machine can, so it is no proof of root:
``faultline.enrolment.door`` asks for that besides.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.x509 import verification

from faultline.enrolment.settings import Aws, Azure
from faultline.enrolment.signed_data import SignedDataError, read

#: How old Azure's document may be: it is made for this request. And how far the clocks may differ.
FRESH, SKEW = timedelta(minutes=10), timedelta(minutes=5)
#: How Azure writes times, always UTC.
AZURE_TIME = "%m/%d/%y %H:%M:%S %z"
#: Identifiers are this long at most: 36 characters at Azure, 19 at AWS.
LONGEST_ID = 64


class IdentityRefused(Exception):  # noqa: N818
    """The document does not show that this is a machine of the site; the text says why."""


class ForAnotherRequest(IdentityRefused):
    """A fresh document of a machine of the site, for a nonce that the service does not know."""


@dataclass(frozen=True)
class Instance:
    """A machine. ``name``: "azure/SUBSCRIPTION/VM" or "aws/ACCOUNT/INSTANCE"; ``address``: its own, if the document says it."""

    name: str
    address: str | None = None


def of_azure(document: str, nonces: Iterable[str], settings: Azure, now: datetime) -> Instance:
    """The machine of an attested document that was made for one of ``nonces``. Raises ``IdentityRefused``."""
    signed = _read(document)
    try:
        leaf = signed.signer(signed.certificates)
        _chain(leaf, signed.certificates, settings, now)
    except SignedDataError as error:
        raise IdentityRefused(str(error)) from error
    except (
        Exception
    ) as error:  # strangers made these certificates, and cryptography reads parts of them only when asked
        raise IdentityRefused(f"a certificate in the document cannot be read: {error}"[:200]) from error
    stated = _fields(signed.content)
    times = stated.get("timeStamp")
    created, expires = (_time(times, key) for key in ("createdOn", "expiresOn"))
    if not now - FRESH <= created <= now + SKEW or expires < now - SKEW:
        raise IdentityRefused(f"the document is of {created:%Y-%m-%dT%H:%M:%SZ}, valid until {expires:%H:%M:%SZ}")
    subscription, machine = _id(stated, "subscriptionId"), _id(stated, "vmId")
    if subscription.lower() not in {one.lower() for one in settings.subscriptions}:
        raise IdentityRefused(f"the subscription {subscription} is not one of the site's")
    # Last: what door.py states of a restart applies to fresh documents of the site's own machines only.
    given = str(stated.get("nonce", "")).encode()
    if not any(compare_digest(given, nonce.encode()) for nonce in nonces):
        raise ForAnotherRequest("the document was not made for this request")
    return Instance(f"azure/{subscription.lower()}/{machine.lower()}")


def of_aws(document: str, settings: Aws, now: datetime) -> Instance:
    """The machine of an instance identity document, in its RSA-2048 signature. Raises ``IdentityRefused``.

    The document has no nonce and no end, and is the same as long as the machine runs.
    """
    signed = _read(document)
    valid = [
        one for one in _trusted(settings) if one.not_valid_before_utc <= now <= one.not_valid_after_utc
    ]  # fmt: skip
    try:
        signed.signer(valid)
    except SignedDataError as error:
        raise IdentityRefused(str(error)) from error
    stated = _fields(signed.content)
    account, region, machine = (_id(stated, key) for key in ("accountId", "region", "instanceId"))
    if account not in settings.accounts:
        raise IdentityRefused(f"the account {account} is not one of the site's")
    if region not in settings.regions:
        raise IdentityRefused(f"the region {region} is not one of the site's")
    try:
        address = str(ip_address(str(stated.get("privateIp"))))
    except ValueError as error:
        raise IdentityRefused("the document does not say the machine's address") from error
    return Instance(f"aws/{account}/{machine}", address)


def _read(document: str) -> Any:
    lines = (line for line in document.splitlines() if not line.startswith("-----"))
    try:
        return read(base64.b64decode("".join(lines), validate=True))
    except (SignedDataError, binascii.Error, ValueError) as error:
        raise IdentityRefused(f"the document cannot be read: {error}") from error


def _fields(content: bytes) -> Mapping[str, Any]:
    try:
        stated = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise IdentityRefused("the signed content is no JSON") from error
    if not isinstance(stated, dict):
        raise IdentityRefused("the signed content is no JSON object")
    return stated


def _id(stated: Mapping[str, Any], key: str) -> str:
    found = stated.get(key)
    if (
        not isinstance(found, str)
        or not 0 < len(found) <= LONGEST_ID
        or not found.replace("-", "").isalnum()
        or not found.isascii()
    ):
        raise IdentityRefused(f"the document has no {key}")
    return found


def _time(times: Any, key: str) -> datetime:
    try:
        return datetime.strptime(times[key], AZURE_TIME).astimezone(UTC)
    except (TypeError, KeyError, ValueError) as error:
        raise IdentityRefused(f"the document has no {key}") from error


def _trusted(settings: Azure | Aws) -> list[x509.Certificate]:
    try:
        return settings.trusted()
    except (OSError, ValueError) as error:
        raise IdentityRefused(f"{settings.certificates} cannot be read") from error


def _chain(leaf: x509.Certificate, sent: Sequence[x509.Certificate], settings: Azure, now: datetime) -> None:
    """Raises ``SignedDataError`` unless the certificate is one of the signers' and comes from a root of the site's file."""
    held = _trusted(settings)
    roots = [one for one in held if one.issuer == one.subject]
    between = [one for one in (*held, *sent) if one.issuer != one.subject and one != leaf]
    names = [name for name in _names(leaf) if _is_signer(name, settings.signers)]
    if not names:
        raise SignedDataError("the certificate that signed it is not the metadata service's")
    if not roots:
        raise SignedDataError(f"{settings.certificates} has no root certificate")
    policy = verification.PolicyBuilder().store(verification.Store(roots)).time(now.replace(tzinfo=None))
    try:
        policy.build_server_verifier(x509.DNSName(names[0])).verify(leaf, between)
    except verification.VerificationError as error:
        raise SignedDataError(
            f"the certificate that signed it does not come from a root of the site's: {error}"
        ) from error


def _names(leaf: x509.Certificate) -> Iterator[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in names.get_values_for_type(x509.DNSName):
        yield name.replace("*", "any", 1) if name.startswith("*.") else name


def _is_signer(name: str, signers: Sequence[str]) -> bool:
    return any(name.lower() == one or name.lower().endswith(f".{one}") for one in signers)


__all__ = ["IdentityRefused", "Instance", "of_aws", "of_azure"]
