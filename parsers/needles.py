"""Finds which of many short texts occur in which of many long ones: one pass over all bytes, however many texts are
sought.

Four adjacent bytes represent each sought text, the rarest of them in the expected lines. At every other position, the
last four bytes, as a number, show by one table look-up whether any text may occur there; only then it is compared. A
text may begin at an even or an odd position, so four bytes are chosen for each. Texts shorter than five bytes are
represented by three bytes in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from parsers.compiled import compiled, part
from parsers.lines import Array

#: Bytes that represent a text, and a text of at most that length.
LONG, SHORT = 4, 3
#: Bytes are hashed to the first 18 bits of their product with an odd number: one bit per slot fills 32 kB, which stay
#: in a core's L1 cache. Few slots are occupied, so few lines are compared in vain; the eight slots of a byte share a
#: list of texts.
_MULTIPLIER, _BEHIND = np.uint32(0x9E3779B1), np.uint32(32 - 18)
_SLOTS = 1 << 18
_SHARED, _BIT = np.uint32(3), np.uint32(7)
#: Converts upper-case letters to lower case (and some other characters, which the comparison distinguishes).
_SMALL = np.uint8(32)
#: The lower-case forms of any byte beside a text.
_ANY = np.array([0, *(letter for letter in range(256) if letter & _SMALL)], np.uint32)
_BYTE, _TWO, _LAST = np.uint32(8), np.uint32(16), np.uint32(24)
_ONE, _STEP = np.uint64(1), np.uint64(2)
#: Buffer size for found texts, emptied by the caller.
_ROOM = 65_536
_Number = int | np.integer[Any]


class _Table(NamedTuple):
    """Per slot of the bytes read: whether a text may occur (a bit), which ones, and how far before the last byte each
    begins."""

    used: Array
    edges: Array
    which: Array
    back: Array


class Texts(NamedTuple):
    """Text ``i`` is ``data[edges[i]:edges[i + 1]]``."""

    edges: Array
    data: Array


class Sought(NamedTuple):
    """The texts and where to look for them, in the form of compiled code."""

    texts: Texts
    long: _Table
    short: _Table


class Often:
    """How often each slot occurs in the bytes of the expected lines."""

    def __init__(self, data: Array) -> None:
        small = data | _SMALL
        self.of = {width: np.bincount(_slots(small, width), minlength=_SLOTS) for width in (LONG, SHORT)}


class Needles:
    """``texts`` (not empty, lower case), found in any case of ASCII letters. Safe to use from several threads.

    ``like``: a sample of the expected lines. It affects the speed of a search and never its result.
    """

    def __init__(self, texts: Sequence[str], like: Often | None = None) -> None:
        self.texts = tuple(texts)
        encoded = [text.encode() for text in self.texts]
        often = (like or Often(np.zeros(0, np.uint8))).of
        self.sought = Sought(packed(encoded), *(_table(encoded, width, often[width]) for width in (LONG, SHORT)))

    def find(self, edges: Array, data: Array) -> tuple[Array, Array]:
        """Which of the rows ``data[edges[i]:edges[i + 1]]`` contain which text: row and number of the text, in order,
        each pair once."""
        parts: list[tuple[Array, Array]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        row = 0
        while self.texts and len(data) and row < len(edges) - 1:
            rows, numbers = (np.empty(_ROOM + len(self.texts), np.int64) for _ in range(2))
            row, count = _search(edges, data, row, self.sought, rows, numbers)
            parts.append((rows[:count], numbers[:count]))
        return np.concatenate([rows for rows, _ in parts]), np.concatenate([numbers for _, numbers in parts])


def packed(texts: Iterable[bytes]) -> Texts:
    """``texts`` in the form of compiled code."""
    known = list(texts)
    edges = np.zeros(len(known) + 1, np.int64)
    np.cumsum([len(text) for text in known], out=edges[1:])
    return Texts(edges, np.frombuffer(b"".join(known), np.uint8))


def _table(texts: list[bytes], width: int, often: Array) -> _Table:
    """The table for those of ``texts`` that ``width`` bytes represent."""
    found: dict[int, list[tuple[int, int]]] = {}
    numbers = [number for number, text in enumerate(texts) if (len(text) > LONG) == (width == LONG)]
    known = packed(texts[number] for number in numbers)
    small = known.data | _SMALL
    inside = _slots(small, width)  # of all texts at once; those of a text end before the next one begins
    edges = known.edges.tolist()
    for at, number in enumerate(numbers):
        begin, end = edges[at], edges[at + 1]
        for slots, behind in _windows(small[begin:end], inside[begin : max(end - width + 1, begin)], width, often):
            for slot in slots.tolist():
                found.setdefault(slot, []).append((number, behind))
    taken = np.zeros(_SLOTS, np.bool_)
    taken[list(found)] = True
    lists: dict[int, list[tuple[int, int]]] = {}
    for slot, some in sorted(found.items()):
        lists.setdefault(slot >> int(_SHARED), []).extend(some)
    sizes = np.zeros((_SLOTS >> int(_SHARED)) + 1, np.int32)
    sizes[[group + 1 for group in lists]] = [len(some) for some in lists.values()]
    entries = [entry for some in lists.values() for entry in some]
    which, back = (np.array([entry[part] for entry in entries], np.int32) for part in range(2))
    return _Table(np.packbits(taken, bitorder="little"), np.cumsum(sizes, dtype=np.int32), which, back)


def _windows(small: Array, inside: Array, width: int, often: Array) -> Iterator[tuple[Array, int]]:
    """The slots that detect a text, and the distance from its first byte to the last one read: once for texts at an
    even position, once at an odd one. Windows ``inside`` the text are preferred, the rarest of them."""
    for parity in range(2):
        first = (parity + 1 - width) % 2
        if len(inside) > first:  # for every longer text, and there are thousands
            at = first + 2 * int(often[inside[first::2]].argmin())
            yield inside[at : at + 1], at + width - 1
            continue
        ends = range(parity, len(small) + 1, 2)
        known = [min(end + 1, len(small)) - max(end + 1 - width, 0) for end in ends]
        best_ends = [end for end, count in zip(ends, known, strict=True) if count == max(known)]
        slots = [_slots_at(small, end, width) for end in best_ends]
        at = min(range(len(best_ends)), key=lambda place: int(often[slots[place]].sum()))
        yield slots[at], best_ends[at]


def _slots_at(small: Array, end: int, width: int) -> Array:
    """The slots of the ``width`` bytes up to ``end``; bytes outside the text may be any. Beside a row, zeros are
    read."""
    keys = np.zeros(1, np.uint32)
    for at, place in enumerate(range(end + 1 - width, end + 1)):
        some = small[place : place + 1].astype(np.uint32) if 0 <= place < len(small) else _ANY
        keys = (keys[:, None] | some << np.uint32(8 * at)).ravel()
    slots: Array = np.unique(_hashed(keys))
    return slots


def _slots(small: Array, width: int) -> Array:
    """The slots of every ``width`` adjacent bytes."""
    count = max(len(small) - width + 1, 0)
    keys = np.zeros(count, np.uint32)
    for at in range(width):
        keys |= small[at : at + count].astype(np.uint32) << np.uint32(8 * at)
    return _hashed(keys)


def _hashed(keys: Array) -> Array:
    slots: Array = keys * _MULTIPLIER >> _BEHIND
    return slots.astype(np.int64)


@part
def _stands(data: Array, begin: int, end: int, text: Array, text_begin: int, text_end: int) -> bool:
    """Whether ``data[begin:end]`` begins with a lower-case text, in any case of ASCII letters."""
    if end - begin < text_end - text_begin:
        return False
    for at in range(text_end - text_begin):
        letter = data[begin + at]
        if 65 <= letter <= 90:
            letter |= _SMALL
        if letter != text[text_begin + at]:
            return False
    return True


@compiled
def _search(edges: Array, data: Array, row: int, sought: Sought, rows: Array, numbers: Array) -> tuple[int, int]:
    """Searches from ``row`` on while there is room for all texts; returns (the next row, how many were found)."""
    seen = np.full(len(sought.texts.edges) - 1, -1, np.int64)
    count = 0
    while row < len(edges) - 1 and count + len(seen) <= len(rows):
        first = count
        count = search_row(data, edges[row], edges[row + 1], row, sought, seen, numbers, count)
        rows[first:count] = row
        for at in range(first + 1, count):
            insert(numbers, first, at, numbers[at])
        row += 1
    return row, count


@part
def search_row(
    data: Array, begin: int, end: int, row: int, sought: Sought, seen: Array, numbers: Array, count: int
) -> int:
    """Adds the texts in ``data[begin:end]`` to ``numbers`` and marks the ``row`` for each of them in ``seen``; returns
    how many are known then."""
    long, short = sought.long, sought.short
    any_short = len(short.which) > 0
    key = np.uint32(0)
    # Unsigned, so that indices cannot wrap to the end.
    last, stop = np.uint64(begin) + _ONE, np.uint64(end)
    while last <= stop:
        second = np.uint32(data[last] | _SMALL) if last < stop else np.uint32(0)
        key = key >> _TWO | np.uint32(data[last - _ONE] | _SMALL) << _TWO | second << _LAST
        slot = np.uint32(key * _MULTIPLIER) >> _BEHIND
        if _taken(long, slot):
            count = _met(
                long, slot >> _SHARED, begin, np.int64(last), end, data, sought.texts, seen, row, numbers, count
            )
        if any_short:
            slot = np.uint32((key >> _BYTE) * _MULTIPLIER) >> _BEHIND
            if _taken(short, slot):
                count = _met(
                    short, slot >> _SHARED, begin, np.int64(last), end, data, sought.texts, seen, row, numbers, count
                )
        last += _STEP
    return count


@part
def _taken(table: _Table, slot: _Number) -> bool:
    return bool(table.used[slot >> _SHARED] >> (slot & _BIT) & 1)


@part
def insert(numbers: Array, first: int, last: int, number: int) -> None:
    """Inserts ``number`` into the ascending ``numbers[first:last]``; the value at ``last`` is overwritten."""
    while last > first and numbers[last - 1] > number:
        numbers[last] = numbers[last - 1]
        last -= 1
    numbers[last] = number


@part
def _met(
    table: _Table, group: _Number, begin: int, last: _Number, end: int, data: Array, texts: Texts, seen: Array, row: int,
    numbers: Array, count: int,
) -> int:  # fmt: skip
    """Adds the texts that the table suggests and that occur, unless the row has them already; returns how many are
    known then."""
    for entry in range(table.edges[group], table.edges[group + 1]):
        number = table.which[entry]
        at = last - table.back[entry]
        if (
            at >= begin
            and seen[number] != row
            and _stands(data, at, end, texts.data, texts.edges[number], texts.edges[number + 1])
        ):
            seen[number] = row
            numbers[count] = number
            count += 1
    return count
