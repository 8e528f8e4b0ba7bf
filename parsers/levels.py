"""The severity in a line's text, if its header has none: ``srun: error: text``, ``<warn>  [1.2] text``, ``level=info``,
``[n1:7:0] mpool.c:176  UCX  ERROR text``, ``I0401 08:24:00.1 7 a.go:5] text``.

Loggers write a level before the text, after their own prefixes: timestamps, source locations, names with a colon,
brackets. So words are read from the beginning as long as they are of these kinds; the first word of prose ends the
search. Kernel lines are excluded: their level is the priority, and "INFO: task blocked" is not a level.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from parsers.compiled import compiled, part
from parsers.expression_compiler import end_of
from parsers.formats.base import SEVERITIES, SEVERITY_WORDS
from parsers.formats.mnemonics import TAG
from parsers.lines import Array, joined
from parsers.scan import (
    BLANK,
    COLON,
    COMMA,
    DASH,
    EQUALS,
    LESS,
    MORE,
    OPEN,
    PERCENT,
    POINT,
    QUOTE,
    is_capital,
    is_digit,
)

CLOSE, BAR, BANG, SLASH, ROUND, ROUND_END, ZERO = b"]|!/()0"
#: Marks levels that take precedence over an event's default.
SURE = 16
#: Most bytes and words examined.
_BYTES, _WORDS = 160, 7
#: Level words that also occur with other meanings.
_NO_LEVELS = frozenset({"failure", "panic", "information", "informational"})
#: Levels as numbers, from 1; a letter means its level as in glog and Gluster.
_KNOWN = {word: SEVERITIES.index(name) + 1 for word, name in SEVERITY_WORDS.items() if word not in _NO_LEVELS}
_LONGEST = max(map(len, _KNOWN))
_LETTERS = {"i": "info", "w": "warning", "e": "error", "f": "crit", "d": "debug", "n": "notice", "c": "crit"}
#: Names of a logfmt member that give the level; and of members before it.
_LEVEL_NAMES = ("level", "lvl", "severity")


def _table() -> Array:
    """Indexed by length and first letter, so that few words are compared: a row is length, value, then the word's
    letters."""
    made = np.zeros((len(_KNOWN), _LONGEST + 2), np.uint8)
    for row, (word, value) in zip(made, sorted(_KNOWN.items()), strict=True):
        row[0], row[1], row[2 : 2 + len(word)] = len(word), value, np.frombuffer(word.encode(), np.uint8)
    return made


_WORDS_TABLE = _table()
_LETTER_TABLE = np.zeros(256, np.uint8)
for _letter, _name in _LETTERS.items():
    _LETTER_TABLE[ord(_letter.upper())] = SEVERITIES.index(_name) + 1
_mnemonic_tag = end_of(TAG)
_NAMES = pl.Series([None, *SEVERITIES], dtype=pl.String)


def written(severities: pl.Series, sources: pl.Series, messages: pl.Series) -> Array:
    """The levels that messages state where ``severities`` are null, as numbers: 0 for none, raised by ``SURE`` for a
    switch's mnemonic (``%LINK-3-UPDOWN``), whose digit is the priority that it was sent with."""
    found = np.zeros(len(messages), np.uint8)
    asked = severities.is_null() & sources.ne_missing("kernel")
    if asked.any():
        edges, data = joined(messages)
        _read(data, edges, asked.to_numpy(), _WORDS_TABLE, _LETTER_TABLE, found)
    return found


def filled(severities: pl.Series, found: Array) -> pl.Series:
    """``severities``, with nulls filled from ``found``."""
    at = np.flatnonzero(found)
    if not len(at):
        return severities
    rows_with_level = _NAMES[(found[at] % SURE).astype(np.uint32)]
    own = severities[at]
    return severities.scatter(at, own.zip_with(own.is_not_null(), rows_with_level))


