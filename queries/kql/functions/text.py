"""Searching and rewriting text: positions, regular expressions, replacements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from queries.kql import syntax as ast
from queries.kql.bind import Scope
from queries.kql.errors import KqlBindError
from queries.kql.functions import python
from queries.kql.functions.convert import to_type
from queries.kql.functions.special import Special, _args
from queries.kql.operations import check_regex
from queries.kql.values import Value, sql, text_of

if TYPE_CHECKING:
    from queries.kql.compile import Compiler


def _extract_all(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    pattern, *rest = _args(c, node, scope, 2, 3)
    check_regex(pattern, node.args[0].span)
    if len(rest) == 2:
        return python.call("extract_groups", [pattern, rest[0], text_of(rest[1])], node)
    text = text_of(rest[0])
    if not pattern.is_constant:
        raise KqlBindError("extract_all() needs a constant regular expression", node.args[0].span)
    groups = group_count(str(pattern.constant), node.args[0])
    if groups == 0:
        raise KqlBindError("extract_all() needs a regular expression with a capture group", node.args[0].span)
    every = ", ".join(f"regexp_extract_all({{0}}, {{1}}, {g})" for g in range(1, groups + 1))
    if groups == 1:
        made = every
    else:
        made = f"list_rows({every})"
    return sql(f"CASE WHEN len({made}) > 0 THEN to_json({made}) END", "dynamic", text, pattern, nullable=True)


def group_count(pattern: str, node: ast.Node) -> int:
    """Capture groups of a regular expression; RE2 has spellings Python has not, so they are counted by hand."""
    try:
        return re.compile(pattern).groups
    except re.error:
        bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]", "", pattern)
        return len(re.findall(r"\((?!\?)|\(\?P?<\w", bare))


def _extract_json(c: Compiler, node: ast.Call, scope: Scope) -> Value:
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


def _indexof(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    args = _args(c, node, scope, 2, 5)
    args[:2] = [text_of(a) for a in args[:2]]
    if len(args) == 2:
        return sql("CAST(instr({0}, {1}) - 1 AS BIGINT)", "long", *args)
    return python.call("indexof_from", args, node)


def _replace_strings(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    text, old, new = _args(c, node, scope, 3)
    return python.call("replace_each", [text_of(text), old, new], node)


def _countof(c: Compiler, node: ast.Call, scope: Scope) -> Value:
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
    "countof": _countof,
}  # fmt: skip
