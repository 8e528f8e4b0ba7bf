"""Which SQL may run beside the store: what costs time and memory in proportion to the rows and bytes that it reads.

The list names what is allowed, never what is not. A statement with any other word goes behind the wall.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from queries.kql.edges import POSSIBLE_EDGE, SURE_EDGE, TERM_EDGE

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
#: What makes lists of all values of a group, and texts of lists; and a slice of such a list.
_OF_A_GROUP = frozenset(("list", "list_sort", "list_distinct", "to_json"))
_GATHERS = re.compile(rf"\b(?:{'|'.join(sorted(_OF_A_GROUP))})\(")
_SLICE = re.compile(r"\[1 : CAST\(\$\d+ AS BIGINT\)\]")
_SELECT = re.compile(r"\bSELECT\b")
#: The maximum number of lists of a statement: each is a copy of all rows' values.
MOST_LISTS = 8
#: At most so many SELECTs of a statement make texts of lists: each may double the length of what it quotes.
MOST_LISTS_AS_TEXT = 2
#: What could repeat a long text for each row.
_REPEATS = re.compile(r"\b(?:JOIN|UNION|OVER)\b(?<!row_number\(\) OVER)", re.IGNORECASE)
#: One of these does not multiply rows; other joins do.
_ASOF = re.compile(r"\bASOF JOIN\b")
#: What keeps all numbers of a group, or replaces text: also allowed on few rows.
_ON_FEW = frozenset(("quantile_disc", "regexp_replace"))
_REPLACE = re.compile(r"\bregexp_replace\(")
_BOUND = re.compile(r"\s*CAST\(\$(\d+) AS VARCHAR\)$")
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
#: The edges of a word, which `has` puts at either end of a text: no other automaton is as small for the first class.
_EDGES = (TERM_EDGE, SURE_EDGE, POSSIBLE_EDGE)
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


def cheap_on_few_rows(
    sql: str, parameters: Sequence[Any], reads: int, steps: int | None, words: frozenset[str] = frozenset()
) -> bool:
    """Whether a statement of ours may run beside the store, on rows whose number and bytes are bounded.

    It may replace text, keep the numbers of a group, and have one ASOF JOIN. Or it may gather the values of a group,
    because there are few; then nothing in it may make texts longer, or repeat the gathered ones for each row: no join,
    no window, no subquery, no step that is read twice. ``reads``: as for ``cheap``; ``steps``: how many it has, None if
    one is read twice.
    """
    bare = _KEY.sub("$1", _QUOTED.sub("''", sql))
    if not _short_replacements(bare, parameters):
        return False
    words = words | _ON_FEW
    if not _GATHERS.search(bare):
        return cheap(_ASOF.sub("JOIN", sql, 1), parameters, reads, words)
    if "||" in bare or _REPLACE.search(bare):
        return False
    selects = _SELECT.split(bare)[1:]
    if steps is None or len(selects) != steps + 1 or _REPEATS.search(bare):
        return False
    if bare.count("list(") > MOST_LISTS or sum("to_json(" in part for part in selects) > MOST_LISTS_AS_TEXT:
        return False
    return cheap(_SLICE.sub("", sql), parameters, reads, words | _OF_A_GROUP)


def _short_replacements(bare: str, parameters: Sequence[Any]) -> bool:
    """Is at most one text replaced, by a bound letter that does not repeat what it replaces?"""
    found = [_BOUND.match(_argument(bare, one.end(), 2)) for one in _REPLACE.finditer(bare)]
    if not found or len(found) > 1:
        return not found
    text = found[0] and parameters[int(found[0][1]) - 1]
    return isinstance(text, str) and len(text) <= 1 and "\\" not in text


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
            edge = next((one for one in _EDGES if one in pattern), TERM_EDGE)
            rest = pattern.replace(edge, "", 2)
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
