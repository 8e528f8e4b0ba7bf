"""Columns of tags."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from parsers.tag_lists import lists_of, one_more

TAGS = pl.List(pl.String)


def test_lists_have_the_given_sizes():
    assert lists_of(pl.Series(["a", "b", "c"]), np.array([0, 2, 0, 1])).to_list() == [[], ["a", "b"], [], ["c"]]
    assert lists_of(pl.Series([], dtype=pl.String), np.zeros(2, np.int64)).to_list() == [[], []]


@pytest.mark.parametrize("low", [0, 1])
def test_one_more_is_the_last(low: int):
    tags = pl.Series("tags", [["no"], [], ["a"], ["b", "c"], []], dtype=TAGS)[low:]
    at = pl.Series([1 - low, 3 - low], dtype=pl.UInt32)
    assert one_more(tags, at, pl.Series(["x", "y"])).to_list() == [["no"], ["x"], ["a"], ["b", "c", "y"], []][low:]


def test_a_line_without_a_list_gets_one_and_the_others_keep_none():
    tags = pl.Series("tags", [None, None, ["a"], []], dtype=TAGS)
    found = one_more(tags, pl.Series([1, 2], dtype=pl.UInt32), pl.Series(["x", "y"]))
    assert found.to_list() == [None, ["x"], ["a", "y"], []]
    assert found.name == "tags" and found.dtype == TAGS


def test_of_two_pieces():
    tags = pl.concat(
        [pl.Series("tags", [["a"]], dtype=TAGS), pl.Series("tags", [[], ["b"]], dtype=TAGS)], rechunk=False
    )
    assert one_more(tags, pl.Series([2], dtype=pl.UInt32), pl.Series(["x"])).to_list() == [["a"], [], ["b", "x"]]
