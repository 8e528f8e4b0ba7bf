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
    """Tells texts apart: 8 bytes in hexadecimal."""
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
