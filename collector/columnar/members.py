"""Two columns of JSON objects as one: the members of both, a name of the first column before the same name of the second.

Objects as they are written here: by ``json.dumps(..., sort_keys=True, ensure_ascii=False)``, so that two sorted lists of
members are merged as they stand. What does not look like that is merged by the library. (Objects within objects are taken
to be sorted, and numbers without a power of ten to be written as the library writes them.)
"""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from parsers.compiled import compiled, part
from parsers.lines import Array, LineBuffer, joined

_QUOTE, _BACKSLASH, _COMMA, _COLON, _SPACE = b'"\\,: '
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_SMALL_E, _BIG_E, _SMALL_U, _SMALL_S = b"eEus"
_BEHIND = 16


def merged(first: pl.Series, second: pl.Series) -> pl.Series:
    """Both columns' objects as one, row by row; null and the empty text are no object."""
    one, other = (column.fill_null("").str.len_bytes().to_numpy() > 0 for column in (first, second))
    both = np.flatnonzero(one & other)
    found = pl.select(pl.when(pl.Series(one)).then(first).otherwise(second)).to_series().alias(first.name)
    if not len(both):
        return found
    return found.scatter(both, _both(first.gather(both), second.gather(both)))


def _both(first: pl.Series, second: pl.Series) -> pl.Series:
    (edges, data), (other_edges, other_data) = joined(first), joined(second)
    out = np.empty(len(data) + len(other_data) + 2 * len(first) + _BEHIND, np.uint8)
    places = np.empty((len(first), 2), np.int64)
    _merge(data, edges, other_data, other_edges, out, places)
    out.flags.writeable = False
    made = LineBuffer(out, places[:, 0], places[:, 0]).texts(places[:, 0], places[:, 1])
    left = np.flatnonzero(places[:, 1] < 0)
    if len(left):
        pairs = zip(first.gather(left), second.gather(left), strict=True)
        made = made.scatter(left, [_thoroughly(one, other) for one, other in pairs])
    return made


def _thoroughly(first: str, second: str) -> str:
    return json.dumps({**json.loads(second), **json.loads(first)}, sort_keys=True, ensure_ascii=False)


@part
def _member(data: Array, at: int, end: int) -> tuple[int, int]:
    """Where the name of the member at ``at`` ends (behind its quote), and where the member does: at the comma or the brace
    behind it. -1 if it is not written as it is here, or has what might be written otherwise: escapes, powers of ten."""
    name, depth, in_text = 0, 0, True
    if at >= end or data[at] != _QUOTE:
        return 0, -1
    for place in range(at + 1, end):
        letter = data[place]
        if letter == _BACKSLASH:
            return 0, -1
        if letter == _QUOTE:
            in_text = not in_text
            if not name:
                name = place + 1
        elif in_text:
            continue
        elif letter in (_OPEN, _OPEN_LIST):
            depth += 1
        elif letter in (_CLOSE, _CLOSE_LIST):
            if depth == 0:
                return name, place if name else -1
            depth -= 1
        elif letter == _COMMA and depth == 0:
            return name, place if name else -1
        elif (letter in (_COMMA, _COLON) and data[place + 1] != _SPACE) or (
            letter == _SPACE and data[place - 1] != _COMMA and data[place - 1] != _COLON
        ):
            return 0, -1
        elif letter == _BIG_E or (letter == _SMALL_E and data[place - 1] != _SMALL_U and data[place - 1] != _SMALL_S):
            return 0, -1  # an "e" that is not of "true" or "false"
    return 0, -1


@part
def _before(data: Array, at: int, end: int, other: Array, other_at: int, other_end: int) -> int:
    """How the text before a quote stands to another one: below zero if it comes first, zero if they are the same."""
    for place in range(min(end - at, other_end - other_at)):
        if data[at + place] != other[other_at + place]:
            return 1 if data[at + place] > other[other_at + place] else -1
    return (end - at) - (other_end - other_at)


@part
def _pair(data: Array, at: int, end: int, other: Array, other_at: int, other_end: int, out: Array, to: int) -> int:
    """Merges one object with another one; gives where the result ends, -1 if it cannot."""
    if data[at] != _OPEN or other[other_at] != _OPEN or data[end - 1] != _CLOSE or other[other_end - 1] != _CLOSE:
        return -1
    begin, at, other_at = to, at + 1, other_at + 1
    if data[at] == _CLOSE or other[other_at] == _CLOSE:
        return -1
    name, then = _member(data, at, end)
    other_name, other_then = _member(other, other_at, other_end)
    while at < end or other_at < other_end:
        if then < 0 or other_then < 0:
            return -1
        order = (
            1 if at == end else -1 if other_at == other_end
            else _before(data, at + 1, name - 1, other, other_at + 1, other_name - 1)
        )  # fmt: skip
        out[to], out[to + 1] = (_OPEN, 0) if to == begin else (_COMMA, _SPACE)
        to += 1 if to == begin else 2
        source, first, last = (data, at, then) if order <= 0 else (other, other_at, other_then)
        for place in range(first, last):
            out[to] = source[place]
            to += 1
        if order <= 0:
            at, name, then = _next(data, at, name, then, end)
        if order >= 0:
            other_at, other_name, other_then = _next(other, other_at, other_name, other_then, other_end)
    out[to] = _CLOSE
    return to + 1


@part
def _next(data: Array, at: int, name: int, then: int, end: int) -> tuple[int, int, int]:
    """The member behind the one at ``at``: where it begins, and what :func:`_member` says, or -1 if its name does not come
    later; ``end`` if there is none."""
    if data[then] == _CLOSE:
        return (end, 0, 0) if then == end - 1 else (then, 0, -1)
    if data[then + 1] != _SPACE:
        return then, 0, -1
    begin = then + 2
    new_name, new_then = _member(data, begin, end)
    if new_then >= 0 and _before(data, at + 1, name - 1, data, begin + 1, new_name - 1) >= 0:
        new_then = -1
    return begin, new_name, new_then


@compiled
def _merge(data: Array, edges: Array, other: Array, other_edges: Array, out: Array, places: Array) -> None:
    to = 0
    for row in range(len(edges) - 1):
        end = _pair(data, edges[row], edges[row + 1], other, other_edges[row], other_edges[row + 1], out, to)
        places[row, 0], places[row, 1] = to, end - to if end >= 0 else -1
        to = max(to, end)
