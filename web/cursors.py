"""Positions in lists, opaque for clients: where a page ends and the next one begins."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from web.problems import ProblemError

#: The range of integers in a column.
MOST_NEGATIVE, MOST = -(2**63), 2**63 - 1


def encode_cursor(*parts: object) -> str:
    """The position after a page's last row."""
    text = json.dumps([part.isoformat() if isinstance(part, datetime) else part for part in parts])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(text: str, *kinds: type) -> list[Any]:
    """The fields of a cursor, of these kinds. Raises a problem (the client's mistake) for any other text."""
    try:
        parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not isinstance(parts, list):
            raise TypeError
        return [_part(part, kind) for part, kind in zip(parts, kinds, strict=True)]
    except (TypeError, ValueError, RecursionError) as error:
        raise ProblemError(400, f"cursor={text[:40]!r} is not one of ours", do="Start again without cursor.") from error


def _part(value: object, kind: type) -> object:
    """Raises ``TypeError`` or ``ValueError`` for what is not of the kind."""
    if not isinstance(value, str if kind is datetime else kind) or isinstance(value, bool):
        raise TypeError
    if isinstance(value, str):
        value.encode()  # half a character is not a text of the store
    elif isinstance(value, int) and not MOST_NEGATIVE <= value <= MOST:
        raise ValueError(value)
    return datetime.fromisoformat(value) if kind is datetime and isinstance(value, str) else value
