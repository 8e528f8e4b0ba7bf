"""Tables that a query creates itself: print, range, datatable."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.dialect import PHYSICAL, Sql, quoted
from queries.kql.errors import KqlBindError
from queries.kql.operators.shaping import named_values
from queries.kql.stages import Env, Names, Scope, Stage, StageColumn, named_columns, relation
from queries.kql.values import NUMERIC, Value, cast_number, constant, widest

MAX_CELLS = 20_000


def print_(c: TableBinder, node: ast.Operator, env: Env) -> Stage:
    """One row. R6: unnamed values are print_0, print_1 by position."""
    scope = Scope(env)
    columns: list[tuple[str, Value]] = []
    names = Names()
    for place, part in enumerate(node.nodes("columns")):
        if isinstance(part, ast.Named):
            columns += named_values(c, (part,), scope, names)[: len(part.names)]  # the other values have no name here
        else:
            value = c.expr(part, scope)
            parts = value.parts if len(value.parts) > 1 else ((f"print_{place}", value),)
            columns += [(names.lend(name), item) for name, item in parts]
    made = named_columns(columns)
    items = [v.sql.label(quoted(s.physical)) for s, (_, v) in zip(made, columns, strict=True)]
    return Stage(c.add(select(*items)), made)


def range_(c: TableBinder, node: ast.Operator, env: Env) -> Stage:
    """An arithmetic sequence, both ends included."""
    scope = Scope(env)
    start, stop, step = (c.expr(node.parts[k], scope) for k in ("from", "to", "step"))
    name = node.parts["name"]
    if all(v.type in NUMERIC for v in (start, stop, step)):
        kind = widest([start.type, stop.type, step.type])
        start, stop, step = (cast_number(v, kind) for v in (start, stop, step))
        if kind in ("int", "long"):
            body = Sql(f"SELECT CAST(range AS {PHYSICAL[kind]}) AS v " "FROM rows_of_range({0}, {1} + sign({2})::BIGINT, {2})",
                       start.sql, stop.sql, step.sql)  # fmt: skip
        else:
            body = Sql("SELECT {0} + range * {2} AS v FROM rows_of_range(0, CAST(floor(({1} - {0}) / {2}) AS BIGINT) + 1)",
                       start.sql, stop.sql, step.sql)  # fmt: skip
    elif (start.type, stop.type, step.type) == ("datetime", "datetime", "timespan"):
        kind = "datetime"
        body = Sql("SELECT make_timestamp(epoch_us({0}) + range * ({2} // 10)) AS v FROM rows_of_range(0, "
                   "(epoch_us({1}) - epoch_us({0})) // ({2} // 10) + 1)", start.sql, stop.sql, step.sql)  # fmt: skip
    elif {start.type, stop.type, step.type} == {"timespan"}:
        kind = "timespan"
        body = Sql(
            "SELECT range AS v FROM rows_of_range({0}, {1} + sign({2})::BIGINT, {2})", start.sql, stop.sql, step.sql
        )
    else:
        raise KqlBindError(f"range does not run from {start.type} to {stop.type} by {step.type}", node.span)
    if step.is_constant and not step.constant:
        raise KqlBindError("range needs a step other than 0", node.parts["step"].span)
    return Stage(c.add(body), (StageColumn(name, kind, "v", False),), True)


def datatable(c: TableBinder, node: ast.Operator, env: Env) -> Stage:
    """Rows written in the query."""
    columns = node.parts["schema"].columns
    nodes = node.nodes("values")
    if not columns or len(nodes) % len(columns):
        raise KqlBindError(f"{len(nodes)} values do not fill rows of {len(columns)}", node.span)
    if len(nodes) > MAX_CELLS:
        raise KqlBindError(f"a datatable holds at most {MAX_CELLS} values", node.span)
    scope = Scope(env)
    typed = [to_type(c.expr(n, scope), columns[i % len(columns)][1]) for i, n in enumerate(nodes)]
    made = named_columns([(n, constant(None, k)) for n, k in columns])
    width = len(columns)
    cells = [v.sql for v in typed]
    if not cells:
        items = [
            Sql(f"CAST(NULL AS {PHYSICAL[k]})").label(quoted(m.physical))
            for m, (_, k) in zip(made, columns, strict=True)
        ]
        return Stage(c.add(select(*items).where(Sql("false"))), made)
    rows = ", ".join(
        "(" + ", ".join(f"{{{r * width + k}}}" for k in range(width)) + ")" for r in range(len(cells) // width)
    )
    names = ", ".join(f"c{k}" for k in range(width))
    inner = c.add(Sql(f"SELECT * FROM (VALUES {rows}) AS v({names})", *cells))
    items = [Sql(f'"t".c{k}').label(quoted(m.physical)) for k, m in enumerate(made)]
    return Stage(c.add(select(*items).select_from(relation(inner))), made)


BUILDERS: dict[str, Any] = {"print": print_, "range": range_, "datatable": datatable}
