"""The compiled pass that collects the terms of a text filter."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from store import filter_terms
from store.filter_terms import BLOCK_BITS, terms_of
from store.text_filter import pair_term, term


def found_in(text: bytes) -> filter_terms.Terms:
    data = np.frombuffer(text, np.uint8)
    return terms_of(data, np.array([len(data)]), np.array([0]), 1)


def test_a_text_with_more_terms_than_are_collected_at_once_has_all_of_them() -> None:
    words = ["".join("ghijklmnop"[int(digit)] for digit in str(number)) for number in range(1000, 1000 + filter_terms._COLLECTED)]  # fmt: skip
    found = found_in(" ".join(words).encode())
    wanted = {term(word) for word in words} | {pair_term(*pair) for pair in pairwise(words)}
    assert {int(entry) >> BLOCK_BITS << BLOCK_BITS for entry in found.entries} == wanted
    assert len(found.entries) == len(wanted) and len(found.words) == len(words)


def test_few_bytes_are_read_by_the_same_machine_code_as_many() -> None:
    found_in(b"a line of more than sixteen bytes")
    before = len(filter_terms._collect.dispatcher.signatures)  # type: ignore[attr-defined]
    for size in range(1, 18):
        text = b"started 17 units now"[:size]
        wanted = {term(word) for word in text.decode().split() if len(word) >= filter_terms.SHORTEST}
        entries = {int(entry) for entry in found_in(text).entries}
        assert wanted <= entries, text
    assert len(filter_terms._collect.dispatcher.signatures) == before  # type: ignore[attr-defined]
