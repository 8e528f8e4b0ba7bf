"""Text filters: which blocks of log lines may contain a phrase.

A filter covers one segment of up to 480 blocks. It is a Bloom filter turned on its side: for each of ``bits`` positions
it stores one bit per block, so that a look-up of a term is an AND of a few rows and answers for all blocks at once.

The terms of every line, after ASCII lower-casing (every byte outside a-z and 0-9 separates):

- *tokens*: maximal runs of letters and digits, of at least three characters;
- *words*: maximal runs of letters inside tokens. The distinct ones are also stored as text (the vocabulary), so that
  half a word in a query (``contains "allen off"``) can be completed to the words it may be part of. Runs of only a-f
  and x inside a token with digits are omitted: they come from hexadecimal numbers and have no end;
- *starts* of tokens with digits (four characters), for ``contains "JobId=4280"``.

The filter never excludes a block that contains the phrase. Three characters outside ASCII fold to ASCII letters when
case is ignored (İ, K as the Kelvin sign, ſ); a block with one of them is always a candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from store.filter_terms import (
    BLOCK_BITS,
    MULTIPLIERS,
    SHORTEST,
    START,
    START_SALT,
    fill,
    terms_of,
)

BLOCK_ROWS = 256
#: 480 x 256 lines are one row group of DuckDB (122,880 rows): ``store.duckdb.segments`` explains why a segment has
#: exactly that size.
SEGMENT_BLOCKS = 480
#: With 10 bits per entry and 4 hashes, 1.2 % of the blocks pass by chance.
BITS_PER_ENTRY = 10
HASHES = 4
#: With more completions than this, half a word is useless as a test.
MOST_WORDS = 64
FOLDS_TO_ASCII = ("\u0130", "\u212a", "\u017f")

Words64 = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_HEX = "abcdefx"  # with the x of 0x
_ALL_64 = 2**64 - 1
_SPREAD = np.array(MULTIPLIERS, np.uint64)


@dataclass(frozen=True)
class TextFilter:
    """The filter of one segment: ``rows[position]`` holds one bit per block, ``always`` the blocks that always pass."""

    rows: Bytes
    blocks: int
    always: Mask

    def having(self, *terms: int) -> Mask:
        """The blocks that may hold all terms of these hashes."""
        bits = len(self.rows)
        both = self.rows[[(((t * m & _ALL_64) >> 32) * bits) >> 32 for t in terms for m in MULTIPLIERS]]
        return np.unpackbits(np.bitwise_and.reduce(both, axis=0), count=self.blocks).astype(bool)

    def to_bytes(self) -> bytes:
        return self.rows.tobytes()


def _hash(first: int, last: int, salt: int) -> int:
    """As ``store.filter_terms.hashed``, for one term of a question."""
    by_first, by_last, by_size, spread = MULTIPLIERS
    mixed = (first * by_first & _ALL_64) ^ ((last * by_last & _ALL_64) >> 7) ^ (salt * by_size & _ALL_64)
    mixed ^= mixed >> 32
    mixed = mixed * spread & _ALL_64
    mixed ^= mixed >> 29
    return mixed >> BLOCK_BITS << BLOCK_BITS


def term(text: str) -> int:
    """The hash of a whole token or word, as stored in the filter. ``text`` is lower-case ASCII."""
    data = text.encode("ascii")
    last = int.from_bytes(data[-8:], "little") if len(data) > 8 else 0
    return _hash(int.from_bytes(data[:8], "little"), last, len(data))


def start_term(text: str, length: int) -> int:
    """The hash of the first ``length`` characters of a token with digits."""
    return _hash(int.from_bytes(text[:length].encode("ascii"), "little"), 0, START_SALT + length)


@dataclass
class FilterBuilder:
    """Collects the lines of one segment, block by block in order."""

    entries: list[Words64] = field(default_factory=list)
    always: list[int] = field(default_factory=list)
    words: set[str] = field(default_factory=set)

    def add(self, block: int, ends: Places, data: bytes | memoryview) -> None:
        """Adds lines that are concatenated in ``data``, each ended by a separator; ``ends`` are the ends of the blocks,
        the first of which has the number ``block`` in the segment."""
        self.add_texts(data, ends, np.arange(block, block + len(ends)))

    def add_texts(self, data: bytes | memoryview, ends: Places, owners: Places) -> None:
        """Adds texts that lie in ``data`` one after the other, up to ``ends``, with nothing between them; ``owners``:
        the block of each, ascending."""
        if not len(data):
            return
        read = np.frombuffer(data, np.uint8)
        read.flags.writeable = False  # compiled code is specialised for one kind of array
        found = terms_of(read, ends, owners, int(owners[-1]) + 1)
        self.entries.append(found.entries)
        self.always += np.flatnonzero(found.always).tolist()
        self.words.update(str(data[start:end], "ascii").lower() for start, end in found.words.tolist())

    def build(self, blocks: int) -> TextFilter:
        """The filter over ``blocks`` blocks."""
        entries = np.concatenate(self.entries) if self.entries else np.zeros(0, np.uint64)
        bits = max(64, len(entries) // max(1, blocks) * BITS_PER_ENTRY)
        grid = np.zeros((bits, (blocks + 7) // 8), np.uint8)
        fill(entries, grid, _SPREAD)
        always = np.zeros(blocks, bool)
        always[self.always] = True
        return TextFilter(grid, blocks, always)


# -- lookup --------------------------------------------------------------------------------------------------------

_PIECE = re.compile(r"[a-z0-9]+")
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Phrase:
    """A text that a line must contain, ignoring ASCII case. A whole side means that no letter or digit is adjacent."""

    text: str
    whole_left: bool = False
    whole_right: bool = False

    def tests(self) -> Iterator[Test]:
        """The tests that a filter can run; all must pass. No tests mean that every block is a candidate."""
        text = ascii_lower(self.text)
        if any(c in FOLDS_TO_ASCII for c in text):
            return
        for piece in _PIECE.finditer(text):
            left = piece.start() > 0 or self.whole_left
            right = piece.end() < len(text) or self.whole_right
            yield from _piece_tests(piece[0], left, right)


@dataclass(frozen=True)
class Test:
    """One test: the hash of a term, or (``half``) a part of a word that the vocabulary must complete."""

    term: int | None = None
    half: str = ""
    left: bool = False
    right: bool = False


def ascii_lower(text: str) -> str:
    return "".join(c.lower() if c < "\x80" else c for c in text)


def _piece_tests(piece: str, left: bool, right: bool) -> Iterator[Test]:
    numbered = any(c.isdigit() for c in piece)
    if left and right:
        if len(piece) >= SHORTEST:
            yield Test(term(piece))
        if numbered:
            return
    elif left and numbered and len(piece) >= START:
        yield Test(start_term(piece, START))
    if left and right:
        return
    for word in _WORD.finditer(piece):
        if set(word[0]) <= set(_HEX) or len(word[0]) < SHORTEST:
            continue
        begins, ends = word.start() > 0 or left, word.end() < len(piece) or right
        if begins and ends:
            yield Test(term(word[0]))
        else:
            yield Test(half=word[0], left=begins, right=ends)
