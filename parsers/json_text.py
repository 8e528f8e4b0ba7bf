"""Reads JSON that others wrote: lines, documents, fields.

JSON may escape half of a surrogate pair (``"\\ud800"``), which is no character: no column, page or file can hold it, and
everything that encodes the text later would raise. So it is read as U+FFFD, like undecodable bytes. A line's ``raw``
stays as written.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: Any escape in order, so that the "u" after an escaped backslash is no escape. Only a half alone has the group.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_HALF = re.compile("[\ud800-\udfff]")


def _decoded(data: bytes) -> str:
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        # Like json.loads, which accepts encoded halves and refuses other bytes that are not UTF-8.
        return _HALF.sub("\ufffd", data.decode(encoding, "surrogatepass"))


def loads(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ``ValueError``, and ``RecursionError`` for one nested too deeply."""
    if not isinstance(text, str):
        text = _decoded(text)
    if "\\" in text and ("\\ud" in text or "\\uD" in text):  # a single character is found ten times as fast
        text = _ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found[0], text)
    return json.loads(text)
