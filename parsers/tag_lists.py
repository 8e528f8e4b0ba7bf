"""Columns of tags: a list of texts for each line, of which nearly all are empty.

Built from buffers: a query over lists visits each line and takes ten times as long, and ``pa.array`` would import pandas, if
installed, into every parsing process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from parsers.lines import Array


def lists_of(names: pl.Series, sizes: Array) -> pl.Series:
    """``names`` as one list for each line, each of the given size."""
    texts = names.to_arrow(compat_level=pl.CompatLevel.oldest())
    edges = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=edges[1:])
    lists = pa.Array.from_buffers(pa.large_list(texts.type), len(sizes), [None, pa.py_buffer(edges)], children=[texts])
    made = pl.from_arrow(lists)
    assert isinstance(made, pl.Series)
    return made.alias("tags")


def one_more(tags: pl.Series, at: pl.Series, names: pl.Series) -> pl.Series:
    """``tags`` with one of ``names`` after those of each row in ``at`` (ascending). A line without a list gets one; the others
    of these keep none."""
    rows, none = at.to_numpy(), tags.is_null()
    if none.any():
        none[at] = False
        return one_more(tags.fill_null([]), at, names).to_frame().select(pl.when(~none).then("tags")).to_series()
    there = pl.from_arrow(tags.to_arrow(compat_level=pl.CompatLevel.oldest()).flatten())
    assert isinstance(there, pl.Series)
    sizes = tags.list.len().to_numpy().astype(np.int64)
    sizes[rows] += 1
    is_new = np.zeros(len(there) + len(names), np.bool_)
    is_new[np.cumsum(sizes)[rows] - 1] = True
    place = np.empty(len(is_new), np.uint32)
    place[~is_new], place[is_new] = np.arange(len(there)), np.arange(len(there), len(is_new))
    return lists_of(pl.concat([there, names]).gather(place), sizes)
