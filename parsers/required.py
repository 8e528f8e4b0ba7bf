"""Finds texts that a regular expression cannot match without.

A failing search costs a microsecond, ``text in message`` a twentieth of that: the required texts are checked first.

To find them takes a fifth of a second of CPU for the built-in expressions, so the process that compiles the machine code
writes them beside it. Each is found there by its expression and flags: a changed one is not there, and is parsed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from parsers import compiled

#: Shorter texts are in most messages anyway.
SHORTEST = 2
#: Most spellings of one place that are enumerated; beyond that the place is treated as unknown.
MOST = 32
#: Common words of all logs.
_EVERYDAY = re.compile(
    "error|fail(?:ed|ure|ing|s)?|link|port|down|connection|connect|device|memory|temperature|detected|started|starting|start|stopped|"
    "service|time(?:d)? ?out|job|node|kernel|slurm|warning|fatal|state|task|step|process|lost|power|over|unable|cannot|bytes|user"
)
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")
_REPEATS = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)
#: These consume no character: the parts on both sides are adjacent.
_WITHOUT_WIDTH = (_codes.AT, _codes.ASSERT, _codes.ASSERT_NOT)
#: Any one of these texts.
Clause = tuple[str, ...]
#: By expression and flags, what :func:`needs` returns.
Needs = dict[tuple[str, int], tuple[Clause, ...]]
#: Of every expression of an index of this process.
_asked: Needs = {}


@cache  # every index of a process has the same regexes
def needs(regex: re.Pattern[str]) -> tuple[Clause, ...]:
    """For each of these clauses, the lower-cased form of every matching text contains one of its texts (in lower case);
    the most selective clauses first. Empty if nothing is certain."""
    found = set(_clauses(list(_parser.parse(regex.pattern, regex.flags))))
    return tuple(sorted(found, key=lambda clause: (-selectivity(clause), clause)))


def needs_kept(regex: re.Pattern[str]) -> tuple[Clause, ...]:
    """The same, from what was kept if it is there. For an index only: it loads the compiler, which knows the folder."""
    key = regex.pattern, regex.flags
    if key not in _asked:
        known = _kept().get(key)
        _asked[key] = needs(regex) if known is None else known
    return _asked[key]


@cache
def _kept() -> Needs:
    return kept(compiled.folder())


def keep(folder: Path) -> None:
    """Writes what this process found, for later ones; nothing if the folder cannot be written."""
    rows = [[*key, clauses] for key, clauses in _asked.items()]
    part = folder / f"needs-{os.getpid()}"
    with contextlib.suppress(OSError):
        try:
            part.write_text(json.dumps(rows), encoding="ascii")
            part.replace(_file(folder))
        finally:
            part.unlink(missing_ok=True)


def kept(folder: Path) -> Needs:
    """What a process of this version of our sources and of Python wrote; empty if there is none that can be read.

    It is text, and read as such. Whoever may change it may change the machine code beside it."""
    try:
        rows = json.loads(_file(folder).read_bytes())
        return {(pattern, flags): tuple(map(_clause, clauses)) for pattern, flags, clauses in rows}
    except (OSError, ValueError, TypeError):
        return {}


def _clause(texts: Any) -> Clause:
    """Raises ``ValueError`` unless it is a list of texts."""
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"no list of texts: {texts!r}")
    return tuple(texts)


def _file(folder: Path) -> Path:
    return folder / f"needs-{sys.hexversion:x}-{compiled.sources()}.json"


def selectivity(clause: Clause) -> float:
    """How rarely the texts of ``clause`` occur: longer is rarer, and common words count little."""
    return min(_weight(text) for text in clause) - len(clause) / 32


@lru_cache(maxsize=8192)  # the same texts are weighed repeatedly
def _weight(text: str) -> float:
    common = sum(map(len, _EVERYDAY.findall(text)))
    return sum(1.0 if letter.isalnum() else 0.5 for letter in text) - 0.5 * common


def _clauses(parsed: list[Any]) -> Iterator[Clause]:
    runs = {""}
    for code, value in parsed:
        if code is _codes.ASSERT and value[0] > 0:  # what a lookahead requires must be there too
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
    """Drops texts that contain another one."""
    return tuple(sorted(text for text in texts if not any(other in text for other in texts if other != text)))


def _one_of(ways: list[list[Clause]]) -> Iterator[Clause]:
    """The requirements of an alternation: the most selective clause of each branch, combined."""
    if all(ways):
        texts = {text for clauses in ways for text in max(clauses, key=selectivity)}
        if len(texts) <= MOST:
            yield _shortest(texts)


def _spellings(part: tuple[Any, Any]) -> set[str] | None:
    """Every text (in lower case) that a part may match, if they are few and ASCII."""
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
    """The parts with groups expanded: here a group is only its contents."""
    for code, value in parsed:
        if code is _codes.SUBPATTERN:
            yield from _flat(list(value[3]))
        elif code is _codes.ATOMIC_GROUP:
            yield from _flat(list(value))
        elif code not in _WITHOUT_WIDTH:
            yield code, value
