"""Which of many short texts stand in which of many long ones: one pass over all bytes, however many texts are sought.

Of each sought text four bytes stand for it, the rarest of them in lines like those to come. At every place the last four
bytes, as a number, tell by one look into a table whether any text may stand here; only then it is compared. Shorter texts
are found by the last three bytes in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from parsers.compiled import compiled, part
from parsers.lines import Array

#: Bytes that stand for a text, and for one shorter than that.
LONG, SHORT = 4, 3
#: Bytes are told apart by the first 15 bits of their product with an odd number: two tables of 32 kB stay in a core's
#: nearest caches.
_MULTIPLIER, _BEHIND = np.uint32(0x9E3779B1), np.uint32(32 - 15)
_SLOTS = 1 << 15
#: What makes small letters of capital ones (and other characters of others, which the comparison tells apart).
_SMALL = np.uint8(32)
_BYTE, _LAST = np.uint32(8), np.uint32(24)
#: Texts found before the caller empties what they are written into.
_ROOM = 65_536
_Number = int | np.integer[Any]


class _Table(NamedTuple):
    """By the bytes read: whether a text may stand here, which ones, and how far before the last byte each begins."""

    used: Array
    edges: Array
    which: Array
    back: Array


class Texts(NamedTuple):
    """Text ``i`` is ``data[edges[i]:edges[i + 1]]``."""

    edges: Array
    data: Array


class Sought(NamedTuple):
    """Texts and where to look for them, as compiled code takes them."""

    texts: Texts
    long: _Table
    short: _Table


class Needles:
    """``texts`` (not empty, in small letters) to be found in any case of ASCII letters. Safe to use from several threads.

    ``like``: the bytes of lines as they will be searched. They change how long a search takes and never what it finds.
    """

    def __init__(self, texts: Sequence[str], like: Array | None = None) -> None:
        self.texts = tuple(texts)
        encoded = [text.encode() for text in self.texts]
        sample = np.zeros(0, np.uint8) if like is None else like | _SMALL
        self.sought = Sought(packed(encoded), _table(encoded, LONG, sample), _table(encoded, SHORT, sample))

    def find(self, edges: Array, data: Array) -> tuple[Array, Array]:
        """Which of the rows ``data[edges[i]:edges[i + 1]]`` hold which text: row and number of the text, in order and
        each pair once."""
        parts: list[tuple[Array, Array]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        row = 0
        while self.texts and len(data) and row < len(edges) - 1:
            rows, numbers = (np.empty(_ROOM + len(self.texts), np.int64) for _ in range(2))
            row, count = _search(edges, data, row, self.sought, rows, numbers)
            parts.append((rows[:count], numbers[:count]))
        return np.concatenate([rows for rows, _ in parts]), np.concatenate([numbers for _, numbers in parts])


def packed(texts: Iterable[bytes]) -> Texts:
    """``texts`` as compiled code takes them."""
    known = list(texts)
    edges = np.zeros(len(known) + 1, np.int64)
    np.cumsum([len(text) for text in known], out=edges[1:])
    return Texts(edges, np.frombuffer(b"".join(known), np.uint8))


def _table(texts: list[bytes], width: int, sample: Array) -> _Table:
    """Where to look for those of ``texts`` that ``width`` bytes stand for."""
    often = np.bincount(_slots(sample, width), minlength=_SLOTS)
    found: dict[int, list[tuple[int, int]]] = {}
    for number, text in enumerate(texts):
        if (len(text) >= LONG) != (width == LONG):
            continue
        small = np.frombuffer(text, np.uint8) | _SMALL
        if len(text) < width:
            for slot in _whatever_before(small, width - len(text)).tolist():
                found.setdefault(slot, []).append((number, len(text) - 1))
            continue
        slots = _slots(small, width)
        at = int(often[slots].argmin())
        found.setdefault(int(slots[at]), []).append((number, at + width - 1))
    used = np.zeros(_SLOTS, np.uint8)
    used[list(found)] = 1
    sizes = np.zeros(_SLOTS + 1, np.int32)
    sizes[[slot + 1 for slot in found]] = [len(some) for some in found.values()]
    entries = [entry for slot in sorted(found) for entry in found[slot]]
    which, back = (np.array([entry[part] for entry in entries], np.int32) for part in range(2))
    return _Table(used, np.cumsum(sizes, dtype=np.int32), which, back)


def _whatever_before(small: Array, missing: int) -> Array:
    """The slots of a text that is too short by so many bytes; before the first byte of a row zeros are read."""
    letters = np.array([0, *(letter for letter in range(256) if letter & _SMALL)], np.uint32)
    keys = np.zeros(1, np.uint32)
    for at in range(missing):
        keys = (keys[:, None] | letters << np.uint32(8 * at)).ravel()
    for at, letter in enumerate(small.tolist(), missing):
        keys |= np.uint32(letter << 8 * at)
    return np.unique(_hashed(keys))


def _slots(small: Array, width: int) -> Array:
    """The slots of every ``width`` bytes that stand side by side."""
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
    """Whether ``data[begin:end]`` begins with a text of small letters, in any case of ASCII letters."""
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
    """Searches from ``row`` on while there is room for all texts; (the next row, how many were found)."""
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
    """Adds the texts in ``data[begin:end]`` to ``numbers`` and notes the ``row`` for each of them in ``seen``; how many
    are known then."""
    long, short = sought.long, sought.short
    any_short = len(short.which) > 0
    key = np.uint32(0)
    # Unsigned, as numbers that cannot count from the end.
    for last in range(np.uint64(begin), np.uint64(end)):
        key = key >> _BYTE | np.uint32(data[last] | _SMALL) << _LAST
        slot = np.uint32(key * _MULTIPLIER) >> _BEHIND
        if long.used[slot]:
            count = _met(long, slot, begin, np.int64(last), end, data, sought.texts, seen, row, numbers, count)
        if any_short:
            slot = np.uint32((key >> _BYTE) * _MULTIPLIER) >> _BEHIND
            if short.used[slot]:
                count = _met(short, slot, begin, np.int64(last), end, data, sought.texts, seen, row, numbers, count)
    return count


@part
def insert(numbers: Array, first: int, last: int, number: int) -> None:
    """Puts ``number`` among the ascending ``numbers[first:last]``; what stands at ``last`` is overwritten."""
    while last > first and numbers[last - 1] > number:
        numbers[last] = numbers[last - 1]
        last -= 1
    numbers[last] = number


@part
def _met(
    table: _Table, slot: _Number, begin: int, last: _Number, end: int, data: Array, texts: Texts, seen: Array, row: int,
    numbers: Array, count: int,
) -> int:  # fmt: skip
    """Adds the texts that may stand here and do, unless the row has them already; how many are known then."""
    for entry in range(table.edges[slot], table.edges[slot + 1]):
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
