"""Merges two columns of JSON objects into one: the members of both, where the first column takes precedence over the
second."""

from __future__ import annotations

import json

import numpy as np
import polars as pl

#: Like ``json.dumps`` with these options, which would create an encoder for each call.
_written = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


def merged(first: pl.Series, second: pl.Series) -> pl.Series:
    """Both columns' objects merged row by row; null and the empty string are not objects."""
    one, other = (column.fill_null("").str.len_bytes().to_numpy() > 0 for column in (first, second))
    both = np.flatnonzero(one & other)
    found = pl.select(pl.when(pl.Series(one)).then(first).otherwise(second)).to_series().alias(first.name)
    if not len(both):
        return found
    pairs = zip(first.gather(both).to_list(), second.gather(both).to_list(), strict=True)
    return found.scatter(both, [_written(json.loads(text) | json.loads(own)) for own, text in pairs])
