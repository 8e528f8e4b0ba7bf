"""Collects the terms of many texts for a text filter: one compiled pass over all bytes (``parsers.compiled``).

A filter is built for every segment that is written, so its cost is a cost of every line. In NumPy the same work took
3 microseconds a line, as much as parsing it.

What a term is, ``store.text_filter`` says. A term's number comes from its first and last eight bytes and its length. So each
text is put in lower case once, and any eight bytes of it are read as one number (``window``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from parsers.compiled import compiled, part

Array = npt.NDArray[Any]

#: Shorter terms are in nearly every block: neither stored nor looked up.
SHORTEST = 3
#: A longer word is not stored as text; a block that has one is a candidate for every half of a word. In pairs of words
#: all longer ones are the same.
LONGEST_WORD = 40
LONG_WORD = 0x5EED_0F_10_44_00
#: Characters of the start of a token with digits.
START = 4
#: Distinguishes pairs of words from single ones.
PAIR_SALT = 1 << 21
#: Bits of a term's number that are zero: they hold the block's number while duplicates are sought.
BLOCK_BITS = 10
START_SALT = 1 << 20
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)

_A, _B, _C, _D = (np.uint64(number) for number in MULTIPLIERS)
_SEVEN, _HALF, _LESS = np.uint64(7), np.uint64(32), np.uint64(29)
_TERM = np.uint64(2**64 - (1 << BLOCK_BITS))
_BLOCK = np.uint64((1 << BLOCK_BITS) - 1)
_LONG_WORD, _ZERO, _ONE = np.uint64(LONG_WORD), np.uint64(0), np.uint64(1)
_START_SALT, _PAIR_SALT = np.uint64(START_SALT + START), np.uint64(PAIR_SALT)
#: The first so many bytes of a number.
_FIRST = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
LETTER, DIGIT, NOT_HEX, CAPITAL = 1, 2, 4, 8
_HEX = "abcdefx"  # with the x of 0x
#: The class of each byte; 0: a separator.
CLASS = np.zeros(256, np.uint8)
for _char in map(chr, range(128)):
    if _char.isalnum():
        CLASS[ord(_char)] = DIGIT if _char.isdigit() else LETTER | (0 if _char.lower() in _HEX else NOT_HEX)
        CLASS[ord(_char)] |= CAPITAL if _char.isupper() else 0
#: The characters outside ASCII that fold to ASCII letters, as bytes: the first, and the one or two after it.
_FOLDS = np.array([[0xC4, 0xB0, 0], [0xC5, 0xBF, 0], [0xE2, 0x84, 0xAA]], np.uint8)
#: The least of their first bytes.
_FOLDING = 0xC4
#: Entries beside those that a text's bytes allow.
_SPARE = 8
#: Log lines have a distinct term in a block for every twelve bytes. Room for more costs nothing until it is used.
_BYTES_A_TERM = 8


class _Rules(NamedTuple):
    """The tables of characters, in the form of compiled code."""

    classes: Array
    folds: Array
    first: Array


_RULES = _Rules(CLASS, _FOLDS, _FIRST)


class _Lowered(NamedTuple):
    """The present text in lower case, and the eight bytes from each of its places on as a number (``window``)."""

    text: Array
    window: Array


class Terms(NamedTuple):
    """``entries``: the distinct terms of each block, with the block's number in the lowest bits. ``words``: where each
    distinct word lies in the data (a few lie there twice). ``always``: blocks that every question must read."""

    entries: Array
    words: Array
    always: Array


class _Tables(NamedTuple):
    """``entries`` and ``words`` as in ``Terms``, with room at their ends. ``seen``: the terms of the present block, with
    its number plus one in the lowest bits. ``vocabulary``: the terms of ``words``; zero: a free slot."""

    entries: Array
    words: Array
    seen: Array
    vocabulary: Array


#: How many entries, words, and terms of the present block there are; and that block.
_ENTRIES, _KNOWN, _USED, _CURRENT = range(4)


def terms_of(data: Array, ends: Array, owners: Array, blocks: int) -> Terms:
    """The terms of the texts that end at ``ends`` in ``data`` (bytes), each in the block ``owners`` (ascending, below
    ``blocks``). A text's end separates."""
    assert blocks < 1 << BLOCK_BITS
    always, counts = np.zeros(blocks, np.bool_), np.array([0, 0, 0, -1], np.int64)
    tables = _Tables(
        np.empty(max(1 << 16, len(data) // _BYTES_A_TERM), np.uint64), np.empty((1 << 13, 2), np.int64),
        np.zeros(1 << 13, np.uint64), np.zeros(1 << 14, np.uint64),
    )  # fmt: skip
    ends, owners = ends.astype(np.int64), owners.astype(np.int64)
    lowered = _room_for(int(np.diff(ends, prepend=0).max(initial=0)))
    text = 0
    while (text := _collect(data, ends, owners, text, _RULES, lowered, tables, counts, always)) < len(ends):
        tables = _with_room(tables, counts, int(ends[text] - (ends[text - 1] if text else 0)))
    return Terms(tables.entries[: counts[_ENTRIES]], tables.words[: counts[_KNOWN]], always)


def _room_for(longest: int) -> _Lowered:
    """Room for a text of so many bytes; a number may begin with its last one. x86-64 and ARM64 read them unaligned, and both
    have the first byte as the lowest."""
    text = np.zeros(longest + 8, np.uint8)
    return _Lowered(text, np.ndarray((longest + 1,), np.dtype("<u8"), text.data, strides=(1,)))


def _with_room(tables: _Tables, counts: Array, size: int) -> _Tables:
    """Tables with room for a text of this many bytes. Those that are sought in begin empty: a term may then be counted
    twice, which only makes the filter larger."""
    entries, words, seen, vocabulary = tables
    if counts[_ENTRIES] + size + _SPARE > len(entries):
        entries = np.concatenate((entries[: counts[_ENTRIES]], np.empty(len(entries) + size + _SPARE, np.uint64)))
    if counts[_KNOWN] + size + _SPARE > len(words):
        words = np.concatenate((words[: counts[_KNOWN]], np.empty((len(words) + size + _SPARE, 2), np.int64)))
    if 2 * (counts[_USED] + size + _SPARE) > len(seen):
        seen = np.zeros(1 << int(4 * (counts[_USED] + size + _SPARE)).bit_length(), np.uint64)
    if 2 * (counts[_KNOWN] + size + _SPARE) > len(vocabulary):
        vocabulary = np.zeros(1 << int(4 * (counts[_KNOWN] + size + _SPARE)).bit_length(), np.uint64)
    return _Tables(entries, words, seen, vocabulary)


@part
def hashed(first: np.uint64, last: np.uint64, salt: np.uint64) -> np.uint64:
    """A term's number from its first and last eight bytes and its length."""
    mixed = (first * _A) ^ ((last * _B) >> _SEVEN) ^ (salt * _C)
    mixed ^= mixed >> _HALF
    mixed *= _D
    mixed ^= mixed >> _LESS
    return mixed & _TERM


@part
def _slot(term: np.uint64, mask: int) -> int:
    return int(np.int64((term * _A) >> _HALF) & mask)


@part
def _note(term: np.uint64, tables: _Tables, counts: Array) -> bool:
    """Enters a term of the present block, unless that has it; whether it is new there. What other blocks had is a free
    slot."""
    current = np.uint64(counts[_CURRENT])
    block = current + _ONE
    seen = tables.seen
    mask = len(seen) - 1
    at = _slot(term, mask)
    while seen[at] & _BLOCK == block:
        if seen[at] == term | block:
            return False
        at = (at + 1) & mask
    seen[at] = term | block
    tables.entries[counts[_ENTRIES]] = term | current
    counts[_ENTRIES] += 1
    counts[_USED] += 1
    return True


@part
def _term_at(window: Array, start: int, size: int, first: Array) -> np.uint64:
    """The number of the term of ``size`` bytes that begins there in the present text."""
    if size > 8:
        return hashed(window[start], window[start + size - 8], np.uint64(size))
    return hashed(window[start] & first[size], _ZERO, np.uint64(size))


@part
def _as_written(data: Array, start: int, size: int) -> np.uint64:
    """The same without lower case, of a few words."""
    head = last = _ZERO
    for at in range(min(size, 8)):
        head |= np.uint64(data[start + at]) << np.uint64(8 * at)
    if size > 8:
        for at in range(8):
            last |= np.uint64(data[start + size - 8 + at]) << np.uint64(8 * at)
    return hashed(head, last, np.uint64(size))


@part
def _end_word(term: np.uint64, size: int, at: int, tables: _Tables, counts: Array) -> None:
    """Enters the word of ``size`` letters that ends before ``at``."""
    if not _note(term, tables, counts):
        return
    if size > LONGEST_WORD:
        _note(_LONG_WORD, tables, counts)
        return
    vocabulary = tables.vocabulary
    mask = len(vocabulary) - 1
    slot = _slot(term, mask)
    while vocabulary[slot] != _ZERO:
        if vocabulary[slot] == term:
            return
        slot = (slot + 1) & mask
    vocabulary[slot] = term
    known = counts[_KNOWN]
    tables.words[known, 0], tables.words[known, 1] = at - size, at
    counts[_KNOWN] += 1


@part
def _end_pair(first: np.uint64, second: np.uint64, as_first: np.uint64, as_second: np.uint64, tables: _Tables,
              counts: Array) -> None:  # fmt: skip
    """Enters a pair of words, in lower case and as they are written."""
    _note(hashed(first, second, _PAIR_SALT), tables, counts)
    if as_first != first or as_second != second:
        _note(hashed(as_first, as_second, _PAIR_SALT), tables, counts)


@part
def _end_token(window: Array, start: int, size: int, first: Array, tables: _Tables, counts: Array) -> None:
    """Enters a token with digits."""
    _note(_term_at(window, start, size, first), tables, counts)
    if size >= START:
        _note(hashed(window[start] & first[START], _ZERO, _START_SALT), tables, counts)


@part
def _folds(data: Array, at: int, end: int, folds: Array) -> bool:
    """Whether a character that folds to an ASCII letter begins here."""
    for letter in range(len(folds)):
        size = 0
        while size < 3 and at + size < end and data[at + size] == folds[letter, size]:
            size += 1
        if size == 3 or (size == 2 and folds[letter, 2] == 0):
            return True
    return False


@part
def _has_room(size: int, tables: _Tables, counts: Array) -> bool:
    """Whether a text of this many bytes fits: its terms are fewer than its bytes."""
    entries, words, used = counts[_ENTRIES], counts[_KNOWN], counts[_USED]
    more = size + _SPARE
    fits = entries + more <= len(tables.entries) and words + more <= len(tables.words)
    return bool(fits and 2 * (used + more) <= len(tables.seen) and 2 * (words + more) <= len(tables.vocabulary))


@part
def _lower(data: Array, begin: int, end: int, text: Array) -> None:
    for at in range(begin, end):
        byte = data[at]
        text[at - begin] = byte | (np.uint8(32) if np.uint8(byte - np.uint8(65)) < np.uint8(26) else np.uint8(0))


@compiled
def _collect(data: Array, ends: Array, owners: Array, text: int, rules: _Rules, lowered: _Lowered, tables: _Tables,
             counts: Array, always: Array) -> int:  # fmt: skip
    """Enters the terms of the texts from ``text`` on; returns the one for which there is no room, or their number."""
    classes, folds, first = rules
    window, begin = lowered.window, ends[text - 1] if text else 0
    while text < len(ends):
        end = ends[text]
        if owners[text] != counts[_CURRENT]:
            counts[_CURRENT], counts[_USED] = owners[text], 0
        if not _has_room(end - begin, tables, counts):
            break
        _lower(data, begin, end, lowered.text)
        before = before_as_written = _ZERO
        at, follows = begin, False  # whether the present token follows a word that ended the one before it
        while at < end:
            kind = int(classes[data[at]])
            if not kind:
                if data[at] >= _FOLDING and _folds(data, at, end, folds):
                    always[owners[text]] = True
                at += 1
                continue
            token, has_digits = at, False
            while kind:
                start, kinds = at, 0
                while kind & LETTER:
                    kinds |= kind
                    at += 1
                    kind = int(classes[data[at]]) if at < end else 0
                size = at - start
                # Letters of hexadecimal numbers only, beside digits, are no word.
                pairs = kinds & NOT_HEX != 0
                if pairs or (size >= SHORTEST and start == token and not kind):
                    term = _term_at(window, start - begin, size, first)
                    if size >= SHORTEST:
                        _end_word(term, size, at, tables, counts)
                    if pairs:
                        exact = _as_written(data, start, size) if kinds & CAPITAL else term
                        if size > LONGEST_WORD:
                            term = exact = _LONG_WORD
                        if follows and start == token:
                            _end_pair(before, term, before_as_written, exact, tables, counts)
                        before, before_as_written = term, exact
                follows = pairs and not kind
                while kind & DIGIT:
                    has_digits = True
                    at += 1
                    kind = int(classes[data[at]]) if at < end else 0
            if has_digits and at - token >= SHORTEST:
                _end_token(window, token - begin, at - token, first, tables, counts)
        begin = end
        text += 1
    return text


@compiled
def fill(entries: Array, grid: Array, multipliers: Array) -> None:
    """Sets the bits of the entries in ``grid``: a row per position, in it a bit per block, the first one highest."""
    bits = np.uint64(len(grid))
    for entry in entries:
        block = np.int64(entry & _BLOCK)
        column, bit = block >> 3, np.uint8(128 >> (block & 7))
        term = entry & _TERM
        for number in range(len(multipliers)):
            row = np.int64((((term * multipliers[number]) >> _HALF) * bits) >> _HALF)
            grid[row, column] |= bit
