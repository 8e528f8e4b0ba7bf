"""Regular expressions with the same meaning in Polars and Python, run by whichever is cheaper.

Polars forgets compiled expressions after 32 others, and recompiling one costs as much as a thousand searches in Python:
few lines are searched in Python, many in Polars. So that a line's meaning never depends on its neighbours, both treat
``\\d``, ``\\w`` and ``\\s`` as ASCII, and ``$`` as the very end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import polars as pl

#: From this many lines on, compiling an expression costs less than searching them in Python.
MANY = 500
_ASCII = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\r\f\v"}


@lru_cache(maxsize=512)
def portable(pattern: str) -> str:
    """``pattern`` with its character classes expanded to ASCII, for Polars."""
    out: list[str] = []
    in_class = False
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\" and at + 1 < len(pattern):
            escaped = pattern[at + 1]
            at += 2
            if escaped in _ASCII:
                out.append(_ASCII[escaped] if in_class else f"[{_ASCII[escaped]}]")
            elif escaped.lower() in _ASCII and not in_class:
                out.append(f"[^{_ASCII[escaped.lower()]}]")
            else:
                out.append(letter + escaped)
            continue
        if letter == "[" and not in_class:
            in_class = True
            if pattern[at + 1 : at + 2] == "]" or pattern[at + 1 : at + 3] == "^]":
                raise ValueError(f"write the bracket in a class as \\]: {pattern}")
        elif letter == "]":
            in_class = False
        out.append(letter)
        at += 1
    return "".join(out)


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """``pattern`` for Python, with the meaning that :func:`portable` has in Polars."""
    text = portable(pattern)
    return re.compile(
        re.sub(r"(\\.)|\$|(\[[^\]\\]*(?:\\.[^\]\\]*)*\])", lambda m: m[0] if m[0] != "$" else r"\Z", text)
    )


def fits(texts: Iterable[str], pattern: str) -> list[bool]:
    """Which of a few ``texts`` match ``pattern``."""
    search = compiled(pattern).search
    return [search(text) is not None for text in texts]


def contains(texts: pl.Series, pattern: str) -> pl.Series:
    """Which of ``texts`` (without nulls) match ``pattern``."""
    if len(texts) >= MANY:
        return texts.str.contains(portable(pattern))
    return pl.Series(fits(texts.to_list(), pattern), dtype=pl.Boolean)


def extract(texts: pl.Series, pattern: str) -> pl.Series:
    """The first group of ``pattern`` in each of ``texts`` (without nulls); null without a match."""
    if len(texts) >= MANY:
        return texts.str.extract(portable(pattern))
    search = compiled(pattern).search
    return pl.Series(texts.name, [(found := search(text)) and found[1] for text in texts.to_list()], dtype=pl.String)


def groups(texts: pl.Series, pattern: str) -> pl.DataFrame:
    """The named groups of ``pattern`` in each of ``texts`` (without nulls); all null without a match."""
    names = list(compiled(pattern).groupindex)
    if len(texts) >= MANY:
        return (
            texts.to_frame("text").select(pl.col("text").str.extract_groups(portable(pattern)).alias("g")).unnest("g")
        )
    search, numbers = compiled(pattern).search, compiled(pattern).groupindex.values()
    # All groups of a match at once, plus the whole match, since a single group would not be a tuple.
    none = (None,) * (len(names) + 1)
    rows = [none if (match := search(text)) is None else match.group(*numbers, 0) for text in texts.to_list()]
    columns = list(zip(*rows, strict=True)) or [()] * (len(names) + 1)
    return pl.DataFrame([pl.Series(name, columns[at], dtype=pl.String) for at, name in enumerate(names)])
