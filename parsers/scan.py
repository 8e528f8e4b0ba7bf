"""The smallest byte readers, the building blocks of timestamp and header readers. All are compiled.

A position is an index into a LineBuffer's ``data``. Nothing reads past the first byte that does not match, and neither
a line end nor the zeros after the last line ever match: no reader leaves the buffer.
"""

from __future__ import annotations

import numpy as np

from parsers.compiled import part
from parsers.lines import Array

BLANK, QUOTE, PERCENT, PLUS, COMMA, DASH, POINT, COLON, SEMICOLON, LESS, EQUALS, MORE = b' "%+,-.:;<=>'
OPEN, BACKSLASH, CLOSE, BRACE = b"[\\]{"
#: The result of a reader that did not find what it looks for.
NOWHERE = -1
#: Longest word of a table of :func:`words`.
_LONGEST = 30


def words(table: dict[str, int]) -> Array:
    """A table for :func:`meaning`: words of at most 30 bytes and their values (1 to 255)."""
    made = np.zeros((len(table), _LONGEST + 2), np.uint8)
    for row, (word, value) in zip(made, table.items(), strict=True):
        text = word.encode()
        row[0], row[1], row[2 : 2 + len(text)] = len(text), value, np.frombuffer(text, np.uint8)
    return made


@part
def meaning(data: Array, at: int, length: int, table: Array) -> int:
    """The value of the word of ``length`` bytes; 0 for a word that is not in the table."""
    for row in range(len(table)):
        if table[row, 0] == length:
            same = 0
            while same < length and data[at + same] == table[row, 2 + same]:
                same += 1
            if same == length:
                return int(table[row, 1])
    return 0


@part
def begins(data: Array, at: int, length: int, table: Array) -> bool:
    """Whether the word of ``length`` bytes begins with a word of the table."""
    for row in range(len(table)):
        size = table[row, 0]
        if size <= length:
            same = 0
            while same < size and data[at + same] == table[row, 2 + same]:
                same += 1
            if same == size:
                return True
    return False


@part
def is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@part
def is_capital(byte: int) -> bool:
    return 65 <= byte <= 90


@part
def reads(data: Array, at: int, text: bytes) -> bool:
    """Whether ``text`` is at this position."""
    place = 0
    while place < len(text) and data[at + place] == text[place]:
        place += 1
    return place == len(text)


@part
def digits(data: Array, at: int) -> int:
    """How many decimal digits follow."""
    end = at
    while is_digit(data[end]):
        end += 1
    return end - at


@part
def letters(data: Array, at: int) -> int:
    """How many letters (ASCII) follow, counted up to one more than the longest word of a table."""
    end = at
    while end - at <= _LONGEST and (65 <= data[end] <= 90 or 97 <= data[end] <= 122):
        end += 1
    return end - at


@part
def number(data: Array, at: int, length: int) -> int:
    """The value of ``length`` digits, at most 18."""
    value = 0
    for place in range(at, at + length):
        value = value * 10 + data[place] - 48
    return value


@part
def two_digits(data: Array, at: int) -> int:
    """0 to 99, or below zero if two digits do not follow."""
    if is_digit(data[at]) and is_digit(data[at + 1]):
        return number(data, at, 2)
    return NOWHERE
