"""Collects the terms of many texts for a text filter: one compiled pass over all bytes (``parsers.compiled``).

A filter is built for every segment that is written, so its cost is a cost of every line. In NumPy the same work took
3 microseconds a line, as much as parsing it.

What a term is, ``store.text_filter`` says. A term's number comes from its first and last eight bytes and its length. So any
eight bytes of the data are read as one number (``eights``). A text's terms are collected first and entered afterwards: with
fewer mispredicted branches, this takes a fifth less time.
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
#: Letters and digits are in lower case with this bit.
_SMALL = np.uint64(0x2020202020202020)
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
#: Terms that are collected before they are entered, 24 bytes each; and the most that are found in one step.
_COLLECTED, _STEP = 1 << 12, 8
#: Log lines have a distinct term in a block for every twelve bytes. Room for more costs nothing until it is used.
_BYTES_A_TERM = 8


class _Rules(NamedTuple):
    """The tables of characters, in the form of compiled code."""

    classes: Array
    folds: Array
    first: Array


_RULES = _Rules(CLASS, _FOLDS, _FIRST)


class _Found(NamedTuple):
    """Room for the terms of a text, or of a part of a long one. Of those that are words for the vocabulary: where they end
    in the data, and their sizes; other sizes are 0."""

    terms: Array
    ends: Array
    sizes: Array


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
    found = _Found(np.zeros(_COLLECTED, np.uint64), np.zeros(_COLLECTED, np.int64), np.zeros(_COLLECTED, np.int64))
    if len(data) < 16:  # so few numbers lie side by side for the compiler, which would make other code for them
        data = np.concatenate((data, np.zeros(16, np.uint8)))
        data.flags.writeable = False
    # x86-64 and ARM64 read them unaligned, and both have the first byte as the lowest.
    eights = np.ndarray((max(0, len(data) - 7),), np.dtype("<u8"), data.data, strides=(1,))
    text = 0
    while (text := _collect(data, ends, owners, text, _RULES, eights, found, tables, counts, always)) < len(ends):
        tables = _with_room(tables, counts, int(ends[text] - (ends[text - 1] if text else 0)))
    return Terms(tables.entries[: counts[_ENTRIES]], tables.words[: counts[_KNOWN]], always)


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
def _eight(data: Array, eights: Array, at: int) -> np.uint64:
    """The eight bytes from there on as a number; zeros behind the end."""
    if at < len(eights):
        return np.uint64(eights[at])
    number = _ZERO
    for place in range(at, len(data)):
        number |= np.uint64(data[place]) << np.uint64(8 * (place - at))
    return number


@part
def _term_at(data: Array, eights: Array, start: int, size: int, first: Array, small: np.uint64) -> np.uint64:
    """The number of the term of ``size`` letters and digits that begins there. ``small``: ``_SMALL`` for lower case, zero
    for the term as it is written."""
    head = _eight(data, eights, start) | small
    if size > 8:
        return hashed(head, _eight(data, eights, start + size - 8) | small, np.uint64(size))
    return hashed(head & first[size], _ZERO, np.uint64(size))


@part
def _enter(found: _Found, number: int, tables: _Tables, counts: Array) -> None:
    """Enters a text's terms in the present block, unless that has them; words also in the vocabulary. What other blocks had
    is a free slot."""
    current = np.uint64(counts[_CURRENT])
    block = current + _ONE
    seen, entries, vocabulary = tables.seen, tables.entries, tables.vocabulary
    mask = len(seen) - 1
    count = before = counts[_ENTRIES]
    for one in range(number):
        key = found.terms[one] | block
        at = _slot(found.terms[one], mask)
        held = seen[at]
        while held != key and held & _BLOCK == block:
            at = (at + 1) & mask
            held = seen[at]
        # Written in any case, counted only if it is new: a branch would be mispredicted for every third term.
        seen[at] = key
        entries[count] = found.terms[one] | current
        found.ends[count - before], found.sizes[count - before] = found.ends[one], found.sizes[one]
        count += np.int64(held != key)
    counts[_ENTRIES] = count
    counts[_USED] += count - before
    mask = len(vocabulary) - 1
    for one in range(count - before):
        if found.sizes[one] == 0:
            continue
        term = entries[before + one] & _TERM
        slot = _slot(term, mask)
        while vocabulary[slot] != _ZERO and vocabulary[slot] != term:
            slot = (slot + 1) & mask
        if vocabulary[slot] == _ZERO:
            vocabulary[slot] = term
            known = counts[_KNOWN]
            tables.words[known, 0], tables.words[known, 1] = found.ends[one] - found.sizes[one], found.ends[one]
            counts[_KNOWN] += 1


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
def _noted(found: _Found, number: int, term: np.uint64) -> int:
    """Collects a term that is no word for the vocabulary; returns how many there are now."""
    found.terms[number], found.sizes[number] = term, 0
    return number + 1


@part
def _terms_in(data: Array, eights: Array, begin: int, end: int, rules: _Rules, found: _Found, tables: _Tables,
              counts: Array) -> bool:  # fmt: skip
    """Enters the terms of a text; whether it has a character that folds to an ASCII letter."""
    classes, folds, first = rules
    number, folded = 0, False
    before = before_as_written = _ZERO
    at, follows = begin, False  # whether the present token follows a word that ended the one before it
    while at < end:
        kind = int(classes[data[at]])
        if not kind:
            if data[at] >= _FOLDING and _folds(data, at, end, folds):
                folded = True
            at += 1
            continue
        token, has_digits = at, False
        while kind:
            if number + _STEP > _COLLECTED:
                _enter(found, number, tables, counts)
                number = 0
            start, kinds = at, 0
            while kind & LETTER:
                kinds |= kind
                at += 1
                kind = int(classes[data[at]]) if at < end else 0
            size = at - start
            # Letters of hexadecimal numbers only, beside digits, are no word.
            pairs = kinds & NOT_HEX != 0
            if pairs or (size >= SHORTEST and start == token and not kind):
                term = _term_at(data, eights, start, size, first, _SMALL)
                if size >= SHORTEST:
                    found.terms[number], found.ends[number] = term, at
                    found.sizes[number] = size if size <= LONGEST_WORD else 0
                    number += 1
                    if size > LONGEST_WORD:
                        number = _noted(found, number, _LONG_WORD)
                if pairs:
                    exact = _term_at(data, eights, start, size, first, _ZERO) if kinds & CAPITAL else term
                    if size > LONGEST_WORD:
                        term = exact = _LONG_WORD
                    if follows and start == token:
                        number = _noted(found, number, hashed(before, term, _PAIR_SALT))
                        if before_as_written != before or exact != term:
                            number = _noted(found, number, hashed(before_as_written, exact, _PAIR_SALT))
                    before, before_as_written = term, exact
            follows = pairs and not kind
            while kind & DIGIT:
                has_digits = True
                at += 1
                kind = int(classes[data[at]]) if at < end else 0
        if has_digits and at - token >= SHORTEST:
            number = _noted(found, number, _term_at(data, eights, token, at - token, first, _SMALL))
            if at - token >= START:
                head = (_eight(data, eights, token) | _SMALL) & first[START]
                number = _noted(found, number, hashed(head, _ZERO, _START_SALT))
    _enter(found, number, tables, counts)
    return folded


@compiled
def _collect(data: Array, ends: Array, owners: Array, text: int, rules: _Rules, eights: Array, found: _Found,
             tables: _Tables, counts: Array, always: Array) -> int:  # fmt: skip
    """Enters the terms of the texts from ``text`` on; returns the one for which there is no room, or their number."""
    begin = ends[text - 1] if text else 0
    while text < len(ends):
        end = ends[text]
        if owners[text] != counts[_CURRENT]:
            counts[_CURRENT], counts[_USED] = owners[text], 0
        if not _has_room(end - begin, tables, counts):
            break
        if _terms_in(data, eights, begin, end, rules, found, tables, counts):
            always[owners[text]] = True
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
