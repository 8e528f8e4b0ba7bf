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

BLOCK_ROWS = 256
#: 480 x 256 lines are one row group of DuckDB (122,880 rows): ``store.duckdb.segments`` explains why a segment has
#: exactly that size.
SEGMENT_BLOCKS = 480
#: Bits of a term's hash that are replaced by the block's number during deduplication.
_BLOCK_BITS = 10
#: Shorter terms are in nearly every block: neither stored nor looked up.
SHORTEST = 3
STARTS = (4,)
#: With 10 bits per entry and 4 hashes, 1.2 % of the blocks pass by chance.
BITS_PER_ENTRY = 10
HASHES = 4
#: With more completions than this, half a word is useless as a test.
MOST_WORDS = 64
#: A longer word is not stored as text; a block that has one is a candidate for every half of a word.
LONGEST_WORD = 40
LONG_WORD = 0x5EED_0F_10_44_00
FOLDS_TO_ASCII = ("\u0130", "\u212a", "\u017f")

Words64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LETTER, _DIGIT, _NOT_HEX = 1, 2, 4
_HEX = "abcdefx"  # with the x of 0x
_LOWER = np.zeros(256, np.uint8)
_CLASS = np.zeros(256, np.uint8)
for _char in map(chr, range(128)):
    if _char.isalnum():
        _LOWER[ord(_char)] = ord(_char.lower())
        _CLASS[ord(_char)] = _DIGIT if _char.isdigit() else _LETTER | (0 if _char in _HEX + _HEX.upper() else _NOT_HEX)
_MASKS = np.array([(1 << (8 * n)) - 1 if n < 8 else 2**64 - 1 for n in range(9)], np.uint64)
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5,
                         0xD6E8FEB86659FD93], np.uint64)  # fmt: skip
_PLAIN_MULTIPLIERS = _MULTIPLIERS[:HASHES].tolist()
_ALL_64 = 2**64 - 1
_START_SALT = 1 << 20


