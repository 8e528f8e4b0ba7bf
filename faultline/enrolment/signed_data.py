"""PKCS#7 signed data (RFC 5652): the content, if one signer's signature over it is right.

The cryptography library signs PKCS#7 and does not verify it. Only what clouds sign instance documents with is read here: one
signer, the content inside, RSA with SHA-2. Everything else is refused. AWS writes BER with indefinite lengths, Azure DER.
What is read comes from strangers, so depth, number of elements and size are limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hmac import compare_digest

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

#: Limits: documents of both clouds have some 100 elements, no deeper than 12, in at most 6 KB.
MOST_BYTES, MOST_ELEMENTS, DEEPEST = 32 * 1024, 2000, 24
#: Certificates beside the signature.
MOST_CERTIFICATES = 8
#: Shorter RSA keys can be broken (NIST SP 800-131A).
LEAST_BITS = 2048

_SEQUENCE, _SET, _OCTETS, _OID, _INTEGER, _GROUPED = 0x30, 0x31, 0x04, 0x06, 0x02, 0x24
#: Object identifiers in their DER form (RFC 5652, RFC 5754, RFC 8017).
_SIGNED_DATA, _DATA = bytes.fromhex("2a864886f70d010702"), bytes.fromhex("2a864886f70d010701")
_CONTENT_TYPE, _MESSAGE_DIGEST = bytes.fromhex("2a864886f70d010903"), bytes.fromhex("2a864886f70d010904")
_RSA = bytes.fromhex("2a864886f70d010101")
_SHA2: dict[bytes, hashes.HashAlgorithm] = {
    bytes.fromhex("608648016503040201"): hashes.SHA256(),
    bytes.fromhex("608648016503040202"): hashes.SHA384(),
    bytes.fromhex("608648016503040203"): hashes.SHA512(),
    # With RSA in one name. Azure puts it where the hash alone belongs.
    bytes.fromhex("2a864886f70d01010b"): hashes.SHA256(),
    bytes.fromhex("2a864886f70d01010c"): hashes.SHA384(),
    bytes.fromhex("2a864886f70d01010d"): hashes.SHA512(),
}


class SignedDataError(ValueError):
    """It is no signed data of the kind that is read here, or the signature is wrong; the text says why."""


@dataclass(frozen=True)
class _Element:
    """``raw``: all of it; ``body``: the value of a primitive one; ``parts``: those of a constructed one."""

    tag: int
    raw: bytes
    body: bytes = b""
    parts: tuple[_Element, ...] = ()
    is_definite: bool = True


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._left = data, MOST_ELEMENTS

    def whole(self) -> _Element:
        found, end = self._element(0, len(self._data), 0)
        if end != len(self._data):
            raise SignedDataError("something follows the signed data")
        return found

    def _element(self, at: int, end: int, depth: int) -> tuple[_Element, int]:
        self._left -= 1
        if depth > DEEPEST or self._left < 0:
            raise SignedDataError("it is nested too deeply, or has too many parts")
        if at + 2 > end:
            raise SignedDataError("it ends in the middle of an element")
        begin, tag = at, self._data[at]
        if tag & 0x1F == 0x1F:
            raise SignedDataError("it has a tag of several bytes")
        is_constructed = bool(tag & 0x20)
        size, at = self._size(at + 1, end)
        if size is None:
            if not is_constructed:
                raise SignedDataError("a value without a length is no group")
            parts, at = self._until_mark(at, end, depth)
            return _Element(tag, self._data[begin:at], parts=parts, is_definite=False), at
        if size > end - at:
            raise SignedDataError("an element is longer than what holds it")
        stop = at + size
        if not is_constructed:
            return _Element(tag, self._data[begin:stop], self._data[at:stop]), stop
        within: list[_Element] = []
        while at < stop:
            part, at = self._element(at, stop, depth + 1)
            within.append(part)
        return _Element(tag, self._data[begin:stop], parts=tuple(within)), stop

    def _size(self, at: int, end: int) -> tuple[int | None, int]:
        """A length, None for an indefinite one, and where the value begins."""
        first = self._data[at]
        if first < 0x80:
            return first, at + 1
        if first == 0x80:
            return None, at + 1
        count = first & 0x7F
        if count > 4 or at + 1 + count > end:
            raise SignedDataError("a length cannot be read")
        return int.from_bytes(self._data[at + 1 : at + 1 + count]), at + 1 + count

    def _until_mark(self, at: int, end: int, depth: int) -> tuple[tuple[_Element, ...], int]:
        parts: list[_Element] = []
        while self._data[at : min(at + 2, end)] != b"\0\0":
            part, at = self._element(at, end, depth + 1)
            parts.append(part)
        return tuple(parts), at + 2


@dataclass(frozen=True)
class SignedData:
    """``content``: not to be believed before ``signer`` returned. ``certificates``: sent with it, by whoever sent it."""

    content: bytes
    certificates: tuple[x509.Certificate, ...]
    issuer: bytes
    serial: int
    hash: hashes.HashAlgorithm
    signature: bytes
    #: The signed attributes as they are hashed; None: the content itself is signed.
    attributes: bytes | None = None
    digest: bytes | None = None

    def signer(self, known: Iterable[x509.Certificate]) -> x509.Certificate:
        """The certificate of ``known`` whose key signed the content. Raises ``SignedDataError``. Whether that certificate
        may be believed is not asked here."""
        for one in known:
            if one.serial_number == self.serial and one.issuer.public_bytes() == self.issuer:
                self._verify(one)
                return one
        raise SignedDataError("the certificate that signed it is not known")

    def _verify(self, certificate: x509.Certificate) -> None:
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey) or key.key_size < LEAST_BITS:
            raise SignedDataError(f"the signer's key is no RSA key of {LEAST_BITS} bits")
        signed = self.content
        if self.attributes is not None:
            hashed = hashes.Hash(self.hash)
            hashed.update(self.content)
            if self.digest is None or not compare_digest(hashed.finalize(), self.digest):
                raise SignedDataError("the content is not the one that was signed")
            signed = self.attributes
        try:
            key.verify(self.signature, signed, padding.PKCS1v15(), self.hash)
        except InvalidSignature:
            raise SignedDataError("the signature is wrong") from None


def read(data: bytes) -> SignedData:
    """Reads signed data. Raises ``SignedDataError``."""
    if len(data) > MOST_BYTES:
        raise SignedDataError(f"it has more than {MOST_BYTES} bytes")
    outer = _parts(_Reader(data).whole(), _SEQUENCE, 2, 2)
    if outer[0].body != _SIGNED_DATA:
        raise SignedDataError("it is no PKCS#7 signed data")
    version, _, content, *rest = _parts(_inner(outer[1]), _SEQUENCE, 4, 6)
    if version.tag != _INTEGER:
        raise SignedDataError("it has no version")
    about = _parts(content, _SEQUENCE, 2, 2)
    if about[0].body != _DATA:
        raise SignedDataError("its content is no plain data, or is not in it")
    signers = _parts(rest[-1], _SET, 1, 1)
    return _signed(_octets(_inner(about[1])), _certificates(rest[:-1]), _parts(signers[0], _SEQUENCE, 5, 7))


def _signed(content: bytes, certificates: tuple[x509.Certificate, ...], signer: Sequence[_Element]) -> SignedData:
    named = _parts(signer[1], _SEQUENCE, 2, 2)  # by the key's identifier: no cloud does, so it is refused
    if named[1].tag != _INTEGER:
        raise SignedDataError("the signer is not named by issuer and number")
    method, rest = _hash(signer[2]), list(signer[3:])
    attributes = digest = None
    if rest[0].tag == 0xA0:
        held = rest.pop(0)
        if not held.is_definite:
            raise SignedDataError("its signed attributes are not in DER")
        digest, attributes = _digest(held), bytes([_SET]) + held.raw[1:]
    if len(rest) < 2 or rest[1].tag != _OCTETS:
        raise SignedDataError("it has no signature")
    kind = _parts(rest[0], _SEQUENCE, 1, 2)[0]
    if kind.body != _RSA and (kind.body not in _SHA2 or _SHA2[kind.body].name != method.name):
        raise SignedDataError("it is not signed with RSA")
    number = int.from_bytes(named[1].body, signed=True)
    return SignedData(content, certificates, named[0].raw, number, method, rest[1].body, attributes, digest)


def _digest(attributes: _Element) -> bytes:
    """The content's digest among the signed attributes, whose type must be plain data."""
    found: dict[bytes, bytes] = {}
    for one in attributes.parts:
        name, values = _parts(one, _SEQUENCE, 2, 2)
        if name.body in found:
            raise SignedDataError("a signed attribute stands twice")
        found[name.body] = values.parts[0].body if len(values.parts) == 1 else b""
    if found.get(_CONTENT_TYPE) != _DATA or not found.get(_MESSAGE_DIGEST):
        raise SignedDataError("its signed attributes do not tell of the content")
    return found[_MESSAGE_DIGEST]


