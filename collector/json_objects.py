"""Columns of JSON objects. Two are merged into one: the members of both, where the first column takes precedence over the
second."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import polars as pl

#: Like ``json.dumps`` with these options, which would create an encoder for each call.
_written = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
#: Numbers that the encoder would write the same way again: up to 15 digits, and none that takes a power of ten.
_NUMBER = r"0|-?[1-9]\d{0,14}|-?0\.(?:0|\d{0,3}[1-9]|[1-9]\d{0,4}[1-9])|-?[1-9]\d{0,8}\.(?:0|\d{0,5}[1-9])"
#: A member that the encoder would write the same way again, and whose text sorts like its name: nothing is escaped or
#: nested, and no letter of a name comes before the quote.
_MEMBER = rf'"[^"\\ !]+": (?:"[^"\\]*"|{_NUMBER}|true|false|null)'
_FLAT = rf"^\{{{_MEMBER}(?:, {_MEMBER})*\}}$"
#: An object of one member, and its name.
_SINGLE = rf"^\{{{_MEMBER}\}}$"
_NAME = r'^\{"([^"]*)"'
#: Fewer objects are merged faster one by one.
_FEW = 200


def merged(first: pl.Series, second: pl.Series) -> pl.Series:
    """Both columns' objects merged row by row; null and the empty string are not objects."""
    one, other = (column.fill_null("").str.len_bytes().to_numpy() > 0 for column in (first, second))
    both = np.flatnonzero(one & other)
    found = pl.select(pl.when(pl.Series(one)).then(first).otherwise(second)).to_series().alias(first.name)
    if not len(both):
        return found
    return found.scatter(both, _both(first.gather(both), second.gather(both)))


def renamed(objects: pl.Series, names: Mapping[str, str]) -> pl.Series:
    """A column of objects with other names for some of their members."""
    at = objects.str.contains_any([f'"{name}"' for name in names]).fill_null(False).arg_true()
    if not len(at):  # nearly always
        return objects
    found = (json.loads(text) for text in objects.gather(at))
    texts = [_written({names.get(name, name): value for name, value in one.items()}) for one in found]
    return objects.scatter(at, pl.Series(texts, dtype=pl.String))


def _both(first: pl.Series, second: pl.Series) -> pl.Series:
    if len(first) < _FEW:
        return _one_by_one(first, second)
    texts = _of_two_members(first, second)
    rest = texts.is_null().arg_true()
    return texts.scatter(rest, _of_more(first.gather(rest), second.gather(rest))) if len(rest) else texts


def _of_two_members(first: pl.Series, second: pl.Series) -> pl.Series:
    """Objects of one member each, with different names: the most frequent pair, an uptime and a record's number. Null for
    all others."""
    one, other = first.str.extract(_NAME), second.str.extract(_NAME)
    is_single = first.str.contains(_SINGLE) & second.str.contains(_SINGLE) & (one != other)
    before, after = first.zip_with(one < other, second), second.zip_with(one < other, first)
    return (before.str.head(-1) + ", " + after.str.slice(1)).zip_with(is_single, pl.Series([None], dtype=pl.String))


def _of_more(first: pl.Series, second: pl.Series) -> pl.Series:
    if len(first) < _FEW:
        return _one_by_one(first, second)
    texts, is_right = _as_texts(first, second)
    odd = (~is_right).arg_true()
    return texts.scatter(odd, _one_by_one(first.gather(odd), second.gather(odd))) if len(odd) else texts


def _one_by_one(first: pl.Series, second: pl.Series) -> pl.Series:
    pairs = zip(first.to_list(), second.to_list(), strict=True)
    return pl.Series([_written(json.loads(text) | json.loads(own)) for own, text in pairs], dtype=pl.String)


def _as_texts(first: pl.Series, second: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The members' texts in order, and for which rows that is right: objects without anything nested or escaped, and
    without a name in common."""
    frame = pl.DataFrame([first.alias("first"), second.alias("second")])
    inside = [frame[name].str.slice(2).str.head(-1).str.split(', "').alias(name) for name in frame.columns]
    names = inside[1].explode().str.extract(r'^([^"]*)"').unique().drop_nulls().to_list()
    is_right = frame.select(
        pl.col("first").str.contains(_FLAT) & pl.col("second").str.contains(_FLAT)
        & ~pl.col("first").str.contains_any([f'"{name}": ' for name in ("", *names)])
    ).to_series()  # fmt: skip
    ordered = pl.concat_list("first", "second").list.sort().list.join(', "')
    return pl.DataFrame(inside).select(pl.concat_str(pl.lit('{"'), ordered, pl.lit("}"))).to_series(), is_right
