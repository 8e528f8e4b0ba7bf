"""One declaration of an expression makes a compiled reader: both end a match at the same place, whatever the bytes are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import header_scanner, levels, regexes
from parsers.expression_compiler import end_of
from parsers.formats import slurm
from parsers.formats.mnemonics import MNEMONIC, SEVERITY, TAG
from parsers.formats.structured_data import STRUCTURED_DATA, parameters
from parsers.lines import LEAD, LineBuffer
from tests.examples import examples

EXPRESSIONS = {"structured data": f"(?s){STRUCTURED_DATA}", "step tag": slurm.STEP_TAG, "mnemonic": TAG}
#: What lines are put together from besides whole matches: parts of them, and what they must not be confused with.
PIECES = {
    "structured data": ("[a@1 b=\"c\"]", '\\"', "\\]", "[]", '"]', "[", "]", '"', "\\", " ", "=", "a", "\0", "\n", "\u00e9", "\u4e2d"),
    "step tag": ("15", ".batch", ".extern", ".TBD", ".interactive", "batch", "+1", ".0", "0", "_", "]", "b", "\u0661"),
    "mnemonic": ("%A", "%ETH-5-UP", "-5-", "%A_1", "-3-B", "-44-", "-9-", "%", "-", "_", ":", " ", "A", "z", "\u0663", "\0"),
}  # fmt: skip


def text_of(name: str) -> st.SearchStrategy[str]:
    whole = st.from_regex(regexes.compiled(EXPRESSIONS[name]), fullmatch=True)
    return st.lists(st.one_of(st.sampled_from(PIECES[name]), whole), max_size=8).map("".join)


def compiled_end(name: str, line: bytes, limit: int | None = None) -> int:
    """Where the compiled reader ends a match at the line's beginning; below zero: nowhere."""
    buffer = LineBuffer.of_lines([line, b'"]-5-A:'])  # what follows belongs to another line
    end: int = end_of(EXPRESSIONS[name])(buffer.data, LEAD, LEAD + (len(line) if limit is None else limit))
    return end - LEAD if end >= 0 else -1


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_a_match_ends_where_the_expression_ends_it(name: str, data: st.DataObject) -> None:
    text = data.draw(text_of(name))
    found = regexes.compiled(EXPRESSIONS[name]).match(text)
    assert compiled_end(name, text.encode()) == (len(found[0].encode()) if found else -1)


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_bytes_that_are_no_text_end_it_at_the_same_place(name: str, data: st.DataObject) -> None:
    line = b"".join(data.draw(st.lists(st.one_of(text_of(name).map(str.encode), st.binary(max_size=3)), max_size=4)))
    found = re.compile(regexes.portable(EXPRESSIONS[name]).encode()).match(line)
    assert compiled_end(name, line) == (found.end() if found else -1)


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_no_match_goes_beyond_the_line(name: str, data: st.DataObject) -> None:
    line = data.draw(text_of(name)).encode()
    limit = data.draw(st.integers(0, len(line)))
    found = re.compile(regexes.portable(EXPRESSIONS[name]).encode()).match(line[:limit])
    assert compiled_end(name, line, limit) == (found.end() if found else -1)


@given(text_of("mnemonic"))
@settings(max_examples=examples(20), deadline=None)
def test_all_readers_of_mnemonics_agree(text: str) -> None:
    """The header's reader finds one where the formats find one, and both readers of its severity find the same digit."""
    line = text + ": x"
    buffer = LineBuffer.of_lines([line.encode()])
    end = int(buffer.ends[0])
    whole = regexes.compiled(f"^{MNEMONIC}").match(line)
    assert header_scanner.mnemonic(buffer.data, LEAD, end) == (whole is not None)
    if whole is not None:
        digit = int(re.match(SEVERITY, line)["severity"])  # type: ignore[index]
        assert levels._mnemonic(buffer.data, LEAD, end) == (levels.SURE + 1 + digit if digit < 8 else 0)


@pytest.mark.parametrize(
    ("message", "level"),
    [
        ("%LINK-3-UPDOWN: x", levels.SURE + 4),
        ("%LINK-3-UPDOWN : x", levels.SURE + 4),
        ("%PKT_INFRA-LINK-3-UPDOWN x", levels.SURE + 4),
        ("%A-1-2-X: the last but one", levels.SURE + 3),
        ("%LINK-9-UPDOWN: no such level", 0),
        ("%LINK-33-UPDOWN: two digits", 0),
        ("%LINK-3-UPDOWN, no colon", 0),
        ("%LINK-3-UPDOWN", 0),
        ("%LINK-UPDOWN: none", 0),
    ],
)  # fmt: skip
def test_the_level_of_a_mnemonic(message: str, level: int) -> None:
    buffer = LineBuffer.of_lines([message.encode()])
    assert levels._mnemonic(buffer.data, LEAD, int(buffer.ends[0])) == level


def test_the_parameters_are_those_of_every_element() -> None:
    text = r'[a@1 x="1" y="a \"b\" \] \\ c"][b@2 z="]"][bare]'
    assert re.fullmatch(STRUCTURED_DATA, text)
    assert parameters(text) == {"a@1": {"x": "1", "y": 'a "b" ] \\ c'}, "b@2": {"z": "]"}, "bare": {}}


@pytest.mark.parametrize("expression", [r"^a", r"a$", r"(a)\1", r"a(?=b)", r"\bA", r"(?i)a", "(?:a|b){300}c"])
def test_what_cannot_be_compiled_is_an_error(expression: str) -> None:
    with pytest.raises(ValueError, match=r"can be compiled|without an anchor|states"):
        end_of(expression)
