"""Operators that run a subquery for each row or each group: mv-apply, partition."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Col, Sql, quoted
from queries.kql.errors import KqlBindError
from queries.kql.operators.combining import Expanded, expanded_items, walk_length
from queries.kql.stages import ORDER, Env, Scope, Stage, StageColumn, named_columns, relation, scope_of
from queries.kql.steps import IN_SUBQUERY
from queries.kql.values import Value, sql


def _lateral(c: TableBinder, outer: Stage, items: list[Any], inner: Sql, alias: str) -> str:
    source = f' FROM "{outer.relation}" AS "{alias}", LATERAL ({{1}}) AS "i"'
    return c.add(Sql("{0}" + source, select(*items), inner))


def mv_apply(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The subquery over the items of arrays, one row at a time; R13: several arrays are iterated in parallel."""
    body, stage = node.parts["body"], c.serialized(stage)
    expanded = expanded_items(c, stage, node, env)
    alias = c.alias("o")
    arrays = Scope(env, {v.name: v.value(alias) for v in stage.visible}, stage)
    made = expanded_items(c, stage, node, env, arrays)
    length = walk_length(made)
    limit = c.expr(node.parts["limit"], Scope(env)) if "limit" in node.parts else None
    counted = sql("least({0}, {1})", "long", length, limit) if limit else length
    start, columns = _items(stage, node, made, counted, alias)
    inside, inner = c.nested(lambda: c.apply(Stage(c.add(start), columns, serial=True), body.operators, env))
    names = {e.name for e in expanded}
    kept = [v for v in stage.visible if v.name not in names]
    merged: dict[str, tuple[Value, StageColumn | None]] = {v.name: (v.value(alias), None) for v in kept}
    for column in inside.visible:
        merged[column.name] = (column.value("i"), column)
    hidden = tuple(h for h in stage.columns if h.hidden)
    out = named_columns([(n, v) for n, (v, _) in merged.items()], [h.physical for h in hidden])
    items = [v.sql.label(quoted(o.physical)) for o, (v, _) in zip(out, merged.values(), strict=True)]
    items += [h.value(alias).sql.label(quoted(h.physical)) for h in hidden]
    items += [Col("i", IN_SUBQUERY).label(quoted(IN_SUBQUERY))] if inside.order else []
    joined = Stage(_lateral(c, stage, items, inner, alias), (*out, *hidden))
    return _in_order(c, joined, bool(inside.order))


def _in_order(c: TableBinder, stage: Stage, counted: bool) -> Stage:
    """The rows of a join in the order of its left side and then of the subquery; a join keeps no order by itself."""
    assert stage.order is not None
    keys = [stage.order.value().sql, *([Col("t", IN_SUBQUERY)] if counted else [])]
    items = [v.value().sql.label(quoted(v.physical)) for v in stage.columns if v is not stage.order]
    place = Sql("row_number() OVER (ORDER BY {*})", *keys)
    query = select(*items, place.label(quoted(ORDER))).select_from(relation(stage.relation))
    columns = (*(v for v in stage.columns if v is not stage.order), stage.order)
    return Stage(c.add(query), columns, stage.sorted)


def _items(
    stage: Stage, node: ast.Operator, made: list[Expanded], length: Value, alias: str
) -> tuple[Any, tuple[StageColumn, ...]]:  # fmt: skip
    """The rows that the subquery sees: every column of the outer row beside one item of each array."""
    place = Value(Sql('"n"."k"'), "long", False)
    values: dict[str, Value] = {v.name: v.value(alias) for v in stage.visible}
    for part in made:
        values[part.name] = part.item(place)
    index = node.settings.get("with_itemindex")
    if index is not None:
        values[str(getattr(index, "value", ""))] = place
    columns = named_columns(list(values.items()), [ORDER])
    items = [v.sql.label(quoted(s.physical)) for s, v in zip(columns, values.values(), strict=True)]
    columns = (*columns, StageColumn(ORDER, "long", ORDER, False, True))
    items.append(place.sql.label(quoted(ORDER)))
    return Sql('{0} FROM (SELECT unnest(range({1})) AS "k") AS "n"', select(*items), length.sql), columns


def partition(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The subquery for each value of a column, the results one below the other."""
    key = c.expr(node.parts["by"], scope_of(stage, env))
    if key.type == "dynamic":
        raise KqlBindError("partition needs a column that is not dynamic", node.parts["by"].span)
    alias = c.alias("k")
    keys = c.add(select(key.sql.label(quoted("$key"))).select_from(relation(stage.relation)).distinct())
    if "query" in node.parts:  # with its own source, in which the column is one value
        name = node.parts["by"].name
        value = Value(Col(alias, "$key"), key.type, key.nullable, name=name)
        inside, inner = c.nested(lambda: c.table(node.parts["query"], Env({name: value}, env)))
    else:
        items = [v.value().sql.label(quoted(v.physical)) for v in stage.columns]
        test = Sql(f'({{0}} IS NOT DISTINCT FROM "{alias}"."$key")', key.sql)
        start = select(*items).select_from(relation(stage.relation)).where(test)
        operators = node.parts["body"].operators
        inside, inner = c.nested(
            lambda: c.apply(Stage(c.add(start), stage.columns, serial=stage.serial), operators, env)
        )
    columns = inside.visible
    source = Stage(keys, ())
    made = [v.value("i").sql.label(quoted(v.physical)) for v in columns]
    return Stage(_lateral(c, source, made, inner, alias), columns)


BUILDERS: dict[str, Any] = {"mv-apply": mv_apply, "partition": partition}
