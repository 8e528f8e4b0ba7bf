"""The compiled search finds what a search one text after another finds, and reads nothing outside its rows."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import needles
from parsers.lines import joined
from parsers.needles import Needles, Often
from tests.examples import examples

LETTERS = "abAB\u00e9\u00c9[{@` \0"
TEXTS = st.lists(st.text(LETTERS, min_size=1, max_size=7).map(_lower := lambda text: text.encode().lower().decode()),
                 min_size=1, max_size=9, unique=True)  # fmt: skip
ROWS = st.lists(st.one_of(st.none(), st.text(LETTERS + "\n\r\U0001f600", max_size=12)), max_size=8)


def naive(texts: list[str], rows: list[str | None]) -> list[tuple[int, int]]:
    return [
        (row, number)
        for row, hay in enumerate(rows)
        for number, text in enumerate(texts)
        if hay is not None and text.encode() in hay.encode().lower()
    ]


def found(sought: Needles, rows: list[str | None]) -> list[tuple[int, int]]:
    at, numbers = sought.find(*joined(pl.Series(rows, dtype=pl.String)))
    return list(zip(at.tolist(), numbers.tolist(), strict=True))


@given(TEXTS, ROWS, st.booleans())
@settings(max_examples=examples(6), deadline=None)
def test_finds_what_is_there(texts: list[str], rows: list[str | None], sampled: bool) -> None:
    like = Often(joined(pl.Series(rows, dtype=pl.String))[1]) if sampled else None
    assert found(Needles(texts, like), rows) == naive(texts, rows)


def of_words(rng: random.Random, count: int) -> tuple[list[str], list[str | None]]:
    """Texts that overlap, and rows made of them, in any case, with some letters changed."""
    words = [
        "link",
        "ink is",
        "nk is d",
        "down",
        "k",
        "is",
        "eth0: ",
        "LINK is DOWN"[5:].lower(),
        "\u00fc",
        "\u212a",
        "ss ",
    ]
    texts = sorted({"".join(rng.choices(words, k=rng.randrange(1, 4))) for _ in range(count)})
    rows = [
        None if rng.random() < 0.05 else "".join(
            rng.choice((str.upper, str.lower, str.title))(rng.choice((*words, *texts, "", "x", "\0"))) for _ in range(rng.randrange(9))
        )
        for _ in range(count)
    ]  # fmt: skip
    return texts, rows


@pytest.mark.parametrize("seed", range(3))
def test_many_texts_that_overlap(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the matches fill their buffer many times."""
    texts, rows = of_words(random.Random(seed), 400)
    want = naive(texts, rows)
    assert found(Needles(texts), rows) == want
    monkeypatch.setattr(needles, "_ROOM", 7)
    assert found(Needles(texts), rows) == want


def test_nothing_to_find_and_nowhere() -> None:
    assert found(Needles([]), ["a"]) == found(Needles(["a"]), []) == found(Needles(["a"]), [None, ""]) == []


def test_rows_do_not_run_into_each_other() -> None:
    """A text that begins in one row and ends in the next is in neither; a column may be a slice of a longer one."""
    rows = pl.Series(["abcd", "ab", "cde", "abcde"])[1:]
    at, numbers = Needles(["abcd", "abc", "bcd", "e"]).find(*joined(rows))
    assert list(zip(at.tolist(), numbers.tolist(), strict=True)) == [(1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]


@pytest.mark.long
def test_no_place_outside_the_arrays_is_read(tmp_path: Path) -> None:
    """The same in a process in which every index of compiled code is checked."""
    script = (
        "import random, runpy, sys; its = runpy.run_path(sys.argv[1]);"
        "texts, rows = its['of_words'](random.Random(5), 300);"
        "assert its['found'](its['Needles'](texts), rows) == its['naive'](texts, rows);"
        "from test_index import CATALOGUE, meanings, messages_of, PatternIndex;"
        "assert len(meanings(PatternIndex(CATALOGUE), messages_of(random.Random(5), 500), [None] * 500)) > 100"
    )
    # Its own folder: cached code is not checked.
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
