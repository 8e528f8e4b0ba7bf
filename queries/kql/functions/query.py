"""The query itself: its columns, its tables, its own values."""

from __future__ import annotations

from dataclasses import replace

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import CannotExpress, KqlBindError
from queries.kql.functions.arguments import arguments
from queries.kql.functions.declaration import LINEAR, Function
from queries.kql.stages import Scope
from queries.kql.values import (
    Value,
    constant,
    sql,
)


def _toscalar(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("toscalar() takes one argument", node.span)
    stage = c.as_table(node.args[0], Scope(scope.env))
    return c.scalar_of(stage) if stage else c.expr(node.args[0], Scope(scope.env))


def _column_ifexists(c: Binder, node: ast.Call, scope: Scope) -> Value:
    name, fallback = arguments(c, node, scope, 2)
    return scope.columns.get(str(name.constant)) or replace(fallback, name=None)


def _column_names_of(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("column_names_of() takes a table", node.span)
    stage = c.table(node.args[0], scope.env)
    return constant([v.name for v in stage.visible], "dynamic")


def _iscolumnexists(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (name,) = arguments(c, node, scope, 1)
    return constant(name.constant in scope.columns, "bool")


def _new_guid(c: Binder, node: ast.Call, scope: Scope) -> Value:
    arguments(c, node, scope, 0)
    return sql("CAST(uuid() AS VARCHAR)", "guid", nullable=False)


def _ingestion_time(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """When the store received the row, if the table keeps it."""
    arguments(c, node, scope, 0)
    found = scope.columns.get("ReceivedTime")
    if found is None:
        raise CannotExpress("this table does not keep when a row was stored; Logs has ReceivedTime", node.span)
    return replace(found, name="$IngestionTime")


FUNCTIONS = (
    Function("toscalar", "The first cell of a table as a value.", bind=_toscalar, cost=LINEAR),
    Function(
        "column_ifexists",
        "The column of that name, or the other value where there is none.",
        bind=_column_ifexists,
        cost=LINEAR,
        aliases=("columnifexists",),
    ),
    Function("column_names_of", "The names of a table's columns as an array.", bind=_column_names_of, cost=LINEAR),
    Function("iscolumnexists", "Whether the row has a column of that name.", bind=_iscolumnexists, cost=LINEAR),
    Function("ingestion_time", "When the store took the row.", bind=_ingestion_time, cost=LINEAR),
    Function("new_guid", "A new random guid.", bind=_new_guid),
)
