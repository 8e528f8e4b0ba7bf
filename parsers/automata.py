"""Regular expressions as automata, run by compiled code over many short texts: which of them may match where.

For some forty tests that run on every line without a known header. Here, each test costs a look at the line's first
bytes, since nearly all are anchored at its start; as regexes, each costs a call of the interpreter or of Polars.

The positions of all expressions (parsers/positions.py) make one automaton. For ASCII texts the answer equals the
regex's; for others it may be a false yes, never a false no. A regex that cannot be expressed counts as matching anything. Python's
own regexes may have look-around and word boundaries, which the automaton leaves out: more false yes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parsers.compiled import compiled, part, seldom
from parsers.lines import Array
from parsers.positions import (
    BEGIN,
    END,
    INSIDE,
    NOTHING,
    OTHER,
    SYMBOLS,
    Part,
    Positions,
    TooHardError,
    positions,
    wider_positions,
)

#: Most sets of positions kept at once.
_STATES = 4_096
#: In place of a next state: it is not known yet; nothing can match any more.
_UNKNOWN, _OVER = -1, -2
#: Most regexes: one bit each.
MOST_PATTERNS = 63
_ONE = np.uint64(1)


class _Tables(NamedTuple):
    """The positions of all regexes in the form of compiled code: position ``p`` takes symbols of the kinds ``takes[:,
    p]``, is followed by ``follows[bounds[p]:bounds[p + 1]]``, and ends a match of the regex with the bit ``ends[p]``.
    ``firsts`` begin a match, and ``anchored``: only at a text's beginning."""

    kinds: Array
    takes: Array
    bounds: Array
    follows: Array
    firsts: Array
    ends: Array
    anchored: bool


class _States(NamedTuple):
    """Sets of positions reached together, ``places[i]`` as bits, and by kind of symbol the next state (below zero: not
    known yet, or ``_OVER``); ``hits[i]``: the regexes whose match ends there. ``slots`` map a set to its number, ``known`` (one
    number) counts them."""

    places: Array
    next: Array
    hits: Array
    slots: Array
    known: Array


class Automata:
    """The tests of ``patterns`` (in the form of parsers/regexes.py, or compiled by Python; None counts as matching
    anything). Safe to use from several threads."""

    def __init__(self, patterns: Sequence[str | re.Pattern[str] | None]) -> None:
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
        inside = (np.arange(SYMBOLS) >= INSIDE) & (np.arange(SYMBOLS) < OTHER)
        table, kinds = np.unique(np.array([*takes, inside], np.bool_).T, axis=0, return_inverse=True)
        bounds = np.cumsum([0, *map(len, follows)], dtype=np.int64)
        behind = np.array([place for some in follows for place in some], np.int64)
        anchored = bool(firsts) and not any(takes[at][:BEGIN].any() or takes[at][END] for at in firsts)
        self._tables = _Tables(kinds.ravel(), table.copy(), bounds, behind, np.array(firsts, np.int64), ends, anchored)
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


def _made(pattern: str | re.Pattern[str] | None) -> tuple[Positions, Part]:
    """The positions of a regex; one that is always at its end for a regex that may match anything."""
    if pattern is not None:
        with contextlib.suppress(TooHardError):
            return positions(pattern) if isinstance(pattern, str) else wider_positions(pattern)
    return Positions(False), NOTHING


@compiled
def _run(data: Array, starts: Array, ends: Array, lines: Array, tables: _Tables, states: _States, found: Array) -> None:
    scratch = np.empty(states.places.shape[1], np.uint64)
    if states.known[0] == 0:
        _forget(tables, states)
    for at in range(len(lines)):
        state = _step(tables, states, 0, BEGIN, scratch)
        found[at] = 0
        if state < 0:  # not a place in the tables: what lies before them would be read
            continue
        bits = states.hits[state]
        # Unsigned, so that indices cannot wrap to the end.
        for place in range(np.uint64(starts[lines[at]]), np.uint64(ends[lines[at]])):
            following = states.next[np.uint64(state), np.uint64(tables.kinds[data[place]])]
            state = following if following >= 0 else _step(tables, states, state, data[place], scratch)
            if state < 0:
                break
            bits |= states.hits[np.uint64(state)]
        if state >= 0:
            state = _step(tables, states, state, END, scratch)
        found[at] = bits | states.hits[state] if state >= 0 else bits


@part
def _step(tables: _Tables, states: _States, state: int, symbol: int, scratch: Array) -> int:
    """The next state, or ``_OVER``."""
    following = states.next[state, tables.kinds[symbol]]
    return following if following != _UNKNOWN else _follow(tables, states, state, tables.kinds[symbol], scratch)


@part
def _forget(tables: _Tables, states: _States) -> None:
    """Forgets all states but the first, in which no position was reached."""
    states.slots[:] = -1
    states.known[0] = 1
    states.places[0] = 0
    states.next[0] = _UNKNOWN
    states.next[0, tables.kinds[INSIDE]] = 0
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
    if tables.anchored and not scratch.any():
        states.next[state, kind] = _OVER
        return _OVER
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
    states.next[number] = _UNKNOWN
    states.next[number, tables.kinds[INSIDE]] = number
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
