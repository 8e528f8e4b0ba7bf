"""Operators that choose and order rows: where, take, sort, top, distinct, count."""

from __future__ import annotations

from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql
from queries.kql.errors import KqlBindError
from queries.kql.expressions import only_boolean
from queries.kql.operators.shaping import named_values
from queries.kql.stages import Env, Scope, Stage, everything, order_by, scope_of
from queries.kql.values import Value, sql

_NAN_FIRST = "CASE WHEN {0} IS NULL THEN 0 WHEN isnan({0}) THEN 1 ELSE 2 END"
_NAN_LAST = "CASE WHEN {0} IS NULL THEN 2 WHEN isnan({0}) THEN 1 ELSE 0 END"


def where(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Keeps the rows for which the condition is true."""
    scope = scope_of(stage, env, windowed=True)
    test = only_boolean(c, node.parts["value"], scope)
    if scope.ordered:  # a window's value is computed a step before rows are chosen by it
        kept = c.hoist(scope, test)
        assert scope.stage is not None
        return c.emit(scope.stage, everything(stage), refine=lambda q: q.where(kept.sql))
    assert scope.stage is not None
    return c.emit(scope.stage, everything(stage), refine=lambda q: q.where(test.sql), row_by_row=True)


def limit_of(c: TableBinder, node: ast.Node, env: Env) -> Value:
    """A row count: constant, whole, not negative."""
    value = c.expr(node, Scope(env))
    if value.type not in ("int", "long"):
        raise KqlBindError(f"a row count must be a whole number, not {value.type}", node.span)
    if value.is_constant and (value.constant is None or value.constant < 0):
        raise KqlBindError("a row count cannot be negative", node.span)
    return value


def take(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Any N rows; the first N of a sorted stage."""
    limit = limit_of(c, node.parts["limit"], env)
    by = stage.order
    return c.emit(
        stage, everything(stage),
        refine=lambda q: (q.order_by(by.value().sql) if by else q).limit(limit.sql), row_by_row=True,
    )  # fmt: skip


def _keys(c: TableBinder, node: ast.Operator, scope: Scope) -> Any:
    keys: list[tuple[Any, bool, bool]] = []
    for key in node.nodes("keys"):
        assert isinstance(key, ast.SortKey)
        value = c.expr(key.value, scope)
        if value.type == "dynamic":
            raise KqlBindError("a dynamic cannot be sorted by; convert it first", key.span)
        ascending = bool(key.ascending)  # R5: descending by default
        nulls_first = ascending if key.nulls_first is None else key.nulls_first  # R5: nulls are smallest
        if value.type == "real":  # R5: NaN stands beside the nulls, whatever the direction
            keys.append((Sql(_NAN_FIRST if nulls_first else _NAN_LAST, value.sql), True, nulls_first))
        keys.append((value.sql, ascending, nulls_first))
    return order_by(*keys)


def sort(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Order all rows. The order is kept as a hidden position, so that later steps cannot lose it."""
    order = _keys(c, node, scope_of(stage, env))
    plain = Stage(stage.relation, stage.visible, False)
    made = c.emit(plain, everything(plain), refine=lambda q: q.order_by(order), is_sorted=True, row_by_row=True)
    return c.serialized(made)


def top(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The first N in an order."""
    limit = limit_of(c, node.parts["limit"], env)
    if len(node.nodes("keys")) > 1:
        raise KqlBindError("top takes one expression; sort by all of them, then take", node.nodes("keys")[1].span)
    order = _keys(c, node, scope_of(stage, env))
    plain = Stage(stage.relation, stage.visible, False)
    made = c.emit(
        plain,
        everything(plain),
        refine=lambda q: q.order_by(order).limit(limit.sql),
        is_sorted=True,
        row_by_row=True,
    )
    return c.serialized(made)


def count(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R6: `count` names its column Count."""
    name = node.parts.get("as", "Count")
    return c.emit(stage, [(name, sql("count(*)", "long", nullable=False))], keep_hidden=False, is_sorted=False)


def distinct(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Each combination once."""
    nodes = node.nodes("columns")
    if any(isinstance(n, ast.Star) for n in nodes):
        columns = everything(stage)
    else:
        columns = named_values(c, nodes, scope_of(stage, env))
    _no_dynamic(columns, node)
    return c.emit(stage, columns, refine=lambda q: q.distinct(), keep_hidden=False, is_sorted=False)


def _no_dynamic(columns: list[tuple[str, Value]], node: ast.Operator) -> None:
    for name, value in columns:
        if value.type == "dynamic":
            raise KqlBindError(
                f"{node.name} does not compare the dynamic '{name}'; convert it with tostring()", node.span
            )


def sample(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """N rows at random."""
    limit = limit_of(c, node.parts["limit"], env)
    return c.emit(
        stage, everything(stage), refine=lambda q: q.order_by(Sql("random()")).limit(limit.sql), is_sorted=False,
        row_by_row=True,
    )  # fmt: skip


def sample_distinct(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """N different values of one expression."""
    limit = limit_of(c, node.parts["limit"], env)
    columns = named_values(c, (node.parts["of"],), scope_of(stage, env))
    _no_dynamic(columns, node)
    return c.emit(stage, columns, refine=lambda q: q.distinct().limit(limit.sql), keep_hidden=False)


def consume(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Computes all rows and returns none. A hash over them is null only if there are none anyway."""
    read = Sql(f'(SELECT bit_xor(hash("k")) FROM "{stage.relation}" AS "k") IS NULL')
    return c.emit(stage, everything(stage), refine=lambda q: q.where(read))


def same(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """`as` leaves the rows unchanged."""
    return stage


BUILDERS = {
    "where": where, "take": take, "sort": sort, "top": top, "count": count, "distinct": distinct, "sample": sample,
    "sample-distinct": sample_distinct, "as": same, "consume": consume,
}  # fmt: skip