@compiled
def _read(data: Array, edges: Array, asked: Array, words: Array, letters: Array, found: Array) -> None:
    """Writes the level of each text in ``asked``; 0 for none."""
    for row in range(len(asked)):
        if asked[row]:
            found[row] = _level(data, edges[row], min(edges[row + 1], edges[row] + _BYTES), words, letters)


@part
def _level(data: Array, at: int, end: int, words: Array, letters: Array) -> int:
    """The level before the first word of prose; 0 for none."""
    heads, names, level = 0, 0, 0
    if at < end and data[at] == PERCENT:
        return _mnemonic(data, at, end)
    for _ in range(_WORDS):
        while at < end and (data[at] == BLANK or data[at] == DASH or data[at] == BAR or data[at] == 9):
            at += 1
        stop = _bracket_end(data, at, end)
        if stop > at:
            level = _bracketed(data, at + 1, stop - 1, words, letters)
            if level:
                break
            heads += 1
            at = stop + 1 if stop < end and data[stop] == COLON else stop
            continue
        stop = _small_end(data, at, end)
        if stop > at + 1 and (stop == end or data[stop] == BLANK):  # a word of prose, as nearly all are
            break
        while stop < end and data[stop] != BLANK and data[stop] != 9:
            stop += 1
        if stop == at:
            break
        level = _word_level(data, at, stop, end, heads, words, letters)
        if level == 0 and (heads or not names):
            level = _bare_level(data, at, stop, words)
        if level:
            break
        if _is_head(data, at, stop):
            heads += 1
        elif not names and _is_name(data, at, stop):
            names += 1
        else:
            break
        at = stop
    return level


@part
def _small_end(data: Array, at: int, end: int) -> int:
    """Where a word's lower-case letters end; the first may be upper case."""
    stop = at + 1
    while stop < end and 97 <= data[stop] <= 122:
        stop += 1
    return stop if at < end and (is_capital(data[at]) or 97 <= data[at] <= 122) else at


@part
def _mnemonic(data: Array, at: int, end: int) -> int:
    """The level of ``%FACILITY-N-MNEMONIC: ``; 0 for anything else."""
    stop = _mnemonic_tag(data, at, end)
    if stop < 0 or stop == end or not (data[stop] == COLON or data[stop] == BLANK):
        return 0
    while data[stop] != DASH:
        stop -= 1
    number = data[stop - 1] - ZERO
    return SURE + 1 + number if number < len(SEVERITIES) else 0


@part
def _bracket_end(data: Array, at: int, end: int) -> int:
    """The offset after the bracket that closes the one at ``at``; ``at`` itself if there is none."""
    if at >= end or not (data[at] == OPEN or data[at] == LESS or data[at] == ROUND):
        return at
    closing = CLOSE if data[at] == OPEN else MORE if data[at] == LESS else ROUND_END
    stop = at + 1
    while stop < end and data[stop] != closing:
        stop += 1
    return stop + 1 if stop < end else at


@part
def _bracketed(data: Array, at: int, end: int, words: Array, letters: Array) -> int:
    """The level in brackets: ``[ERROR]``, ``<warn>``, ``[mgmtd.NOTICE]``, ``[W socket.cpp:601]``, ``[E401 08:28:00.1 ...``."""
    while at < end and data[at] == BLANK:
        at += 1
    while end > at and data[end - 1] == BLANK:
        end -= 1
    start = end
    while start > at and data[start - 1] != POINT and data[start - 1] != BLANK:
        start -= 1
    if start == at or data[start - 1] == POINT:
        level = _meaning(data, start, end, words)
        if level:
            return level
    if end - at > 2 and letters[data[at]] and (data[at + 1] == BLANK or is_digit(data[at + 1])):
        return int(letters[data[at]])
    return 0


