"""Dynamic values and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import parse_json, to_type
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import arguments
from queries.kql.functions.calling import call
from queries.kql.functions.declaration import LINEAR, Body, Function
from queries.kql.functions.json_path import path_of
from queries.kql.stages import Scope
from queries.kql.values import (
    Value,
    constant,
    dynamic_of,
    sql,
    text_of,
)


def _parse_json(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = arguments(c, node, scope, 1)
    made = parse_json(value) if value.type == "string" else dynamic_of(value)
    return replace(made, name=value.name)


def _base_name(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = arguments(c, node, scope, 1)
    kind = {"bool": "bool", "real": "real"}.get(value.type, value.type)
    if kind == "dynamic":
        return sql(
            "CASE json_type({0}) WHEN 'OBJECT' THEN 'dictionary' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string' "
            "WHEN 'DOUBLE' THEN 'double' WHEN 'BOOLEAN' THEN 'bool' WHEN 'BIGINT' THEN 'long' WHEN 'UBIGINT' THEN 'long' "
            "ELSE 'null' END",
            "string", value,
        )  # fmt: skip
    return constant(kind, "string")


def _extract_json(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) not in (2, 3):
        raise KqlBindError(f"{node.name}() takes a path, a text and perhaps a type", node.span)
    path, text = (c.expr(a, scope) for a in node.args[:2])
    made = call(EXTRACT_JSON_PATH, [path, text_of(text)], node)
    if len(node.args) == 2:
        return text_of(made)
    wanted = node.args[2]
    if not isinstance(wanted, ast.TypeOf):
        raise KqlBindError(f"the third argument of {node.name}() is typeof(...)", wanted.span)
    return to_type(made, wanted.type)


Json = Any


def extract_json(path: str, text: str) -> Json:
    """The value at a JSON path of a text."""
    try:
        node = json.loads(text)
    except ValueError:
        return None
    for step in path_of(path):
        if isinstance(node, dict) and isinstance(step, str):
            node = node.get(step)
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node


def dynamic_to_json(value: Json) -> str:
    """One spelling for each value: keys in order, no blanks."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


EXTRACT_JSON_PATH = Function(
    "extract_json_path", "extract_json().", Body("s s", "dynamic", extract_json), internal=True
)
FUNCTIONS = (
    Function(
        "parse_json",
        "The value that a JSON text spells; a text that is no JSON stays a text.",
        bind=_parse_json,
        cost=LINEAR,
        aliases=("parsejson", "todynamic", "toobject"),
    ),
    Function(
        "extract_json",
        "The value at a path of a JSON text, perhaps read as a type.",
        bind=_extract_json,
        aliases=("extractjson",),
    ),
    Function(
        "dynamic_to_json",
        "The value as JSON text with its keys in order, so that equal values are equal texts.",
        Body("D", "string", dynamic_to_json),
    ),
    Function("gettype", "The name of the value's type.", bind=_base_name, cost=LINEAR),
    EXTRACT_JSON_PATH,
)
