"""SQLAlchemy Core with elements of our own, which each engine of `engines/` spells its own way.

`Sql` is a fixed piece of our SQL with holes for sub-expressions. A user's values never enter the template; they are
bound parameters in a hole.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.types import NullType

from queries.kql.budget import look
from queries.kql.engines.spelling import Unspelled
from queries.kql.errors import KqlBindError

# KQL types as templates name them; an engine's `types` maps them to its own names.
PHYSICAL = {
    "bool": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "real": "DOUBLE", "decimal": "DECIMAL(38,12)",
    "datetime": "TIMESTAMP", "timespan": "BIGINT", "string": "VARCHAR", "dynamic": "JSON", "guid": "VARCHAR",
}  # fmt: skip


MAX_SIZE = 60_000
MAX_TEXT = 2_000_000  # an argument used twice in a template is written twice


class Sql(ColumnElement[Any]):
    """`Sql("lower({0})", x)`: holes are {0}, {1}, ... and {*} for all, comma-separated."""

    inherit_cache = False
    type = NullType()

    def __init__(self, template: str, *args: ClauseElement, origin: Any = None) -> None:
        look()
        self.template = template
        self.args = args
        self.origin = origin  # the call or operator of the query it was made for, if known
        self.function: Any = None  # the declaration of the function whose value it is, if any
        # A name used twice in the next name doubles the text each time: 30 lets would fill the memory.
        self.size: int = 1 + sum(a.size if isinstance(a, Sql) else 1 for a in args)
        if self.size > MAX_SIZE:
            raise KqlBindError(f"an expression grows to more than {MAX_SIZE} parts")

    @property
    def _from_objects(self) -> list[Any]:
        # Our selects name their FROM explicitly; an expression must never add one.
        return []


@compiles(Sql)
def _compile_sql(element: Sql, compiler: Any, **kw: Any) -> str:
    out = []
    look()
    if element.function is not None:
        compiler.dialect.called.add(element.function)
    try:
        for place, piece in enumerate(compiler.dialect.engine.pieces(element.template)):
            if place % 2 == 0:
                out.append(piece)
            elif piece == "*":
                out.append(", ".join(_compile_argument(arg, compiler, kw) for arg in element.args))
            else:
                out.append(_compile_argument(element.args[int(piece)], compiler, kw))
    except Unspelled as gap:
        gap.origin = gap.origin or element.origin  # the innermost call it was made for
        raise
    text = "".join(out)
    if len(text) > MAX_TEXT:
        raise KqlBindError(f"the query grows to more than {MAX_TEXT} characters of SQL")
    return text


def _compile_argument(element: Any, compiler: Any, kw: dict[str, Any]) -> str:
    """What ``compiler.process`` returns. Most arguments are our own elements, and SQLAlchemy's dispatch to them takes
    longer than they do."""
    kind = type(element)
    if kind is Col:
        return _compile_col(element, compiler)
    if kind is Sql:
        return _compile_sql(element, compiler, **kw)
    return str(compiler.process(element, **kw))


def bound(value: Any, kind: str) -> ColumnElement[Any]:
    """A user's value as a bound parameter of a known type."""
    return Sql(f"CAST({{0}} AS {PHYSICAL[kind]})", bindparam("p", value, unique=True, type_=NullType()))


class Col(ColumnElement[Any]):
    """A column of the stage below, by its physical name."""

    inherit_cache = False
    type = NullType()

    def __init__(self, relation: str, name: str) -> None:
        self.relation = relation
        self.column_name = name


@compiles(Col)
def _compile_col(element: Col, compiler: Any, **_kw: Any) -> str:
    look()
    quote = compiler.preparer.quote_identifier
    return f"{quote(element.relation)}.{quote(element.column_name)}"


class Ident(ColumnElement[Any]):
    """A user's name in a hole of a template: written into the template, it could open holes itself."""

    inherit_cache = False
    type = NullType()

    def __init__(self, name: str) -> None:
        self.ident = name


@compiles(Ident)
def _compile_ident(element: Ident, compiler: Any, **_kw: Any) -> str:
    return str(compiler.preparer.quote_identifier(element.ident))


def quoted(name: str) -> quoted_name:
    """A name that is always quoted (R15)."""
    return quoted_name(name, True)
