"""One declaration of a header makes a regular expression and a compiled reader: both agree on any line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.formats import devices, fabric, job_output, kernel, slurm, syslog, syslog_tails
from parsers.header_compiler import reader
from parsers.header_grammar import CLASSES, Header, Run, digits, either, header, maybe, named
from parsers.lines import LEAD, LineBuffer
from tests.examples import examples

HEADERS = {
    "priority": syslog.PRIORITY, "bsd": syslog.BSD_HEADER, "iso": syslog.ISO_HEADER, "rfc5424": syslog.RFC5424_HEADER,
    "tail": syslog.TAIL, "levelled tail": syslog_tails.LEVELLED_TAIL, "slurm": slurm.FILE_HEADER, "opensm": fabric.OPENSM_HEADER,
    "fabric manager": fabric.MANAGER_HEADER, "nxos": devices.NXOS_HEADER, "kmsg": kernel.KMSG_HEADER, "uptime": kernel.UPTIME_HEADER,
    "rank": job_output.RANK_HEADER, "nccl": job_output.NCCL_HEADER, "logger": job_output.LOGGER_HEADER,
}  # fmt: skip
#: Fields of which the compiled reader accepts more than is valid: their meaning is decided afterwards, for both parsers alike.
MEANT = {
    "iso": ("2026-06-01T12:00:00Z", "2026-06-01T12:00:00.123456+02:00", "2026-06-01T12:00:00"),
    "level": ("INFO", "ERR", "WARNING"),
}
#: What follows a header, and what is inserted into one.
BEHIND = ("", "text", " text", "%ETH-5-UP: x", "[15.batch] x", "0", "-", "\u00e9")
ODD = (
    "",
    " ",
    "  ",
    ":",
    "[",
    "]",
    "<",
    ">",
    "-",
    "0",
    "A",
    "a",
    "\0",
    "\x1b",
    "\t",
    "\u00e9",
    "\u0661",
    "1234567890123",
)


#: In machine code in ``make test``, with and without repeated parts: each costs a third of a second to compile. Of the
#: others the same function runs as Python, which also finds what it would read outside of its line.
MACHINE_CODE = ("rfc5424", "rank")


def scanned(which: Header, line: str, compiled: bool) -> tuple[int, dict[str, tuple[int, int]]] | None:
    """The end of the header, and the positions of its fields; None if there is none."""
    buffer = LineBuffer.of_lines([line.encode()])
    read = reader(which)
    places = (read if compiled else read.__wrapped__)(buffer.data, LEAD)
    if places.end < 0:
        return None
    found = {name: (getattr(places, name) - LEAD, getattr(places, f"{name}_end") - LEAD) for name in which.fields}
    return places.end - LEAD, {name: place for name, place in found.items() if place[0] >= 0}


def matched(which: Header, line: str) -> tuple[int, dict[str, tuple[int, int]]] | None:
    """Like :func:`scanned`, by the regular expression of the plain spelling."""
    found = re.compile(which.plain.encode()).match(line.encode())
    if found is None:
        return None
    return found.end(), {name: found.span(name) for name in which.fields if found[name] is not None}


def altered(line: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """The line with something odd in place of some of its characters."""
    at, gone = draw(st.integers(0, len(line))), draw(st.integers(0, 2))
    return line[:at] + str(draw(st.sampled_from(ODD))) + line[at + gone :]


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        *((name, False) for name in HEADERS),
        *(pytest.param(name, True, marks=() if name in MACHINE_CODE else pytest.mark.long) for name in HEADERS),
    ],
)
@settings(max_examples=examples(4), deadline=None)
@given(data=st.data())
def test_compiled_reader_and_expressions_find_the_same_places(name: str, compiled: bool, data: Any) -> None:
    """The reader and the plain expression agree on any line, and the general expression takes every plain header, with
    the fields at the same positions."""
    which = HEADERS[name]
    plain: str = data.draw(st.from_regex(which.plain, fullmatch=True, alphabet=st.characters(max_codepoint=126)))
    for line in (plain, *(altered(plain, data.draw) for _ in range(2))):
        whole = line + data.draw(st.sampled_from(BEHIND))
        assert scanned(which, whole, compiled) == matched(which, whole)
    for field, values in MEANT.items():
        if field in which.fields:
            begin, end = matched(which, plain)[1][field]  # type: ignore[index]
            plain = plain[:begin] + data.draw(st.sampled_from(values)) + plain[end:]
    general, found = re.compile(which.regex).match(plain + "text"), scanned(which, plain + "text", compiled)
    assert general is not None and found is not None
    assert {field: general.span(field) for field in found[1]} == found[1]


@pytest.mark.parametrize(
    "pieces",
    [
        (Run("printed"), "x"),
        (named("a", Run("digit")), maybe("5"), " "),
        (Run("name"), digits(2)),
        (maybe(Run("digit")), "x"),
        ("x", maybe("[", Run("digit"), "]")),
        (maybe("[", Run("digit"), "]"), "[x"),
        (Run("stamp", 1, 3), either(r"\d", "1")),
    ],
)
def test_a_header_that_needs_looking_back_is_an_error(pieces: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"run of|begin with a text|cannot be told"):
        header(*pieces)


def test_no_class_leaves_the_line() -> None:
    assert not CLASSES[:, [0, 10, 13, *range(128, 256)]].any()
