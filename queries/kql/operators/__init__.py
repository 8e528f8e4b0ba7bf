"""Tabular operators: name -> builder. One file per group; a new operator is a function and a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from queries.kql import syntax as ast
from queries.kql.bind import Env, Stage
from queries.kql.operators import combining, plugins, rows, shaping, sources, summarizing

if TYPE_CHECKING:
    from queries.kql.compile import Compiler

Build = Callable[["Compiler", Stage, ast.Operator, Env], Stage]
OPERATORS: dict[str, Any] = (
    rows.BUILDERS | shaping.BUILDERS | summarizing.BUILDERS | combining.BUILDERS | plugins.BUILDERS
)
SOURCES: dict[str, Any] = sources.BUILDERS | {"union": combining.union_source}
