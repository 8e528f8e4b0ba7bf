"""How many batches are stored together, and what is left over."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.merging import MOST_SEGMENTS, cut, fitting, numbered_on
from store.line_frames import coded
from store.line_order import SEGMENT_ROWS as FULL


@pytest.mark.parametrize(
    ("sizes", "carried", "wanted"),
    [
        ([], 0, 0),
        ([10, 10], 5, 2),  # no segment is filled: all there are
        ([FULL], 0, 1),
        ([FULL, FULL // 2], 0, 1),
        ([FULL // 2, FULL // 2 + 1, FULL // 2], 0, 2),
        ([FULL // 2, FULL, FULL // 2 + 9], 0, 3),  # nine left over of two segments, not half a one of one
        ([FULL - 5], 5, 1),
        ([9 * FULL], 7, 1),  # one batch is never divided
        ([FULL + 1, *[FULL] * 9], 0, MOST_SEGMENTS),
    ],
)
def test_as_many_pieces_as_leave_the_fewest_lines_over(sizes: list[int], carried: int, wanted: int) -> None:
    assert fitting(sizes, carried) == wanted


@given(st.lists(st.integers(0, 2 * FULL), max_size=9), st.integers(0, FULL - 1))
def test_where_a_segment_can_be_filled_one_is(sizes: list[int], carried: int) -> None:
    stored = carried + sum(sizes[: fitting(sizes, carried)])
    assert stored >= FULL or stored == carried + sum(sizes) < FULL


@pytest.mark.parametrize("rows", [1, FULL - 1, FULL, FULL + 1, 2 * FULL + 17])
def test_segments_and_rest_are_the_lines_in_their_order(rows: int) -> None:
    lines = pl.DataFrame({"n": range(rows)})
    sealed, rest = cut(lines)
    assert all(len(part) == FULL for part in sealed)
    assert pl.concat([*sealed, *([rest] if rest is not None else [])]).equals(lines)


def test_lines_are_numbered_on_by_their_streams() -> None:
    def lines(files: str) -> pl.DataFrame:
        """Numbered from 1 in each file; a blank is no file."""
        numbers = [files[: at + 1].count(file) for at, file in enumerate(files)]
        return coded(pl.DataFrame({"file": [None if f == " " else f for f in files], "line": numbers}))

    def numbers(*parts: str, before: dict[str, int]) -> list[list[int]]:
        return [part["line"].to_list() for part in numbered_on([lines(files) for files in parts], before)]

    assert numbers("a bac", before={"a": 10, "b": 0, "c": 3}) == [[11, 1, 1, 12, 4]]
    assert numbers("aa", before={"a": 10}) == [[11, 12]]
    assert numbers("ab", "", "cba a", " b", before={"a": 10, "c": 7, "other": 5}) == [
        [11, 1], [], [8, 2, 12, 1, 13], [1, 3]
    ]  # fmt: skip
    assert numbers(before={}) == []
