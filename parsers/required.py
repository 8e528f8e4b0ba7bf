"""Which texts a regular expression cannot match without.

A search that fails costs a microsecond, ``text in message`` a twentieth of that: what a regex needs is looked for first.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import product
from typing import Any

#: Shorter texts are in most messages anyway.
SHORTEST = 2
#: So many spellings of one place are told apart; with more the place counts as open.
MOST = 32
#: What logs say all day long.
_EVERYDAY = re.compile(
    "error|fail(?:ed|ure|ing|s)?|link|port|down|connection|connect|device|memory|temperature|detected|started|starting|start|stopped|"
    "service|time(?:d)? ?out|job|node|kernel|slurm|warning|fatal|state|task|step|process|lost|power|over|unable|cannot|bytes|user"
)
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")
_REPEATS = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)
#: These take no letter themselves: what stands on both sides of them stands side by side.
_WITHOUT_WIDTH = (_codes.AT, _codes.ASSERT, _codes.ASSERT_NOT)
#: Any one of these texts.
Clause = tuple[str, ...]


@cache  # the same regexes for every index of a process
def needs(regex: re.Pattern[str]) -> tuple[Clause, ...]:
    """Of each of these clauses one text (in small letters) is in the small letters of every text that ``regex`` matches;
    the most telling clauses first. Empty where nothing is sure."""
    found = set(_clauses(list(_parser.parse(regex.pattern, regex.flags))))
    return tuple(sorted(found, key=lambda clause: (-selectivity(clause), clause)))


def selectivity(clause: Clause) -> float:
    """How rarely one of the texts of ``clause`` is met: the longer the rarer, words of every log count little."""
    return min(_weight(text) for text in clause) - len(clause) / 32


@lru_cache(maxsize=8192)  # the same texts are weighed again and again
def _weight(text: str) -> float:
    common = sum(map(len, _EVERYDAY.findall(text)))
    return sum(1.0 if letter.isalnum() else 0.5 for letter in text) - 0.5 * common


def _clauses(parsed: list[Any]) -> Iterator[Clause]:
    runs = {""}
    for code, value in parsed:
        if code is _codes.ASSERT and value[0] > 0:  # what is looked ahead for must be there too
            yield from _clauses(list(value[1]))
    for part in _flat(parsed):
        spelled = _spellings(part)
        if spelled is not None and len(runs) * len(spelled) <= MOST:
            runs = {before + after for before, after in product(runs, spelled)}
            continue
        yield from _selective_clauses(runs)
        runs = {""}
        code, value = part
        if spelled is not None:
            yield from _selective_clauses(spelled)
        elif code is _codes.BRANCH:
            yield from _one_of([list(_clauses(list(way))) for way in value[1]])
        elif code in _REPEATS and value[0] > 0:
            yield from _clauses(list(value[2]))
    yield from _selective_clauses(runs)


def _selective_clauses(runs: set[str]) -> Iterator[Clause]:
    if min(map(len, runs)) >= SHORTEST:
        yield _shortest(runs)


def _shortest(texts: set[str]) -> Clause:
    """Without the texts that hold another one."""
    return tuple(sorted(text for text in texts if not any(other in text for other in texts if other != text)))


def _one_of(ways: list[list[Clause]]) -> Iterator[Clause]:
    """What an alternative needs: the most telling clause of each of its ways, all in one."""
    if all(ways):
        texts = {text for clauses in ways for text in max(clauses, key=selectivity)}
        if len(texts) <= MOST:
            yield _shortest(texts)


def _spellings(part: tuple[Any, Any]) -> set[str] | None:
    """Every text (in small letters) that a part may stand for, if they are few and ASCII."""
    code, value = part
    if code is _codes.LITERAL:
        return {chr(value).lower()} if value < 128 else None
    if code is _codes.IN and all(kind is _codes.LITERAL and letter < 128 for kind, letter in value):
        return {chr(letter).lower() for _, letter in value}
    if code is _codes.BRANCH:
        found: set[str] = set()
        for way in value[1]:
            texts = {""}
            for inner in _flat(list(way)):
                spelled = _spellings(inner)
                if spelled is None or len(texts) * len(spelled) > MOST:
                    return None
                texts = {before + after for before, after in product(texts, spelled)}
            found |= texts
        return found
    return None


def _flat(parsed: list[Any]) -> Iterator[tuple[Any, Any]]:
    """The parts with groups opened up: a group is only its contents here."""
    for code, value in parsed:
        if code is _codes.SUBPATTERN:
            yield from _flat(list(value[3]))
        elif code is _codes.ATOMIC_GROUP:
            yield from _flat(list(value))
        elif code not in _WITHOUT_WIDTH:
            yield code, value
