"""What a regex requires is really in everything it matches, and a format's first characters are those it accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import quoting, required
from parsers.patterns import load
from parsers.required import needs, needs_kept, selectivity
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


def test_what_is_kept_is_what_was_found_and_nothing_else(tmp_path: Path) -> None:
    for regex in REGEXES:
        needs_kept(regex)
    assert required.kept(tmp_path) == {}, "nothing was written yet"
    required.keep(tmp_path)
    kept = required.kept(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for regex in {*REGEXES}:
        assert kept.get((regex.pattern, regex.flags)) == needs(regex), regex.pattern


def test_a_changed_expression_is_parsed_and_an_unchanged_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regex = re.compile("the disk left")
    monkeypatch.setattr(required, "_asked", {(regex.pattern, regex.flags): (("as it was kept",),)})
    required.keep(tmp_path)
    monkeypatch.setattr(required, "_kept", lambda: required.kept(tmp_path))
    monkeypatch.setattr(required, "_asked", {})  # another process, later
    assert needs_kept(regex) == (("as it was kept",),)
    assert needs_kept(re.compile("the disk leaves")) == (("the disk leaves",),)
    assert needs_kept(re.compile("the disk left", re.IGNORECASE)) == (("the disk left",),), (
        "other flags, another expression"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "[7]",
        '[["a", 2]]',
        '[["a", 2, 3]]',
        '[[["a"], 2, []]]',
        '[["a", 2, ["ab"]]]',
        '[["a", 2, [[]]]]',
        "\\udcff",
    ],
)
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    required._file(tmp_path).write_text(text)
    assert required.kept(tmp_path) == {}


def test_what_other_sources_wrote_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    required._file(tmp_path).write_text(json.dumps([["a", 32, [["ab"]]]]))
    assert required.kept(tmp_path) == {("a", 32): (("ab",),)}
    monkeypatch.setattr("parsers.compiled.sources", lambda: "other")
    assert required.kept(tmp_path) == {}


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    required.keep(tmp_path / "file")
    assert required.kept(tmp_path / "file") == {}
