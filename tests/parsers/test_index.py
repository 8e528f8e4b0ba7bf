"""The index gives the same result as trying one entry after another."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.index import PatternIndex
from parsers.pattern import Pattern
from parsers.patterns import Catalogue, load
from tests.examples import examples

CATALOGUE = load()
SOURCES = sorted({source for entry in CATALOGUE.entries for source in entry.sources})
TEXTS = [text for e in CATALOGUE.entries for text in (*(example.text for example in e.examples), *e.counters)]
ODD = ("\u017f", "\u212a", "\u0130", "\u0131", "\u00e9", "S", "k", "\n", "\0", " ")


def meanings(
    index: PatternIndex, messages: Sequence[str | None], sources: Sequence[str | None]
) -> list[tuple[int, Pattern, dict[str, Any]]]:
    """Row, entry and entities of each message that is an event."""
    found = index.find(pl.Series(messages, dtype=pl.String), pl.Series(sources, dtype=pl.String))
    means = {at: (entry, entities) for at, _, entry, entities in found.meanings}
    return [(row, *means[at]) for row, at in zip(found.rows.tolist(), found.which.tolist(), strict=True) if at in means]


def messages_of(rng: random.Random, count: int) -> list[str | None]:
    """Examples and counter-examples: unchanged, cut, concatenated, in another case, with a letter changed."""
    made: list[str | None] = []
    for _ in range(count):
        text = rng.choice(TEXTS)
        kind = rng.randrange(7)
        at = rng.randrange(len(text) + 1)
        other = rng.choice(TEXTS)
        made.append((
            text, text[:at], text + " " + other, text.upper(), text[:at] + rng.choice(ODD) + text[at + 1 :],
            text.replace("s", "\u017f", 1).replace("k", "\u212a", 1), None if rng.random() < 0.3 else other[at:],
        )[kind])  # fmt: skip
    return made


@given(st.randoms(use_true_random=False), st.integers(1, 300), st.integers(0, 300))
@settings(max_examples=examples(3), deadline=None)
def test_the_index_answers_as_the_catalogue(rng: random.Random, count: int, sampled: int) -> None:
    """Whatever lines its keys were chosen by."""
    index = PatternIndex(CATALOGUE)
    meanings(index, messages_of(rng, sampled), [None] * sampled)
    messages = messages_of(rng, count)
    sources = [rng.choice([None, *SOURCES]) for _ in messages]
    got = {row: means for row, *means in meanings(index, messages, sources)}
    for row, (message, source) in enumerate(zip(messages, sources, strict=True)):
        want = CATALOGUE.match(message or "", source)
        assert got.get(row) == (None if want is None else list(want)), (message, source)


def test_literals_that_are_not_ascii() -> None:
    """A German site's own pattern: found in lower and upper case, with or without ASCII in its literal."""
    like = replace(CATALOGUE.entries[0], unless=None, sources=frozenset(), fixed={})
    entries = [
        replace(like, id="a", order=0, literals=("l\u00fcfter",), regexes=(re.compile("(?:L\u00fcfter|\u00e4) \\d", re.IGNORECASE),)),
        replace(like, id="b", order=1, literals=("\u00fc",), regexes=(re.compile("\u00dc", re.IGNORECASE),)),
    ]  # fmt: skip
    catalogue = Catalogue(tuple(entries))
    texts = ["L\u00fcfter 1", "L\u00dcFTER 2", "l\u00fcfter", "fan 1", "\u00dc", "\u00fc"]
    found = meanings(PatternIndex(catalogue), texts, [None] * 6)
    assert [(row, entry.id) for row, entry, _ in found] == [(0, "a"), (1, "a"), (2, "b"), (4, "b"), (5, "b")]


def test_a_literal_that_its_regex_does_not_need() -> None:
    """However common the literal and however rare what the regex needs: both must be present."""
    like = replace(CATALOGUE.entries[0], unless=None, sources=frozenset(), fixed={}, id="a", order=0)
    entry = replace(
        like,
        literals=("the", "a "),
        regexes=(re.compile("fault \\d", re.IGNORECASE), re.compile("error", re.IGNORECASE)),
    )
    texts = ["the fault 1", "Fault 2 of The", "fault 3", "error", "THE ERROR", "a fault", *["the end, a song"] * 300]
    found = meanings(PatternIndex(Catalogue((entry,))), texts, [None] * len(texts))
    assert [row for row, _, _ in found] == [0, 1, 4]
