"""Hashes, and texts in other spellings: base64, gzip, zlib, URLs, punycode."""

from __future__ import annotations

import base64
import binascii
import gzip
import struct
import uuid
import zlib
from typing import Any
from urllib.parse import quote, unquote_plus

from queries.kql.functions.declaration import LINEAR, Body, Function, Template

_MASK = (1 << 64) - 1

_P1, _P2, _P3, _P4, _P5 = (
    11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261,
)  # fmt: skip


def _rotl(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _round(acc: int, lane: int) -> int:
    return (_rotl((acc + lane * _P2) & _MASK, 31) * _P1) & _MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64, unsigned. From the specification, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md."""
    place, size = 0, len(data)
    if size >= 32:
        accs = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while place <= size - 32:
            lanes = struct.unpack_from("<4Q", data, place)
            accs = [_round(a, lane) for a, lane in zip(accs, lanes, strict=True)]
            place += 32
        made = (_rotl(accs[0], 1) + _rotl(accs[1], 7) + _rotl(accs[2], 12) + _rotl(accs[3], 18)) & _MASK
        for acc in accs:
            made = ((made ^ _round(0, acc)) * _P1 + _P4) & _MASK
    else:
        made = (seed + _P5) & _MASK
    made = (made + size) & _MASK
    while place + 8 <= size:
        made = (_rotl(made ^ _round(0, struct.unpack_from("<Q", data, place)[0]), 27) * _P1 + _P4) & _MASK
        place += 8
    if place + 4 <= size:
        made = (_rotl(made ^ (struct.unpack_from("<I", data, place)[0] * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        place += 4
    while place < size:
        made = (_rotl(made ^ (data[place] * _P5 & _MASK), 11) * _P1) & _MASK
        place += 1
    made = ((made ^ (made >> 33)) * _P2) & _MASK
    made = ((made ^ (made >> 29)) * _P3) & _MASK
    return made ^ (made >> 32)


def signed(value: int) -> int:
    """64 unsigned bits as a long."""
    return value - (1 << 64) if value >> 63 else value


def to_bytes(value: Any) -> bytes:
    """The input of the hash: text as UTF-8, whole numbers and ticks as 8 bytes, reals as IEEE 754, little endian."""
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return struct.pack("<q", value)
    if isinstance(value, float):
        return struct.pack("<d", value)
    return str(value).encode()


def hash_(value: Any, modulo: int | None = None) -> int:
    """xxhash64 as a long, or its remainder."""
    made = xxh64(to_bytes(value))
    return made % modulo if modulo else signed(made)


def _unbase64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def base64_decode_toarray(text: str) -> list[int] | None:
    """The bytes as an array of numbers."""
    raw = _unbase64(text)
    return None if raw is None else list(raw)


def base64_encode_fromarray(values: Any) -> str | None:
    """An array of bytes in base64."""
    if not isinstance(values, list) or not all(isinstance(v, int) and 0 <= v < 256 for v in values):
        return None
    return base64.b64encode(bytes(values)).decode()


def base64_decode_tostring(text: str) -> str | None:
    """The text decoded from base64; null if it is not UTF-8."""
    raw = _unbase64(text)
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def base64_decode_toguid(text: str) -> str | None:
    """The text of a guid from base64."""
    made = base64_decode_tostring(text)
    try:
        return str(uuid.UUID(made)) if made else None
    except ValueError:
        return None


def base64_encode_fromguid(value: str) -> str:
    """The text of a guid in base64."""
    return base64.b64encode(str(uuid.UUID(value)).encode()).decode()


def zlib_compress(text: str) -> str:
    """zlib in base64."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def gzip_compress(text: str) -> str:
    """gzip in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _inflate(text: str, mode: int) -> str | None:
    raw = _unbase64(text)
    if raw is None:
        return None
    try:
        # A bomb in one cell must not fill the memory.
        made = zlib.decompressobj(mode).decompress(raw, 64 << 20)
        return made.decode()
    except (zlib.error, UnicodeDecodeError):
        return None


def zlib_decompress(text: str) -> str | None:
    """Text from zlib in base64."""
    return _inflate(text, zlib.MAX_WBITS)


def gzip_decompress(text: str) -> str | None:
    """Text from gzip in base64."""
    return _inflate(text, zlib.MAX_WBITS | 16)


def url_encode(text: str) -> str:
    """A space becomes +, the rest %xx in lower case."""
    made = quote(text, safe="-_.!*() ")
    return "".join(c.lower() if i % 2 else c for i, c in enumerate(_escapes(made))).replace(" ", "+")


def _escapes(text: str) -> list[str]:
    import re

    return re.split(r"(%[0-9A-F]{2})", text)


def url_decode(text: str) -> str:
    """The decoded text of %xx and +."""
    return unquote_plus(text)


def punycode_from_string(text: str) -> str:
    """Punycode of one label, without the xn-- prefix."""
    return text.encode("punycode").decode()


def punycode_to_string(text: str) -> str | None:
    """The decoded label."""
    try:
        return text.encode("ascii").decode("punycode")
    except (UnicodeError, ValueError):
        return None


def punycode_domain_from_string(text: str) -> str:
    """Each label of a domain in punycode if it needs it."""
    return ".".join(p if p.isascii() else "xn--" + punycode_from_string(p) for p in text.split("."))


def punycode_domain_to_string(text: str) -> str | None:
    """A domain with its xn-- labels decoded."""
    parts = [punycode_to_string(p[4:]) if p.lower().startswith("xn--") else p for p in text.split(".")]
    return None if None in parts else ".".join(p or "" for p in parts)


FUNCTIONS = (
    Function(
        "base64_encode_tostring",
        "The text in base64.",
        Template("s", "string", "to_base64(encode({0}))"),
        aliases=("base64_encodestring",),
    ),
    Function(
        "url_encode_component",
        "The text with everything percent-encoded that may not stand in a part of a URL.",
        Template("s", "string", "url_encode({0})"),
    ),
    Function("hash_md5", "The MD5 of a text, in hexadecimal.", Template("S", "string", "md5({0})"), cost=LINEAR),
    Function("hash_sha1", "The SHA-1 of a text, in hexadecimal.", Template("S", "string", "sha1({0})")),
    Function("hash_sha256", "The SHA-256 of a text, in hexadecimal.", Template("S", "string", "sha256({0})")),
    Function(
        "hash", "The xxHash64 of a value, or its remainder.", Body("h", "long", hash_), Body("h l", "long", hash_)
    ),
    Function(
        "hash_xxhash64",
        "The xxHash64 of a value, or its remainder.",
        Body("h", "long", hash_),
        Body("h l", "long", hash_),
        aliases=("hash_xxh64",),
    ),
    Function(
        "base64_decode_toarray", "The bytes behind base64 as an array.", Body("s", "dynamic", base64_decode_toarray)
    ),
    Function("base64_encode_fromarray", "An array of bytes in base64.", Body("d", "string", base64_encode_fromarray)),
    Function(
        "base64_decode_tostring",
        "The text behind base64.",
        Body("s", "string", base64_decode_tostring),
        aliases=("base64_decodestring",),
    ),
    Function("base64_decode_toguid", "The guid whose text is behind base64.", Body("s", "guid", base64_decode_toguid)),
    Function("base64_encode_fromguid", "The text of a guid in base64.", Body("g", "string", base64_encode_fromguid)),
    Function(
        "zlib_compress_to_base64_string",
        "The text compressed with zlib, in base64.",
        Body("s", "string", zlib_compress),
    ),
    Function(
        "zlib_decompress_from_base64_string", "The text behind zlib in base64.", Body("s", "string", zlib_decompress)
    ),
    Function(
        "gzip_compress_to_base64_string",
        "The text compressed with gzip, in base64.",
        Body("s", "string", gzip_compress),
    ),
    Function(
        "gzip_decompress_from_base64_string", "The text behind gzip in base64.", Body("s", "string", gzip_decompress)
    ),
    Function(
        "url_encode",
        "The text with a space as + and other characters percent-encoded.",
        Body("s", "string", url_encode),
    ),
    Function("url_decode", "The text behind percent-encoding.", Body("s", "string", url_decode)),
    Function(
        "punycode_from_string",
        "One label in punycode, without the xn-- before it.",
        Body("s", "string", punycode_from_string),
    ),
    Function("punycode_to_string", "The label behind punycode.", Body("s", "string", punycode_to_string)),
    Function(
        "punycode_domain_from_string",
        "A domain with each label in punycode that needs it.",
        Body("s", "string", punycode_domain_from_string),
    ),
    Function(
        "punycode_domain_to_string",
        "A domain with its xn-- labels decoded.",
        Body("s", "string", punycode_domain_to_string),
    ),
)
