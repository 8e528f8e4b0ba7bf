"""Syntax tree to one SQL statement: a CTE per operator, every user value bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

import structlog
from sqlalchemy import select

from queries.kql import newest, official
from queries.kql import syntax as ast
from queries.kql.budget import Budget
from queries.kql.catalog import Catalog, Table
from queries.kql.chart import Chart
from queries.kql.column_names import is_percentile, result_name
from queries.kql.conversion import to_type
from queries.kql.dialect import Col, Sql, quoted
from queries.kql.engines import DUCKDB, Engine
from queries.kql.engines.spelling import Unspelled
from queries.kql.errors import NOWHERE, CannotExpress, KqlBindError, KqlError, NotImplementedYet, Span, nearest
from queries.kql.expressions import bind, boolean, only_boolean
from queries.kql.functions.calling import call as call_function
from queries.kql.functions.calling import call_of_group, call_of_row
from queries.kql.functions.declaration import Function as DeclaredFunction
from queries.kql.functions.declaration import Kind
from queries.kql.functions.python import USED as PYTHON_WORD
from queries.kql.functions.registry import registry
from queries.kql.hints import ELSEWHERE, INSTEAD
from queries.kql.moment import Moment
from queries.kql.official import CANNOT, FUNCTIONS
from queries.kql.operators import BRANCHES, OPERATORS, SOURCES
from queries.kql.operators.combining import is_innerunique
from queries.kql.operators.nouns import NOUNS, table_function
from queries.kql.operators.order import IN_ORDER, SERIAL
from queries.kql.parameters import check_given, kind_of
from queries.kql.parser import parse
from queries.kql.parts import Part, Parts, bound_sql
from queries.kql.stages import Env, Function, Scope, Stage, StageColumn, relation, with_columns
from queries.kql.steps import Builder
from queries.kql.textindex import Pruner, narrowed
from queries.kql.unread import AS_JSON, NULLS_AWAY, Narrowable, without_unread
from queries.kql.values import Value, constant
from queries.kql.wall.cutting import BoundSql, Cut, Step, cut, is_cheap
from queries.kql.within import ALL_TIME, Within

log = structlog.get_logger()
INTERNAL = "this query meets a hole in the checks"
MAX_CALLS = 40  # user functions within user functions; Kusto has no recursion


@dataclass(frozen=True, slots=True)
class Compiled:
    """One tabular statement, ready to run."""

    sql: str
    parameters: list[Any]
    names: tuple[str, ...]  # of the parameters, if the engine uses names
    columns: tuple[StageColumn, ...]
    stages: tuple[str, ...]
    ordered: bool  # whether the query orders its rows
    chart: Chart | None = None
    name: str = ""  # of one table among several: the name in `fork`, or the column of a `facet`
    cut: Cut | None = None  # the cut for running it behind the wall; None: no cut


@lru_cache(maxsize=64)
def _reading(table: Table, filled: bool) -> tuple[tuple[StageColumn, ...], Narrowable, Sql]:
    """The columns of a stored table, their SELECT and the statement that reads it; R1: its strings are never null.
    ``filled``: they are not in the relation either."""
    columns = tuple(StageColumn(c.name, c.kql_type, c.name, c.kql_type != "string") for c in table.columns)
    items = []
    for column in columns:
        value: Any = Col("t", column.name)
        template = {"string": "" if filled else NULLS_AWAY, "dynamic": AS_JSON}.get(column.type)
        items.append((Sql(template, value) if template else value).label(quoted(column.physical)))
    query = select(*items)
    source, narrower = (Sql(name.replace("{", "")) for name in (table.relation, table.narrower))
    body = Sql("{0} FROM {1} AS t", query, source)
    costly = frozenset(name.casefold() for name in table.costly)
    return columns, Narrowable(query, tuple(items), body, source, narrower, costly), body


Probe = Callable[["Compiled"], list[tuple[Any, ...]]]


class Compiler(Builder):
    """Binds and compiles one script."""

    probe: Probe | None = None  # runs a subquery while the rest is compiled
    pruner: Pruner | None = None  # knows which blocks of the store's lines can contain a text
    engine: Engine = DUCKDB  # whose SQL comes out
    within: Within = ALL_TIME  # the range that stored tables are limited to

    def expr(self, node: ast.Node, scope: Scope) -> Value:
        """Binds one scalar expression."""
        self.tick()
        return bind(self, node, scope)

    def condition(self, node: ast.Node, scope: Scope, *, strict: bool = False) -> Value:
        """Binds one condition."""
        return only_boolean(self, node, scope) if strict else boolean(self, node, scope)

    def table(self, node: ast.Node, env: Env) -> Stage:
        """Binds something that must be a table."""
        stage = self.as_table(node, Scope(env))
        if stage is None:
            if isinstance(node, ast.Name):
                known = [*self.catalog.tables, *env.all_names()]
                raise KqlBindError(f"unknown table '{node.name}'", node.span, suggestion=nearest(node.name, known))
            if isinstance(node, ast.Member) and isinstance(node.object, ast.Call) and node.object.name in ELSEWHERE:
                raise CannotExpress("there is one database, and no other to read from", node.span, suggestion=node.name)
            raise KqlBindError("a table is needed here", node.span)
        return stage

    def tables_of(self, node: ast.Node, env: Env) -> list[tuple[str, Stage]]:
        """The tables of a statement with their names: one, or those of the branching operator that ends it."""
        last = node.operators[-1] if isinstance(node, ast.Pipeline) and node.operators else None
        if not isinstance(last, ast.Operator) or last.name not in BRANCHES:
            return [("", self.table(node, env))]
        assert isinstance(node, ast.Pipeline)
        before = self.table(replace(node, operators=node.operators[:-1]), env)
        self.node = last
        made: list[tuple[str, Stage]] = BRANCHES[last.name](self, before, last, env)
        return made

    def as_table(self, node: ast.Node, scope: Scope) -> Stage | None:
        """The stage of a node, or None if it is a scalar."""
        self.tick()
        env = scope.env
        if isinstance(node, ast.Pipeline):
            node = replace(node, operators=newest.with_tops(node.operators))
            if isinstance(node.source, ast.Name) and (limits := self._limits(node.source.name, env)):
                node = replace(node, operators=(*limits, *node.operators))
                return self._of_stored(node, cast(ast.Name, node.source).name, env)
            if isinstance(node.source, ast.Name) and self._is_stored(node.source.name, env):
                return self._of_stored(node, node.source.name, env)
            stage = (
                self.table(node.source, env)
                if not isinstance(node.source, ast.Operator)
                else self.source(node.source, env)
            )
            return self.apply(stage, node.operators, env)
        if isinstance(node, ast.Operator):
            return self.source(node, env)
        if isinstance(node, ast.Name) and node.name not in scope.columns:
            found = env.find(node.name)
            if isinstance(found, Stage):
                return found
            if found is None and node.name in self.catalog.tables:
                return self.apply(self.stored(node.name), self._limits(node.name, env), env)
            if isinstance(found, Function) and (found.body.is_view or not found.body.parameters):
                return self.call_table(ast.Call(node.name, (), span=node.span), found, env)
        if isinstance(node, ast.Call):
            return self._table_call(node, scope)
        return None

    def _is_stored(self, name: str, env: Env) -> bool:
        return name in self.catalog.tables and env.find(name) is None

    def _of_stored(self, node: ast.Pipeline, name: str, env: Env) -> Stage:
        """A pipeline that starts with a table of the catalogue."""
        if (few := narrowed(self, node, env)) is not None:
            return self.apply(few, node.operators, env)
        place = newest.place_of(node.operators, self.catalog.tables[name], env) if self.engine is DUCKDB else None
        if place is None:
            return self.apply(self.stored(name), node.operators, env)
        before, top = node.operators[:place], cast(ast.Operator, node.operators[place])
        stage = newest.guarded(self, self.apply(self.stored(name), before, env), name, before, top, env)
        return self.apply(stage, node.operators[place:], env)

    def _limits(self, name: str, env: Env) -> tuple[ast.Node, ...]:
        """The operator that limits a stored table to the query's range; none for any other name."""
        if name not in self.catalog.tables or env.find(name) is not None:
            return ()
        return self.within.condition(self.catalog.tables[name])

    def _table_call(self, node: ast.Call, scope: Scope) -> Stage | None:
        found = scope.env.find(node.name)
        if isinstance(found, Function):
            outcome = self.call_user(node, found, scope)
            return outcome if isinstance(outcome, Stage) else None
        if node.name == "materialize" and len(node.args) == 1:
            stage = self.table(node.args[0], scope.env)
            columns = [(c.name, c.value()) for c in stage.visible]
            return replace(self.emit(stage, columns, materialized=True), serial=stage.serial)
        if node.name in NOUNS:
            return table_function(self, node, scope)
        if node.name in ("table", "view") and len(node.args) == 1 and isinstance(node.args[0], ast.Literal):
            return self.table(ast.Name(str(node.args[0].value), span=node.span), scope.env)
        return None

    def source(self, node: ast.Operator, env: Env) -> Stage:
        """A source that starts with a word: range, print, datatable, union, search."""
        builder = SOURCES.get(node.name)
        if builder is None:
            raise NotImplementedYet(f"'{node.name}' as a source is not implemented yet", node.span)
        made: Stage = builder(self, node, env)
        return replace(made, serial=made.serial or node.name in IN_ORDER)

    def apply(self, stage: Stage, operators: tuple[ast.Node, ...], env: Env) -> Stage:
        """Applies operators to the stage, in order."""
        env = Env({}, env)
        for place, node in enumerate(operators):
            assert isinstance(node, ast.Operator)
            if is_innerunique(node) and place + 1 < len(operators):
                stage = self._before_dedupe(stage, operators[place + 1], env)
            builder = OPERATORS.get(node.name)
            if builder is None:
                if node.name in CANNOT:
                    message = f"'{node.name}' cannot be answered here: {CANNOT[node.name]}"
                    raise CannotExpress(message, node.span, suggestion=INSTEAD.get(node.name))
                raise NotImplementedYet(f"the operator '{node.name}' is not implemented yet", node.span)
            stage = self._built(builder, stage, node, env)
            if node.name == "as":
                env.names[node.parts["name"]] = stage
        return stage

    def _built(self, builder: Any, stage: Stage, node: ast.Operator, env: Env) -> Stage:
        """R18: with the effect of the operator on the order of its rows."""
        above, serial = (self.node, self.serial), SERIAL.get(node.name, stage.serial)
        self.node, self.serial = node, stage.serial or node.name == "serialize"
        made: Stage = builder(self, stage, node, env)
        self.node, self.serial = above
        return made if node.name == "union" else replace(made, serial=serial)

    def _before_dedupe(self, stage: Stage, after: ast.Node, env: Env) -> Stage:
        """R4: which left row of a key is kept is unspecified, so a following `where` on left columns is applied first."""
        if not isinstance(after, ast.Operator) or after.name != "where":
            return stage
        made, tables = (self.made, list(self.ctes)), dict(self.tables)
        try:
            return OPERATORS["where"](self, stage, after, env)  # type: ignore[no-any-return]
        except KqlError:  # it uses the right side too
            (self.made, self.ctes), self.tables = made, tables
            return stage

    def stored(self, name: str, only: Sequence[Sql] = ()) -> Stage:
        """A table of the catalogue, or its rows that pass each of `only` in turn."""
        if name not in self.tables or only:
            table = self.catalog.tables[name]
            columns, read, body = _reading(table, table.filled and self.engine is DUCKDB)
            if only:
                reads = " UNION ALL ".join(f"{{0}} WHERE {{{n}}}" for n in range(1, len(only) + 1))
                body = Sql(reads, body, *only)
            made = Stage(self.add(body), columns, label=name, serial=self.catalog.tables[name].in_order)
            self.narrowable[made.relation] = replace(read, around=body)
            self.stored_steps.add(made.relation)
            if only:
                return made
            self.tables[name] = made
        return self.tables[name]

    # ---------------------------------------------------------------- calls
    def call(self, node: ast.Call, scope: Scope) -> Value:
        """A scalar call: user function, aggregate, row function, special form, or a table entry."""
        found = scope.env.find(node.name)
        if isinstance(found, Function):
            outcome = self.call_user(node, found, scope)
            if isinstance(outcome, Stage):
                raise KqlBindError(f"'{node.name}' gives a table; wrap it in toscalar()", node.span)
            return outcome
        value = self._built_in(node, registry().name_of(node.name), scope)
        if isinstance(value.sql, Sql) and value.sql.origin is None:
            value.sql.origin = node
        name = result_name(node, scope)
        if scope.aggregates and node.name in official.KEEPS_NAME and is_percentile(node):
            return replace(value, name=None)
        return value if value.name is not None or name is None else replace(value, name=name)

    def _built_in(self, node: ast.Call, name: str, scope: Scope) -> Value:
        found = registry()
        function, aggregate = found.functions.get(name), found.aggregates.get(name)
        if function is not None and function.internal:
            function = None
        if aggregate is not None and (scope.aggregates or function is None):
            if not scope.aggregates:
                raise KqlBindError(f"{node.name}() is an aggregate; it belongs in summarize", node.span)
            function = aggregate
        if function is not None:
            if function.bind is not None:
                made = function.bind(self, node, scope)
            elif function is aggregate:
                made = call_of_group(self, function, node, scope)
            elif function.kind is Kind.ROW:
                made = call_of_row(self, function, node, scope)
            else:
                made = call_function(function, [self.expr(a, scope) for a in node.args], node)
            return _declared_by(function, made)
        known = [*found.callable(), *found.aggregates, *scope.env.all_names()]
        if name in CANNOT:
            message = f"{node.name}() cannot be answered here: {CANNOT[name]}"
            raise CannotExpress(message, node.span, suggestion=INSTEAD.get(name))
        if name in FUNCTIONS or name in official.AGGREGATES:
            message = f"the function {node.name}() is not implemented yet"
            raise NotImplementedYet(message, node.span, suggestion=INSTEAD.get(name))
        raise KqlBindError(f"unknown function '{node.name}'", node.span, suggestion=nearest(node.name, known))

    def call_user(self, node: ast.Call, function: Function, scope: Scope) -> Value | Stage:
        """Expands a user function in place."""
        self.depth += 1
        if self.depth > MAX_CALLS:
            raise KqlBindError(f"functions call each other more than {MAX_CALLS} deep", node.span)
        inner = Env({}, function.env)
        self._bind_arguments(node, function, scope, inner)
        result: Value | Stage | None = None
        for statement in function.body.statements:
            if isinstance(statement, ast.Let):
                self.let(statement, inner)
            else:
                result = self.as_table(statement, Scope(inner)) or self.expr(statement, Scope(inner))
        self.depth -= 1
        if result is None:
            raise KqlBindError(f"the function '{function.name}' has no result", node.span)
        return result

    def call_table(self, node: ast.Call, function: Function, env: Env) -> Stage:
        """A user function that must give a table."""
        outcome = self.call_user(node, function, Scope(env))
        if not isinstance(outcome, Stage):
            raise KqlBindError(f"'{function.name}' does not give a table", node.span)
        return outcome

    def _bind_arguments(self, node: ast.Call, function: Function, scope: Scope, inner: Env) -> None:
        given: dict[str, ast.Node] = {}
        names = [p.name for p in function.body.parameters]
        for place, arg in enumerate(node.args):
            if isinstance(arg, ast.Named):
                given[arg.names[0]] = arg.value
            elif place < len(names):
                given[names[place]] = arg
            else:
                raise KqlBindError(f"'{function.name}' takes {len(names)} arguments", arg.span)
        for parameter in function.body.parameters:
            arg = given.pop(parameter.name, parameter.default)  # type: ignore[arg-type]
            if arg is None:
                raise KqlBindError(f"'{function.name}' needs '{parameter.name}'", node.span)
            if parameter.type == "table":
                inner.names[parameter.name] = with_columns(self.table(arg, scope.env), parameter, node.span)
            else:
                inner.names[parameter.name] = to_type(self.expr(arg, scope), parameter.type)
        if given:
            raise KqlBindError(f"'{function.name}' has no parameter '{next(iter(given))}'", node.span)

    # ---------------------------------------------------------------- statements
    def let(self, node: ast.Let, env: Env) -> None:
        """Bind a name."""
        if isinstance(node.value, ast.Lambda):
            env.names[node.name] = Function(node.value, env, node.name)
            return
        stage = self.as_table(node.value, Scope(env))
        if stage is not None:
            env.names[node.name] = replace(stage, label=node.name, chart=None)
        else:
            env.names[node.name] = self.expr(node.value, Scope(env))

    def finish(self, stage: Stage, name: str = "") -> Compiled:
        """The last SELECT and all CTEs before it, as one text with its parameters."""
        out = self.engine.out
        items = [Sql(out.get(v.type, "{0}"), v.value().sql).label(quoted(f"{i}")) for i, v in enumerate(stage.visible)]
        query = select(*items).select_from(relation(stage.relation))
        if stage.order:
            query = query.order_by(stage.order.value().sql)
        needed = without_unread(self.ctes, self.narrowable, query)
        statement, order, compiled = self._statement(needed, query)
        names = tuple(n for n, _, _ in needed)
        once = {n for n, _, materialized in needed if materialized}
        walled = self.engine is DUCKDB and not is_cheap(statement, names, once)
        return Compiled(
            statement.sql,
            statement.parameters,
            order,
            stage.visible,
            names,
            stage.order is not None,
            stage.chart,
            name,
            cut(needed, self.stored_steps, Parts(compiled), self.template_of) if walled else None,
        )

    def _statement(self, steps: list[Step], query: Any) -> tuple[BoundSql, tuple[str, ...], Any]:
        """Steps and their reader as SQL, the names of its parameters, and SQLAlchemy's compiled object."""
        whole = self.with_ctes([(name, Part(name, body), once) for name, body, once in steps], Part("", query))
        if self.engine.tail:
            whole = Sql(f"{{0}} {self.engine.tail}", whole)
        self.tick()
        dialect = self.engine.dialect()
        try:
            compiled = whole.compile(dialect=dialect)
        except Unspelled as gap:
            raise self._refused(gap) from None
        params = compiled.params  # a property that is computed on each access
        order = tuple(getattr(compiled, "positiontup", None) or params)
        called = frozenset[DeclaredFunction](dialect.called)
        return bound_sql(str(compiled), [params[name] for name in order], called), order, compiled

    def _refused(self, gap: Unspelled) -> KqlError:
        """The error for a word that the engine's table lacks: not implemented, or impossible."""
        name, span = (gap.origin.name, gap.origin.span) if gap.origin else ("this query", NOWHERE)
        if isinstance(gap.origin, ast.Call):
            name += "()"
        body = PYTHON_WORD.match(gap.word)
        if body or gap.word in self.engine.cannot:
            why = "its body is Python" if body else self.engine.cannot[gap.word]
            return CannotExpress(f"{name} cannot be answered on {self.engine.name}: {why}", span)
        return NotImplementedYet(f"{name} is not implemented yet on {self.engine.name} ({gap.word})", span)

    def ask(self, stage: Stage, node: ast.Node) -> list[tuple[Any, ...]]:
        """The rows of a stage now, for operators whose columns depend on the data."""
        if self.probe is None:
            raise CannotExpress(
                "the columns depend on the data, so this is known only when it runs; declare them: ... : (*, Name:type)",
                node.span,
            )
        return self.probe(self.finish(stage))

    def scalar_of(self, stage: Stage) -> Value:
        """The first cell of a table, as toscalar() gives it."""
        column = stage.visible[0]
        made = Sql(f'(SELECT {{0}} FROM "{stage.relation}" AS "t" LIMIT 1)', column.value().sql)
        value = Value(made, column.type, True)
        if column.type == "string":
            value = Value(Sql("coalesce({0}, '')", made), "string", False)
        return value


