"""Text: building, cutting, measuring and comparing it."""

from __future__ import annotations

from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import NotImplementedYet
from queries.kql.functions.arguments import arguments, expect_whole
from queries.kql.functions.declaration import LINEAR, Body, Function, Template
from queries.kql.stages import Scope
from queries.kql.values import (
    Value,
    constant,
    sql,
    text_of,
)


def _strcat(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = [text_of(v) for v in arguments(c, node, scope, 1, 64)]
    return sql("(" + " || ".join(f"{{{i}}}" for i in range(len(args))) + ")", "string", *args)


def _strcat_delim(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = [text_of(v) for v in arguments(c, node, scope, 2, 64)]
    return sql("concat_ws(" + ", ".join(f"{{{i}}}" for i in range(len(args))) + ")", "string", *args)


def _split(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope, 2, 3)
    text, by = text_of(args[0]), text_of(args[1])
    if len(args) == 3:
        expect_whole(node, args[2])
        return sql(
            "to_json(list_filter([string_split({0}, {1})[{2} + 1]], lambda kx: kx IS NOT NULL))",
            "dynamic",
            text,
            by,
            args[2],
        )
    return sql("to_json(string_split({0}, {1}))", "dynamic", text, by)


def _translate(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """The last replacement letter is used for all searched letters beyond it; without any, they are removed."""
    old, new, text = arguments(c, node, scope, 3)
    if not (old.is_constant and new.is_constant):
        raise NotImplementedYet("translate() needs constant lists of letters", node.span)
    filled = str(new.constant)
    if filled:
        filled = filled.ljust(len(old.constant), filled[-1])
    return sql("translate({0}, {1}, {2})", "string", text_of(text), old, constant(filled, "string"))


def _totext(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = arguments(c, node, scope, 1)
    return sql("true", "bool", text_of(value), nullable=False)


def unicode_codepoints_from_string(text: str) -> list[int]:
    """The code points of a text."""
    return [ord(c) for c in text]


def make_string(*values: Any) -> str:
    """Characters of code points and arrays of them."""
    flat = [c for v in values for c in (v if isinstance(v, list) else [v])]
    return "".join(chr(c) for c in flat if isinstance(c, int) and 0 < c < 0x110000)


FUNCTIONS = (
    Function("tolower", "The text in lower case.", Template("S", "string", "lower({0})"), cost=LINEAR),
    Function("toupper", "The text in upper case.", Template("S", "string", "upper({0})"), cost=LINEAR),
    Function("strlen", "How many characters the text has.", Template("s", "long", "length({0})"), cost=LINEAR),
    Function("string_size", "How many bytes the text has in UTF-8.", Template("s", "long", "strlen({0})"), cost=LINEAR),
    Function("reverse", "The characters in reverse order.", Template("S", "string", "reverse({0})")),
    Function(
        "substring",
        "A part of the text from a start that counts from 0; a negative start counts from the end.",
        Template(
            "S l", "string", "substr({0}, greatest(CASE WHEN {1} < 0 THEN length({0}) + {1} ELSE {1} END, 0) + 1)"
        ),
        Template(
            "S l l",
            "string",
            "CASE WHEN {2} <= 0 THEN '' ELSE substr({0}, "
            "greatest(CASE WHEN {1} < 0 THEN length({0}) + {1} ELSE {1} END, 0) + 1, {2}) END",
        ),
        cost=LINEAR,
    ),
    Function(
        "strcmp",
        "-1, 0 or 1 as the first text is before, equal to or after the second.",
        Template("S S", "long", "(CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 ELSE 0 END)"),
        cost=LINEAR,
    ),
    Function(
        "strrep",
        "The text repeated so many times, with a delimiter between.",
        Template("S l", "string", "repeat({0}, {1})"),
        Template(
            "S l S", "string", "left(repeat({0} || {2}, {1}), greatest(length({0} || {2}) * {1} - length({2}), 0))"
        ),
    ),
    Function("strcat", "The arguments put together as one text.", bind=_strcat, cost=LINEAR),
    Function(
        "strcat_delim", "The arguments after the first put together, with the first between them.", bind=_strcat_delim
    ),
    Function("split", "The parts of a text between delimiters as an array, or the one at a place.", bind=_split),
    Function(
        "translate",
        "The text with each letter of one list replaced by the one at its place in another.",
        bind=_translate,
    ),
    Function(
        "trim",
        "The text without all matches of a regular expression at either end.",
        Template(
            "x s", "string", "regexp_replace(regexp_replace({1}, '^(?:' || {0} || ')+', ''), '(?:' || {0} || ')+$', '')"
        ),
    ),
    Function(
        "trim_start",
        "The text without one match of a regular expression at its start.",
        Template("x s", "string", "regexp_replace({1}, '^(?:' || {0} || ')', '')"),
    ),
    Function(
        "trim_end",
        "The text without one match of a regular expression at its end.",
        Template("x s", "string", "regexp_replace({1}, '(?:' || {0} || ')$', '')"),
    ),
    Function(
        "isascii",
        "Whether all characters are ASCII.",
        Template("S", "bool", "regexp_full_match({0}, '[\\x00-\\x7F]*')"),
        cost=LINEAR,
    ),
    Function("isutf8", "Whether the text is valid UTF-8; here every text is.", bind=_totext, cost=LINEAR),
    Function(
        "isempty",
        "Whether the value is the empty text or null.",
        Template("s", "bool", "({0} = '')"),
        Template("a", "bool", "({0} IS NULL)"),
        cost=LINEAR,
    ),
    Function(
        "isnotempty",
        "Whether the value is neither the empty text nor null.",
        Template("s", "bool", "({0} <> '')"),
        Template("a", "bool", "({0} IS NOT NULL)"),
        cost=LINEAR,
        aliases=("notempty",),
    ),
    Function(
        "unicode_codepoints_from_string",
        "The code points of a text as an array.",
        Body("S", "dynamic", unicode_codepoints_from_string),
    ),
    Function("to_utf8", "The code points of a text as an array.", Body("S", "dynamic", unicode_codepoints_from_string)),
    Function("make_string", "The text of code points and of arrays of them.", Body("D D*", "string", make_string)),
    Function(
        "unicode_codepoints_to_string",
        "The text of code points and of arrays of them.",
        Body("D D*", "string", make_string),
    ),
)
