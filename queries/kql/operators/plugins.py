"""evaluate: plugins that make columns out of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.dialect import Sql
from queries.kql.errors import CannotExpress, KqlBindError, NotImplementedYet, nearest
from queries.kql.functions.calling import call as call_function
from queries.kql.functions.ip import IPV4_IS_IN_ANY_RANGE, IPV6_IS_IN_RANGE
from queries.kql.functions.registry import registry
from queries.kql.hints import INSTEAD
from queries.kql.official import AGGREGATES, CANNOT, PLUGINS
from queries.kql.operators import activity, cohorts, mining, sequences
from queries.kql.stages import Env, Scope, Stage, StageColumn, everything, fresh, relation, row_of, scope_of
from queries.kql.values import Value, constant, plain, sql, text_of

MAX_NEW_COLUMNS = 1_000
Plugin = Callable[[TableBinder, Stage, ast.Call, Env], Stage]


def evaluate(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Looks the plugin up and runs it; a declared schema fixes the columns."""
    call: ast.Call = node.parts["call"]
    schema = node.parts.get("schema")
    if call.name == "bag_unpack" and schema is not None:
        return _declared_bag(c, stage, call, schema, env)
    if call.name == "pivot" and schema is not None and not any(n == "*" for n, _ in schema.columns):
        return _as_declared(c, _pivoted(c, stage, call, env, schema), schema)
    plugin = PLUGIN_BUILDERS.get(call.name)
    if plugin is None:
        if call.name in CANNOT:
            raise CannotExpress(
                f"the plugin '{call.name}' cannot be answered here: {CANNOT[call.name]}", call.span,
                suggestion=INSTEAD.get(call.name),
            )  # fmt: skip
        if call.name in PLUGINS:
            raise NotImplementedYet(
                f"the plugin '{call.name}' is not implemented yet", call.span, suggestion=INSTEAD.get(call.name)
            )
        near = nearest(call.name, PLUGINS)
        there_is = "" if near else f"; there is {', '.join(sorted(PLUGIN_BUILDERS))}"
        raise KqlBindError(f"unknown plugin '{call.name}'{there_is}", call.span, suggestion=near)
    made = plugin(c, stage, call, env)
    return made if schema is None else _as_declared(c, made, schema)


def _as_declared(c: TableBinder, stage: Stage, schema: ast.Schema) -> Stage:
    """Exactly the declared columns: missing ones are null, `*` includes those not named."""
    named = {n for n, _ in schema.columns}
    found = dict(everything(stage))
    out: list[tuple[str, Value]] = []
    for name, kind in schema.columns:
        if name == "*":
            out += [(n, v) for n, v in found.items() if n not in named]
        else:
            out.append((name, to_type(found[name], kind) if name in found else constant(None, kind)))
    return c.emit(stage, out)


def options(c: TableBinder, call: ast.Call, env: Env, names: tuple[str, ...]) -> dict[str, Value]:
    """Arguments by position or by name."""
    out: dict[str, Value] = {}
    for place, arg in enumerate(call.args):
        if isinstance(arg, ast.Named):
            name, node = arg.names[0], arg.value
            if name not in names:
                raise KqlBindError(f"{call.name} has no option '{name}'", arg.span, suggestion=nearest(name, names))
        elif place < len(names):
            name, node = names[place], arg
        else:
            raise KqlBindError(f"{call.name} takes at most {len(names)} options", arg.span)
        out[name] = c.expr(node, Scope(env))
    return out


