"""Converts frames to Arrow, DuckDB's input format."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

_VIEWS = pl.CompatLevel.newest()


def as_arrow(columns: Iterable[pl.Series]) -> pa.Table:
    """A frame, or some of its columns, with Polars' string views: nothing is copied on the way.

    The dictionary of a coded column (``coded``) is passed whole unless it is longer than the column: otherwise Polars
    checks in every row which entries occur, which takes ten times as long as everything else here.
    """
    return pa.table({column.name: _as_arrow(column) for column in columns})


def _as_arrow(column: pl.Series) -> pa.Array:
    if isinstance(column.dtype, pl.Categorical):
        numbers = column.to_physical()  # before the dictionary, which others may extend meanwhile
        texts = column.dtype.categories.to_series()
        if len(texts) <= len(numbers):
            parts = (part.to_arrow(compat_level=_VIEWS) for part in (numbers, texts))
            return pa.DictionaryArray.from_arrays(*parts, safe=False)
    return column.to_arrow(compat_level=_VIEWS)
