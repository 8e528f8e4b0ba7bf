"""Which texts a regular expression cannot match without.

A search that fails costs a microsecond, ``text in message`` a twentieth of that: what a regex needs is looked for first.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

#: Shorter texts are in most messages anyway; more than a few cost more than they save.
SHORTEST, MOST = 2, 3
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")
#: These match no letter themselves: what stands on both sides of them stands side by side.
_WITHOUT_WIDTH = (_codes.AT,)


def required_texts(regex: re.Pattern[str]) -> tuple[str, ...]:
    """Texts in small letters, each of which is in the small letters of every text that ``regex`` matches; the longest
    ones. Empty where nothing is sure."""
    runs = {run.lower() for run in _runs(list(_parser.parse(regex.pattern, regex.flags))) if len(run) >= SHORTEST}
    longest = sorted(runs, key=lambda run: (-len(run), run))
    chosen: list[str] = []
    for run in longest:
        if len(chosen) < MOST and not any(run in other for other in chosen):
            chosen.append(run)
    return tuple(chosen)


def _runs(parsed: list[Any]) -> Iterator[str]:
    """The stretches of letters that stand one after another in every match."""
    run = ""
    for code, value in _flat(parsed):
        if code is _codes.LITERAL and chr(value).isascii():
            run += chr(value)
            continue
        yield run
        run = ""
        if code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT) and value[0] > 0:
            yield from _runs(list(value[2]))
    yield run


def _flat(parsed: list[Any]) -> Iterator[tuple[Any, Any]]:
    """The parts with groups opened up: a group is only its contents here."""
    for code, value in parsed:
        if code is _codes.SUBPATTERN:
            yield from _flat(list(value[3]))
        elif code not in _WITHOUT_WIDTH:
            yield code, value