def _bag_argument(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Value:
    if not call.args:
        raise KqlBindError("bag_unpack needs a dynamic column", call.span)
    bag = c.expr(call.args[0], scope_of(stage, env))
    if bag.type != "dynamic":
        raise KqlBindError(f"bag_unpack needs a dynamic column, not {bag.type}", call.args[0].span)
    return bag


def _property(bag: Value, key: str, kind: str) -> Value:
    item = sql("nullif(json_member({0}, {1}), 'null'::JSON)", "dynamic", bag, constant(key, "string"), nullable=True)
    return to_type(item, kind)


def _declared_bag(c: TableBinder, stage: Stage, call: ast.Call, schema: ast.Schema, env: Env) -> Stage:
    bag = _bag_argument(c, stage, call, env)
    prefix = _bag_options(c, call, env)[0]
    named = {n for n, _ in schema.columns}
    row = dict(everything(stage))
    out: list[tuple[str, Value]] = []
    for name, kind in schema.columns:
        if name == "*":
            out += [(n, v) for n, v in row.items() if n != bag.name and n not in named]
        elif name in row and name != bag.name:
            out.append((name, to_type(row[name], kind)))
        else:
            out.append((name, _property(bag, name.removeprefix(prefix), kind)))
    return c.emit(stage, out)


def _bag_options(c: TableBinder, call: ast.Call, env: Env) -> tuple[str, str, list[str]]:
    rest = ast.Call(call.name, call.args[1:], span=call.span)
    given = options(c, rest, env, ("OutputColumnPrefix", "columnsConflict", "ignoredProperties"))
    prefix = given.get("OutputColumnPrefix")
    conflict = given.get("columnsConflict")
    ignored = given.get("ignoredProperties")
    word = str(conflict.constant) if conflict else "error"
    if word not in ("error", "replace_source", "keep_source"):
        raise KqlBindError(f"columnsConflict is error, replace_source or keep_source, not '{word}'", call.span)
    skip = plain(ignored.constant) if ignored else []
    return str(prefix.constant) if prefix else "", word, [str(s) for s in skip] if isinstance(skip, list) else []


def _kind_of(types: set[str]) -> str:
    """The column type for the JSON types found under one key."""
    types = types - {"NULL"}
    if types <= {"BIGINT", "UBIGINT"} and types:
        return "long"
    if types <= {"BIGINT", "UBIGINT", "DOUBLE"} and types:
        return "real"
    return {"VARCHAR": "string", "BOOLEAN": "bool"}.get(next(iter(types)), "dynamic") if len(types) == 1 else "dynamic"


def bag_unpack(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Each property a column, in alphabetical order, after the other columns."""
    bag = _bag_argument(c, stage, call, env)
    prefix, conflict, ignored = _bag_options(c, call, env)
    keys = sql("unnest(json_keys({0}))", "string", bag, nullable=True)
    keyed = c.emit(stage, [("$bag", bag), ("$key", keys)], keep_hidden=False, is_sorted=False)
    bag_in, key_in = (v.value() for v in keyed.columns)
    kind = sql("json_type(json_member({0}, {1}))", "string", bag_in, key_in)
    typed = c.emit(keyed, [("k", key_in), ("t", kind)], refine=lambda q: q.distinct())
    kinds: dict[str, set[str]] = {}
    for key, found in c.ask(typed, call):
        kinds.setdefault(key, set()).add(found)
    kinds = {k: kinds[k] for k in sorted(kinds) if k not in ignored}
    _limit(len(kinds), call)
    merged = {n: v for n, v in everything(stage) if n != bag.name}
    for key, types in kinds.items():
        name = prefix + key
        if name in merged and conflict == "error":
            raise KqlBindError(f"the property '{key}' would hide the column '{name}'; set columnsConflict", call.span)
        if name in merged and conflict == "keep_source":
            continue
        merged[name] = _property(bag, key, _kind_of(types))
    return c.emit(stage, list(merged.items()))


def _limit(count: int, call: ast.Call) -> None:
    if count > MAX_NEW_COLUMNS:
        raise CannotExpress(f"{call.name} would make {count} columns; the limit is {MAX_NEW_COLUMNS}", call.span)


def pivot(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """A column for each value of the first column, holding an aggregate (count() by default) per row of the others."""
    return _pivoted(c, stage, call, env)


def _pivoted(c: TableBinder, stage: Stage, call: ast.Call, env: Env, declared: ast.Schema | None = None) -> Stage:
    """`pivot`; with all columns declared, the data need not be queried for the values."""
    if not call.args or not isinstance(call.args[0], ast.Name):
        raise KqlBindError("pivot needs a column", call.span)
    row = scope_of(stage, env)
    by = call.args[0]
    column = c.expr(by, row)
    rest = list(call.args[1:])
    aggregate = rest.pop(0) if rest and isinstance(rest[0], ast.Call) else ast.Call("count", (), span=call.span)
    assert isinstance(aggregate, ast.Call)
    keys = _pivot_keys(c, stage, rest, row, {by.name, *(a.name for a in aggregate.args if isinstance(a, ast.Name))})
    if declared is None:
        texts = c.emit(stage, [("v", text_of(column))], keep_hidden=False, refine=lambda q: q.distinct())
        values = sorted(str(r[0]) for r in c.ask(texts, call))
    else:
        values = [n for n, _ in declared.columns if n not in {k for k, _ in keys}]
    _limit(len(values), call)
    out = [(n, text_of(v) if v.type == "dynamic" else v) for n, v in keys]
    scope = Scope(env, row.columns, stage, aggregates=True)
    name = _with_condition(aggregate, env)
    place = _place_of_condition(name)
    for value in values:
        test = ast.Binary("==", ast.Call("tostring", (by,)), ast.Literal(value, "string"))
        args = (*aggregate.args[:place], test, *aggregate.args[place:])
        made = c.expr(ast.Call(name, args, span=aggregate.span), scope)
        out.append((fresh(value or "Column1", [n for n, _ in out]), made))
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(keys))]
    made_stage = c.emit(
        stage, out, keep_hidden=False, is_sorted=False, refine=lambda q: q.group_by(*positions) if positions else q
    )
    dynamic = [n for n, v in keys if v.type == "dynamic"]
    if not dynamic:
        return made_stage
    return c.emit(made_stage, [(n, to_type(v, "dynamic") if n in dynamic else v) for n, v in everything(made_stage)])


def _with_condition(aggregate: ast.Call, env: Env) -> str:
    """The name of the form of an aggregate that takes a condition: under its own name, or under the one it is an alias of."""
    found, called = registry(), aggregate.name
    name = called if env.find(called) is not None else found.name_of(called)
    for form in (f"{called}if", f"{name}if", f"{name}_if"):
        if env.find(form) is not None or found.name_of(form) in found.aggregates:
            return form
    if name in AGGREGATES and name not in found.aggregates:
        raise NotImplementedYet(f"the aggregate {called}() is not implemented", aggregate.span)
    if name not in found.aggregates and env.find(called) is None:
        near = nearest(called, [*found.aggregates])
        raise KqlBindError(f"pivot needs an aggregate, and {called}() is none", aggregate.span, suggestion=near)
    if name in found.aggregates and name.endswith("if"):
        why = "which has a condition itself: choose the rows by where, before pivot"
    else:
        why = "which has no form with a condition, as sum() has sumif(): summarize by the column first, and pivot with take_any()"
    raise KqlBindError(f"pivot cannot use {called}(), {why}", aggregate.span)


def _place_of_condition(name: str) -> int:
    """Where an aggregate takes its condition: behind the arguments that must be there, of which there is mostly one."""
    found = registry()
    declared = found.aggregates.get(found.name_of(name))
    return declared.condition if declared is not None and declared.condition is not None else 1


def _pivot_keys(
    c: TableBinder, stage: Stage, rest: list[ast.Node], row: Scope, used: set[str]
) -> list[tuple[str, Value]]:
    """The columns that make a row: those named after the aggregate, or all unused ones."""
    if not rest:
        return [(n, v) for n, v in everything(stage) if n not in used]
    keys = [(n.name, c.expr(n, row)) for n in rest if isinstance(n, ast.Name)]
    if len(keys) < len(rest):
        raise KqlBindError("pivot takes columns after the aggregate", rest[0].span)
    return keys


def narrow(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """One row per cell: the row's number, the column's name, the value as text."""
    ordered = c.serialized(stage)
    assert ordered.order is not None
    names = [constant(v.name, "string") for v in ordered.visible]
    texts = sql("[{*}]", "dynamic", *(text_of(v.value()) for v in ordered.visible), nullable=False)
    place = sql(f"unnest(range(0, {len(names)}))", "long", nullable=False)
    row = sql("({0} - 1)", "long", ordered.order.value(), nullable=False)
    wide = c.emit(ordered, [("Row", row), ("$cells", texts), ("$i", place)], keep_hidden=False)
    at, cells, place = (v.value() for v in wide.columns)
    column = sql("list_extract({0}, {1} + 1)", "string", sql("[{*}]", "dynamic", *names), place)
    return c.emit(
        wide, [("Row", at), ("Column", column), ("Value", sql("list_extract({0}, {1} + 1)", "string", cells, place))]
    )


def identity(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """The rows unchanged."""
    return stage


def estimate_rows_count(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """The number of rows; exact here."""
    return c.emit(
        stage, [("EstimatedRowsCount", sql("count(*)", "long", nullable=False))], keep_hidden=False, is_sorted=False
    )


def ip_lookup(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Rows joined with the networks of a table that contain their address."""
    if len(call.args) < 3:
        raise KqlBindError(f"{call.name} takes a table, an address and a network column", call.span)
    plain_args = [a for a in call.args if not isinstance(a, ast.Named)]
    right = c.table(plain_args[0], env)
    left_row, right_row = row_of(stage, "l"), row_of(right, "r")
    address = c.expr(plain_args[1], Scope(env, left_row))
    network = c.expr(plain_args[2], Scope(env, right_row))
    keys = [(c.expr(a, Scope(env, left_row)), c.expr(a, Scope(env, right_row))) for a in plain_args[3:]]
    unmatched = any(
        isinstance(a, ast.Named) and a.names == ("return_unmatched",) and getattr(a.value, "value", False) is True
        for a in call.args
    )
    if call.name == "ipv6_lookup":
        inside = call_function(IPV6_IS_IN_RANGE, [text_of(address), text_of(network)], call)
    else:
        networks = sql("to_json([{0}])", "dynamic", text_of(network))
        inside = call_function(IPV4_IS_IN_ANY_RANGE, [text_of(address), networks], call)
    tests = [inside, *(sql("({0} = {1})", "bool", a, b) for a, b in keys)]
    on = Sql(" AND ".join(f"{{{i}}}" for i in range(len(tests))), *(t.sql for t in tests))
    made = list(left_row.items())
    for column in right.visible:
        made.append(
            (fresh(column.name, [n for n, _ in made]), sql("{0}", column.type, column.value("r"), nullable=True))
        )
    source = relation(stage.relation, "l").join(relation(right.relation, "r"), on, isouter=unmatched)
    return c.emit(stage, made, source=source, keep_hidden=False, is_sorted=False)


def getschema(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The columns of the stage as rows; the names of types are Kusto's."""
    rows = [(v.name, place, _CLR[v.type], v.type) for place, v in enumerate(stage.visible)]
    cells = [constant(cell, kind).sql for row in rows for cell, kind in zip(row, _SCHEMA.values(), strict=True)]
    holes = ", ".join("(" + ", ".join(f"{{{4 * r + k}}}" for k in range(4)) + ")" for r in range(len(rows)))
    names = ", ".join(f'"{n}"' for n in _SCHEMA)
    made = c.add(Sql(f"SELECT * FROM (VALUES {holes}) AS v({names})", *cells))
    return Stage(made, tuple(StageColumn(n, k, n, False) for n, k in _SCHEMA.items()))


_CLR = {
    "bool": "System.SByte", "int": "System.Int32", "long": "System.Int64", "real": "System.Double",
    "decimal": "System.Data.SqlTypes.SqlDecimal", "datetime": "System.DateTime", "timespan": "System.TimeSpan",
    "string": "System.String", "dynamic": "System.Object", "guid": "System.Guid",
}  # fmt: skip
_SCHEMA = {"ColumnName": "string", "ColumnOrdinal": "long", "DataType": "string", "ColumnType": "string"}
PLUGIN_BUILDERS: dict[str, Plugin] = {
    "bag_unpack": bag_unpack, "pivot": pivot, "narrow": narrow, "identity": identity, "identity_v3": identity,
    "estimate_rows_count": estimate_rows_count, "ipv4_lookup": ip_lookup, "ipv6_lookup": ip_lookup,
    **activity.PLUGINS, **cohorts.PLUGINS, **mining.PLUGINS, **sequences.PLUGINS,
}  # fmt: skip
BUILDERS = {"getschema": getschema, "evaluate": evaluate}
