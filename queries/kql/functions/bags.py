"""Property bags: making, reading and changing them."""

from __future__ import annotations

from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import arguments
from queries.kql.functions.declaration import Body, Function, Template
from queries.kql.functions.json_path import path_of
from queries.kql.stages import Scope
from queries.kql.values import (
    Value,
    bag_of,
    constant,
    dynamic_of,
    sql,
    text_of,
)


def _bag_pack(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) % 2:
        raise KqlBindError(f"{node.name}() takes pairs of key and value", node.span)
    parts = []
    for place, arg in enumerate(node.args):
        value = c.expr(arg, scope)
        parts.append(text_of(value) if place % 2 == 0 else dynamic_of(value))
    return bag_of(parts)


# .NET's custom format letters that Kusto documents, in strftime's spelling; None if strftime has none.
def _bag_pack_columns(c: Binder, node: ast.Call, scope: Scope) -> Value:
    parts = []
    for arg in node.args:
        value = c.expr(arg, scope)
        if not isinstance(arg, ast.Name):
            raise KqlBindError("bag_pack_columns() takes columns", arg.span)
        parts += [constant(arg.name, "string"), dynamic_of(value)]
    return bag_of(parts)


def _pack_all(c: Binder, node: ast.Call, scope: Scope) -> Value:
    given = arguments(c, node, scope, 0, 1)
    skip = bool(given and given[0].constant)
    if given and not given[0].is_constant:
        raise KqlBindError("pack_all() takes true or false", node.args[0].span)
    cells = list(scope.columns.items())
    if not skip:
        parts = [p for name, v in cells for p in (constant(name, "string"), dynamic_of(v))]
        return bag_of(parts)
    pairs: list[str] = []
    values: list[Value] = []
    for name, value in cells:
        item = dynamic_of(value)
        at = len(values)
        test = f"{{{at + 2}}} <> ''" if value.type == "string" else f"{{{at + 1}}} IS NOT NULL"
        if value.type == "dynamic":
            test += f" AND CAST({{{at + 1}}} AS VARCHAR) NOT IN ('null', '[]', '{{{{}}}}', '\"\"')".replace(
                "{{}}", "{}"
            )
        pairs.append(f"CASE WHEN {test} THEN to_json({{{at}}}) || ':' || CAST({{{at + 1}}} AS VARCHAR) END")
        values += [constant(name, "string"), item, value]
    text = "CAST('{' || concat_ws(',', " + ", ".join(pairs) + ") || '}' AS JSON)"
    return sql(text, "dynamic", *values, nullable=False)


Json = Any


def bag_merge(*bags: Json) -> dict[str, Json] | None:
    """All properties; for a duplicate key the leftmost bag wins."""
    out: dict[str, Json] = {}
    given = [b for b in bags if isinstance(b, dict)]
    for bag in given:
        for key, value in bag.items():
            out.setdefault(key, value)
    return out if given else None


_ABSENT = object()


def _inside(value: Any, way: list[str | int]) -> Any:
    """The value at the end of a path, or _ABSENT."""
    for step in way:
        if isinstance(value, dict) and step in value:
            value = value[step]
            continue
        if not (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            return _ABSENT
        value = value[step]
    return value


def bag_remove_keys(bag: Json, keys: Json) -> Json:
    """Without these properties; `$.a.b` removes a nested one."""
    if not isinstance(bag, dict) or not isinstance(keys, list):
        return None
    for key in keys:
        *way, last = path_of(str(key))
        node = _inside(bag, way)
        if isinstance(node, dict):
            node.pop(last, None)
    return bag


def bag_set_key(bag: Json, key: str, value: Json) -> Json:
    """With one property set; `$.a.b` sets a nested one and creates what is missing."""
    if not isinstance(bag, dict):
        return None
    *way, last = path_of(key)
    node: Any = bag
    for step in way:
        inner = node.get(str(step))
        if not isinstance(inner, dict):
            inner = node[str(step)] = {}
        node = inner
    node[str(last)] = value
    return bag


def bag_zip(keys: Json, values: Json) -> dict[str, Json] | None:
    """A bag of keys and values by index.

    Keys that are not text are left out. Missing values are null: all of them if the values are not an array.
    """
    if not isinstance(keys, list):
        return None
    values = values if isinstance(values, list) else []
    return {k: values[i] if i < len(values) else None for i, k in enumerate(keys) if isinstance(k, str)}


def bag_has_key(bag: Json, key: str) -> bool | None:
    """Does a property exist? `$.a.b` checks a nested one."""
    return _inside(bag, path_of(key)) is not _ABSENT


def treepath(value: Json) -> list[str]:
    """Paths of all properties and indices below a dynamic value."""
    out: list[str] = []

    def walk(node: Json, path: str) -> None:
        if isinstance(node, dict):
            for key, item in node.items():
                below = f"{path}['{key}']" if path else f"['{key}']"
                out.append(below)
                walk(item, below)
        elif isinstance(node, list) and node:
            below = f"{path}[0]"
            out.append(below)
            for item in node:
                walk(item, below)

    walk(value, "")
    return list(dict.fromkeys(out))


FUNCTIONS = (
    Function(
        "bag_keys",
        "The names of the properties as an array.",
        Template("d", "dynamic!", "CASE WHEN json_type({0}) = 'OBJECT' THEN to_json(json_keys({0})) END"),
    ),
    Function(
        "bag_merge",
        "All properties of several bags; the leftmost that has a key decides.",
        Body("d d*", "dynamic", bag_merge, nulls=True),
    ),
    Function(
        "bag_remove_keys",
        "The bag without these properties; `$.a.b` reaches inside.",
        Body("d d", "dynamic", bag_remove_keys),
    ),
    Function(
        "bag_set_key",
        "The bag with one property set; `$.a.b` reaches inside.",
        Body("d s D", "dynamic", bag_set_key, nulls=True),
    ),
    Function("bag_zip", "A bag of an array of keys and an array of values.", Body("d d", "dynamic", bag_zip)),
    Function(
        "bag_has_key", "Whether the bag has the property; `$.a.b` reaches inside.", Body("d s", "bool", bag_has_key)
    ),
    Function("treepath", "The paths of all properties and items of a dynamic value.", Body("d", "dynamic", treepath)),
    Function("bag_pack", "A bag of keys and values in turn.", bind=_bag_pack, aliases=("pack", "pack_dictionary")),
    Function("bag_pack_columns", "A bag of columns by their names.", bind=_bag_pack_columns),
    Function("pack_all", "A bag of all columns of the row, perhaps without the empty ones.", bind=_pack_all),
)
