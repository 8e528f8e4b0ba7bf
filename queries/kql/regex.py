"""Checks regular expressions, which are RE2's, as Kusto's are.

RE2 is linear in time whatever the pattern, without look-around and back-references. The engine runs the patterns; they
are checked here first, so that an error has a position. No pattern of a user is ever run by Python's ``re``, whose time
may double with each letter of the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from threading import Lock

import duckdb

#: What Python's compiler accepts and RE2 may not: back-references, escapes of its own, atomic groups, conditions,
#: possessive repetition, repetition beyond a thousand.
_DOUBTFUL = re.compile(r"\\[1-9uUNZ]|\(\?[>(#]|[+*?}]\+|\{\d*,?\d{4,}")
_LOOK_AROUND = re.compile(r"\(\?(?:=|!|<=|<!)")
_LOCK = Lock()


def complaint(pattern: str) -> str | None:
    """Why a pattern is invalid, in RE2's words; None if it is valid."""
    if _LOOK_AROUND.search(pattern):
        return "look-around does not exist in RE2, which Kusto uses"
    try:
        re.compile(pattern)
        if not _DOUBTFUL.search(pattern):
            return None
    except (re.error, OverflowError, RecursionError):
        pass  # RE2 has spellings Python has not
    return _asked(pattern)


@lru_cache(maxsize=1)
def _judge() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@lru_cache(maxsize=512)
def _asked(pattern: str) -> str | None:
    try:
        with _LOCK:
            _judge().execute("SELECT regexp_matches('', $1)", [pattern]).fetchall()
    except duckdb.InvalidInputException as problem:
        reason = re2_message(str(problem))
        return f"this is no regular expression of RE2: {reason or 'it cannot be read'}"
    return None


#: The beginnings of RE2's error messages.
_COMPLAINT = re.compile(
    r"((?:missing|bad repetition|no argument for repetition|invalid (?:perl|escape|character class|named capture|repetition)"
    r"|trailing \\|unexpected \)|pattern too large|bad escape).*)", re.S
)  # fmt: skip


def re2_message(message: str) -> str | None:
    """RE2's error in a message of the engine."""
    found = _COMPLAINT.search(message)
    return found[1].strip() if found else None


def group_count(pattern: str) -> int:
    """The number of capture groups; RE2 has spellings that Python lacks, so those are counted by hand."""
    try:
        return re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError):
        return len(_openings(pattern))


def group_names(pattern: str) -> dict[str, int]:
    """The numbers of the named groups."""
    return {name: place for place, name in enumerate(_openings(pattern), 1) if name}


#: Escapes, quoted text and classes. Each part is matched in one way only, and one without an end up to the end: else the
#: time would double with each backslash.
_NO_GROUPS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)?", re.S)


def _openings(pattern: str) -> list[str]:
    """The capture groups in order, each with its name or an empty text; escaped or bracketed parentheses open none."""
    bare = _NO_GROUPS.sub(lambda m: " " * len(m[0]), pattern)
    return [m[1] or "" for m in re.finditer(r"\((?:\?P?<(\w+)>|(?!\?))", bare)]
