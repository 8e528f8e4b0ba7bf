"""The data of binding: stages and their columns, scopes of names, and names for new columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, table

from queries.kql import syntax as ast
from queries.kql.budget import tick
from queries.kql.chart import Chart
from queries.kql.dialect import Col, Sql, quoted
from queries.kql.errors import KqlBindError, Span, nearest
from queries.kql.values import Value

ORDER = "$ord"  # hidden column: the position of a row in a serialized stage


@dataclass(frozen=True, slots=True)
class StageColumn:
    """A column of a stage. `physical` differs from `name` if DuckDB would fold two names into one (R15)."""

    name: str
    type: str
    physical: str
    nullable: bool = True
    hidden: bool = False

    def value(self, alias: str = "t") -> Value:
        """A reference to this column."""
        return Value(Col(alias, self.physical), self.type, self.nullable, name=self.name)


@dataclass(frozen=True, slots=True)
class Stage:
    """The rows after one operator: a CTE and its columns. ``serial``: Kusto considers them ordered (R18)."""

    relation: str
    columns: tuple[StageColumn, ...]
    sorted: bool = False
    label: str = ""
    serial: bool = False
    chart: Chart | None = None

    @property
    def visible(self) -> tuple[StageColumn, ...]:
        """The columns a query can name."""
        return tuple(c for c in self.columns if not c.hidden)

    @property
    def order(self) -> StageColumn | None:
        """The hidden position column of a serialized stage."""
        return next((c for c in self.columns if c.name == ORDER), None)


@dataclass(frozen=True, slots=True)
class Function:
    """A user function and the environment that it was defined in."""

    body: ast.Lambda
    env: Env
    name: str


@dataclass(slots=True)
class Env:
    """Names bound by let and by function parameters; inner ones hide outer ones."""

    names: dict[str, Value | Stage | Function] = field(default_factory=dict)
    parent: Env | None = None

    def find(self, name: str) -> Value | Stage | Function | None:
        """The nearest binding of a name."""
        env: Env | None = self
        while env:
            if name in env.names:
                return env.names[name]
            env = env.parent
        return None

    def all_names(self) -> Iterable[str]:
        """Every visible name, for suggestions and wildcards."""
        env: Env | None = self
        while env:
            yield from env.names
            env = env.parent


@dataclass(slots=True)
class Scope:
    """Where an expression is bound: the row it sees and what it may use there."""

    env: Env
    columns: dict[str, Value] = field(default_factory=dict)
    stage: Stage | None = None
    aggregates: bool = False
    sides: dict[str, dict[str, Value]] = field(default_factory=dict)
    windowed: bool = False
    ordered: bool = False  #: a function of rows was called


def with_columns(stage: Stage, parameter: ast.Parameter, span: Span) -> Stage:
    """A table that a function gets. Raises ``KqlBindError`` if it lacks a column that the parameter declares."""
    types = {column.name: column.type for column in stage.visible}
    for name, kind in parameter.schema.columns if parameter.schema else ():
        if name == "*" or types.get(name) == kind:
            continue
        found = f"it is {types[name]}" if name in types else "the table has none"
        close = None if name in types else nearest(name, types)
        raise KqlBindError(f"'{parameter.name}' needs the column {name}:{kind}; {found}", span, suggestion=close)
    return stage


def relation(name: str, alias: str = "t") -> Any:
    """A CTE under an alias; every expression names columns through the alias."""
    return table(quoted(name)).alias(quoted(alias))


def named_columns(columns: Sequence[tuple[str, Value]], taken: Iterable[str] = ()) -> tuple[StageColumn, ...]:
    """Columns with physical names that remain distinct when case is folded (R15)."""
    tick(len(columns))
    used = {t.casefold() for t in taken}
    out = []
    for name, value in columns:
        physical, number = name, 0
        while physical.casefold() in used:
            number += 1
            physical = f"{name}~{number}"
        used.add(physical.casefold())
        out.append(StageColumn(name, value.type, physical, value.nullable))
    return tuple(out)


def row_of(stage: Stage, alias: str = "t") -> dict[str, Value]:
    """The columns of a stage by name."""
    return {c.name: c.value(alias) for c in stage.visible}


#: The maximum number of columns in a table of the contract.
MOST_NAMED = 22


def unknown_column(name: str, known: Iterable[str], span: Span) -> KqlBindError:
    """The error for an unknown name: suggests a similar one, else lists those that exist."""
    names = list(known)
    if name.lower() in ("null", "none", "nil"):
        return KqlBindError(
            f"there is no word '{name}'", span, suggestion="isnull() or isempty(); as a value long(null)"
        )
    near = nearest(name, names)
    listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    there_is = f"; there is {listed}" if names and near is None else ""
    return KqlBindError(f"unknown name '{name}'{there_is}", span, suggestion=near)


def fresh(name: str, taken: Collection[str]) -> str:
    """R6: a second clash gets 1, a third 2.

    Callers with thousands of columns pass a set: a list is searched for each name.
    """
    if name not in taken:
        return name
    number = 1
    while f"{name}{number}" in taken:
        number += 1
    return f"{name}{number}"


class Names:
    """R6: the column names of one operator.

    A name that the query itself gives to a column, or the name of a column that it takes unchanged, may occur once. A
    name implied by an expression is renamed on a clash, and so is what comes after it.
    """

    def __init__(self) -> None:
        self._written: set[str] = set()
        self._taken: set[str] = set()
        self._unnamed = 0

    def write(self, name: str, span: Span) -> str:
        """Adds a name that the query gives."""
        if name in self._written:
            raise KqlBindError(f"the column '{name}' is defined twice", span)
        self._written.add(name)
        return self.lend(name)

    def lend(self, name: str) -> str:
        """Adds a name implied by an expression; an unnamed one is Column1, Column2 in the order of the whole operator."""
        if not name:
            self._unnamed += 1
            name = f"Column{self._unnamed}"
        name = fresh(name, self._taken)
        self._taken.add(name)
        return name


def order_by(*keys: tuple[ColumnElement[Any], bool, bool]) -> Sql:
    """ORDER BY keys: (expression, ascending, nulls first)."""
    parts, args = [], []
    for place, (key, ascending, nulls_first) in enumerate(keys):
        parts.append(f"{{{place}}} {'ASC' if ascending else 'DESC'} NULLS {'FIRST' if nulls_first else 'LAST'}")
        args.append(key)
    return Sql(", ".join(parts), *args)


def scope_of(stage: Stage, env: Env, *, windowed: bool = False) -> Scope:
    """The row of a stage as a scope."""
    return Scope(env, row_of(stage), stage, windowed=windowed)


def everything(stage: Stage) -> list[tuple[str, Value]]:
    """All visible columns, unchanged."""
    return [(c.name, c.value()) for c in stage.visible]
