"""Functions of a serialized row set: prev, next, row_number, row_cumsum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from queries.kql import syntax as ast
from queries.kql.bind import Scope
from queries.kql.errors import KqlBindError
from queries.kql.values import Value, sql

if TYPE_CHECKING:
    from queries.kql.compile import Compiler


def _order(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    if scope.stage is None or not scope.windowed:
        raise KqlBindError(f"{node.name}() works in extend and project over sorted or serialized rows", node.span)
    scope.stage = c.serialized(scope.stage)
    order = scope.stage.order
    assert order is not None
    return order.value()


def _shift(function: str) -> Callable[[Compiler, ast.Call, Scope], Value]:
    def build(c: Compiler, node: ast.Call, scope: Scope) -> Value:
        order = _order(c, node, scope)
        if not 1 <= len(node.args) <= 3:
            raise KqlBindError(f"{node.name}() takes 1 to 3 arguments", node.span)
        args = [c.expr(a, scope) for a in node.args]
        value = c.hoist(scope, args[0]) if scope.columns.get(args[0].name or "") is not args[0] else args[0]
        holes = ", ".join(f"{{{i}}}" for i in range(len(args)))
        ordered = sql(
            f"{function}({holes}) OVER (ORDER BY {{{len(args)}}})", value.type, value, *args[1:], order, nullable=True
        )
        return ordered

    return build


def _restart(c: Compiler, node: ast.Node, scope: Scope) -> Value:
    """The number of restarts so far, as a column one stage down."""
    from queries.kql.expressions import boolean

    flag = c.hoist(scope, boolean(c, node, scope))
    assert scope.stage is not None and scope.stage.order is not None
    order = scope.stage.order.value()
    return c.hoist(scope, sql("count(*) FILTER (WHERE {0}) OVER (ORDER BY {1})", "long", flag, order))


def _row_number(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    order = _order(c, node, scope)
    start = c.expr(node.args[0], scope) if node.args else None
    group = _restart(c, node.args[1], scope) if len(node.args) > 1 else None
    over = "PARTITION BY {1} ORDER BY {0}" if group else "ORDER BY {0}"
    number = sql(f"row_number() OVER ({over})", "long", *([order, group] if group else [order]), nullable=False)
    return sql("({0} + {1} - 1)", "long", number, start) if start else number


def _row_cumsum(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    order = _order(c, node, scope)
    term = c.hoist(scope, c.expr(node.args[0], scope))
    group = _restart(c, node.args[1], scope) if len(node.args) > 1 else None
    over = "PARTITION BY {2} ORDER BY {1}" if group else "ORDER BY {1}"
    kind = "long" if term.type == "int" else term.type
    physical = "DOUBLE" if kind == "real" else "BIGINT"
    args = [term, order, group] if group else [term, order]
    return sql(f"CAST(coalesce(sum({{0}}) OVER ({over}), 0) AS {physical})", kind, *args)


WINDOWS: dict[str, Callable[[Compiler, ast.Call, Scope], Value]] = {
    "prev": _shift("lag"), "next": _shift("lead"), "row_number": _row_number, "row_cumsum": _row_cumsum,
}  # fmt: skip
