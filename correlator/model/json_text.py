"""Documents as texts: the same text for the same content."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson


def from_json(text: str) -> Any:
    """Parses a text; raises ``ValueError`` if it is not JSON."""
    try:
        return orjson.loads(text)
    except ValueError:  # what lines may contain nevertheless: NaN, half a character
        return json.loads(text)


def sorted_json(document: Any) -> str:
    """JSON with its keys in order."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # what a line may contain: a number of more than 64 bits, half a character
        return json.dumps(document, sort_keys=True)


def digest(text: str) -> str:
    """Tells texts apart: 10 bytes in hexadecimal. Processors have instructions for SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def has_digest(text: str, known: str | None) -> bool:
    """Is ``known`` the digest of the text? Also one of an earlier version, which are 8 bytes of BLAKE2s."""
    if known is not None and len(known) == 16:
        return known == hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
    return known == digest(text)
