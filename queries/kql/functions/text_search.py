"""Finding, extracting and replacing substrings."""

from __future__ import annotations

import re
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import to_type
from queries.kql.errors import KqlBindError, NotImplementedYet, nearest
from queries.kql.functions.arguments import arguments
from queries.kql.functions.calling import call
from queries.kql.functions.declaration import LINEAR, Body, Cost, Function, Template
from queries.kql.operations import check_regex
from queries.kql.regex import group_count, group_names
from queries.kql.stages import Scope
from queries.kql.values import (
    Value,
    constant,
    plain,
    sql,
    text_of,
)


def _extract(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """R10: extract(regex, group, text)."""
    if len(node.args) not in (3, 4):
        raise KqlBindError("extract() takes a regex, a group number and a text", node.span)
    pattern, group, text = (c.expr(a, scope) for a in node.args[:3])
    check_regex(pattern, node.args[0].span)
    if group.type not in ("int", "long") or not group.is_constant:
        raise NotImplementedYet("extract() needs a constant group number", node.args[1].span)
    if pattern.is_constant and group.constant > group_count(str(pattern.constant)):
        return constant("", "string")
    group = constant(group.constant, "int")
    made = sql("regexp_extract({0}, {1}, {2})", "string", text_of(text), text_of(pattern), group)
    if len(node.args) == 4:
        wanted = node.args[3]
        if not isinstance(wanted, ast.TypeOf):
            raise KqlBindError("the fourth argument of extract() is typeof(...)", wanted.span)
        return to_type(made, wanted.type)
    return made


def _extract_all(c: Binder, node: ast.Call, scope: Scope) -> Value:
    pattern, *rest = arguments(c, node, scope, 2, 3)
    check_regex(pattern, node.args[0].span)
    text = text_of(rest[-1])
    if not pattern.is_constant:
        raise KqlBindError("extract_all() needs a constant regular expression", node.args[0].span)
    count = group_count(str(pattern.constant))
    if count == 0:
        raise KqlBindError("extract_all() needs a regular expression with a capture group", node.args[0].span)
    groups = list(range(1, count + 1)) if len(rest) == 1 else _chosen_groups(str(pattern.constant), rest[0], node)
    if not groups or max(groups) > count:
        return constant(None, "dynamic")
    # A group that did not participate in a match is empty.
    parts = (f"regexp_extract_all({{0}}, {{1}}, {g})" for g in groups)
    every = ", ".join(f"list_transform({part}, lambda kx: coalesce(kx, ''))" for part in parts)
    made = every if len(groups) == 1 else f"list_rows({every})"
    return sql(f"CASE WHEN len({made}) > 0 THEN to_json({made}) END", "dynamic", text, pattern, nullable=True)


def _chosen_groups(pattern: str, wanted: Value, node: ast.Call) -> list[int]:
    """Groups by number or by name, as the second argument of extract_all() lists them."""
    given = plain(wanted.constant) if wanted.is_constant else None
    if not isinstance(given, list):
        raise KqlBindError("extract_all() needs a constant array of groups", node.args[1].span)
    names = group_names(pattern)
    numbers = [names.get(g, -1) if isinstance(g, str) else g for g in given]
    for group, number in zip(given, numbers, strict=True):
        if not isinstance(number, int) or number < 0:
            close = nearest(str(group), names)
            raise KqlBindError(f"the pattern has no group '{group}'", node.args[1].span, suggestion=close)
    return numbers


def _indexof_regex(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """The index of the n-th match within a section of the text, -1 if there is none; matches do not overlap.

    The text before each match is captured with it, so that the indices are sums of lengths.
    """
    args = arguments(c, node, scope, 2, 5)
    check_regex(args[1], node.args[1].span)
    text, pattern = text_of(args[0]), text_of(args[1])
    given = [to_type(a, "long") for a in args[2:]]
    start, length, nth = (*given, *(constant(n, "long") for n in (0, -1, 1)[len(given) :]))
    part = sql(
        "CASE WHEN {2} = -1 THEN substr({0}, {1} + 1) ELSE substr({0}, {1} + 1, {2}) END", "string", text, start, length
    )
    gaps = sql("('((?s:.*?))(?:' || {0} || ')')", "string", pattern)
    place = (
        "{3} + coalesce(list_sum(list_transform(regexp_extract_all({0}, {1}, 0)[1 : {2} - 1], lambda kx: length(kx))), 0) "
        "+ length(regexp_extract_all({0}, {1}, 1)[{2}])"
    )
    found = f"CASE WHEN {{3}} < 0 OR {{4}} < -1 OR {{2}} < 1 THEN NULL ELSE coalesce(CAST({place} AS BIGINT), -1) END"
    return sql(found, "long", part, gaps, nth, start, length, nullable=True)


def _indexof(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 2, 5)
    args[:2] = [text_of(a) for a in args[:2]]
    if len(args) == 2:
        return sql("CAST(instr({0}, {1}) - 1 AS BIGINT)", "long", *args)
    return call(INDEXOF_FROM, args, node)


def _replace_strings(c: Binder, node: ast.Call, scope: Scope) -> Value:
    text, old, new = arguments(c, node, scope, 3)
    return call(REPLACE_EACH, [text_of(text), old, new], node)


def _countof(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 2, 3)
    text, what = text_of(args[0]), text_of(args[1])
    kind = str(args[2].constant) if len(args) == 3 else "normal"
    if kind == "regex":
        check_regex(what, node.args[1].span)
        return sql("CAST(len(regexp_extract_all({0}, {1})) AS BIGINT)", "long", text, what)
    if kind != "normal":
        raise KqlBindError("countof() counts 'normal' or 'regex'", node.args[2].span)
    # Plain matches may overlap: every position where the text starts with the needle.
    return sql(
        "CASE WHEN {1} = '' THEN 0 ELSE CAST(len(list_filter(range(1, length({0}) + 1), "
        "lambda kx: substr({0}, kx, length({1})) = {1})) AS BIGINT) END",
        "long", text, what,
    )  # fmt: skip


Json = Any


def has_any_index(text: str, values: Json) -> int:
    """The index of the first value that the text contains as a whole term, or -1."""
    for place, value in enumerate(values if isinstance(values, list) else []):
        needle = str(value)
        before = r"(?<![^\W_])" if needle[:1].isalnum() else ""
        after = r"(?![^\W_])" if needle[-1:].isalnum() else ""
        if needle and re.search(before + re.escape(needle) + after, text, re.I):
            return place
    return -1


def indexof(text: str, what: str, start: int = 0, length: int = -1, occurrence: int = 1) -> int | None:
    """R10: the index of the n-th hit, -1 if there is none; a negative start counts from the end."""
    if length < -1 or occurrence < 1:
        return None
    place = max(len(text) + start, 0) if start < 0 else start
    while True:
        # Kusto applies the length again from each hit.
        end = len(text) if length == -1 else min(place + length, len(text))
        place = text.find(what, place, end) if place <= len(text) else -1
        if place < 0 or occurrence == 1:
            return place
        occurrence, place = occurrence - 1, place + 1


def replace_strings(text: str, old: Json, new: Json) -> str | None:
    """Replaces each lookup, in one pass from the left; replaced text is not searched again."""
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return None
    # A lookup whose replacement is not text is found and stays.
    pairs = {o: n if isinstance(n, str) else o for o, n in zip(old, new, strict=True) if isinstance(o, str) and o}
    if not pairs:
        return text
    for before, after in pairs.items():
        if any(before in other or other in before for other in pairs if other != before):
            return _in_turn(text, pairs)
        del after
    return re.sub("|".join(map(re.escape, pairs)), lambda m: pairs[m[0]], text)


def _in_turn(text: str, pairs: dict[str, str]) -> str:
    """Lookups that overlap: the first in the list wins, on the text not yet replaced."""
    pieces: list[tuple[bool, str]] = [(False, text)]
    for before, after in pairs.items():
        made: list[tuple[bool, str]] = []
        for done, piece in pieces:
            if done:
                made.append((True, piece))
                continue
            for place, part in enumerate(piece.split(before)):
                made += [(True, after)] * (place > 0) + [(False, part)]
        pieces = made
    return "".join(piece for _, piece in pieces)


INDEXOF_FROM = Function(
    "indexof_from",
    "indexof() with a start.",
    *(Body("s s" + " l" * n, "long", indexof) for n in range(1, 4)),
    internal=True,
)
REPLACE_EACH = Function("replace_each", "replace_strings().", Body("s d d", "string", replace_strings), internal=True)
FUNCTIONS = (
    Function(
        "replace_string",
        "The text with every occurrence of one text replaced.",
        Template("s s s", "string", "replace({0}, {1}, {2})"),
    ),
    Function(
        "replace_strings",
        "The text with each of several texts replaced by its own replacement, in one pass.",
        bind=_replace_strings,
    ),
    Function(
        "replace_regex",
        "The text with every match of a regular expression replaced.",
        Template("s x s", "string", "regexp_replace({0}, {1}, {2}, 'g')"),
        cost=Cost.FEW_ROWS,
    ),
    Function(
        "replace",
        "replace_regex with the text as its last argument (deprecated).",
        Template("x s s", "string", "regexp_replace({2}, {0}, {1}, 'g')"),
        cost=Cost.FEW_ROWS,
    ),
    Function(
        "regex_quote",
        "The text with every character escaped that means something in a regular expression.",
        Template("S", "string", "regexp_escape({0})"),
    ),
    Function(
        "extract",
        "The group of the first match of a regular expression, perhaps read as a type.",
        bind=_extract,
        cost=LINEAR,
    ),
    Function(
        "extract_all",
        "All matches of a regular expression as an array; of several groups, an array for each match.",
        bind=_extract_all,
        aliases=("extractall",),
    ),
    Function("indexof", "The place of a text in another from 0, -1 where it is not.", bind=_indexof, cost=LINEAR),
    Function(
        "indexof_regex",
        "The place of the n-th match of a regular expression, -1 where there is none.",
        bind=_indexof_regex,
    ),
    Function("countof", "How often a text, or a regular expression, occurs.", bind=_countof),
    Function(
        "has_any_index",
        "The place in an array of the first text that occurs as a whole term, or -1.",
        Body("s d", "long", has_any_index),
    ),
    INDEXOF_FROM,
    REPLACE_EACH,
)
