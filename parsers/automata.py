"""Regular expressions as automata, run by compiled code over many short texts: which of them may match where.

For some forty tests that run on every line without a known header. Here, each test costs a look at the line's first
bytes, since nearly all are anchored at its start; as regexes, each costs a call of the interpreter or of Polars.

An automaton consists of the *positions* of a regex (Glushkov's construction): each takes one symbol of a class, and
others may follow it. Symbols are the ASCII characters, one for all other characters, and one each before the first and
after the last. For ASCII texts the answer equals the regex's; for others it may be a false yes, never a false no. A
regex with constructs other than classes, groups, alternatives, repeats and anchors counts as matching anything.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from parsers import regexes
from parsers.compiled import compiled, part, seldom
from parsers.lines import Array

#: Symbols are bytes. In UTF-8, lead bytes of a multi-byte character are equivalent, and continuation bytes (the first
#: constant) change nothing. The positions before the first and after the last character follow.
_INSIDE, _OTHER, _BEGIN, _END, _SYMBOLS = 0x80, 0xC0, 256, 257, 258
#: A regex with more positions than this counts as matching anything.
_MOST = 2_000
#: Most sets of positions kept at once.
_STATES = 4_096
#: Most regexes: one bit each.
MOST_PATTERNS = 63
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")
_REPEATS = (_codes.MAX_REPEAT, _codes.MIN_REPEAT)
#: Marks characters beyond ASCII, and the two ends of a text.
_FOREIGN, _START, _STOP = 128, -1, -2
_ASCII = frozenset(range(_FOREIGN))
_CHARACTERS = _ASCII | {_FOREIGN}
_ANCHORS = {_START: _BEGIN, _STOP: _END}
_AT = {
    _codes.AT_BEGINNING: _START,
    _codes.AT_BEGINNING_STRING: _START,
    _codes.AT_END: _STOP,
    _codes.AT_END_STRING: _STOP,
}
_ONE = np.uint64(1)


class _TooHardError(Exception):
    """The regex has constructs that an automaton cannot express."""


class _Part(NamedTuple):
    """A part of a regex: whether it may be empty, and the positions that it may begin and end with."""

    empty: bool
    first: frozenset[int]
    last: frozenset[int]


_NOTHING = _Part(True, frozenset(), frozenset())


@dataclass
class _Automaton:
    """The positions of one regex: the symbols that each takes, and the positions that may follow it."""

    dotall: bool
    takes: list[Array] = field(default_factory=list)
    follows: list[set[int]] = field(default_factory=list)

    def read(self, parsed: Iterable[Any]) -> _Part:
        whole = _NOTHING
        for code, value in parsed:
            whole = self._then(whole, self._read_one(code, value))
        return whole

    def _read_one(self, code: Any, value: Any) -> _Part:
        if code is _codes.SUBPATTERN:
            if value[1] or value[2]:
                raise _TooHardError
            return self.read(value[3])
        if code is _codes.BRANCH:
            ways = [self.read(way) for way in value[1]]
            first = frozenset(place for way in ways for place in way.first)
            last = frozenset(place for way in ways for place in way.last)
            return _Part(any(way.empty for way in ways), first, last)
        if code in _REPEATS:
            return self._repeated(*value)
        if code is _codes.AT and value in _AT:
            return self._place(frozenset([_AT[value]]))
        return self._place(self._symbols(code, value))

    def _repeated(self, least: int, most: Any, inner: Any) -> _Part:
        whole = _NOTHING
        for _ in range(least):
            part_ = self.read(inner)
            whole = self._then(whole, part_)
        if most is _codes.MAXREPEAT:
            again = part_ if least else self.read(inner)
            for place in again.last:
                self.follows[place] |= again.first
            return whole if least else again._replace(empty=True)
        rest = _NOTHING
        for _ in range(most - least):  # builds a(a(a)?)? from the inside
            rest = self._then(self.read(inner), rest)._replace(empty=True)
        return self._then(whole, rest)

    def _then(self, before: _Part, behind: _Part) -> _Part:
        for place in before.last:
            self.follows[place] |= behind.first
        first = before.first | behind.first if before.empty else before.first
        last = before.last | behind.last if behind.empty else behind.last
        return _Part(before.empty and behind.empty, first, last)

    def _place(self, characters: frozenset[int]) -> _Part:
        if len(self.takes) >= _MOST:
            raise _TooHardError
        taken = np.zeros(_SYMBOLS, np.bool_)
        taken[list(characters & _ASCII)] = True
        taken[_OTHER:_BEGIN] = any(character >= _FOREIGN for character in characters)
        taken[[_ANCHORS[anchor] for anchor in characters & _ANCHORS.keys()]] = True
        self.takes.append(taken)
        self.follows.append(set())
        at = frozenset([len(self.takes) - 1])
        return _Part(False, at, at)

    def _symbols(self, code: Any, value: Any) -> frozenset[int]:
        if code is _codes.LITERAL:
            return frozenset([value])
        if code is _codes.NOT_LITERAL:
            return _CHARACTERS - {value}
        if code is _codes.ANY:
            return _CHARACTERS - (set() if self.dotall else {10})
        if code is not _codes.IN:
            raise _TooHardError
        return _class(value)


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
        else:  # parsers.regexes expands \d and the like, since they cover more than ASCII
            raise _TooHardError
    return _CHARACTERS - (found & _ASCII) if negated else frozenset(found)


class _Tables(NamedTuple):
    """The positions of all regexes in the form of compiled code: position ``p`` takes symbols of the kinds ``takes[:,
    p]``, is followed by ``follows[bounds[p]:bounds[p + 1]]``, and ends a match of the regex with the bit ``ends[p]``.
    ``firsts`` begin a match."""

    kinds: Array
    takes: Array
    bounds: Array
    follows: Array
    firsts: Array
    ends: Array


class _States(NamedTuple):
    """Sets of positions reached together, ``places[i]`` as bits, and by kind of symbol the next state (below zero: not
    known yet); ``hits[i]``: the regexes whose match ends there. ``slots`` map a set to its number, ``known`` (one
    number) counts them."""

    places: Array
    next: Array
    hits: Array
    slots: Array
    known: Array


class Automata:
    """The tests of ``patterns`` (in the form of parsers/regexes.py; None counts as matching anything). Safe to use from
    several threads."""

    def __init__(self, patterns: Sequence[str | None]) -> None:
        assert len(patterns) <= MOST_PATTERNS
        takes: list[Array] = []
        follows: list[list[int]] = []
        firsts: list[int] = []
        lasts: dict[int, int] = {}
        always = 0
        for number, pattern in enumerate(patterns):
            base, (automaton, whole) = len(takes), _made(pattern)
            firsts += [base + at for at in sorted(whole.first)]
            lasts |= {base + at: 1 << number for at in whole.last}
            takes += automaton.takes
            follows += [[base + at for at in sorted(some)] for some in automaton.follows]
            always |= whole.empty << number
        ends = np.zeros(len(takes), np.uint64)
        ends[list(lasts)] = list(lasts.values())
        # Symbols that every position treats alike form one kind; those that change nothing form another.
        inside = (np.arange(_SYMBOLS) >= _INSIDE) & (np.arange(_SYMBOLS) < _OTHER)
        table, kinds = np.unique(np.array([*takes, inside], np.bool_).T, axis=0, return_inverse=True)
        bounds = np.cumsum([0, *map(len, follows)], dtype=np.int64)
        behind = np.array([place for some in follows for place in some], np.int64)
        self._tables = _Tables(kinds.ravel(), table.copy(), bounds, behind, np.array(firsts, np.int64), ends)
        self._always = np.uint64(always)
        #: Computed states are reused; each thread takes one of these out while it needs it.
        self._known: list[_States] = []

    def fitting(self, data: Array, starts: Array, ends: Array, lines: Array) -> Array:
        """For each of ``lines`` of a buffer, a number with a bit for each pattern that may match in it."""
        found = np.empty(len(lines), np.uint64)
        try:
            states = self._known.pop()
        except IndexError:
            states = self._states()
        _run(data, starts, ends, lines, self._tables, states, found)
        self._known.append(states)
        return found | self._always

    def _states(self) -> _States:
        words = len(self._tables.ends) // 64 + 1
        return _States(
            np.zeros((_STATES, words), np.uint64), np.empty((_STATES, len(self._tables.takes)), np.int32),
            np.zeros(_STATES, np.uint64), np.empty(4 * _STATES, np.int32), np.zeros(1, np.int64),
        )  # fmt: skip


def _made(pattern: str | None) -> tuple[_Automaton, _Part]:
    """The automaton of a regex; one that is always at its end for a regex that may match anything."""
    if pattern is not None:
        parsed = _parser.parse(regexes.portable(pattern))
        automaton = _Automaton(bool(parsed.state.flags & re.DOTALL))
        if not parsed.state.flags & (re.IGNORECASE | re.MULTILINE | re.VERBOSE):
            with contextlib.suppress(_TooHardError):
                return automaton, automaton.read(parsed)
    return _Automaton(False), _NOTHING


@compiled
def _run(data: Array, starts: Array, ends: Array, lines: Array, tables: _Tables, states: _States, found: Array) -> None:
    scratch = np.empty(states.places.shape[1], np.uint64)
    if states.known[0] == 0:
        _forget(tables, states)
    for at in range(len(lines)):
        state = _step(tables, states, 0, _BEGIN, scratch)
        bits = states.hits[state]
        # Unsigned, so that indices cannot wrap to the end.
        for place in range(np.uint64(starts[lines[at]]), np.uint64(ends[lines[at]])):
            following = states.next[np.uint64(state), np.uint64(tables.kinds[data[place]])]
            state = following if following >= 0 else _step(tables, states, state, data[place], scratch)
            bits |= states.hits[np.uint64(state)]
        found[at] = bits | states.hits[_step(tables, states, state, _END, scratch)]


@part
def _step(tables: _Tables, states: _States, state: int, symbol: int, scratch: Array) -> int:
    """The next state."""
    following = states.next[state, tables.kinds[symbol]]
    return following if following >= 0 else _follow(tables, states, state, tables.kinds[symbol], scratch)


@part
def _forget(tables: _Tables, states: _States) -> None:
    """Forgets all states but the first, in which no position was reached."""
    states.slots[:] = -1
    states.known[0] = 1
    states.places[0] = 0
    states.next[0] = -1
    states.next[0, tables.kinds[_INSIDE]] = 0
    states.hits[0] = 0


@seldom
def _follow(tables: _Tables, states: _States, state: int, kind: int, scratch: Array) -> int:
    """Computes the next state, and records it."""
    scratch[:] = 0
    for word in range(len(scratch)):
        left, place = states.places[state, word], word * 64
        while left:
            if left & _ONE:
                for edge in range(tables.bounds[place], tables.bounds[place + 1]):
                    _reach(tables, tables.follows[edge], kind, scratch)
            left >>= _ONE
            place += 1
    for at in range(len(tables.firsts)):
        _reach(tables, tables.firsts[at], kind, scratch)
    following = _known(states, scratch)
    if following < 0:
        if states.known[0] == len(states.hits):  # no room: forgets all, including the state it comes from
            _forget(tables, states)
            return _added(tables, states, scratch)
        following = _added(tables, states, scratch)
    states.next[state, kind] = following
    return following


@part
def _reach(tables: _Tables, place: int, kind: int, scratch: Array) -> None:
    if tables.takes[kind, place]:
        scratch[place >> 6] |= _ONE << np.uint64(place & 63)


@part
def _slot(states: _States, scratch: Array) -> int:
    """The slot that holds a set's number, or is free for it."""
    mixed = np.uint64(0)
    for word in range(len(scratch)):
        mixed = (mixed ^ scratch[word]) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(40)) % len(states.slots)
    while states.slots[slot] >= 0:
        known, same = states.slots[slot], 0
        while same < len(scratch) and states.places[known, same] == scratch[same]:
            same += 1
        if same == len(scratch):
            break
        slot = (slot + 1) % len(states.slots)
    return int(slot)


@part
def _known(states: _States, scratch: Array) -> int:
    """The number of a set, below zero if unknown. The empty set may have two."""
    return int(states.slots[_slot(states, scratch)])


@part
def _added(tables: _Tables, states: _States, scratch: Array) -> int:
    number = states.known[0]
    states.known[0] += 1
    states.slots[_slot(states, scratch)] = number
    states.next[number] = -1
    states.next[number, tables.kinds[_INSIDE]] = number
    states.hits[number] = 0
    for word in range(len(scratch)):
        states.places[number, word] = scratch[word]
        left, place = scratch[word], word * 64
        while left:
            if left & _ONE:
                states.hits[number] |= tables.ends[place]
            left >>= _ONE
            place += 1
    return int(number)
