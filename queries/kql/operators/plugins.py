"""evaluate plugins and make-series: operators whose columns depend on settings or on constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.bind import Env, Scope, Stage, StageColumn, row_of
from queries.kql.dialect import PHYSICAL, Sql
from queries.kql.errors import KqlBindError, NotImplementedYet
from queries.kql.functions.convert import to_type
from queries.kql.operators.rows import everything, scope_of
from queries.kql.operators.shaping import named_values
from queries.kql.values import Value, constant, dynamic_of, sql

if TYPE_CHECKING:
    from queries.kql.compile import Compiler


def evaluate(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """bag_unpack with its columns declared; without them they depend on data not yet read."""
    call: ast.Call = node.parts["call"]
    if call.name != "bag_unpack":
        raise NotImplementedYet(f"the plugin '{call.name}' is not implemented yet", call.span)
    schema = node.parts.get("schema")
    if schema is None or len(call.args) != 1:
        raise NotImplementedYet("bag_unpack needs its columns declared: bag_unpack(d) : (*, Name:type)", call.span)
    bag = c.expr(call.args[0], scope_of(stage, env))
    out = [] if ("*", "") not in schema.columns else [(n, v) for n, v in everything(stage) if n != bag.name]
    for name, kind in schema.columns:
        if name != "*":
            path = constant(f'$."{name}"', "string")
            item = sql("nullif(json_extract({0}, {1}), 'null'::JSON)", "dynamic", bag, path, nullable=True)
            out.append((name, to_type(item, kind)))
    return c.emit(stage, out)


def make_series(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R14: the end is exclusive, the columns are keys, series, axis; default fills gaps only."""
    if node.settings or node.parts.get("closed") or not {"from", "to", "step"} <= node.parts.keys():
        raise NotImplementedYet("make-series needs 'from', 'to' and 'step' here", node.span)
    row = scope_of(stage, env)
    keys = named_values(c, node.nodes("by"), row)
    axis = c.expr(node.parts["on"], row)
    start, stop, step = (c.expr(node.parts[k], Scope(env)) for k in ("from", "to", "step"))
    if (axis.type, start.type, stop.type, step.type) != ("datetime", "datetime", "datetime", "timespan"):
        raise NotImplementedYet("make-series over something other than time is not implemented yet", node.span)
    slot = sql("((epoch_us({0}) - epoch_us({1})) // ({2} // 10))", "long", axis, start, step)
    inside = sql("({0} >= {1} AND {0} < {2})", "bool", axis, start, stop)
    columns = [*keys, ("$slot", slot)]
    aggregate = Scope(env, row.columns, stage, aggregates=True)
    series: list[tuple[str, Value, Value]] = []
    for number, part in enumerate(node.nodes("columns")):
        assert isinstance(part, ast.Series)
        ((name, value),) = named_values(c, (part.value,), aggregate)
        fallback = c.expr(part.default, Scope(env)) if part.default else constant(0, "long")
        columns.append((f"$v{number}", value))
        series.append((name, value, fallback))
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(keys) + 1)]
    counted = c.emit(
        stage, columns, keep_hidden=False, refine=lambda q: q.where(inside.sql).group_by(*positions), is_sorted=False
    )
    return _fill(c, counted, keys, series, (axis.name or "Column1", start, stop, step))


def _fill(
    c: Compiler, counted: Stage, keys: list[tuple[str, Value]], series: list[tuple[str, Value, Value]],
    axis: tuple[str, Value, Value, Value],
) -> Stage:  # fmt: skip
    name, start, stop, step = axis
    row = row_of(counted)
    slots = "range(CAST(ceil((epoch_us({1}) - epoch_us({0})) / ({2} / 10)) AS BIGINT))"
    out = [(n, row[n]) for n, _ in keys]
    for number, (label, value, fallback) in enumerate(series):
        if fallback.type != value.type:
            if value.type not in ("int", "long", "real") or fallback.type not in ("int", "long", "real"):
                raise KqlBindError(f"the default of '{label}' is {fallback.type}, its values are {value.type}")
            fallback = to_type(fallback, value.type)
        cell = f"CAST(coalesce(map({{3}}, {{4}})[ks], {{5}}) AS {PHYSICAL[value.type]})"
        gathered = sql("list({0})", "long", row["$slot"]), sql("list({0})", value.type, row[f"$v{number}"])
        template = f"to_json(list_transform({slots}, lambda ks: {cell}))"
        out.append((label, sql(template, "dynamic", start, stop, step, *gathered, fallback, nullable=False)))
    moment = "strftime(make_timestamp(epoch_us({0}) + ks * ({2} // 10)), '%Y-%m-%dT%H:%M:%S.%f') || '0Z'"
    out.append((name, sql(f"to_json(list_transform({slots}, lambda ks: {moment}))", "dynamic", start, stop, step)))
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(keys))]
    return c.emit(
        counted,
        out,
        keep_hidden=False,
        refine=lambda q: q.group_by(*positions) if positions else q.having(literal_column("count(*) > 0")),
    )


def getschema(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
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
_SCHEMA = {"ColumnName": "string", "ColumnOrdinal": "int", "DataType": "string", "ColumnType": "string"}
BUILDERS = {"getschema": getschema, "evaluate": evaluate, "make-series": make_series}
__all__ = ["BUILDERS", "dynamic_of"]