@part
def _word_level(data: Array, at: int, stop: int, end: int, heads: int, words: Array, letters: Array) -> int:
    """The level that the word from ``at`` to ``stop`` is or contains; 0 for none."""
    size = stop - at
    if size == 1 and letters[data[at]]:  # Gluster's and XLA's: a letter, then a source location
        return int(letters[data[at]]) if _is_place(data, stop + 1, end) else 0
    if size == 2 and heads and data[at + 1] == BANG:  # Telegraf's
        return int(letters[data[at]])
    if size == 5 and letters[data[at]] and _are_digits(data, at + 1, stop) and not heads:
        return int(letters[data[at]]) if stop + 3 < end and data[stop + 3] == COLON else 0
    if data[stop - 1] == COLON:
        return _meaning(data, at, stop - 1, words)
    if data[stop - 1] == MORE:  # libfabric's "name():44<warn>"
        start = stop - 1
        while start > at and data[start] != LESS:
            start -= 1
        return _meaning(data, start + 1, stop - 1, words) if data[start] == LESS else 0
    return 0


@part
def _bare_level(data: Array, at: int, stop: int, words: Array) -> int:
    """The level of a word without a mark after it: in upper case, before a colon inside the word, or a member's
    value."""
    place = at
    while place < stop and is_capital(data[place]):
        place += 1
    if place == stop or data[place] == COLON:
        return _meaning(data, at, place, words) if place - at > 2 else 0
    while place < stop and data[place] != EQUALS:
        place += 1
    if place == stop or not (_same(data, at, place, b"level") or _same(data, at, place, b"lvl") or _same(data, at, place, b"severity")):  # fmt: skip
        return 0
    quoted = 1 if stop - place > 2 and data[place + 1] == QUOTE else 0
    return _meaning(data, place + 1 + quoted, stop - quoted, words)


@part
def _meaning(data: Array, at: int, end: int, words: Array) -> int:
    """The level that a word denotes, in either case; 0 for another word."""
    size = end - at
    if size < 3 or size > _LONGEST:
        return 0
    for row in range(len(words)):
        if words[row, 0] == size and data[at] | 32 == words[row, 2]:
            same = 0
            while same < size and data[at + same] | 32 == words[row, 2 + same]:
                same += 1
            if same == size:
                return int(words[row, 1])
    return 0


@part
def _same(data: Array, at: int, end: int, text: bytes) -> bool:
    """Whether the bytes from ``at`` to ``end`` equal ``text``."""
    if end - at != len(text):
        return False
    place = 0
    while place < len(text) and data[at + place] == text[place]:
        place += 1
    return place == len(text)


@part
def _are_digits(data: Array, at: int, end: int) -> bool:
    while at < end and is_digit(data[at]):
        at += 1
    return at == end


@part
def _is_place(data: Array, at: int, end: int) -> bool:
    """Whether a path or a bracket begins here, as loggers name the source."""
    if at < end and data[at] == OPEN:
        return True
    while at < end and data[at] != BLANK:
        if data[at] == SLASH:
            return True
        at += 1
    return False


@part
def _is_head(data: Array, at: int, stop: int) -> bool:
    """Whether a word belongs to a prefix: it ends with a colon, is a timestamp or a number, names a source line
    (``rcache.c:534``, ``host:pid:tid``), or is a time in logfmt."""
    if data[stop - 1] == COLON or data[stop - 1] == CLOSE:
        return True
    if _same(data, at, min(at + 5, stop), b"time=") or _same(data, at, min(at + 3, stop), b"ts="):
        return True
    numeric, numbered = True, False
    for place in range(at, stop):
        byte = data[place]
        numeric &= is_digit(byte) or byte == COLON or byte == COMMA or byte == POINT or byte == DASH or byte == SLASH or byte == 84 or byte == 90 or byte == 43  # fmt: skip
        numbered |= byte == COLON and place + 1 < stop and is_digit(data[place + 1]) and place > at
    return numeric or numbered


@part
def _is_name(data: Array, at: int, stop: int) -> bool:
    """Whether a word is a component's name, in upper case: ``NCCL``, ``UCX``."""
    for place in range(at, stop):
        if not (is_capital(data[place]) or is_digit(data[place])):
            return False
    return stop - at > 1
