"""The SQLAlchemy dialect for DuckDB, and the DDL of its tables.

Statements are compiled once per shape: bound values are not part of the shape, so the same query with other values hits
the cache.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import GenericTypeCompiler, IdentifierPreparer, SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.util import LRUCache

from store.duckdb.derived import DERIVED

#: Long texts: zstd halves the file (measured on 10 M syslog lines, docs/measurements.md).
LONG_TEXTS = {"raw": ("raw", "message", "entities", "content"), "model": ("document",), "kept": ("summary",)}
#: Number of compiled statement shapes to cache.
KEPT = 1_000


class _Compiler(SQLCompiler):
    def visit_table(self, table: Any, *given: Any, **named: Any) -> Any:
        """A derived table is a query of ours, referenced by name."""
        if named.get("asfrom") and table.schema is None and table.name in DERIVED:
            return f"{DERIVED[table.name]} AS {self.preparer.quote(table.name)}"
        return super().visit_table(table, *given, **named)  # type: ignore[no-untyped-call]

    def visit_try_cast(self, cast: Any, **kw: Any) -> str:
        return f"TRY_CAST({self.process(cast.clause, **kw)} AS {self.process(cast.typeclause, **kw)})"

    def update_from_clause(
        self, update_stmt: Any, from_table: Any, extra_froms: Any, from_hints: Any, **kw: Any
    ) -> str:
        return "FROM " + ", ".join(self.process(one, asfrom=True, **kw) for one in extra_froms)

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"{self.process(binary.left, **kw)} ILIKE {self.process(binary.right, **kw)}"


class _Preparer(IdentifierPreparer):
    """Quotes every name, so that no keyword of DuckDB conflicts."""

    def _requires_quotes(self, value: str) -> bool:
        return True


class _Types(GenericTypeCompiler):
    def visit_DOUBLE(self, type_: Any, **_: Any) -> str:  # noqa: N802
        return "DOUBLE"

    def visit_JSON(self, type_: Any, **_: Any) -> str:  # noqa: N802
        return "JSON"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return f"{self.process(type_.item_type, **kw)}[]"


class DuckDialect(DefaultDialect):
    """Parameters as $1, $2, ...: one that occurs twice is passed once."""

    name = "faultline_duckdb"
    supports_statement_cache = True
    supports_native_boolean = True
    div_is_floordiv = False
    statement_compiler = _Compiler
    preparer = _Preparer
    type_compiler_cls = _Types

    def __init__(self) -> None:
        super().__init__(paramstyle="numeric_dollar")


DIALECT = DuckDialect()
_COMPILED: Any = LRUCache(KEPT)


def spelled(statement: ClauseElement) -> tuple[str, list[Any]]:
    """A statement's text and its parameter values in order. Raises ``sqlalchemy.exc.CompileError`` if a value is
    missing."""
    made, extracted, given, _ = statement._compile_w_cache(
        DIALECT, compiled_cache=_COMPILED, column_keys=[], for_executemany=False
    )
    assert isinstance(made, SQLCompiler)
    values = made.construct_params(given, extracted_parameters=extracted, escape_names=False)
    if made.post_compile_params or made.literal_execute_params:  # lists in IN (...) have any length
        state = made._process_parameters_for_postcompile(values)
        return state.statement, [state.parameters[name] for name in state.positiontup or ()]
    return made.string, [values[name] for name in made.positiontup or ()]


@cache
def ddl(table: sa.Table) -> str:
    """DDL that creates a table unless it exists."""
    quote, kinds = DIALECT.identifier_preparer.quote, DIALECT.type_compiler_instance
    columns = []
    for column in table.columns:
        default = f" DEFAULT {column.server_default.arg}" if isinstance(column.server_default, sa.DefaultClause) else ""
        packed = " USING COMPRESSION zstd" if column.name in LONG_TEXTS.get(table.schema or "", ()) else ""
        columns.append(f"{quote(column.name)} {kinds.process(column.type)}{default}{packed}")
    return f"CREATE TABLE IF NOT EXISTS {table.schema}.{table.name} ({', '.join(columns)})"


def packed_as_now(definition: str, schema: str) -> str:
    """The columns of a table as the engine writes them (``a VARCHAR, b BIGINT, ...``), with the compression that a new
    store's have: a store keeps that of the version that made it."""
    for name in LONG_TEXTS.get(schema, ()):
        definition = re.sub(rf'(?<![^ ])("?{name}"?) VARCHAR(?=[,)])', r"\1 VARCHAR USING COMPRESSION zstd", definition)
    return definition
