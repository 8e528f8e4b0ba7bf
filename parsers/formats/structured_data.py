"""RFC 5424's structured data, ``[id name="value" ...][...]``: its grammar, declared once for the formats and for the compiled
reader of headers, and its parameters.

In a value, a backslash escapes a quotation mark, a closing bracket and itself. What relays write is read more generously than
the RFC allows: an element may contain anything up to its closing bracket.
"""

from __future__ import annotations

import re

_NAME = r'[^\s=\]"]+'
_VALUE = r'(?:[^"\\]|\\.)*'
_INSIDE = rf'(?:[^\]\\"]|\\.|"{_VALUE}")*'
#: One or more elements; ``.`` must match any character (flag ``s``).
STRUCTURED_DATA = rf"(?:\[{_INSIDE}\])+"
_PARAMETER = re.compile(rf'({_NAME})="({_VALUE})"')
_ELEMENT = re.compile(rf"\[({_NAME})({_INSIDE})\]")
_ESCAPE = re.compile(r'\\(["\\\]])')


def parameters(text: str) -> dict[str, dict[str, str]]:
    """Structured data -> {id: {name: value}}, escapes resolved."""
    return {
        found[1]: {name: _ESCAPE.sub(r"\1", value) for name, value in _PARAMETER.findall(found[2])}
        for found in _ELEMENT.finditer(text)
    }
