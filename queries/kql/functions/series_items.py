"""Items of a dynamic array as numbers."""

from __future__ import annotations

from typing import Any

Json = Any
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number(value: Json) -> int | float | None:
    """The item as a number, or null; JSON has no NaN, so its name as text represents it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    return _WORDS.get(value) if isinstance(value, str) else None


def numbers(values: Json) -> list[int | float | None] | None:
    """All items as numbers, or null if this is not an array."""
    return [number(v) for v in values] if isinstance(values, list) else None
