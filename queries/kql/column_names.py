"""R6: the column name of an expression without a name in the query."""

from __future__ import annotations

from queries.kql import official
from queries.kql import syntax as ast
from queries.kql.functions.registry import registry
from queries.kql.stages import Scope


def result_name(node: ast.Node, scope: Scope) -> str | None:
    """R6: the column name implied by an unnamed expression, from its text alone."""
    if isinstance(node, ast.Name):
        return node.name
    if isinstance(node, ast.Member):
        inner = result_name(node.object, scope)
        return f"{inner}_{node.name}" if inner else node.name
    if isinstance(node, ast.Index) and isinstance(node.key, ast.Literal):
        inner = result_name(node.object, scope)
        return f"{inner}_{node.key.value}" if inner else str(node.key.value)
    if isinstance(node, ast.Call) and scope.aggregates and registry().name_of(node.name) in official.LEND_THEIR_NAME:
        inner = result_name(node.args[0], scope) if node.args else ""
        name = registry().name_of(node.name)
        return inner if registry().aggregates[name].keeps_name else f"{name}_{inner or ''}"
    if isinstance(node, ast.Call) and scope.aggregates and node.name in ("hll", "hll_merge"):
        return f"{node.name}_{result_name(node.args[0], scope) or ''}" if node.args else node.name
    if isinstance(node, ast.Call) and node.args:
        prefix = official.PREFIXES.get(node.name)
        if (
            prefix
            or node.name in official.KEEPS_NAME
            or (node.name in official.ALONE_KEEPS_NAME and len(node.args) == 1)
        ):
            inner = result_name(node.args[0], scope)
            return f"{prefix}_{inner or ''}" if prefix else inner
    return None


def is_percentile(node: ast.Call) -> bool:
    """percentile() names its own column, but implies no name for an expression made of it."""
    return bool(node.args) and isinstance(node.args[0], ast.Call) and node.args[0].name.startswith("percentile")
