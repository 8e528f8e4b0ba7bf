"""What functions and operators may use of the query that is being bound.

`compile.Compiler` implements it. Functions see a :class:`Binder`: it binds expressions. Operators see a
:class:`TableBinder`: it also adds steps. Neither imports the compiler, so a site's package can be written against this
module alone. Errors are raised as ``KqlBindError`` with the span of the invalid node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy.sql import Select

from queries.kql import syntax as ast
from queries.kql.catalog import Catalog
from queries.kql.dialect import Sql
from queries.kql.engines import Engine
from queries.kql.stages import Env, Scope, Stage
from queries.kql.unread import Stacked
from queries.kql.values import Value


class Binder(Protocol):
    """Binds the arguments of a function. Each call counts against the budget for compiling the query."""

    engine: Engine  # whose SQL comes out
    catalog: Catalog  # the stored tables
    settings: dict[str, ast.Node]  # the values of the query's `set` statements
    serial: bool  # whether the rows have an order that a row function may rely on

    @property
    def now(self) -> datetime:
        """R9: the query's one moment, naive in UTC."""

    def expr(self, node: ast.Node, scope: Scope) -> Value:
        """One scalar expression."""

    def condition(self, node: ast.Node, scope: Scope, *, strict: bool = False) -> Value:
        """One condition: a bool, or what Kusto accepts as one; ``strict``: a bool."""

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """One call of a scalar function, built in or of the query."""

    def table(self, node: ast.Node, env: Env) -> Stage:
        """Something that must be a table."""

    def as_table(self, node: ast.Node, scope: Scope) -> Stage | None:
        """The table of a node, or None if it is a scalar."""

    def scalar_of(self, stage: Stage) -> Value:
        """The first cell of a table."""

    def serialized(self, stage: Stage) -> Stage:
        """The table with its order of rows in a hidden column."""

    def hoist(self, scope: Scope, value: Value) -> Value:
        """The value computed one step earlier, so that a window function may use it."""


class TableBinder(Binder, Protocol):
    """Adds the steps of an operator."""

    def add(self, body: Any, *, materialized: bool = False, narrowed: Stacked | None = None) -> str:
        """Adds a step; returns its name. ``narrowed``: how columns are left out that no later step reads."""

    def add_recursive(self, name: str, body: Any) -> None:
        """Adds a step of this name that refers to itself."""

    def alias(self, letter: str) -> str:
        """A relation alias that nothing else in the query uses."""

    def emit(
        self,
        stage: Stage,
        columns: Sequence[tuple[str, Value]],
        *,
        refine: Callable[[Select[Any]], Select[Any]] | None = None,
        keep_hidden: bool = True,
        is_sorted: bool | None = None,
        source: Any = None,
        materialized: bool = False,
        row_by_row: bool = False,
    ) -> Stage:
        """Adds a step: these named values, from that table.

        ``row_by_row``: ``refine`` neither groups rows nor makes them distinct.
        """

    def apply(self, stage: Stage, operators: tuple[ast.Node, ...], env: Env) -> Stage:
        """A table through operators, in order."""

    def nested(self, build: Callable[[], Stage]) -> tuple[Stage, Sql]:
        """A subquery with steps of its own: its table, and its text."""

    def ask(self, stage: Stage, node: ast.Node) -> list[tuple[Any, ...]]:
        """The rows of a table now, for operators whose columns depend on the data."""
