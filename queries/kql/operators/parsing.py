"""parse, parse-where and parse-kv: columns out of text."""

from __future__ import annotations

from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.errors import KqlBindError, nearest
from queries.kql.functions.calling import call
from queries.kql.functions.key_values import PARSE_KV
from queries.kql.operations import check_regex, re2_escape
from queries.kql.regex import group_count
from queries.kql.stages import Env, Scope, Stage, everything, scope_of
from queries.kql.values import Value, constant, plain, sql

KINDS = ("simple", "regex", "relaxed")
FLAGS = "imsU"
# The pattern of a typed hole; a string hole matches anything. Dates and timespans have many spellings: they match
# everything up to the next text and are converted afterwards.
_WHOLE, _REAL = r"[-+]?\d+", r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_HOLES = {"int": _WHOLE, "long": _WHOLE, "real": _REAL, "decimal": _REAL, "bool": r"(?:true|false|True|False|0|1)",
          "guid": r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"}  # fmt: skip


def _hole(capture: ast.Capture, kind: str, last: bool) -> str:
    if kind == "regex":
        return f"({_HOLES[capture.type]})" if capture.type in _HOLES else "(.*)"
    if capture.type in _HOLES:
        bare = _HOLES[capture.type]
        return rf"\s*({bare}|.*?)" if kind == "relaxed" else rf"\s*({bare})"
    return "(.*)" if last else "(.*?)"


def _pattern(node: ast.Operator, kind: str, flags: str) -> tuple[str, list[tuple[ast.Capture, int]]]:
    """One regular expression, and the holes with their group numbers."""
    pattern = f"(?{flags})" if flags else ""
    pattern += "^" if kind == "regex" else "(?s)^"
    captures: list[tuple[ast.Capture, int]] = []
    items, group = node.nodes("pattern"), 0
    for place, item in enumerate(items):
        last = place == len(items) - 1
        if isinstance(item, ast.Literal):
            text = str(item.value)
            if kind == "regex":
                check_regex(constant(text, "string"), item.span)
                group += group_count(text)
            pattern += f"(?:{text})" if kind == "regex" else re2_escape(text)
        elif isinstance(item, ast.Star):
            pattern += ".*" if last or kind == "regex" else ".*?"
        elif isinstance(item, ast.Capture):
            group += 1
            captures.append((item, group))
            pattern += _hole(item, kind, last)
    return pattern + ("" if kind == "regex" else "$"), captures


def _kind(node: ast.Operator) -> tuple[str, str]:
    chosen = node.settings.get("kind")
    kind = str(getattr(chosen, "value", "simple"))
    if kind not in KINDS:
        raise KqlBindError(f"unknown {node.name} kind '{kind}'", node.span, suggestion=nearest(kind, KINDS))
    given = node.settings.get("flags")
    flags = str(getattr(given, "value", ""))
    if flags.strip(FLAGS) or (flags and kind != "regex"):
        raise KqlBindError(f"flags are letters of {FLAGS} and go with kind=regex", node.span)
    return kind, flags


def parse(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Holes between texts: simple fills all of them or none, relaxed each by itself, regex allows patterns between."""
    kind, flags = _kind(node)
    source = to_type(c.expr(node.parts["value"], scope_of(stage, env)), "string")
    pattern, captures = _pattern(node, kind, flags)
    regex = constant(pattern, "string")
    merged = dict(everything(stage))
    matched = [sql("regexp_matches({0}, {1})", "bool", source, regex, nullable=False)]
    holes: list[tuple[ast.Capture, Value]] = []
    for capture, group in captures:
        text = sql("regexp_extract({0}, {1}, {2})", "string", source, regex, constant(group, "int"))
        value = to_type(text, capture.type)
        holes.append((capture, value))
        if capture.type != "string" and kind != "relaxed":
            matched.append(sql("({0} IS NOT NULL)", "bool", value, nullable=False))
    whole = sql("(" + " AND ".join(f"{{{i}}}" for i in range(len(matched))) + ")", "bool", *matched, nullable=False)
    strict = len(matched) > 1 and kind == "simple"  # in simple mode one bad hole empties them all
    for capture, value in holes:
        kept = sql("CASE WHEN {0} THEN {1} END", capture.type, whole, value, nullable=True) if strict else value
        merged[capture.name] = kept
    if node.name == "parse-where":
        return c.emit(stage, list(merged.items()), refine=lambda q: q.where(whole.sql), row_by_row=True)
    return c.emit(stage, list(merged.items()))


def _setting(node: ast.Operator, name: str, fallback: str) -> str:
    found = node.settings.get(name)
    return fallback if found is None else str(getattr(found, "value", ""))


def parse_kv(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Keys and values of text as columns."""
    known = {"pair_delimiter", "kv_delimiter", "quote", "escape", "greedy", "regex"}
    for name in node.settings:
        if name not in known:
            raise KqlBindError(f"parse-kv has no setting '{name}'", node.span, suggestion=nearest(name, known))
    source = to_type(c.expr(node.parts["value"], scope_of(stage, env)), "string")
    columns = node.parts["schema"].columns
    pattern = node.settings.get("regex")
    if pattern is not None:
        texts = _by_regex(source, [n for n, _ in columns], str(getattr(pattern, "value", "")), node)
    else:
        texts = _by_delimiters(source, [n for n, _ in columns], node, c, env)
    merged = dict(everything(stage))
    for place, (name, kind) in enumerate(columns):
        merged[name] = to_type(sql(f"json_extract_string({{0}}, '$[{place}]')", "string", texts, nullable=True), kind)
    return c.emit(stage, list(merged.items()))


def _by_delimiters(source: Value, names: list[str], node: ast.Operator, c: TableBinder, env: Env) -> Value:
    quote = node.settings.get("quote")
    quotes: list[str] = []
    if quote is not None:
        value = c.expr(quote, Scope(env))
        given = plain(value.constant) if value.type == "dynamic" else [value.constant]
        quotes = [str(q) for q in given] if isinstance(given, list) else []
        if len(quotes) == 2 and all(len(q) == 1 for q in quotes):
            quotes = ["".join(quotes)]
    greedy = str(_setting(node, "greedy", "false")).lower() == "true"
    args = [
        source, constant(names, "dynamic"), constant(_setting(node, "pair_delimiter", ""), "string"),
        constant(_setting(node, "kv_delimiter", ""), "string"), constant(quotes, "dynamic"),
        constant(_setting(node, "escape", ""), "string"), constant(greedy, "bool"),
    ]  # fmt: skip
    return call(PARSE_KV, args, ast.Call("parse-kv", (), span=node.span))


def _by_regex(source: Value, names: list[str], pattern: str, node: ast.Operator) -> Value:
    """The value of each name, or null.

    The pattern's first two groups are key and value; the first value of a key counts.
    """
    check_regex(constant(pattern, "string"), node.span)
    if group_count(pattern) < 2:
        raise KqlBindError("parse-kv needs a regular expression with two groups: key and value", node.span)
    blanks = "' ' || chr(9) || chr(10) || chr(13)"
    keys, values = (
        sql(f"list_transform(regexp_extract_all({{0}}, {{1}}, {group}), lambda kx: trim(kx, {blanks}))", "dynamic",
            source, constant(pattern, "string")) for group in (1, 2)
    )  # fmt: skip
    found = [sql("{1}[list_position({0}, {2})]", "dynamic", keys, values, constant(name, "string")) for name in names]
    return sql("to_json([{*}])", "dynamic", *found, nullable=True)


BUILDERS: dict[str, Any] = {"parse": parse, "parse-where": parse, "parse-kv": parse_kv}
