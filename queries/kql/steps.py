"""The steps of one query while it is compiled: a list of CTEs, and what each stage of the pipeline adds to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.sql import Select

from queries.kql import syntax as ast
from queries.kql.catalog import Catalog
from queries.kql.dialect import Sql, quoted
from queries.kql.errors import KqlBindError
from queries.kql.moment import Moment
from queries.kql.stages import ORDER, Scope, Stage, StageColumn, named_columns, relation
from queries.kql.unread import Narrowable, Stacked
from queries.kql.values import Value

MAX_STAGES = 500
IN_SUBQUERY = "$in"  # the hidden column with the position of a row within its subquery


class Builder:
    """Collects the CTEs of one query."""

    def __init__(self, catalog: Catalog, now: datetime | Moment | None = None) -> None:
        self.catalog = catalog
        self._moment = now if isinstance(now, Moment) else Moment(now)
        self.ctes: list[tuple[str, Any, bool]] = []
        self.narrowable: dict[str, Narrowable | Stacked] = {}
        self.made = 0
        self.recursive: dict[str, Any] = {}
        self.node: Any = None  # the operator being built, which an engine's refusal names
        self.serial = False  # whether its input rows are serialized
        self.tables: dict[str, Stage] = {}
        self.stored_steps: set[str] = set()  # those that read a table of the catalogue
        self.settings: dict[str, ast.Node] = {}
        self.depth = 0
        self.nesting = 0  # in how many subqueries a step is made

    def tick(self) -> None:
        """Counts one node of the query against the budget for compiling."""

    @property
    def now(self) -> datetime:
        """The query's one moment."""
        return self._moment.read()

    def add(self, body: Any, *, materialized: bool = False, narrowed: Stacked | None = None) -> str:
        """Appends one CTE and returns its name. ``narrowed``: how columns are left out that no later step reads."""
        if self.made >= MAX_STAGES:
            raise KqlBindError(f"the query needs more than {MAX_STAGES} steps")
        self.made += 1
        name = f"s{self.made}"
        # A step of an attempt that was given up may have had the name.
        self.narrowable.pop(name, None)
        self.stored_steps.discard(name)
        if narrowed is not None:
            self.narrowable[name] = narrowed
        self.ctes.append((name, Sql("{0}", body, origin=self.node), materialized))
        return name

    def add_recursive(self, name: str, body: Any) -> None:
        """Appends a CTE that refers to itself."""
        self.ctes.append((name, body, False))
        self.recursive[name] = self.node

    def alias(self, letter: str) -> str:
        """A relation alias that nothing else in the query uses."""
        self.made += 1
        return f"{letter}{self.made}"

    def with_ctes(self, ctes: list[tuple[str, Any, bool]], query: Any) -> Sql:
        """`WITH name AS (...), ... query`."""
        recursive = [self.recursive[n] for n, _, _ in ctes if n in self.recursive]
        return Sql(self.template_of(ctes), *(b for _, b, _ in ctes), query, origin=recursive[0] if recursive else None)

    def template_of(self, ctes: Sequence[tuple[str, Any, bool]]) -> str:
        """`WITH name AS (...), ... query` with a hole for each body and one for the query."""
        if not ctes:
            return "{0}"
        parts = [f'"{n}" AS {"MATERIALIZED " if m else ""}({{{i}}})' for i, (n, _, m) in enumerate(ctes)]
        word = "WITH RECURSIVE" if any(n in self.recursive for n, _, _ in ctes) else "WITH"
        return f"{word} {', '.join(parts)} {{{len(parts)}}}"

    def nested(self, build: Callable[[], Stage]) -> tuple[Stage, Sql]:
        """Compiles a subquery into ``WITH ... SELECT ...`` with its own steps; the position of a row is ``$in``."""
        outer, tables = self.ctes, dict(self.tables)
        self.ctes = []
        self.nesting += 1
        try:
            stage = build()
            items = [v.value().sql.label(quoted(v.physical)) for v in stage.visible]
            items += [stage.order.value().sql.label(quoted(IN_SUBQUERY))] if stage.order else []
            query = select(*items).select_from(relation(stage.relation))
            return stage, self.with_ctes(self.ctes, query)
        finally:
            # Tables first read inside are steps of the subquery.
            self.ctes, self.tables = outer, tables
            self.nesting -= 1

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
        """One operator as one CTE: these named values, from that stage.

        ``row_by_row``: ``refine`` neither groups rows nor makes them distinct, so that an unread column may be dropped.
        """
        hidden = [c for c in stage.columns if c.hidden] if keep_hidden else []
        made = named_columns([(name, v) for name, v in columns], [c.physical for c in hidden])
        items = [v.sql.label(quoted(c.physical)) for c, (_, v) in zip(made, columns, strict=True)]
        items += [c.value().sql.label(quoted(c.physical)) for c in hidden]
        if not items:
            raise KqlBindError("no column is left")
        query = select(*items).select_from(source if source is not None else relation(stage.relation))
        query = refine(query) if refine else query
        name = self.add(query, materialized=materialized)
        if row_by_row or refine is None:
            self.narrowable[name] = Narrowable(query, tuple(items))
        return Stage(name, (*made, *hidden), stage.sorted if is_sorted is None else is_sorted)

    def serialized(self, stage: Stage) -> Stage:
        """The stage with its row order in a hidden column."""
        if stage.order:
            return stage
        order = StageColumn(ORDER, "long", ORDER, False, True)
        items = [c.value().sql.label(quoted(c.physical)) for c in stage.columns]
        items.append(Sql("row_number() OVER ()").label(quoted(ORDER)))
        query = select(*items).select_from(relation(stage.relation))
        name = self.add(query)
        self.narrowable[name] = Narrowable(query, tuple(items))
        return Stage(name, (*stage.columns, order), True)

    def hoist(self, scope: Scope, value: Value) -> Value:
        """Computes a value one stage earlier, so that a window may use another window's result."""
        if scope.stage is None:
            raise KqlBindError("row functions need a table", value.span)
        physical = f"$h{self.made}"
        column = StageColumn(physical, value.type, physical, value.nullable, True)
        items = [c.value().sql.label(quoted(c.physical)) for c in scope.stage.columns]
        items.append(value.sql.label(quoted(physical)))
        query = select(*items).select_from(relation(scope.stage.relation))
        name = self.add(query)
        self.narrowable[name] = Narrowable(query, tuple(items))
        scope.stage = Stage(name, (*scope.stage.columns, column), scope.stage.sorted)
        return column.value()
