"""What a regex requires is really in everything it matches, and a format's first characters are those it accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import quoting
from parsers.patterns import load
from parsers.required import needs, selectivity
from tests.examples import examples

CATALOGUE = load()


@pytest.mark.parametrize(
    ("regex", "clauses"),
    [
        (r"link is (?:up|down)", [("link is down", "link is up")]),
        (r"^a(?P<x>bc)\bde+f?g", [("abcd",)]),
        (r"(?:node )?(?P<n>\w+) not responding", [(" not responding",)]),
        (r"(?:abc){2,}x|y", []),
        (r"(?:abc){2,}xyz", [("abc",), ("xyz",)]),
        (r"(?:abc)*", []),
        (r"(?=abc)x", [("abc",)]),
        (r"(?!abc)de", [("de",)]),
        (r"\u00e9{1}ab", [("ab",)]),
        (r"a.b", []),
        (r"[a]bc", [("abc",)]),
        (r"[Dd]isk [ab]c", [("disk ac", "disk bc")]),
        (r"[a-z]bc", [("bc",)]),
        (r"Disk (?:failed \d+|is \S+ gone)", [("disk ",), ("failed ", " gone")]),
        (r"(?:gone|\d+)x1", [("x1",)]),
    ],
)
def test_what_is_needed(regex: str, clauses: list[tuple[str, ...]]) -> None:
    found = needs(re.compile(regex, re.IGNORECASE))
    assert {frozenset(clause) for clause in found} == {frozenset(clause) for clause in clauses}
    assert list(found) == sorted(found, key=selectivity, reverse=True)


REGEXES = [regex for entry in CATALOGUE.entries for regex in entry.regexes]


@given(st.data())
@settings(max_examples=examples(75), deadline=None)
def test_every_match_holds_what_its_regex_needs(data: st.DataObject) -> None:
    regex = data.draw(st.sampled_from(REGEXES))
    text = data.draw(st.from_regex(regex, alphabet=st.characters(codec="ascii")))
    assert all(any(needed in text.lower() for needed in clause) for clause in needs(regex)), (regex.pattern, text)


@given(st.text(max_size=40))
@settings(max_examples=examples(25), deadline=None)
def test_a_shortcut_changes_no_answer(text: str) -> None:
    for entry in CATALOGUE.entries:
        plain = next((found for regex in entry.regexes if (found := regex.search(text))), None)
        refused = entry.unless is not None and entry.unless.search(text)
        assert (quoting.match(entry, text, None) is not None) == (plain is not None and not refused)
