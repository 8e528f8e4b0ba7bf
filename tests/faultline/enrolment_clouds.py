"""Clouds for tests: signed documents as Azure and AWS write them, by a CA made here."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SITE, MACHINE = "11111111-2222-3333-4444-555555555555", "d3e0e374-fda6-4649-bbc9-7f20dc379f34"
ACCOUNT, REGION = "123456789012", "eu-central-1"
PEM = serialization.Encoding.PEM


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(
    name: str, key: Any, issuer: str, issuer_key: Any, *, ca: bool = False, ended: bool = False
) -> x509.Certificate:
    """As the web's authorities make them: ``name`` is the DNS name."""
    now = datetime.now(UTC)

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(issuer)).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=9))
    made = made.not_valid_after(now - timedelta(days=1) if ended else now + timedelta(days=9))
    made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = made.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    if ca:
        usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
                               "key_agreement", "encipher_only", "decipher_only"), False)  # fmt: skip
        made = made.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
    else:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return made.sign(issuer_key, hashes.SHA256())


@cache
def root() -> x509.Certificate:
    return certificate("test root", ec_key("root"), "test root", ec_key("root"), ca=True)


@cache
def leaf(kind: str) -> x509.Certificate:
    """The metadata service's certificate, or one that only looks like it."""
    key, name = rsa_key("leaf"), "westeurope.metadata.azure.com"
    if kind == "self-signed":
        return certificate(name, key, name, key)
    if kind == "another root's":
        return certificate(name, key, "test root", ec_key("another"))
    name = {"another name": "metadata.azure.com.example.org", "a name that ends alike": "evilmetadata.azure.com"}.get(
        kind, name
    )
    return certificate(name, key, "test root", ec_key("root"), ended=kind == "ended")


@cache
def amazon(name: str) -> x509.Certificate:
    return certificate(name, rsa_key(name), name, rsa_key(name))


def write(folder: Path) -> dict[str, Any]:
    """Certificates in files, and the configuration's section."""
    (folder / "azure.pem").write_bytes(root().public_bytes(PEM))
    (folder / "aws.pem").write_bytes(amazon("amazon").public_bytes(PEM))
    return {"hosts": ["gpu[001-064]"], "azure": {"subscriptions": [SITE], "certificates": str(folder / "azure.pem")},
            "aws": {"accounts": [ACCOUNT], "regions": [REGION], "certificates": str(folder / "aws.pem")}}  # fmt: skip


def signed(content: bytes, signer: x509.Certificate, key: rsa.RSAPrivateKey, *, attributes: bool, sent: bool) -> bytes:
    made = pkcs7.PKCS7SignatureBuilder().set_data(content).add_signer(signer, key, hashes.SHA256())
    options = [pkcs7.PKCS7Options.Binary, *[pkcs7.PKCS7Options.NoAttributes] * (not attributes)]
    return made.sign(serialization.Encoding.DER, [*options, *[pkcs7.PKCS7Options.NoCerts] * (not sent)])


def azure(
    nonce: str, *, kind: str = "good", made: datetime | None = None, attributes: bool = False, **changed: str
) -> str:
    """An attested document."""
    made = made or datetime.now(UTC)
    times = {
        "createdOn": f"{made:%m/%d/%y %H:%M:%S} -0000",
        "expiresOn": f"{made + timedelta(hours=6):%m/%d/%y %H:%M:%S} -0000",
    }
    said = {"nonce": nonce, "timeStamp": times, "vmId": MACHINE, "subscriptionId": SITE, "sku": "x", **changed}
    return base64.b64encode(
        signed(json.dumps(said).encode(), leaf(kind), rsa_key("leaf"), attributes=attributes, sent=True)
    ).decode()


def aws(address: str, *, by: str = "amazon", indefinite: bool = False, **changed: str) -> str:
    """An instance identity document in its RSA-2048 signature, as the metadata service writes it: base64 in lines."""
    said = {
        "accountId": ACCOUNT,
        "region": REGION,
        "instanceId": "i-0123456789abcdef0",
        "privateIp": address,
        **changed,
    }
    made = signed(json.dumps(said).encode(), amazon(by), rsa_key(by), attributes=True, sent=False)
    return base64.encodebytes(in_ber(made) if indefinite else made).decode()


def in_ber(der: bytes, depth: int = 0) -> bytes:
    """The same with lengths left open and the content in pieces; sets, the signers among them, stay DER."""
    out, at = b"", 0
    while at < len(der):
        tag, first, begin = der[at], der[at + 1], at + 2
        if first & 0x80:
            begin += first & 0x7F
            size = int.from_bytes(der[at + 2 : begin])
        else:
            size = first
        body, whole = der[begin : begin + size], der[at : begin + size]
        if tag == 0x31 or not tag & 0x20:
            out += b"\x24\x80" + whole + b"\0\0" if tag == 0x04 else whole
        else:
            out += bytes([tag, 0x80]) + in_ber(body, depth + 1) + b"\0\0"
        at = begin + size
    return out
