"""A regular expression as *positions* (Glushkov's construction): each takes one symbol of a class, and others may follow it.

Symbols are the ASCII characters, one for all other characters, and one each before the first and after the last.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from parsers import regexes
from parsers.lines import Array

#: Symbols are bytes. In UTF-8, lead bytes of a multi-byte character are equivalent, and continuation bytes (the first
#: constant) change nothing. The positions before the first and after the last character follow.
INSIDE, OTHER, BEGIN, END, SYMBOLS = 0x80, 0xC0, 256, 257, 258
#: A regex with more positions than this is not expressed.
_MOST = 2_000
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")
_REPEATS = (_codes.MAX_REPEAT, _codes.MIN_REPEAT)
#: Marks characters beyond ASCII, and the two ends of a text.
_FOREIGN, _START, _STOP = 128, -1, -2
_ASCII = frozenset(range(_FOREIGN))
_CHARACTERS = _ASCII | {_FOREIGN}
_ANCHORS = {_START: BEGIN, _STOP: END}
_BEGINNING = (_codes.AT_BEGINNING, _codes.AT_BEGINNING_STRING)
_AT = dict.fromkeys(_BEGINNING, _START) | dict.fromkeys((_codes.AT_END, _codes.AT_END_STRING), _STOP)
#: The ASCII characters of ``\d`` and the like; each also has others.
_CATEGORIES = {
    code: frozenset(number for number in _ASCII if re.match(written, chr(number)))
    for code, written in (
        (_codes.CATEGORY_DIGIT, r"\d"), (_codes.CATEGORY_NOT_DIGIT, r"\D"), (_codes.CATEGORY_SPACE, r"\s"),
        (_codes.CATEGORY_NOT_SPACE, r"\S"), (_codes.CATEGORY_WORD, r"\w"), (_codes.CATEGORY_NOT_WORD, r"\W"),
    )
}  # fmt: skip


class TooHardError(Exception):
    """The regex has constructs that an automaton cannot express."""


class Part(NamedTuple):
    """A part of a regex: whether it may be empty, and the positions that it may begin and end with."""

    empty: bool
    first: frozenset[int]
    last: frozenset[int]


NOTHING = Part(True, frozenset(), frozenset())


@dataclass
class Positions:
    """The positions of one regex: the symbols that each takes, and the positions that may follow it."""

    dotall: bool
    takes: list[Array] = field(default_factory=list)
    follows: list[set[int]] = field(default_factory=list)

    def read(self, parsed: Iterable[Any]) -> Part:
        whole = NOTHING
        for code, value in parsed:
            whole = self._then(whole, self._read_one(code, value))
        return whole

    def _read_one(self, code: Any, value: Any) -> Part:
        if code is _codes.SUBPATTERN:
            if value[1] or value[2]:
                raise TooHardError
            return self.read(value[3])
        if code is _codes.BRANCH:
            ways = [self.read(way) for way in value[1]]
            first = frozenset(place for way in ways for place in way.first)
            last = frozenset(place for way in ways for place in way.last)
            return Part(any(way.empty for way in ways), first, last)
        if code in _REPEATS:
            return self._repeated(*value)
        if code is _codes.AT and value in _AT:
            return self._place(frozenset([_AT[value]]))
        return self._place(self._symbols(code, value))

    def _repeated(self, least: int, most: Any, inner: Any) -> Part:
        whole = NOTHING
        for _ in range(least):
            part_ = self.read(inner)
            whole = self._then(whole, part_)
        if most is _codes.MAXREPEAT:
            again = part_ if least else self.read(inner)
            for place in again.last:
                self.follows[place] |= again.first
            return whole if least else again._replace(empty=True)
        rest = NOTHING
        for _ in range(most - least):  # builds a(a(a)?)? from the inside
            rest = self._then(self.read(inner), rest)._replace(empty=True)
        return self._then(whole, rest)

    def _then(self, before: Part, behind: Part) -> Part:
        for place in before.last:
            self.follows[place] |= behind.first
        first = before.first | behind.first if before.empty else before.first
        last = before.last | behind.last if behind.empty else behind.last
        return Part(before.empty and behind.empty, first, last)

    def _place(self, characters: frozenset[int]) -> Part:
        if len(self.takes) >= _MOST:
            raise TooHardError
        taken = np.zeros(SYMBOLS, np.bool_)
        taken[list(characters & _ASCII)] = True
        taken[OTHER:BEGIN] = max(characters, default=0) >= _FOREIGN
        taken[[_ANCHORS[anchor] for anchor in characters & _ANCHORS.keys()]] = True
        self.takes.append(taken)
        self.follows.append(set())
        at = frozenset([len(self.takes) - 1])
        return Part(False, at, at)

    def _symbols(self, code: Any, value: Any) -> frozenset[int]:
        if code is _codes.LITERAL:
            return frozenset([value])
        if code is _codes.NOT_LITERAL:
            return _CHARACTERS - {value}
        if code is _codes.ANY:
            return _CHARACTERS - (set() if self.dotall else {10})
        if code is not _codes.IN:
            raise TooHardError
        return _class(value)


class _WiderPositions(Positions):
    """The positions of a regex without the conditions on what surrounds a place (``\\b``, look-around, the end): it also
    matches where the regex does not, and never the other way round."""

    def _read_one(self, code: Any, value: Any) -> Part:
        if code in (_codes.ASSERT, _codes.ASSERT_NOT) or (code is _codes.AT and value not in _BEGINNING):
            return NOTHING
        return super()._read_one(code, value)


def _class(items: list[Any]) -> frozenset[int]:
    """The characters of a class; if it has any beyond ASCII, it counts as having all of them."""
    negated = items[0][0] is _codes.NEGATE
    found: set[int] = set()
    for code, value in items[1:] if negated else items:
        if code is _codes.LITERAL:
            found.add(value)
        elif code is _codes.RANGE:
            found.update(range(value[0], min(value[1], _FOREIGN) + 1))
            found |= {_FOREIGN} if value[1] > _FOREIGN else set()
        elif code is _codes.CATEGORY:
            found |= _CATEGORIES[value] | {_FOREIGN}
        else:
            raise TooHardError
    return _CHARACTERS - (found & _ASCII) if negated else frozenset(found)


def positions(pattern: str) -> tuple[Positions, Part]:
    """The positions of ``pattern`` (in the form of parsers/regexes.py) and where a match begins and ends. Raises
    ``TooHardError`` for constructs other than classes, groups, alternatives, repeats and anchors."""
    return _read(Positions, _parser.parse(regexes.portable(pattern)))


def wider_positions(regex: re.Pattern[str]) -> tuple[Positions, Part]:
    """Like :func:`positions`, of a regex of Python's that also matches where ``regex`` does not: its conditions on what
    surrounds a place are left out."""
    return _read(_WiderPositions, _parser.parse(regex.pattern, regex.flags))


def _read(kind: type[Positions], parsed: Any) -> tuple[Positions, Part]:
    if parsed.state.flags & (re.IGNORECASE | re.MULTILINE | re.VERBOSE):
        raise TooHardError
    found = kind(bool(parsed.state.flags & re.DOTALL))
    return found, found.read(parsed)
