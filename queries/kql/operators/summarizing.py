"""summarize."""

from __future__ import annotations

from typing import Any

from sqlalchemy import literal_column

from queries.kql import official
from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.errors import KqlBindError
from queries.kql.functions.aggregates import SPREAD, spread
from queries.kql.functions.registry import registry
from queries.kql.operators.shaping import named_values
from queries.kql.stages import Env, Names, Scope, Stage, scope_of
from queries.kql.values import Value


def summarize(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R6: keys first, then aggregates; null is a group of its own."""
    row = scope_of(stage, env)
    taken = Names()
    keys = named_values(c, node.nodes("by"), row, taken)
    for name, value in keys:
        if value.type == "dynamic":
            raise KqlBindError(f"cannot group by the dynamic '{name}'; convert it with tostring()", node.span)
    out = list(keys)
    inner = Scope(env, row.columns, stage, aggregates=True)
    for part in node.nodes("columns"):
        names, value_node = (part.names, part.value) if isinstance(part, ast.Named) else ((), part)
        for place, (name, value) in enumerate(_columns(c, value_node, inner, [n for n, _ in keys], bool(names))):
            if place < len(names):
                name = taken.write(names[place], part.span)
            else:
                name = taken.lend(name)
            out.append((name, value))
    if not out:
        raise KqlBindError("summarize needs an aggregate or a key", node.span)
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(keys))]
    return c.emit(
        stage, out, keep_hidden=False, is_sorted=False,
        refine=lambda q: q.group_by(*positions) if positions else q,
    )  # fmt: skip


def _columns(c: TableBinder, node: ast.Node, scope: Scope, keys: list[str], named: bool) -> list[tuple[str, Value]]:
    if isinstance(node, ast.Call) and registry().name_of(node.name) in SPREAD and scope.env.find(node.name) is None:
        return spread(c, node, scope, keys)
    if isinstance(node, ast.Call) and (
        registry().name_of(node.name) in SPREAD
        or (
            node.name in ("take_any", "any") and (len(node.args) > 1 or any(isinstance(a, ast.Star) for a in node.args))
        )
    ):
        return spread(c, node, scope, keys)
    _only_aggregates(c, node, scope)
    value = c.expr(node, scope)
    return list(value.parts) or [(value.name or "", value)]


def _only_aggregates(c: TableBinder, node: ast.Node, scope: Scope) -> None:
    """A bare column outside an aggregate has no single value."""
    if isinstance(node, ast.Name) and node.name in scope.columns:
        raise KqlBindError(f"'{node.name}' is neither a key nor inside an aggregate", node.span)
    if isinstance(node, ast.Call):
        if (
            registry().name_of(node.name) in registry().aggregates.keys() | official.AGGREGATES
            or node.name == "toscalar"
        ):
            return
        for arg in node.args:
            _only_aggregates(c, arg, scope)
    for slot in ("left", "right", "operand", "object", "low", "high"):
        child = getattr(node, slot, None)
        if isinstance(child, ast.Node):
            _only_aggregates(c, child, scope)
    for child in getattr(node, "operands", ()):
        _only_aggregates(c, child, scope)


BUILDERS = {"summarize": summarize}
