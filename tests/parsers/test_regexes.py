"""A regex means the same on one line and on many, in Python and in Polars."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import regexes
from parsers.formats import all_formats
from tests.examples import examples

PATTERNS = [form.accepts for form in all_formats() if isinstance(form.accepts, str)]
ODD = [
    "",
    "\n",
    "a\n",
    "\x1c",
    "\x85",
    "\u00a0x",
    "\u0661\u0662",
    "\u00b2",
    "\u017f",
    "\u212a",
    "e\u0301",
    "\x00",
    "[",
    "]",
    "{x}\n",
    "{x}\x1c",
]


def both(texts: list[str], pattern: str) -> tuple[list[bool], list[bool]]:
    """The results of a search in few texts, and in many."""
    column = pl.Series("text", texts, dtype=pl.String)
    few = regexes.contains(column, pattern).to_list()
    many = regexes.contains(pl.concat([column, pl.Series("text", ["x"] * regexes.MANY)]), pattern)
    return few, many.head(len(texts)).to_list()


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (r"^\d+$", r"^[0-9]+$"),
        (r"^[\d.]\S", r"^[0-9.][^ \t\n\r\f\v]"),
        (r"[^\s:\[]\[\]", r"[^ \t\n\r\f\v:\[]\[\]"),
        (r"\\d\w", r"\\d[0-9A-Za-z_]"),
    ],
)
def test_classes_are_written_out(pattern: str, wanted: str) -> None:
    assert regexes.portable(pattern) == wanted


def test_a_bracket_in_a_class_must_be_escaped() -> None:
    with pytest.raises(ValueError, match="as "):
        regexes.portable("[]a]")


@given(
    st.lists(st.one_of(st.text(max_size=30), st.sampled_from(ODD)), min_size=1, max_size=8), st.sampled_from(PATTERNS)
)
@settings(max_examples=examples(75), deadline=None)
def test_few_are_read_as_many(texts: list[str], pattern: str) -> None:
    few, many = both([*texts, *ODD], pattern)
    assert few == many


@given(st.data())
@settings(max_examples=examples(50), deadline=None)
def test_what_matches_matches_in_both(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PATTERNS))
    text = data.draw(st.from_regex(regexes.compiled(pattern)))
    few, many = both([text, text[1:], text[:-1]], pattern)
    assert few == many and few[0]


def test_groups_are_the_same_and_null_where_nothing_matches() -> None:
    pattern = r"(?s)^(?P<a>\d+)(?:-(?P<b>\w+))?$"
    texts = pl.Series("text", ["1", "1-x", "y", "1\n", "\u0661"])
    few = regexes.groups(texts, pattern)
    many = regexes.groups(pl.concat([texts] * regexes.MANY), pattern)
    assert few.rows() == [("1", None), ("1", "x"), (None, None), (None, None), (None, None)]
    assert many.head(5).equals(few) and regexes.groups(texts, r"(?P<a>\d)").columns == ["a"]


def test_the_first_group_is_the_same_and_null_where_nothing_matches() -> None:
    texts = pl.Series("text", ["a12", "b", "\u0661", "a1\n"])
    few = regexes.extract(texts, r"^a(\d+)")
    assert few.to_list() == ["12", None, None, "1"]
    assert regexes.extract(pl.concat([texts] * regexes.MANY), r"^a(\d+)").head(4).equals(few)
