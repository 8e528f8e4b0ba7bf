"""Automata match the same texts as their regexes, and decide which formats may parse a line."""

from __future__ import annotations

import re
import string
from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import automata, prefilter, regexes
from parsers.automata import Automata
from parsers.formats import BUILT_IN
from parsers.formats.base import Format, accepted
from parsers.lines import Array, LineBuffer
from tests.examples import examples

PATTERNS = (
    r"^a", r"a$", r"^a$", r"a", r"^$", r"^(?:a|bc)+d", r"^a{2,3}b", r"a{2}", r"^a{0,2}$", r"^(?:ab?){2,}$", r"[^a]b", r"^[a-c]*$", r"^\d\s\w$",
    r"^.b", r"(?s)^.b", r"(?:^|b)c", r"a(?:b|)c", r"^(?P<x>a)(?:b(?:c|d)?)?e", r"a.*b$", r"^[^;]*;", r"(?:ab)+(?:cd)*$", r"^\S+ \d{1,3}\b", r"x{0}y",
    r"\u00e9", r"[a-\u00ff]", r"^[^\u00e9]$", r"(?i)a", r"a(?=b)", r"(a)\1", r"", r"a*", r"^\x00+$", r"^(?:a?b?){3}$", r"^(?:a+b)+$",
)  # fmt: skip
#: An automaton cannot decide about these.
HARD = {r"^\S+ \d{1,3}\b", r"(?i)a", r"a(?=b)", r"(a)\1"}
_TEXTS = st.lists(st.text("abcdxy01 ;\n\t\0\u00e9\u4e2d", max_size=12), min_size=1, max_size=20)


def fitting(texts: list[str], patterns: tuple[str | re.Pattern[str] | None, ...]) -> Array:
    """A row for each text, a column for each pattern."""
    buffer = LineBuffer.of_lines([text.encode() for text in texts])
    bits = Automata(patterns).fitting(buffer.data, buffer.starts, buffer.ends, np.arange(len(texts)))
    return bits[:, None] >> np.arange(len(patterns), dtype=np.uint64) & np.uint64(1) > 0


def assert_as_regexes(texts: list[str], patterns: tuple[str, ...]) -> None:
    for pattern, found in zip(patterns, fitting(texts, patterns).T.tolist(), strict=True):
        for text, mine, right in zip(texts, found, regexes.fits(texts, pattern), strict=True):
            sure = text.isascii() and pattern not in HARD
            assert mine == right if sure else mine or not right, (pattern, text)


@given(_TEXTS)
@settings(max_examples=examples(40), deadline=None)
def test_texts_of_few_letters(texts: list[str]) -> None:
    assert_as_regexes(texts, PATTERNS)


def test_what_cannot_be_reported_may_match() -> None:
    assert fitting(["", "b"], (*HARD, None)).all()