def compile_script(
    query: str, catalog: Catalog, *, parameters: dict[str, Any] | None = None, now: datetime | Moment | None = None,
    pruner: Pruner | None = None, probe: Probe | None = None, engine: Engine = DUCKDB, budget: Budget | None = None,
    within: Within = ALL_TIME,
) -> list[Compiled]:  # fmt: skip
    """Every tabular statement of a text, compiled. ``budget``: how long that may take. ``within``: the range that stored
    tables are limited to."""
    budget = budget or Budget()
    with budget:
        return _compiled(query, catalog, parameters, now, pruner, probe, engine, budget, within)


def _compiled(
    query: str, catalog: Catalog, parameters: dict[str, Any] | None, now: datetime | Moment | None, pruner: Pruner | None,
    probe: Probe | None, engine: Engine, budget: Budget, within: Within,
) -> list[Compiled]:  # fmt: skip
    script = parse(query)
    builder = Compiler(catalog, now)
    builder.tick = budget.tick  # type: ignore[method-assign]
    builder.pruner = pruner
    builder.engine = engine
    builder.probe = probe
    builder.within = within
    env = Env()
    for name, value in (parameters or {}).items():
        env.names[name] = constant(value, kind_of(value))
    out = []
    try:
        for statement in script.statements:
            if isinstance(statement, ast.Let):
                builder.let(statement, env)
            elif isinstance(statement, ast.Declare):
                _declare(builder, statement, parameters or {}, env)
            elif isinstance(statement, ast.Ignored):
                builder.settings |= statement.settings
            else:
                out += [builder.finish(stage, name) for name, stage in builder.tables_of(statement, env)]
    except KqlError as problem:
        raise problem.locate(query)  # noqa: B904 - the same error, now with its text
    except RecursionError:
        raise KqlBindError("nested too deeply").locate(query) from None
    except (TypeError, ValueError, AttributeError, LookupError, AssertionError, ArithmeticError) as problem:
        # A gap in our own checks: the user gets an error of the language, the log gets the trace.
        log.exception("a query could not be bound")
        raise KqlBindError(f"{INTERNAL} ({type(problem).__name__}); please report the query").locate(query) from None
    if not out:
        raise KqlBindError("the query has no tabular statement", Span(0, len(query))).locate(query)
    return out


def _declared_by(function: DeclaredFunction, value: Value) -> Value:
    """The value with its function attached to its SQL: the wall reads its cost from there."""
    for made in (value, *(part for _, part in value.parts)):
        if isinstance(made.sql, Sql) and made.sql.function is None:
            made.sql.function = function
    return value


def _declare(builder: Compiler, node: ast.Declare, given: dict[str, Any], env: Env) -> None:
    for parameter in node.parameters:
        if parameter.name in given:
            value = constant(given[parameter.name], kind_of(given[parameter.name]))
            check_given(parameter, given[parameter.name], to_type(value, parameter.type))
        elif parameter.default is not None:
            value = builder.expr(parameter.default, Scope(env))
        else:
            raise KqlBindError(f"the query parameter '{parameter.name}' has no value", parameter.span)
        env.names[parameter.name] = to_type(value, parameter.type)
