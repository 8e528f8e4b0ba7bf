"""The grammar of a log line's header, declared once as data: the regular expression of the general reader and the code
of the compiled one are both built from it, so the two cannot disagree.

A header is a sequence of pieces: texts, runs of characters of one class, named fields, optional parts. Where the
general reader accepts more spellings than the plain one, the piece is ``Either``: the plain spelling in pieces, and the
regular expression of all spellings. The compiled reader (parsers/header_compiler.py) never backtracks, so a declaration
that would need it is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from parsers.lines import Array

#: Character classes by name, in the syntax of regular expressions; a step uses their index.
_CLASSES = {
    "digit": "0-9", "capital": "A-Z", "small": "a-z", "day": " 0-9", "hex": "0-9a-f", "HEX": "0-9A-F", "stamp": "0-9T:.Z+-",
    "printed": "!-~", "name": r"!-9;-Z\\^-~", "blank": " ",
    "letter": "A-Za-z", "role": "A-Za-z_", "dotted": "0-9A-Za-z_.", "host": "0-9A-Za-z_.-",
}  # fmt: skip
_NUMBERS = {name: number for number, name in enumerate(_CLASSES)}
#: Per class and byte: whether the byte is in the class. No class contains a line end, a zero, or a part of a multi-byte
#: character.
CLASSES: Array = np.array([[re.match(f"[{letters}]", chr(byte)) is not None and byte < 128 for byte in range(256)] for letters in _CLASSES.values()])  # fmt: skip
#: Operations of a step of the compiled reader: one byte, a run (class, minimum, maximum), a field's begin or end, an
#: optional part that starts with a byte (byte, steps to skip).
BYTE, RUN, BEGIN, END, MAYBE = range(5)
#: The maximum of an unbounded run.
ENDLESS = 1 << 30


@dataclass(frozen=True)
class Run:
    """``least`` to ``most`` characters of a class, greedily."""

    letters: str
    least: int = 1
    most: int = ENDLESS

    @property
    def regex(self) -> str:
        if self.most == ENDLESS:
            return f"[{_CLASSES[self.letters]}]{{{self.least},}}"
        return f"[{_CLASSES[self.letters]}]{{{self.least},{self.most}}}"


@dataclass(frozen=True)
class Field:
    """Pieces whose text has a name."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Either:
    """The plain spelling in ``pieces``; ``general`` is the regular expression of all spellings."""

    general: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Maybe:
    """Optional pieces, the first of which is a text."""

    pieces: tuple[Piece, ...]


Piece: TypeAlias = str | Run | Field | Either | Maybe
#: One of BYTE, RUN, BEGIN, END, MAYBE, and what it needs to know.
Step: TypeAlias = tuple[int, int, int, int]


def named(name: str, *pieces: Piece) -> Field:
    return Field(name, pieces)


def either(general: str, *pieces: Piece) -> Either:
    return Either(general, pieces)


def digits(least: int, most: int | None = None) -> Either:
    """The general reader accepts digits of any script."""
    most = least if most is None else most
    return Either(rf"\d{{{least},{most}}}", (Run("digit", least, most),))


#: An RFC 3339 timestamp, with or without fraction and zone.
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"


def stamp(general: str = STAMP) -> Either:
    """An RFC 3339 timestamp. The compiled reader matches its characters; parsers/stamps.py interprets them and must
    stop at the same end."""
    return Either(general, (Run("stamp", 19, 35),))


def maybe(*pieces: Piece) -> Maybe:
    return Maybe(pieces)


@dataclass(frozen=True)
class Header:
    """``regex``: for the general reader, anchored at the line's first character, with a group for each name. ``plain``:
    for the plain spelling alone. ``steps``: for the compiled reader, which numbers fields in the order of ``fields``."""

    pieces: tuple[Piece, ...]
    fields: tuple[str, ...] = field(init=False)
    steps: tuple[Step, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(piece.name for piece in _all(self.pieces) if isinstance(piece, Field))
        object.__setattr__(self, "fields", names)
        steps = _steps(self.pieces, names)
        _check(steps)
        object.__setattr__(self, "steps", tuple(steps))

    @property
    def regex(self) -> str:
        return _regex(self.pieces, general=True)

    @property
    def plain(self) -> str:
        return _regex(self.pieces, general=False)


def header(*pieces: Piece) -> Header:
    """Raises ``ValueError`` for pieces that a reader without backtracking would match differently from a regular
    expression."""
    return Header(pieces)


def _all(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        if isinstance(piece, Field | Either | Maybe):
            yield from _all(piece.pieces)


def _regex(pieces: tuple[Piece, ...], *, general: bool) -> str:
    return "".join(_regex_of(piece, general) for piece in pieces)


def _regex_of(piece: Piece, general: bool) -> str:
    if isinstance(piece, str):
        return re.escape(piece).replace(r"\ ", " ")
    if isinstance(piece, Run):
        return piece.regex
    if isinstance(piece, Either) and general:
        return piece.general
    held = _regex(piece.pieces, general=general)
    if isinstance(piece, Field):
        return f"(?P<{piece.name}>{held})"
    return f"(?:{held})?" if isinstance(piece, Maybe) else held


def _steps(pieces: tuple[Piece, ...], names: tuple[str, ...]) -> list[Step]:
    found: list[Step] = []
    for piece in pieces:
        if isinstance(piece, str):
            found += [(BYTE, byte, 0, 0) for byte in piece.encode()]
        elif isinstance(piece, Run):
            found.append((RUN, _NUMBERS[piece.letters], piece.least, piece.most))
        elif isinstance(piece, Field):
            number = names.index(piece.name)
            found += [(BEGIN, number, 0, 0), *_steps(piece.pieces, names), (END, number, 0, 0)]
        elif isinstance(piece, Maybe):
            inner = _steps(piece.pieces, names)
            if not inner or inner[0][0] != BYTE:
                raise ValueError("what may be missing must begin with a text, by which it is known to be there")
            found += [(MAYBE, inner[0][1], len(inner), 0), *inner]
        else:
            found += _steps(piece.pieces, names)
    return found


def _check(steps: list[Step]) -> None:
    """Raises ``ValueError`` if a run of any length may be followed by its own class, or if an optional part is followed
    by nothing or by something with the same first byte."""
    for at, (step, what, least, most) in enumerate(steps):
        if step == RUN and least != most and (own := [byte for byte in _first(steps, at + 1) if CLASSES[what, byte]]):
            raise ValueError(f"{bytes(own)!r} may end a run of {list(_CLASSES)[what]!r} and is of its class")
        if step == MAYBE and ((behind := _first(steps, at + least + 1)) == set() or what in behind):
            raise ValueError(f"a part that begins with {chr(what)!r} cannot be told from what is behind it")


def _first(steps: list[Step], at: int) -> set[int]:
    """The first bytes that the pieces from a step on may match."""
    for place in range(at, len(steps)):
        step, value, length, _ = steps[place]
        if step == BYTE:
            return {value}
        if step == RUN:
            own = set(np.flatnonzero(CLASSES[value]).tolist())
            return own if length else own | _first(steps, place + 1)
        if step == MAYBE:
            return {value} | _first(steps, place + length + 1)
    return set()
