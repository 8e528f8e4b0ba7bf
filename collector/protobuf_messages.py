"""Counts messages in protobuf that nobody has parsed: the library takes a hundred bytes of memory for one of two bytes."""

from __future__ import annotations

from collections.abc import Sequence

_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def count(data: bytes, path: Sequence[int], most: int) -> int:
    """How many messages lie at ``path``, field numbers from the outside in; counting ends above ``most``, and where
    ``data`` is no protobuf."""
    return _count(data, 0, len(data), path, most)


def at_most(data: bytes, field: int) -> int:
    """A bound for the number of messages that are field ``field`` (below 16) of others, found in no time: each begins
    with the same byte."""
    return data.count(bytes((field << 3 | _BYTES,)))


def _count(data: bytes, at: int, end: int, path: Sequence[int], most: int) -> int:
    wanted, found = path[0] << 3 | _BYTES, 0
    while at < end and found <= most:
        tag, at = _varint(data, at, end)
        form = tag & 7
        if form == _BYTES:
            size, at = _varint(data, at, end)
            if tag == wanted:
                last = min(at + size, end)
                found += 1 if len(path) == 1 else _count(data, at, last, path[1:], most - found)
            at += size
        elif form == _NUMBER:
            _, at = _varint(data, at, end)
        elif form in (_EIGHT, _FOUR):
            at += 8 if form == _EIGHT else 4
        else:
            break
    return found


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, at
