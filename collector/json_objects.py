"""Two columns of JSON objects as one: the members of both, a name of the first column before the same name of the second."""

from __future__ import annotations

import json

import numpy as np
import polars as pl

#: As ``json.dumps`` of these options, which makes an encoder for each call.
_written = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


def merged(first: pl.Series, second: pl.Series) -> pl.Series:
    """Both columns' objects as one, row by row; null and the empty text are no object."""
    one, other = (column.fill_null("").str.len_bytes().to_numpy() > 0 for column in (first, second))
    both = np.flatnonzero(one & other)
    found = pl.select(pl.when(pl.Series(one)).then(first).otherwise(second)).to_series().alias(first.name)
    if not len(both):
        return found
    pairs = zip(first.gather(both), second.gather(both), strict=True)
    return found.scatter(both, [_written(json.loads(text) | json.loads(own)) for own, text in pairs])