@dataclass(frozen=True)
class TextFilter:
    """The filter of one segment: ``rows[position]`` holds one bit per block, ``always`` the blocks that always pass."""

    rows: Bytes
    blocks: int
    always: Mask

    @classmethod
    def open(cls, blocks: int) -> TextFilter:
        """A filter that lets every block pass, for a segment whose lines have not been read yet."""
        return cls(np.full((1, (blocks + 7) // 8), 255, np.uint8), blocks, np.ones(blocks, bool))

    def having(self, *terms: int) -> Mask:
        """The blocks that may hold all terms of these hashes."""
        bits = len(self.rows)
        both = self.rows[[(((t * m & _ALL_64) >> 32) * bits) >> 32 for t in terms for m in _PLAIN_MULTIPLIERS]]
        return np.unpackbits(np.bitwise_and.reduce(both, axis=0), count=self.blocks).astype(bool)

    def to_bytes(self) -> bytes:
        return self.rows.tobytes()


def _hash(first: Words64, last: Words64, salt: Words64) -> Words64:
    """A term's hash from its first and last eight bytes and its length: the middle of a long one does not matter."""
    mixed = (first * _MULTIPLIERS[0]) ^ ((last * _MULTIPLIERS[1]) >> np.uint64(7)) ^ (salt * _MULTIPLIERS[2])
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIERS[3]
    mixed ^= mixed >> np.uint64(29)
    hashed: Words64 = mixed & ~np.uint64((1 << _BLOCK_BITS) - 1)
    return hashed


def _places(terms: Words64, bits: int, number: int) -> Places:
    """The ``number``-th position of each term."""
    spread = terms * _MULTIPLIERS[number]
    spread >>= np.uint64(32)
    spread *= np.uint64(bits)
    spread >>= np.uint64(32)
    places: Places = spread.astype(np.int64)
    return places


class _Text:
    """The bytes of many lines, lower-cased, with the positions of their terms."""

    def __init__(self, data: bytes) -> None:
        padded = np.frombuffer(b"\n" * 8 + data + b"\n" * 8, np.uint8)
        self.lowered = _LOWER[padded]
        self.kinds = _CLASS[padded]
        # The eight bytes from every position on, as one number; x86 and ARM read them unaligned.
        self.window: Words64 = np.ndarray((len(padded) - 7,), "<u8", self.lowered.data, strides=(1,))

    def terms(self, starts: Places, ends: Places) -> Words64:
        size = ends - starts
        first = self.window[starts] & _MASKS[np.minimum(size, 8)]
        last = np.where(size > 8, self.window[ends - 8], np.uint64(0))
        return _hash(first, last, size.astype(np.uint64))

    def starts_of(self, starts: Places, length: int) -> Words64:
        first = self.window[starts] & _MASKS[length]
        return _hash(first, np.zeros_like(first), np.full_like(first, _START_SALT + length))


def _runs(member: Mask) -> tuple[Places, Places]:
    """Starts and (exclusive) ends of runs; the first and last position are never members."""
    edges = np.flatnonzero(member[1:] != member[:-1]) + 1
    return edges[::2], edges[1::2]


def term(text: str) -> int:
    """The hash of a whole token or word, as stored in the filter. ``text`` is lower-case ASCII."""
    data = _Text(text.encode("ascii"))
    return int(data.terms(np.array([8]), np.array([8 + len(text)]))[0])


def start_term(text: str, length: int) -> int:
    """The hash of the first ``length`` characters of a token with digits."""
    return int(_Text(text.encode("ascii")).starts_of(np.array([8]), length)[0])


@dataclass
class FilterBuilder:
    """Collects the lines of one segment, block by block in order."""

    entries: list[Words64] = field(default_factory=list)
    owners: list[Places] = field(default_factory=list)
    always: list[int] = field(default_factory=list)
    words: dict[int, bytes] = field(default_factory=dict)

    def add(self, block: int, ends: Places, data: bytes) -> None:
        """Adds lines that are concatenated in ``data``, each ended by a separator; ``ends`` are the ends of the blocks,
        the first of which has the number ``block`` in the segment."""
        text = _Text(data)
        edges = ends + 8
        for letter in FOLDS_TO_ASCII:
            for found in re.finditer(re.escape(letter.encode()), data):
                self.always.append(block + int(np.searchsorted(ends, found.start(), "right")))
        self._words(text, edges, block)
        self._tokens(text, edges, block)

    def _keep(self, terms: Words64, starts: Places, edges: Places, block: int) -> None:
        # A block's terms are adjacent: one search per edge gives their count.
        counts = np.diff(np.searchsorted(starts, edges), prepend=0)
        owner = np.repeat(np.arange(block, block + len(edges), dtype=np.uint64), counts)
        # Sorting by block and hash at once finds the distinct ones.
        key = (terms >> np.uint64(_BLOCK_BITS)) | (owner << np.uint64(64 - _BLOCK_BITS))
        key.sort()
        key = key[np.concatenate(([True], key[1:] != key[:-1]))] if len(key) else key
        self.entries.append(key << np.uint64(_BLOCK_BITS))
        self.owners.append((key >> np.uint64(64 - _BLOCK_BITS)).astype(np.int64))

    def _words(self, text: _Text, edges: Places, block: int) -> None:
        starts, ends = _runs((text.kinds & _LETTER).astype(bool))
        if not len(starts):
            return
        part = (text.lowered[starts - 1] != 0) | (text.lowered[ends] != 0)
        only_hex = np.bitwise_or.reduceat(text.kinds, starts) & _NOT_HEX == 0
        kept = (ends - starts >= SHORTEST) & ~(part & only_hex)
        starts, ends = starts[kept], ends[kept]
        terms = text.terms(starts, ends)
        self._keep(terms, starts, edges, block)
        long = starts[ends - starts > LONGEST_WORD]
        self._keep(np.full(len(long), LONG_WORD, np.uint64), long, edges, block)
        order = np.argsort(terms)
        order = order[np.concatenate(([True], terms[order[1:]] != terms[order[:-1]]))] if len(order) else order
        for number, start, end in zip(terms[order].tolist(), starts[order].tolist(), ends[order].tolist(), strict=True):
            if number not in self.words and end - start <= LONGEST_WORD:
                self.words[number] = text.lowered[start:end].tobytes()

    def _tokens(self, text: _Text, edges: Places, block: int) -> None:
        starts, ends = _runs(text.kinds != 0)
        if not len(starts):
            return
        numbered = np.bitwise_or.reduceat(text.kinds, starts) & _DIGIT != 0
        kept = (ends - starts >= SHORTEST) & numbered
        starts, ends = starts[kept], ends[kept]
        self._keep(text.terms(starts, ends), starts, edges, block)
        for length in STARTS:
            long = starts[ends - starts >= length]
            self._keep(text.starts_of(long, length), long, edges, block)

    def build(self, blocks: int) -> TextFilter:
        """The filter over ``blocks`` blocks."""
        entries = np.concatenate(self.entries) if self.entries else np.zeros(0, np.uint64)
        owners = np.concatenate(self.owners) if self.owners else np.zeros(0, np.int64)
        bits = max(64, len(entries) // max(1, blocks) * BITS_PER_ENTRY)
        grid = np.zeros((bits, (blocks + 7) // 8 * 8), bool)
        flat = grid.reshape(-1)
        for number in range(HASHES):
            flat[_places(entries, bits, number) * grid.shape[1] + owners] = True
        always = np.zeros(blocks, bool)
        always[self.always] = True
        return TextFilter(np.packbits(grid, axis=1), blocks, always)


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
    elif left and numbered:
        longest = max((n for n in STARTS if n <= len(piece)), default=0)
        if longest:
            yield Test(start_term(piece, longest))
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
