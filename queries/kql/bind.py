"""What binding works with: stages and their columns, scopes of names, and the list of CTEs being built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, select, table
from sqlalchemy.sql import Select

from queries.kql import syntax as ast
from queries.kql.catalog import Catalog
from queries.kql.dialect import Col, Sql, quoted
from queries.kql.errors import KqlBindError, Span, nearest
from queries.kql.unread import Narrowable
from queries.kql.values import Value

if TYPE_CHECKING:
    from queries.kql.operators.rendering import Chart

MAX_STAGES = 500
ORDER = "$ord"  # hidden column: the position of a row in a serialized stage


@dataclass(frozen=True, slots=True)
class StageColumn:
    """A column of a stage. `physical` differs from `name` where DuckDB would fold two names into one (R15)."""

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
    """The rows after one operator: a CTE and its columns. ``serial``: Kusto takes their order for settled (R18)."""

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
    """A user function and the names it was defined among."""

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


class Moment:
    """R9: now() is one moment for the whole query; ``asked`` tells whether the query depends on it."""

    def __init__(self, at: datetime | None = None) -> None:
        at = at or datetime.now(UTC)
        self._at = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
        self.asked = False

    def read(self) -> datetime:
        """Naive, in UTC."""
        self.asked = True
        return self._at


class Builder:
    """Collects the CTEs of one query."""

    def __init__(self, catalog: Catalog, now: datetime | Moment | None = None) -> None:
        self.catalog = catalog
        self._moment = now if isinstance(now, Moment) else Moment(now)
        self.ctes: list[tuple[str, Any, bool]] = []
        self.narrowable: dict[str, Narrowable] = {}
        self.made = 0
        self.recursive: dict[str, Any] = {}
        self.node: Any = None  # the operator being built, which an engine's refusal names
        self.serial = False  # whether the rows that go into it are serialized
        self.tables: dict[str, Stage] = {}
        self.stored_steps: set[str] = set()  # those that read a table of the catalogue
        self.settings: dict[str, ast.Node] = {}
        self.depth = 0

    def tick(self) -> None:
        """Counts one node of the query against what compiling may cost."""

    @property
    def now(self) -> datetime:
        """The query's one moment."""
        return self._moment.read()

    def add(self, body: Any, *, materialized: bool = False) -> str:
        """Append one CTE and return its name."""
        if self.made >= MAX_STAGES:
            raise KqlBindError(f"the query needs more than {MAX_STAGES} steps")
        self.made += 1
        name = f"s{self.made}"
        self.ctes.append((name, Sql("{0}", body, origin=self.node), materialized))
        return name

    def add_recursive(self, name: str, body: Any) -> None:
        """A CTE that reads itself."""
        self.ctes.append((name, body, False))
        self.recursive[name] = self.node

    def alias(self, letter: str) -> str:
        """A relation alias that no other part of the query uses."""
        self.made += 1
        return f"{letter}{self.made}"

    def with_ctes(self, ctes: list[tuple[str, Any, bool]], query: Any) -> Sql:
        """`WITH name AS (...), ... query`."""
        parts = [f'"{n}" AS {"MATERIALIZED " if m else ""}({{{i}}})' for i, (n, _, m) in enumerate(ctes)]
        recursive = [self.recursive[n] for n, _, _ in ctes if n in self.recursive]
        head = f"{'WITH RECURSIVE' if recursive else 'WITH'} {', '.join(parts)} {{{len(parts)}}}"
        return Sql(head, *(b for _, b, _ in ctes), query, origin=recursive[0] if recursive else None)

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
        """One operator as one CTE: these named values, from that stage. ``row_by_row``: ``refine`` neither groups rows nor
        makes them distinct, so that a column nobody reads may go."""
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
        """The stage with its row order written into a hidden column."""
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
        """Compute a value one stage earlier, so that a window may use another window's result."""
        if scope.stage is None:
            raise KqlBindError("row functions need a table", value.span)
        physical = f"$h{self.made}"
        column = StageColumn(physical, value.type, physical, value.nullable, True)
        items = [c.value().sql.label(quoted(c.physical)) for c in scope.stage.columns]
        items.append(value.sql.label(quoted(physical)))
        name = self.add(select(*items).select_from(relation(scope.stage.relation)))
        scope.stage = Stage(name, (*scope.stage.columns, column), scope.stage.sorted)
        return column.value()


def relation(name: str, alias: str = "t") -> Any:
    """A CTE under an alias; every expression names columns through the alias."""
    return table(quoted(name)).alias(quoted(alias))


def named_columns(columns: Sequence[tuple[str, Value]], taken: Iterable[str] = ()) -> tuple[StageColumn, ...]:
    """Columns with physical names that stay apart when case is folded (R15)."""
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


#: A table of the contract has so many columns at most.
MOST_NAMED = 22


def unknown_column(name: str, known: Iterable[str], span: Span) -> KqlBindError:
    """The error for a name that nothing answers to: what it is near to, else what there is."""
    names = list(known)
    if name.lower() in ("null", "none", "nil"):
        return KqlBindError(
            f"there is no word '{name}'", span, suggestion="isnull() or isempty(); as a value long(null)"
        )
    near = nearest(name, names)
    listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    there_is = f"; there is {listed}" if names and near is None else ""
    return KqlBindError(f"unknown name '{name}'{there_is}", span, suggestion=near)


def fresh(name: str, taken: Iterable[str]) -> str:
    """R6: a second clash gets 1, a third 2."""
    taken = set(taken)
    if name not in taken:
        return name
    number = 1
    while f"{name}{number}" in taken:
        number += 1
    return f"{name}{number}"


class Names:
    """R6: the column names of one operator. A name that the query itself gives to a column, or the name of a column it
    takes as it is, may stand once; one that an expression lends steps aside, and so does what comes after it."""

    def __init__(self) -> None:
        self._written: set[str] = set()
        self._taken: list[str] = []
        self._unnamed = 0

    def write(self, name: str, span: Span) -> str:
        """A name that the query gives."""
        if name in self._written:
            raise KqlBindError(f"the column '{name}' is defined twice", span)
        self._written.add(name)
        return self.lend(name)

    def lend(self, name: str) -> str:
        """A name that an expression lends; one without is Column1, Column2 in the order of the whole operator."""
        if not name:
            self._unnamed += 1
            name = f"Column{self._unnamed}"
        name = fresh(name, self._taken)
        self._taken.append(name)
        return name


def order_by(*keys: tuple[ColumnElement[Any], bool, bool]) -> Sql:
    """ORDER BY keys: (expression, ascending, nulls first)."""
    parts, args = [], []
    for place, (key, ascending, nulls_first) in enumerate(keys):
        parts.append(f"{{{place}}} {'ASC' if ascending else 'DESC'} NULLS {'FIRST' if nulls_first else 'LAST'}")
        args.append(key)
    return Sql(", ".join(parts), *args)
