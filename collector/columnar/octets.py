"""Octet-counted frames of syslog (RFC 6587, 3.4.1) in bytes that were received: where they begin and end."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from collector.columnar.readiness import Readiness
from parsers.compiled import compiled, part
from parsers.lines import Array

#: A count has at most so many digits, and a blank behind them.
DIGITS = 7
_LINE_END, _RETURN, _SPACE, _ZERO, _NINE = b"\n\r 09"
#: Bytes of the shortest frame with its count.
_SHORTEST = 3
_NO_PLACES = np.empty((0, 2), np.int64)


def prepare() -> None:
    """Calls what :func:`whole` is compiled of."""
    _walk(np.frombuffer(b"1 a", np.uint8), _NO_PLACES, False)


#: Whether :func:`whole` is quick.
READY = Readiness(prepare)


def whole(data: bytes) -> tuple[int, bool]:
    """Where the last whole frame ends, with the line end that some senders add uncounted; and whether a count stands there."""
    if not READY:
        return _whole(data)
    _, end, begin = _walk(np.frombuffer(data, np.uint8), _NO_PLACES, False)
    return end, begin >= 0


def frames(data: bytes) -> list[bytes]:
    """The frames without their counts, without line ends and NULs at their ends, and without those that are empty then."""
    letters = np.frombuffer(data, np.uint8)
    places = np.empty((len(data) // _SHORTEST + 1, 2), np.int64)
    count, _, _ = _walk(letters, places, True)
    edges, text = np.zeros(count + 1, np.int64), np.empty(len(data), np.uint8)
    count = _trimmed(letters, places[:count], edges, text)
    found = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(text)])
    made = pl.from_arrow(found)
    assert isinstance(made, pl.Series)
    return made.to_list()


def _whole(data: bytes) -> tuple[int, bool]:
    """As :func:`whole`, while the machine code is not there: a connection's first second."""
    at = 0
    while True:
        while data[at : at + 1] == b"\n":
            at += 1
        blank = data.find(b" ", at, at + DIGITS + 1)
        counted = blank > at and data[at:blank].isdigit() and data[at] != _ZERO
        end = blank + 1 + int(data[at:blank]) if counted else 0
        if not counted or end > len(data):
            return at, counted
        at = end


@part
def _behind_count(data: Array, at: int) -> tuple[int, int]:
    """Where the frame begins whose count stands at ``at``, and its size; -1 if none does."""
    size, place = 0, at
    while place < len(data) and place < at + DIGITS and _ZERO <= data[place] <= _NINE:
        size = 10 * size + int(data[place]) - _ZERO
        place += 1
    if place == at or place == len(data) or data[place] != _SPACE or data[at] == _ZERO:
        return -1, 0
    return place + 1, size


@compiled
def _walk(data: Array, places: Array, cut: bool) -> tuple[int, int, int]:
    """Writes down where frames are (unless there are no ``places``), and says how many there are, where the last one ends,
    and where the frame begins whose count stands there (-1: there is none). ``cut``: one that is not whole counts, too."""
    at, count = 0, 0
    while True:
        while at < len(data) and data[at] == _LINE_END:  # some senders add one that they do not count
            at += 1
        begin, size = _behind_count(data, at)
        if begin < 0 or (begin + size > len(data) and not cut):
            return count, at, begin
        at = min(begin + size, len(data))
        if len(places):
            places[count, 0], places[count, 1] = begin, at
        count += 1


@compiled
def _trimmed(data: Array, places: Array, edges: Array, text: Array) -> int:
    """Puts frames behind each other, without the line ends and NULs at their ends and without empty ones; says how many
    there are. ``edges``: where each ends and the next one begins, of zeros."""
    left, to = 0, 0
    for row in range(len(places)):
        begin, end = places[row, 0], places[row, 1]
        while end > begin and (data[end - 1] == _LINE_END or data[end - 1] == _RETURN or data[end - 1] == 0):
            end -= 1
        for place in range(begin, end):
            text[to] = data[place]
            to += 1
        if end > begin:
            left += 1
            edges[left] = to
    return left
