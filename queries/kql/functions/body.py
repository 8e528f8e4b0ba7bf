"""One overload of a function whose body is Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Body:
    """Kinds of arguments, result type, and the function; `parts` name the values of one that gives several."""

    kinds: str
    result: str
    run: Callable[..., Any]
    nulls: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    volatile: bool = False
