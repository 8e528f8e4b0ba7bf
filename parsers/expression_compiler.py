"""The compiled reader of a regular expression: where its longest match ends.

For pieces of a line that need more than the steps of a header (parsers/header_grammar.py): repeated elements, a part that is
known only by what follows it. The expression is the only declaration: the general readers use it as it is, and here
its positions (parsers/positions.py) become a table of states, one look-up per byte.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from parsers.compiled import part
from parsers.lines import Array
from parsers.positions import BEGIN, END, OTHER, Part, Positions, TooHardError, positions
from parsers.scan import NOWHERE

#: The state in which no match is possible any more, and the one before the first byte.
_DEAD, _FIRST = 0, 1
#: In place of a position, before the first byte.
_BEFORE = -1
#: Bytes of characters beyond ASCII: each counts as a character.
_FOREIGN = 0x80
_MOST_STATES = 255


@cache
def end_of(expression: str) -> Any:
    """A compiled function of the bytes, the offset where a match must begin, and the end of the line. It returns where
    the longest match ends; below zero if there is none.

    ``expression`` (in the form of parsers/regexes.py) must be one whose first match is its longest. Raises
    ``ValueError`` for anchors and constructs that parsers/positions.py does not express.
    """
    following, final = _states(expression)

    def end(data: Array, at: int, line_end: int) -> int:
        state, found = _FIRST, NOWHERE
        while at < line_end:
            state = following[state, data[at]]
            if state == _DEAD:
                break
            at += 1
            if final[state]:
                found = at
        return found

    return part(end)


def _states(expression: str) -> tuple[Array, Array]:
    """By state and byte the next state; and which states end a match."""
    try:
        found, whole = positions(expression)
    except TooHardError:
        raise ValueError(f"only classes, groups, alternatives and repeats can be compiled: {expression}") from None
    if any(takes[[BEGIN, END]].any() for takes in found.takes):
        raise ValueError(f"a compiled expression begins where its caller says, without an anchor: {expression}")
    # A state is the set of positions that the last byte may have been at.
    reached: list[frozenset[int]] = [frozenset(), frozenset({_BEFORE})]
    rows: list[list[int]] = [[_DEAD] * 256]
    while len(rows) < len(reached):
        rows.append([_numbered(reached, some) for some in _after_each_byte(found, whole, reached[len(rows)])])
        if len(reached) > _MOST_STATES:
            raise ValueError(f"more than {_MOST_STATES} states: {expression}")
    final = np.array([bool(state & whole.last) for state in reached])
    return np.array(rows, np.uint8), final


def _after_each_byte(found: Positions, whole: Part, state: frozenset[int]) -> list[frozenset[int]]:
    """For each byte, the positions that it may be at after ``state``."""
    following = whole.first if _BEFORE in state else frozenset().union(*(found.follows[place] for place in state))
    return [
        frozenset(place for place in following if found.takes[place][byte if byte < _FOREIGN else OTHER])
        for byte in range(256)
    ]


def _numbered(reached: list[frozenset[int]], state: frozenset[int]) -> int:
    """The number of a state, which is added if it is new."""
    if state not in reached:
        reached.append(state)
    return reached.index(state)
