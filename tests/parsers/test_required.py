"""What a regex needs is really in everything it matches, and a format's first characters are those it accepts."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.formats import all_formats
from parsers.formats.base import Format, accepted
from parsers.patterns import load
from parsers.required import needs, telling

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
    assert list(found) == sorted(found, key=telling, reverse=True)


REGEXES = [regex for entry in CATALOGUE.entries for regex in entry.regexes]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_match_holds_what_its_regex_needs(data: st.DataObject) -> None:
    regex = data.draw(st.sampled_from(REGEXES))
    text = data.draw(st.from_regex(regex, alphabet=st.characters(codec="ascii")))
    assert all(any(needed in text.lower() for needed in clause) for clause in needs(regex)), (regex.pattern, text)


@given(st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_shortcut_changes_no_answer(text: str) -> None:
    for entry in CATALOGUE.entries:
        plain = next((found for regex in entry.regexes if (found := regex.search(text))), None)
        refused = entry.unless is not None and entry.unless.search(text)
        assert (entry.match(text, None) is not None) == (plain is not None and not refused)


def _accepts(form: Format, texts: list[str]) -> list[str]:
    column = pl.Series("text", texts)
    few = [text for text in texts if accepted(form, pl.Series("text", [text]))[0]]
    assert column.filter(accepted(form, column)).to_list() == few, "many lines at once are read as one is"
    return few


@pytest.mark.parametrize("form", [form for form in all_formats() if form.first], ids=lambda form: form.why)
def test_a_format_accepts_only_what_begins_as_it_says(form: Format) -> None:
    rests = (
        "30>1 2026-06-01T12:00:00Z h a - - - x", "30>Jun  1 12:00:00 h a: x", "Jun  1 12:00:00 h a: x", "un  1 12:00:00 h a: x",
        "2026-06-01T12:00:00Z h a: x", "026-06-01T12:00:00,123456+00:00 x", "026-06-01T12:00:00Z 2026-06-01T12:00:00Z h daemon.info a: x", "Jun  1 12:00:00] x",
        "2026-06-01T12:00:00] 5: eth0: <UP>", "2026-06-01T12:00:00] x", " 1.5] x", "[ 1.5] x", "6>[ 1.5] x", ",12,34,-;x", "12] x",
        "Mon Jun  1 12:00:00 2026] x", "1780000000.123456] [h:1] x", "1 n1 unix.hw state 1143000000 1 x", "lurmd: x",
        " 1117838570 2005.06.03 R02 x", "un 01 12:00:00 123456 [7F3A] 0x02 -> x", "Jun 01 2026 12:00:00] x", "4000000050d506482dbdf024 x",
        "026-06-01 12:00:00.1 [5] [110] WARNING [Hardware] x", "7 <30>1 2026-06-01T12:00:00Z h a - - - x",
        "026 Jun  1 12:00:00.1 h INFO a: x", "026-06-01_12:00:00.1+0000: [E] x", "1) Jun01 12:00:00 Main [App] >> x", "un Jun 14 12:00:00 2026: [N] x",
            "026-06-01T12:00:00Z stdout F x", "026-06-01T12:00:00Z {} x", "pod/a/b] x", " 12.345678] h kernel: x", "780000000.123456 h a[1]: x", "- Boot 0123456789abcdef0123456789abcdef --",
        "E- x", "026-06-01 12:00:00 h a[1]: x", " 2026-06-01T12:00:00Z h a - - - x", 'ime="x" level=info msg=a',
            "un  1 12:00:00 h Jun  1 12:00:00 h a[1]: x", "026-06-01T12:00:00Z h a: [2026-06-01T12:00:00.123] error: x",
    )  # fmt: skip
    texts = [first + rest for first in map(chr, range(32, 127)) for rest in rests]
    accepted = _accepts(form, [*texts, ""])
    assert accepted, "none of these: add one to the list"
    assert {text[:1] for text in accepted} <= set(form.first)
