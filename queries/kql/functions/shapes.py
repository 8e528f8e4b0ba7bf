"""Functions about columns, tables and the query itself, and those that build arrays from SQL."""

from __future__ import annotations

from dataclasses import replace

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import CannotExpress, KqlBindError
from queries.kql.functions import python
from queries.kql.functions.special import Special, _args
from queries.kql.stages import Scope
from queries.kql.values import (
    NUMERIC,
    TICKS_TO_TEXT,
    Value,
    bag_of,
    cast_number,
    constant,
    dynamic_of,
    sql,
    text_of,
    widest,
)

MAX_RANGE = 1_048_576  # Kusto's own limit for range()


def _array_sort(direction: str) -> Special:
    """The first array sorted, the others taken along: as many values as arrays."""

    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        args = _args(c, node, scope, 1, 65)
        last = True
        if args[-1].type == "bool":
            if not args[-1].is_constant:
                raise KqlBindError(f"{node.name}() needs a constant for nulls_last", node.args[-1].span)
            last = bool(args.pop().constant)
        if not args:
            raise KqlBindError(f"{node.name}() needs a dynamic array", node.span)
        for arg in args:
            if arg.type != "dynamic":
                raise KqlBindError(f"{node.name}() needs dynamic arrays, not {arg.type}", arg.span)
        made = python.call(f"array_sort_{direction}_{'last' if last else 'first'}", args, node)
        parts = []
        for place, arg in enumerate(args):
            item = sql(f"nullif(json_extract({{0}}, '$[{place}]'), 'null'::JSON)", "dynamic", made, nullable=True)
            parts.append((f"{arg.name or f'array{place}'}_sorted", item))
        return replace(parts[0][1], name=parts[0][0], parts=tuple(parts))

    return build


def _pack_all(c: Binder, node: ast.Call, scope: Scope) -> Value:
    given = _args(c, node, scope, 0, 1)
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


def _column_names_of(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("column_names_of() takes a table", node.span)
    stage = c.table(node.args[0], scope.env)
    return constant([v.name for v in stage.visible], "dynamic")


def _iscolumnexists(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (name,) = _args(c, node, scope, 1)
    return constant(name.constant in scope.columns, "bool")


def _assert(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 2:
        raise KqlBindError("assert() takes a condition and a message", node.span)
    test, message = c.condition(node.args[0], scope), c.expr(node.args[1], scope)
    return sql("CASE WHEN {0} THEN true ELSE error('kql: assertion failed: ' || {1}) END", "bool", test, message)


def _range(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """An array from start to stop, both included."""
    args = _args(c, node, scope, 2, 3)
    start, stop = args[:2]
    if len(args) == 2:
        by_hour = constant(3600 * 10**7, "timespan")
        args.append(by_hour if start.type in ("datetime", "timespan") else constant(1, "long"))
    step = args[2]
    if step.is_constant and not step.constant:
        raise KqlBindError("range() needs a step other than 0", node.span)
    kinds = (start.type, stop.type, step.type)
    if kinds == ("datetime", "datetime", "timespan"):
        places = "range(0, least((epoch_us({1}) - epoch_us({0})) // ({2} // 10) + 1, %d))"
        cell = "time_text(make_timestamp(epoch_us({0}) + kx * ({2} // 10)))"
    elif kinds == ("timespan",) * 3:
        places = "range(0, least(({1} - {0}) // {2} + 1, %d))"
        cell = TICKS_TO_TEXT.replace("{0}", "({0} + kx * {2})")
    elif all(k in NUMERIC for k in kinds):
        kind = widest([*kinds])
        kind = "real" if kind in ("real", "decimal") else "long"
        start, stop, step = (cast_number(v, kind) if v.type != "decimal" else v for v in (start, stop, step))
        places = "range(0, least(CAST(floor(({1} - {0}) / {2}) AS BIGINT) + 1, %d))"
        cell = "({0} + kx * {2})"
    else:
        raise KqlBindError(f"range() does not run from {kinds[0]} to {kinds[1]} by {kinds[2]}", node.span)
    made = f"to_json(list_transform({places % MAX_RANGE}, lambda kx: {cell}))"
    return sql(made, "dynamic", start, stop, step)


def _repeat(c: Binder, node: ast.Call, scope: Scope) -> Value:
    value, count = _args(c, node, scope, 2)
    if count.type not in ("int", "long"):
        raise KqlBindError(f"repeat() needs a whole number, not {count.type}", node.args[1].span)
    return sql("CASE WHEN {1} >= 0 THEN json_list(list_transform(range({1}), lambda kx: {0})) END",
               "dynamic", dynamic_of(value), count, nullable=True)  # fmt: skip


def _rand(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = _args(c, node, scope, 0, 1)
    if not args:
        return sql("random()", "real", nullable=False)
    return sql("floor(random() * {0})", "real", cast_number(args[0], "real"))


def _new_guid(c: Binder, node: ast.Call, scope: Scope) -> Value:
    _args(c, node, scope, 0)
    return sql("CAST(uuid() AS VARCHAR)", "guid", nullable=False)


def _ingestion_time(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """When the store took the row, where the table keeps it."""
    _args(c, node, scope, 0)
    found = scope.columns.get("ReceivedTime")
    if found is None:
        raise CannotExpress("this table does not keep when a row was stored; Logs has ReceivedTime", node.span)
    return replace(found, name="$IngestionTime")


def _bin_auto(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """bin_at() with the size and origin that `set query_bin_auto_size` and `..._at` gave."""
    size = c.settings.get("query_bin_auto_size")
    if size is None:
        raise KqlBindError("bin_auto() needs 'set query_bin_auto_size=...' before the query", node.span)
    origin = c.settings.get("query_bin_auto_at")
    args = (*node.args, size, origin) if origin else (*node.args, size)
    return c.call(ast.Call("bin_at" if origin else "bin", args, span=node.span), scope)


def _totext(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = _args(c, node, scope, 1)
    return sql("true", "bool", text_of(value), nullable=False)


FORMS: dict[str, Special] = {
    "array_sort_asc": _array_sort("asc"), "array_sort_desc": _array_sort("desc"), "pack_all": _pack_all,
    "column_names_of": _column_names_of, "iscolumnexists": _iscolumnexists, "assert": _assert, "range": _range,
    "repeat": _repeat, "rand": _rand, "new_guid": _new_guid, "ingestion_time": _ingestion_time, "bin_auto": _bin_auto,
    "isutf8": _totext,
}  # fmt: skip
