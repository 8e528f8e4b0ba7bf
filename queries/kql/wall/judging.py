"""Which SQL may run beside the store: what costs time and memory in proportion to the rows and bytes that it reads.

The list names what is allowed, never what is not. A statement with any other word goes behind the wall.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

#: Words before a parenthesis that are not calls.
_GRAMMAR = (
    "AS IN VALUES OVER AND OR NOT FROM WHERE WHEN THEN ELSE ON BY SELECT WITH FILTER EXISTS HAVING ALL CASE BETWEEN USING "
    "MATERIALIZED UNION JOIN LIMIT IS END v DECIMAL"
)
#: Functions whose answer is no longer than their arguments (up to a constant factor) and takes one pass over them.
_CHEAP = (
    "CAST TRY_CAST TRY coalesce nullif greatest least error isnan isinf isfinite "
    "lower upper length strlen contains starts_with ends_with prefix suffix instr substr left right split_part trim "
    "regexp_matches regexp_extract regexp_full_match md5 hash "
    "abs sign round floor ceil trunc sqrt exp ln log2 log10 pow sin cos tan asin acos atan atan2 pi degrees radians xor "
    "bit_count "
    "epoch_us make_timestamp date_trunc date_diff to_days to_minutes to_months to_years to_microseconds strftime try_strptime "
    "day month year hour minute second microsecond week quarter dayofweek dayofyear "
    "json_extract json_extract_string json_type json_valid json_array_length "
    "count sum avg min max any_value first var_samp var_pop stddev_samp stddev_pop bit_and bit_or bit_xor "
    "arg_max_null arg_min_null arg_max arg_min bool_or bool_and row_number lag lead "
    "digits"
)
_MAY = frozenset(f"{_GRAMMAR} {_CHEAP}".lower().split())
_QUOTED = re.compile(r"\"[^\"]*(?:\"\"[^\"]*)*\"|'[^']*(?:''[^']*)*'")
_CALLED = re.compile(r"(?<![A-Za-z_])([A-Za-z_]\w*)\s*\(")
#: Words that multiply rows, loop, or build lists; brackets build and index lists.
_DEAR = re.compile(r"\b(?:LATERAL|RECURSIVE|ASOF|CROSS|unnest|lambda|GROUPING|EXISTS)\b|\[", re.IGNORECASE)
#: Words of steps that keep rows until the last one was read; others pass each chunk on.
_KEEPS = re.compile(r"\b(?:GROUP BY|ORDER BY|DISTINCT|JOIN|OVER|MATERIALIZED|UNION(?! ALL))\b", re.IGNORECASE)
_JOIN = re.compile(r"\bJOIN\b", re.IGNORECASE)
#: A longer statement takes the engine long to parse and plan, and nothing interrupts that.
MOST_TEXT = 30_000
#: The maximum number of text concatenations: each may double its argument, and lines are up to 4 MiB long.
MOST_JOINED = 2
#: The maximum with those that cannot double it, because they append a number or a bound text of at most SHORT_TEXT
#: characters.
MOST_APPENDED, SHORT_TEXT = 20, 100
MOST_JOINS = 2
#: The maximum number of steps as the engine sees them; a step that is read twice counts twice.
MOST_READ = 60
#: A longer pattern, or one that counts or names a class of Unicode, can be a large automaton.
MOST_PATTERN = 200
_LARGE = re.compile(r"\{\s*\d+|\\[pP]")
#: The edge of a word, which `has` puts at either end of a text: no other automaton is as small for its class.
_EDGE = "[^\\p{L}\\p{N}]"
#: The key of a member of a dynamic, as an engine's table spells it for a constant: a path of one step.
_KEY = re.compile(
    r"CASE WHEN (CAST\(\$\d+ AS VARCHAR\)) IN \('', ''\) THEN '' \|\| \1 ELSE '' \|\| "
    r"replace\(replace\(\1, '', ''\), '', ''\) \|\| '' END"
)
#: The segments in which a search can match, as the text index names them: one membership test in a bound list for each
#: row.
_SEGMENTS = re.compile(r"IN(?<=\bIN) \(SELECT unnest\(CAST\(\$\d+ AS INTEGER\[\]\)\)\)")
#: The digits of a number, as in parts of a date.
_DIGITS = re.compile(r"\bprintf\('\.?%0\dd'")
_APPENDED = re.compile(r"\|\| (?:digits\(|CAST\(\$\d+ AS VARCHAR\))")
_REGEX = re.compile(r"\bregexp_\w+\(")
#: The form of a query's pattern in a statement of ours: bound, with flags or anchors of ours around it.
_CONSTANT = re.compile(r"(?:\s|\|\||\(|\)|CAST|AS|VARCHAR|\$\d+|''|\?)*$")


def cheap(sql: str, parameters: Sequence[Any], reads: int = 1, words: frozenset[str] = frozenset()) -> bool:
    """Whether a statement of ours may run beside the store.

    ``reads``: how many steps the engine makes of it. ``words``, in lower case: what functions of installed packages
    call that are declared as linear.
    """
    if len(sql) > MOST_TEXT or reads > MOST_READ:
        return False
    bare = _SEGMENTS.sub("IN ($1)", _KEY.sub("$1", _QUOTED.sub("''", _DIGITS.sub("digits(''", sql))))
    if any(word not in _MAY and word not in words for word in {w.lower() for w in _CALLED.findall(bare)}):
        return False
    if _DEAR.search(bare) or not _small_joins(bare, parameters) or len(_JOIN.findall(bare)) > MOST_JOINS:
        return False
    return _REGEX.search(bare) is None or _small_patterns(bare, parameters)


def _small_joins(bare: str, parameters: Sequence[Any]) -> bool:
    """Do the concatenations make texts that are no longer than a few of their arguments?"""
    count = bare.count("||")
    if count <= MOST_JOINED:
        return True
    if count > MOST_APPENDED or any(isinstance(value, str) and len(value) > SHORT_TEXT for value in parameters):
        return False
    return count - len(_APPENDED.findall(bare)) <= MOST_JOINED


def keeps_rows(sql: str) -> bool:
    """Does the memory of a cheap statement grow with the rows that it reads?"""
    return _KEEPS.search(_QUOTED.sub("''", sql)) is not None


def _small_patterns(bare: str, parameters: Sequence[Any]) -> bool:
    for pattern in parameters:
        if isinstance(pattern, str):
            rest = pattern.replace(_EDGE, "", 2)
            if len(rest) > MOST_PATTERN or _LARGE.search(rest):
                return False
    return all(_CONSTANT.match(_argument(bare, found.end(), 1)) for found in _REGEX.finditer(bare))


def _argument(text: str, place: int, wanted: int) -> str:
    """The argument of this number of the call whose parenthesis opens just before ``place``."""
    depth, number, begin = 0, 0, place
    for at in range(place, len(text)):
        sign = text[at]
        if sign in "([":
            depth += 1
        elif sign in ")]":
            if depth == 0:
                return text[begin:at] if number == wanted else "missing"
            depth -= 1
        elif sign == "," and depth == 0:
            if number == wanted:
                return text[begin:at]
            number, begin = number + 1, at + 1
    return "missing"
