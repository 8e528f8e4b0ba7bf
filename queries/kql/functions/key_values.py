"""Bodies of ``parse-kv``: keys and values in text, separated by delimiters, by non-word characters, or by a regex.

The first value of a key counts; white space around keys and values does not; both may be quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from queries.kql.functions.declaration import Body, Function

_WORD = re.compile(r"\w+")


@dataclass
class _Scanner:
    """Scans a text from left to right."""

    text: str
    quotes: dict[str, str]  # opening -> closing
    escape: str
    place: int = 0

    @property
    def over(self) -> bool:
        return self.place >= len(self.text)

    def quoted(self) -> str | None:
        """The content of the quotes that open here; None if none do."""
        close = self.quotes.get(self.text[self.place]) if not self.over else None
        if close is None:
            return None
        made = []
        self.place += 1
        while not self.over and self.text[self.place] != close:
            if self.escape and self.text.startswith(self.escape, self.place) and self.place + 1 < len(self.text):
                self.place += len(self.escape)
            made.append(self.text[self.place : self.place + 1])
            self.place += 1
        self.place += 1
        return "".join(made)

    def until(self, *marks: str) -> tuple[str, str]:
        """The text before the nearest of the marks, which is consumed, and that mark; "" at the end."""
        found = [(at, -len(mark), mark) for mark in marks if (at := self.text.find(mark, self.place)) >= 0]
        if not found:
            rest, self.place = self.text[self.place :], len(self.text)
            return rest, ""
        at, _, mark = min(found)
        head, self.place = self.text[self.place : at], at + len(mark)
        return head, mark

    def skip_space(self, but: str) -> None:
        """Skips white space that is not the beginning of a mark."""
        while not self.over and self.text[self.place].isspace() and not self.text.startswith(but, self.place):
            self.place += 1


def _pairs(scanner: _Scanner, pair: str, kv: str) -> Iterator[tuple[str, str]]:
    while not scanner.over:
        scanner.skip_space(pair)
        key = scanner.quoted()
        rest, mark = scanner.until(kv, pair)
        if mark != kv:
            continue  # no value: not a key
        scanner.skip_space(pair)
        value = scanner.quoted()
        tail, _ = scanner.until(pair)
        yield (rest if key is None else key).strip(), (tail if value is None else value).strip()


def _words(scanner: _Scanner) -> Iterator[str]:
    while not scanner.over:
        quoted = scanner.quoted()
        if quoted is not None:
            yield quoted
        elif word := _WORD.match(scanner.text, scanner.place):
            scanner.place = word.end()
            yield word[0]
        else:
            scanner.place += 1


def _greedy(text: str, pair: str, kv: str) -> Iterator[tuple[str, str]]:
    """Values continue until the next key: a pair delimiter not followed by `key=` belongs to the value."""
    key, value = "", ""
    for piece in text.split(pair):
        head, mark, rest = piece.partition(kv)
        if mark:
            if key:
                yield key, value.strip()
            key, value = head.strip(), rest
        elif key:
            value += pair + piece
    if key:
        yield key, value.strip()


def parse_kv(
    text: str, names: list[str], pair: str, kv: str, quotes: list[str], escape: str, greedy: bool
) -> list[Any]:
    """The values of some keys, in the order of ``names``; a missing key is null."""
    scanner = _Scanner(text, {q[0]: q[-1] for q in quotes if q}, escape)
    found: dict[str, str] = {}
    if not pair or not kv:
        pairs: Iterator[tuple[str, str]] = ((a, b) for a, b in pairwise(_words(scanner)) if a in names)
    else:
        pairs = _greedy(text, pair, kv) if greedy else _pairs(scanner, pair, kv)
    for key, value in pairs:
        found.setdefault(key, value)
    return [found.get(n) for n in names]


PARSE_KV = Function("parse_kv", "The operator parse-kv.", Body("s d s s d s b", "dynamic", parse_kv), internal=True)
FUNCTIONS = (PARSE_KV,)
