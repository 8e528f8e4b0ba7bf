"""The newest or oldest rows of a table with a costly column: their range of time is found first.

The engine computes all columns of all rows before it chooses the first ones of an order. For lines, who can have written
them costs ten times as much as all the rest. So ``Logs | top 100 by Time`` asks only for rows that are as new as the
hundredth newest, which is found without that column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from sqlalchemy import select

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.catalog import Table
from queries.kql.dialect import Col, Sql, quoted
from queries.kql.errors import KqlError
from queries.kql.stages import Env, Scope, Stage, relation
from queries.kql.steps import MAX_STAGES
from queries.kql.textindex import StoreBinder
from queries.kql.textneeds import walked
from queries.kql.unread import Narrowable, Stacked, Step, without_unread

#: More rows than this are not looked for beforehand: to sort their times would cost as much as it saves.
MOST_ROWS = 10_000
#: The conditions before are evaluated twice. So they may be no longer than this (nodes of the query), and consist of nothing
#: that is not cheap or that may give something else the second time: a search of texts would cost more than it saves.
_MOST_NODES = 40
_LONG = frozenset({"Message"})
_CALLS, _WORDS = frozenset({"ago", "now"}), frozenset({"<", "<=", ">", ">=", "==", "!=", "<>", "+", "-"})
#: Nulls are the smallest: as this moment they need no condition of their own, which the engine would not push down.
_MOMENT = "coalesce({0}, CAST('-infinity' AS TIMESTAMP))"


class StepsBinder(StoreBinder, TableBinder, Protocol):
    """Adds the steps of a table that a query has not read yet."""

    ctes: list[Step]
    tables: dict[str, Stage]
    narrowable: dict[str, Narrowable | Stacked]
    made: int
    nesting: int


def with_tops(operators: tuple[ast.Node, ...]) -> tuple[ast.Node, ...]:
    """The operators, with a ``top`` for each order by one key of which only the first rows are taken: they say the same, and
    the engine need not order all rows."""
    made: list[ast.Node] = []
    for node in operators:
        before = made[-1] if made else None
        if (
            isinstance(node, ast.Operator) and node.name == "take"
            and isinstance(before, ast.Operator) and before.name == "sort" and len(before.nodes("keys")) == 1
        ):  # fmt: skip
            parts = {"limit": node.parts["limit"], "keys": before.nodes("keys")}
            made[-1] = replace(before, name="top", settings={}, parts=parts)
        else:
            made.append(node)
    return tuple(made) if len(made) < len(operators) else operators


def place_of(operators: Sequence[ast.Node], table: Table, env: Env) -> int | None:
    """The place of a ``top`` over rows that only cheap conditions were asked for; None where nothing is saved."""
    if not table.costly:
        return None
    times = {column.name for column in table.columns if column.kql_type == "datetime"}
    plain = {c.name for c in table.columns if c.kql_type != "dynamic"} - table.costly - _LONG
    nodes = 0
    for place, operator in enumerate(operators):
        if not isinstance(operator, ast.Operator):
            return None
        if operator.name == "top":
            key = _key(operator)
            is_simple = isinstance(operator.parts["limit"], (ast.Literal, ast.Name))
            return place if is_simple and key is not None and key[0] in times else None
        parts = list(walked(operator.parts))
        nodes += len(parts)
        if operator.name != "where" or nodes > _MOST_NODES or not all(_is_cheap(one, plain, env) for one in parts):
            return None
    return None


def guarded(
    c: StepsBinder, stage: Stage, name: str, before: tuple[ast.Node, ...], top: ast.Operator, env: Env
) -> Stage:
    """``stage`` without rows that cannot be among the first ones of ``top``: the table ``name`` behind ``before``.

    Not within a subquery, whose columns are not narrowed, nor in a query of very many steps.
    """
    limit, found = _limit(c, top, env), _key(top)
    if limit is None or found is None or c.nesting or 2 * c.made > MAX_STAGES:
        return stage
    key, ascending = found
    moment = Sql(_MOMENT, Col("t", key))
    order = Sql(f"{_MOMENT} {'ASC' if ascending else 'DESC'}", Col("t", key))
    last, sign = ("max", "<=") if ascending else ("min", ">=")
    outer, tables = c.ctes, c.tables
    c.ctes, c.tables = [], {}
    try:
        inner = c.apply(c.stored(name), before, env)
        moments = select(moment.label(quoted("v"))).select_from(relation(inner.relation)).order_by(order).limit(limit)
        first = c.add(moments)
        edge = c.add(Sql(f'SELECT {last}("v") AS "v" FROM "{first}" AS "n"'))
        helping = [*without_unread(c.ctes[:-2], c.narrowable, moments), *c.ctes[-2:]]
    finally:
        c.ctes, c.tables = outer, tables
    for step, _, _ in helping:
        c.narrowable.pop(step, None)  # they are narrow; what later steps read is another one's
    c.ctes += helping
    items = tuple(column.value().sql.label(quoted(column.physical)) for column in stage.columns)
    every = select(*items).select_from(relation(stage.relation))
    few = every.where(Sql(f'({{0}} {sign} (SELECT "v" FROM "{edge}" AS "n"))', moment))
    made = c.add(few)
    costly = frozenset(column.casefold() for column in c.catalog.tables[name].costly)
    c.narrowable[made] = Narrowable(
        few, items, costly=costly, every=every, helping=frozenset(step for step, _, _ in helping)
    )
    return Stage(made, stage.columns, stage.sorted, serial=stage.serial)


def _key(top: ast.Operator) -> tuple[str, bool] | None:
    """The column of a ``top``, and whether it is ascending; None for whatever is not a column in Kusto's own order."""
    keys = top.nodes("keys")
    key = keys[0] if len(keys) == 1 else None
    if not isinstance(key, ast.SortKey) or not isinstance(key.value, ast.Name):
        return None
    ascending = bool(key.ascending)
    return (key.value.name, ascending) if key.nulls_first in (None, ascending) else None


def _limit(c: StepsBinder, top: ast.Operator, env: Env) -> int | None:
    try:
        value = c.expr(top.parts["limit"], Scope(env))
    except KqlError:  # ``top`` itself will say so
        return None
    count = value.constant if value.is_constant else None
    return count if isinstance(count, int) and 0 < count <= MOST_ROWS else None


def _is_cheap(node: ast.Node, plain: Collection[str], env: Env) -> bool:
    """May it be part of a condition that is evaluated twice?"""
    if isinstance(node, ast.Name):
        return node.name in plain
    if isinstance(node, ast.Literal):
        return node.type in ("datetime", "timespan", "string", "long")
    if isinstance(node, ast.Call):
        return node.name in _CALLS and env.find(node.name) is None
    if isinstance(node, ast.Binary):
        return node.op in _WORDS
    return isinstance(node, (ast.Logical, ast.Between))
