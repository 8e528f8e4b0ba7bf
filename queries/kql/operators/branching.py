"""Operators that end a query and give several tables of the same rows: fork, facet."""

from __future__ import annotations

from typing import Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.errors import KqlBindError
from queries.kql.stages import Env, Stage, scope_of
from queries.kql.values import sql

Tables = list[tuple[str, Stage]]


def fork(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Tables:
    """A table for each branch, in order; it is named before the branch, or by `as` at its end."""
    out: Tables = []
    branches: tuple[Any, ...] = node.parts["branches"]
    for name, body in branches:
        last = body.operators[-1]
        out.append((name or (last.parts["name"] if last.name == "as" else ""), c.apply(stage, body.operators, env)))
    return out


def facet(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Tables:
    """The rows that `with` selects, if given; then for each column its values and the number of rows with each."""
    body = node.node("body")
    out: Tables = [("", c.apply(stage, body.operators, env))] if isinstance(body, ast.Pipeline) else []
    row = scope_of(stage, env)
    for column in node.nodes("columns"):
        assert isinstance(column, ast.Name)
        value = c.expr(column, row)
        if value.type == "dynamic":
            raise KqlBindError(
                f"cannot count the values of the dynamic '{column.name}'; extract one first", column.span
            )
        columns = [(column.name, value), (f"count_{column.name}", sql("count(*)", "long", nullable=False))]
        made = c.emit(stage, columns, keep_hidden=False, is_sorted=False,
                      refine=lambda q: q.group_by(literal_column("1")))  # fmt: skip
        out.append((column.name, made))
    return out


def _misplaced(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    raise KqlBindError(
        f"{node.name} gives several tables, so it ends a query; nothing can follow it or stand around it", node.span
    )


BRANCHES: dict[str, Any] = {"fork": fork, "facet": facet}
BUILDERS: dict[str, Any] = dict.fromkeys(BRANCHES, _misplaced)
