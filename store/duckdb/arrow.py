"""Frames as Arrow, the way DuckDB takes them in."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

_VIEWS = pl.CompatLevel.newest()


def as_arrow(data: pl.DataFrame) -> pa.Table:
    """Texts as Polars has them (views): nothing is copied on the way.

    The dictionary of a column of numbers (``coded``) goes along whole, unless it is longer than the column: Polars looks in
    every row for what of it occurs, which takes ten times as long as all else here.
    """
    return pa.table({column.name: _as_arrow(column) for column in data.get_columns()})


def _as_arrow(column: pl.Series) -> pa.Array:
    if isinstance(column.dtype, pl.Categorical):
        numbers = column.to_physical()  # before the dictionary, which others may lengthen meanwhile
        texts = column.dtype.categories.to_series()
        if len(texts) <= len(numbers):
            parts = (part.to_arrow(compat_level=_VIEWS) for part in (numbers, texts))
            return pa.DictionaryArray.from_arrays(*parts, safe=False)
    return column.to_arrow(compat_level=_VIEWS)
