"""Text filters: which blocks of log lines may contain a phrase.

A filter covers one segment of up to 480 blocks. It is a Bloom filter turned on its side: for each of ``bits`` positions
it stores one bit per block, so that a look-up of a term is an AND of a few rows and answers for all blocks at once.

The terms of every line, after ASCII lower-casing (every byte outside a-z and 0-9 separates):

- *tokens*: maximal runs of letters and digits, of at least three characters;
- *words*: maximal runs of letters inside tokens. The distinct ones are also stored as text (the vocabulary), so that
  half a word in a query (``contains "allen off"``) can be completed to the words it may be part of. Runs of only a-f
  and x inside a token with digits are omitted: they come from hexadecimal numbers and have no end;
- *starts* of tokens with digits (four characters), for ``contains "JobId=4280"``;
- *pairs* of adjacent words with only separators between them, once in lower case and, if they have capitals, once as they
  are written. Two words that are each in most blocks are rarely adjacent in all of them: "NVRM: Xid" beside "no XID errors",
  "Link down" beside "link down-projection". Words of only a-f and x are in no pair.

The filter never excludes a block that contains the phrase. Three characters outside ASCII fold to ASCII letters when
case is ignored (İ, K as the Kelvin sign, ſ); a block with one of them is always a candidate.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from store.filter_terms import (
    BLOCK_BITS,
    LONG_WORD,
    LONGEST_WORD,
    MULTIPLIERS,
    PAIR_SALT,
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
#: With 10 bits per entry and a hash for each of ``MULTIPLIERS`` (4), 1.2 % of the blocks pass by chance.
BITS_PER_ENTRY = 10
#: With more completions than this, half a word is useless as a test.
MOST_WORDS = 64
FOLDS_TO_ASCII = ("\u0130", "\u212a", "\u017f")

Words64 = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_HEX = "abcdefx"  # with the x of 0x
_TOO_LONG = "z" * (LONGEST_WORD + 1)
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
    """The hash of a whole token or word, as stored in the filter. ``text`` is ASCII, in lower case except in pairs."""
    data = text.encode("ascii")
    last = int.from_bytes(data[-8:], "little") if len(data) > 8 else 0
    return _hash(int.from_bytes(data[:8], "little"), last, len(data))


def pair_term(first: str, second: str) -> int:
    """The hash of two adjacent words: both in lower case, or both as they are written."""
    one, other = (LONG_WORD if len(word) > LONGEST_WORD else term(word) for word in (first, second))
    return _hash(one, other, PAIR_SALT)


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
_LAST_WORD = re.compile(r"[a-z]+\Z")


@dataclass(frozen=True)
class Phrase:
    """A text that a line must contain, ignoring ASCII case unless ``exact``. A whole side means that no letter or digit is
    adjacent."""

    text: str
    whole_left: bool = False
    whole_right: bool = False
    exact: bool = False

    def tests(self) -> Iterator[Test]:
        """The tests that a filter can run; all must pass. No tests mean that every block is a candidate."""
        text = ascii_lower(self.text)
        if any(c in FOLDS_TO_ASCII for c in text):
            return
        for piece in _PIECE.finditer(text):
            left = piece.start() > 0 or self.whole_left
            right = piece.end() < len(text) or self.whole_right
            yield from _piece_tests(piece[0], left, right)

    def pairs(self) -> Iterator[Pair]:
        """The pairs of words that every line with the phrase has. Filters of earlier versions have no pairs."""
        text = ascii_lower(self.text)
        if any(c in FOLDS_TO_ASCII for c in text):
            return
        pieces = list(_PIECE.finditer(text))
        for left, right in itertools.pairwise(pieces):
            first, second = _LAST_WORD.search(left[0]), _WORD.match(right[0])
            if first is None or second is None or any(set(word[0]) <= set(_HEX) for word in (first, second)):
                continue
            begins = self.whole_left or left.start() + first.start() > 0
            ends = self.whole_right or right.start() + second.end() < len(text)
            words = [
                self.text[piece.start() :][slice(*word.span())] for piece, word in ((left, first), (right, second))
            ]
            yield Pair(words[0], words[1], begins, ends, self.exact)


@dataclass(frozen=True)
class Pair:
    """Two adjacent words as the phrase has them. Without ``begins`` the first is perhaps only the end of a word, without
    ``ends`` the second only the beginning of one. ``exact``: in the line they are written in the same way."""

    first: str
    second: str
    begins: bool = True
    ends: bool = True
    exact: bool = False

    def terms(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[tuple[int, ...]]:
        """Terms of which a block must have all of one tuple, given the words (in lower case) that either word of the pair may
        be part of. A part of a word may be one of a word that is too long to be known."""
        low = ascii_lower(self.first), ascii_lower(self.second)
        found: list[tuple[int, ...]] = []
        for first, second in itertools.product(firsts, seconds):
            as_written = (self.first, self.second) if self.exact and (first, second) == low else (first, second)
            found.append(tuple({pair_term(first, second), pair_term(*as_written)}))
        if not self.begins:
            found += [(LONG_WORD, pair_term(_TOO_LONG, second)) for second in seconds]
        if not self.ends:
            found += [(LONG_WORD, pair_term(first, _TOO_LONG)) for first in firsts]
        if not self.begins and not self.ends:
            found.append((LONG_WORD, pair_term(_TOO_LONG, _TOO_LONG)))
        return found


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