def test_nothing_outside_the_tables_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code reads any memory, and sometimes crashes; the same loop in Python refuses such a place. With regexes of
    which none can be expressed, or that match nothing, no text has a state."""
    monkeypatch.setattr(automata, "_run", automata._run._function)
    assert fitting(["", "b"], (*HARD, None)).all()
    assert not fitting(["", "b", "a"], (r"^[^\x00-\U0010ffff]", r"^a[^\x00-\U0010ffff]")).any()
    assert fitting(["ab", "ba", ""], (r"^a", r"^b$")).tolist() == [[True, False], [False, False], [False, False]]


#: In Python's own syntax, with conditions on what surrounds a place.
AROUND = tuple(map(re.compile, (
    r"^\S+ \d{1,3}\b", r"(?<!\w)'(.*)'(?!\w)", r"\ba (.{1,3}?)[:,]", r"a(?=b)", r"^(?!ab)(.{1,3})\d: ", r"[^\W\d]x$", r"[\w\s]+;\Z", r"b\B",
)))  # fmt: skip


@given(st.lists(st.text("ab01 ':;,x\n\u00e9\u0663\u2003", max_size=12), min_size=1, max_size=20))
@settings(max_examples=examples(40), deadline=None)
def test_conditions_on_what_surrounds_a_place_are_left_out(texts: list[str]) -> None:
    for regex, found in zip(AROUND, fitting(texts, AROUND).T.tolist(), strict=True):
        assert all(mine or regex.search(text) is None for text, mine in zip(texts, found, strict=True)), regex


ANCHORED = (r"^a", r"^(?:a|bc)+d", r"^a{2,3}b", r"^[a-c]*$", r"^(?:ab?){2,}$", r"^$", r"^[^;]*;", r"(?:^b|^c)\S+ x")


@given(_TEXTS)
@settings(max_examples=examples(40), deadline=None)
def test_a_text_is_left_once_nothing_anchored_can_match(texts: list[str]) -> None:
    assert Automata(ANCHORED)._tables.anchored
    assert_as_regexes(texts, ANCHORED)


def test_what_is_behind_a_text_without_a_match_is_not_read() -> None:
    tests = Automata((r"^ab*c;",))
    data, one = np.frombuffer(b"ax" + b";" * 100, np.uint8), np.zeros(1, np.int64)
    assert tests.fitting(data, one, one + len(data), one).tolist() == [0]
    states = tests._known[0]
    assert (states.next[: states.known[0]] == automata._OVER).any()
    # Had it read on, it would have recorded what follows a semicolon.
    assert not (states.next[1 : states.known[0], tests._tables.kinds[ord(";")]] != automata._UNKNOWN).any()


def test_what_a_condition_does_not_decide_is_decided() -> None:
    plain = ("b", "1 a", "a 1,x", "x", "", "\u00e9")
    assert not fitting(list(plain), (re.compile(r"(?<!\w)'(.*)'(?!\w)"), re.compile(r"\ba (.{1,3}?):"))).any()


def test_what_is_known_is_forgotten_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["aabbccdd" * 3, "abcabc", "", "bcd", "cde ;", "aab"]
    wanted = fitting(texts, PATTERNS).tolist()
    monkeypatch.setattr(automata, "_STATES", 3)
    assert fitting(texts, PATTERNS).tolist() == wanted


RESTS = (
    "026-06-01T12:00:00Z ERROR x: y", "026-06-01T12:00:00Z [warning  ] x", "026-06-01 12:00:00] [   12.345678] x", "ode-1  | 2026-06-01 12:00:00 x",
    "30>1 2026-06-01T12:00:00Z h a - - - x", "30>Jun  1 12:00:00 h a: x", "Jun  1 12:00:00 h a: x", "un  1 12:00:00 h a: x",
    "2026-06-01T12:00:00Z h a: x", "026-06-01T12:00:00,123456+00:00 x", "026-06-01T12:00:00Z 2026-06-01T12:00:00Z h daemon.info a: x", "Jun  1 12:00:00] x",
    "2026-06-01T12:00:00] 5: eth0: <UP>", "2026-06-01T12:00:00] x", " 1.5] x", "[ 1.5] x", "6>[ 1.5] x", ",12,34,-;x", "12] x",
    "Mon Jun  1 12:00:00 2026] x", "1780000000.123456] [h:1] x", "1 n1 unix.hw state 1143000000 1 x", "lurmd: x",
    " 1117838570 2005.06.03 R02 x", "un 01 12:00:00 123456 [7F3A] 0x02 -> x", "Jun 01 2026 12:00:00] x", "4000000050d506482dbdf024 x",
    "026-06-01 12:00:00.1 [5] [110] WARNING [Hardware] x", "7 <30>1 2026-06-01T12:00:00Z h a - - - x",
    "026 Jun  1 12:00:00.1 h INFO a: x", "026-06-01_12:00:00.1+0000: [E] x", "1) Jun01 12:00:00 Main [App] >> x", "un Jun 14 12:00:00 2026: [N] x",
    "026-06-01T12:00:00Z stdout F x", "026-06-01T12:00:00Z {} x", "pod/a/b] x", " 12.345678] h kernel: x", "780000000.123456 h a[1]: x", "- Boot 0123456789abcdef0123456789abcdef --",
    "E- x", "026-06-01 12:00:00 h a[1]: x", "026-06-01 12:00:00,5 - INFO - x", "0601 12:00:00.123 1 a.cc:1] x", "rank3]: x", "run: error: x", "1:2:3 [4] NCCL INFO x", "rror: 5%| x",
    '"a": 1}', "aemon :info  : x", "un 2026-06-01 12:00:00 UTC h a: x", 'ime="x" level=info msg=a',
    "un  1 12:00:00 h Jun  1 12:00:00 h a[1]: x", "026-06-01T12:00:00Z h a: [2026-06-01T12:00:00.123] error: x", " 2026-06-01T12:00:00Z h a - - - x",
    "rror: \x1b[31mx", "026-06-01 12:00:00.000000000 +0000 kern.info: {}", "026-06-01T12:00:00Z\tn1\ta[1]\tx", "un  1 12:00:00 UTC h a: x", "0601 12:00:00.123456    1 a.go:1] x",
    "h Jun  1 12:00:00 h a[1]: x", "ode Health Check x", "n: %X-1-Y: z", "",
)  # fmt: skip


@cache
def _begun() -> tuple[list[str], list[tuple[Format, Array]]]:
    """Every beginning with every rest, and which of them each format accepts."""
    texts = [first + rest for first in ["", *string.printable, "\u00e9", "\ufeff", "3\u6708"] for rest in RESTS]
    return texts, [(form, accepted(form, pl.Series("text", texts)).to_numpy()) for form in BUILT_IN]


def test_every_format_is_asked_about_what_it_accepts() -> None:
    texts, accepts = _begun()
    buffer = LineBuffer.of_lines([text.encode() for text in texts])
    found = prefilter.formats_of(buffer, np.arange(len(texts)))
    ascii_ = np.array([text.isascii() for text in texts])
    for form, right in accepts:
        mine = found & prefilter.bit(form) != 0
        assert right.any() or form.name in ("loghub", "ibdiagnet"), f"{form.why}: none of these, add one to the list"
        assert (mine[ascii_] == right[ascii_]).all(), form.why
        assert not (right & ~mine).any(), form.why
    assert all((found & prefilter.bit(form) != 0).mean() < 0.2 for form in BUILT_IN[:-2]), (
        "most lines are for few formats"
    )


@given(st.integers(0, 10_000), st.integers(0, 40), st.text(max_size=3))
@settings(max_examples=examples(60), deadline=None)
def test_one_letter_changed_anywhere(which: int, at: int, letter: str) -> None:
    """Of lines that the formats accept, one for each."""
    all_texts, accepts = _begun()
    places = [np.flatnonzero(right) for _, right in accepts if right.any()]
    lines = [all_texts[place[which % len(place)]] for place in places]
    texts = [(line[:at] + letter + line[at + 1 :]).encode(errors="replace").decode() for line in lines]
    buffer = LineBuffer.of_lines([text.encode() for text in texts])
    found = prefilter.formats_of(buffer, np.arange(len(texts)))
    ascii_ = np.array([text.isascii() for text in texts])
    for form in BUILT_IN:
        mine = found & prefilter.bit(form) != 0
        right = accepted(form, pl.Series("text", texts)).to_numpy()
        assert (mine == right)[ascii_].all() and (mine | ~right).all(), (form.why, texts)