def _hash(element: _Element) -> hashes.HashAlgorithm:
    method = _SHA2.get(_parts(element, _SEQUENCE, 1, 2)[0].body)
    if method is None:
        raise SignedDataError("it is not hashed with SHA-2")
    return method


def _certificates(groups: Sequence[_Element]) -> tuple[x509.Certificate, ...]:
    held = [one for group in groups if group.tag == 0xA0 for one in group.parts]
    if len(held) > MOST_CERTIFICATES:
        raise SignedDataError(f"it has more than {MOST_CERTIFICATES} certificates")
    try:
        return tuple(x509.load_der_x509_certificate(one.raw) for one in held)
    except ValueError as error:
        raise SignedDataError(f"a certificate in it cannot be read: {error}") from error


def _parts(element: _Element, tag: int, least: int, most: int) -> tuple[_Element, ...]:
    if element.tag != tag or not least <= len(element.parts) <= most:
        raise SignedDataError("it has not the form of PKCS#7 signed data")
    return element.parts


def _inner(element: _Element) -> _Element:
    """What an element with the explicit tag [0] holds."""
    return _parts(element, 0xA0, 1, 1)[0]


def _octets(element: _Element) -> bytes:
    """A string of bytes, which BER may write in pieces."""
    if element.tag == _OCTETS:
        return element.body
    if element.tag == _GROUPED:
        return b"".join(_octets(part) for part in element.parts)
    raise SignedDataError("its content is no string of bytes")


__all__ = ["SignedData", "SignedDataError", "read"]
