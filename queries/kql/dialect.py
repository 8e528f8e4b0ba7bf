"""SQLAlchemy Core for DuckDB: a PostgreSQL-derived dialect with `$1` parameters, and one element of our own.

`Sql` is a fixed piece of SQL of ours with holes for sub-expressions. Values of the user never
enter the template; they are bound parameters in a hole.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, bindparam
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.types import NullType

from queries.kql.errors import KqlBindError

PHYSICAL = {
    "bool": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "real": "DOUBLE", "decimal": "DECIMAL(38,12)",
    "datetime": "TIMESTAMP", "timespan": "BIGINT", "string": "VARCHAR", "dynamic": "JSON", "guid": "VARCHAR",
}  # fmt: skip


MAX_SIZE = 200_000


class KqlDialect(PGDialect):
    """PostgreSQL's quoting and syntax, DuckDB's numbered parameters."""

    name = "kql_duckdb"
    supports_statement_cache = False

    def __init__(self) -> None:
        super().__init__(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class Sql(ColumnElement[Any]):
    """`Sql("lower({0})", x)`: holes are {0}, {1}, ... and {*} for all, comma-separated."""

    inherit_cache = False
    type = NullType()

    def __init__(self, template: str, *args: ClauseElement) -> None:
        self.pieces = _pieces(template)
        self.args = args
        # A name used twice in the next name doubles the text each time: 30 lets would fill the memory.
        self.size = 1 + sum(getattr(a, "size", 1) for a in args)
        if self.size > MAX_SIZE:
            raise KqlBindError(f"an expression grows to more than {MAX_SIZE} parts")

    @property
    def _from_objects(self) -> list[Any]:
        # Our selects name their FROM explicitly; an expression must never add one.
        return []


@lru_cache(maxsize=4096)
def _pieces(template: str) -> tuple[str, ...]:
    return tuple(re.split(r"\{(\d+|\*)\}", template))


@compiles(Sql)
def _compile_sql(element: Sql, compiler: Any, **kw: Any) -> str:
    out = []
    for place, piece in enumerate(element.pieces):
        if place % 2 == 0:
            out.append(piece)
        elif piece == "*":
            out.append(", ".join(compiler.process(arg, **kw) for arg in element.args))
        else:
            out.append(compiler.process(element.args[int(piece)], **kw))
    return "".join(out)


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
    quote = compiler.preparer.quote_identifier
    return f"{quote(element.relation)}.{quote(element.column_name)}"


def quoted(name: str) -> quoted_name:
    """A name that is always quoted (R15)."""
    return quoted_name(name, True)
