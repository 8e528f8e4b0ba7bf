"""Dictionary encoding of repeated texts: what is distinct, and what is equal wherever it is stored."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import lines
from parsers.lines import codes, counted

#: Shorter and longer than what a view stores inline, and the same ones again at other offsets.
TEXTS = st.lists(
    st.one_of(st.none(), st.sampled_from(["", "a", "é", "twelve bytes", "thirteen byte", "x" * 40])), max_size=40
)


def spelled(texts: pl.Series) -> list[str | None]:
    """The texts restored from their codes; no code represents two of them."""
    found = codes(texts)
    assert found.names.n_unique() == len(found.names) and found.which.dtype == np.uint32
    return found.names.gather(found.which).to_list()


@given(TEXTS, st.integers(0, 5), st.booleans())
@settings(deadline=None)
def test_every_text_is_its_name_and_every_name_is_another(texts: list[str | None], cut: int, pieces: bool) -> None:
    column = pl.Series("x", texts, dtype=pl.String)
    both = pl.concat([column, column.reverse()], rechunk=not pieces)  # two buffers: the same text at two places
    for some in (both.slice(cut), column.new_from_index(0, 9) if len(column) else column):
        assert spelled(some) == some.to_list()


@pytest.mark.parametrize("length", [13, 14, 15, 16, 17, 20, 21, 40])
def test_long_texts_that_differ_in_one_letter_are_two(length: int) -> None:
    text = "x" * length
    texts = [text[:at] + letter + text[at + 1 :] for at in range(length) for letter in "xyz"] * 2
    assert spelled(pl.Series(texts)) == texts
    assert len(codes(pl.Series(texts)).names) == 2 * length + 1


@given(TEXTS, st.data())
@settings(deadline=None)
def test_what_another_column_shows_changes_no_number(texts: list[str | None], data: st.DataObject) -> None:
    kinds = st.lists(st.none() | st.sampled_from("abc"), min_size=len(texts), max_size=len(texts))
    column, like = pl.Series("x", texts, dtype=pl.String), codes(pl.Series(data.draw(kinds), dtype=pl.String))
    found, reported = codes(column), codes(column, like)
    assert reported.which.tolist() == found.which.tolist() and reported.names.to_list() == found.names.to_list()


@given(st.binary(max_size=200).map(lambda data: data.translate(bytes([10, 11, 138, 9] * 64))), st.integers(0, 9))
@settings(deadline=None)
def test_line_ends_are_found_wherever_they_stand(data: bytes, cut: int) -> None:
    letters = np.frombuffer(data, np.uint8)[cut:]
    assert lines.line_ends(letters).tolist() == np.flatnonzero(letters == 10).tolist()


@pytest.mark.parametrize("data", [b"", b"a", b"\n", b"a\nb\n\xff", b"ab\n" * 700_000])
def test_a_byte_is_counted_wherever_it_stands(data: bytes) -> None:
    assert lines.count_of(b"\n", data) == data.count(b"\n")
    assert lines.count_of(b"b", data) == data.count(b"b")


def test_more_different_texts_than_the_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SLOTS", 8)
    few, many = [None, *(str(number % 7) for number in range(50))], [f"number {number:08}" for number in range(50)]
    assert spelled(pl.Series(few)) == few
    assert spelled(pl.Series(many)) == many


def test_the_same_are_counted() -> None:
    assert counted(np.array([0, 1, 0, 0, 2, 1], np.uint32), 3).tolist() == [1, 1, 2, 3, 1, 2]
