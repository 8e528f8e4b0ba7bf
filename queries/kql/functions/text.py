"""Searching and rewriting text: positions, regular expressions, replacements."""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import to_type
from queries.kql.errors import KqlBindError, nearest
from queries.kql.functions import python
from queries.kql.functions.special import Special, _args
from queries.kql.operations import check_regex
from queries.kql.regex import group_count, group_names
from queries.kql.stages import Scope
from queries.kql.values import Value, constant, plain, sql, text_of


def _extract_all(c: Binder, node: ast.Call, scope: Scope) -> Value:
    pattern, *rest = _args(c, node, scope, 2, 3)
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
    # A group that took no part in a match is empty.
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
    """The place of the n-th match within a part of the text, -1 where there is none; matches do not overlap. What stands
    before each match is captured with it, so that the places are sums of lengths."""
    args = _args(c, node, scope, 2, 5)
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


def _extract_json(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) not in (2, 3):
        raise KqlBindError(f"{node.name}() takes a path, a text and perhaps a type", node.span)
    path, text = (c.expr(a, scope) for a in node.args[:2])
    made = python.call("extract_json_path", [path, text_of(text)], node)
    if len(node.args) == 2:
        return text_of(made)
    wanted = node.args[2]
    if not isinstance(wanted, ast.TypeOf):
        raise KqlBindError(f"the third argument of {node.name}() is typeof(...)", wanted.span)
    return to_type(made, wanted.type)


def _indexof(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = _args(c, node, scope, 2, 5)
    args[:2] = [text_of(a) for a in args[:2]]
    if len(args) == 2:
        return sql("CAST(instr({0}, {1}) - 1 AS BIGINT)", "long", *args)
    return python.call("indexof_from", args, node)


def _replace_strings(c: Binder, node: ast.Call, scope: Scope) -> Value:
    text, old, new = _args(c, node, scope, 3)
    return python.call("replace_each", [text_of(text), old, new], node)


def _countof(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = _args(c, node, scope, 2, 3)
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


FORMS: dict[str, Special] = {
    "extract_all": _extract_all, "extract_json": _extract_json, "indexof": _indexof, "replace_strings": _replace_strings,
    "countof": _countof, "indexof_regex": _indexof_regex,
}  # fmt: skip
