"""Paths into dynamic values: `$.a['b'][0]`."""

from __future__ import annotations

import re

_STEP = re.compile(r"\.([^.\[]+)|\[\s*(?:'([^']*)'|\"([^\"]*)\"|(\d+))\s*\]")


def path_of(text: str) -> list[str | int]:
    """The steps of `$.a['b'][0]`; a bare name is one step."""
    if not text.startswith("$"):
        return [text]
    return [int(m[4]) if m[4] else (m[1] or m[2] or m[3] or "") for m in _STEP.finditer(text)]
