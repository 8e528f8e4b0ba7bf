"""ClickHouse: its words, types, settings and parameters. What is not in the table is refused by name.

Dynamics are JSON text (`Nullable(String)`), datetimes `DateTime64(6, 'UTC')`, which ranges from 1900 to 2299, timespans
ticks in `Int64`. A statement ends with the settings that its meaning depends on. Values of a query are ClickHouse's own
query parameters, `{p_1:String}`; `parameters()` gives their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import IdentifierPreparer, SQLCompiler

from queries.kql.engines.clickhouse_words import WORDS
from queries.kql.engines.engine import Engine
from queries.kql.errors import CannotExpress

TYPES = {
    "BOOLEAN": "Bool", "INTEGER": "Int32", "BIGINT": "Int64", "DOUBLE": "Float64", "DECIMAL(38,12)": "Decimal(38, 12)",
    "TIMESTAMP": "DateTime64(6, 'UTC')", "VARCHAR": "String", "JSON": "String", "UUID": "UUID",
    "JSON[]": "Array(Nullable(String))", "VARCHAR[]": "Array(Nullable(String))", "DOUBLE[]": "Array(Nullable(Float64))",
}  # fmt: skip
SETTINGS = {
    "aggregate_functions_null_for_empty": 1, "cast_keep_nullable": 1, "enable_extended_results_for_datetime_functions": 1,
    "join_use_nulls": 1, "output_format_json_escape_forward_slashes": 0, "prefer_column_name_to_alias": 1,
    "query_plan_remove_redundant_sorting": 0,  # row_number() OVER () counts in the order of the sort below it
    "session_timezone": "'UTC'", "union_default_mode": "'ALL'",
}  # fmt: skip
FIRST, LAST = datetime(1900, 1, 1), datetime(2299, 12, 31)


class ClickHouseCompiler(SQLCompiler):
    """Parameters as `{name:Type}`."""

    def bindparam_string(self, name: str, *args: Any, **kw: Any) -> str:
        """A value of the query: only its name and type are in the text."""
        return f"{{{name}:{_type_of(self.binds[name].value)}}}"


class ClickHousePreparer(IdentifierPreparer):
    """Names in double quotes, where a backslash is an escape."""

    def _escape_identifier(self, value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"')


class ClickHouseDialect(DefaultDialect):
    """Standard SQL with ClickHouse's quoting and parameters."""

    name = "kql_clickhouse"
    supports_statement_cache = False
    statement_compiler = ClickHouseCompiler
    preparer = ClickHousePreparer

    def __init__(self, engine: Engine) -> None:
        super().__init__(paramstyle="named")
        self.engine = engine


def _type_of(value: Any) -> str:
    if isinstance(value, datetime) and not FIRST <= value <= LAST:
        raise CannotExpress(f"a date outside the years {FIRST.year} to {LAST.year} cannot be held by clickhouse")
    kinds: dict[type, str] = {bool: "Bool", int: "Int64", float: "Float64", datetime: TYPES["TIMESTAMP"],
                              Decimal: TYPES["DECIMAL(38,12)"], type(None): "Nullable(String)"}  # fmt: skip
    return kinds.get(type(value), "String")


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"})


def parameters(names: Sequence[str], values: Sequence[Any]) -> dict[str, str]:
    """The parameters of a statement in the escaped text that ClickHouse parses."""
    return {name: "\\N" if value is None else str(value).translate(_ESCAPES)
            for name, value in zip(names, values, strict=True)}  # fmt: skip


CLICKHOUSE = Engine(
    "clickhouse", ClickHouseDialect, WORDS, types=TYPES,
    cannot={
        "LATERAL": "its subqueries in FROM do not see the row beside them",
        "RECURSIVE": "its recursive queries do not read steps that are kept",
        "error": "it does not refuse single rows",
    },
    out={kind: f"CAST({{0}} AS {name})" for kind, name in (
        ("bool", "BOOLEAN"), ("int", "INTEGER"), ("long", "BIGINT"), ("real", "DOUBLE"), ("decimal", "DECIMAL(38,12)"),
        ("datetime", "TIMESTAMP"), ("timespan", "BIGINT"), ("string", "VARCHAR"), ("dynamic", "JSON"), ("guid", "VARCHAR"))},
    tail="SETTINGS " + ", ".join(f"{name} = {value}" for name, value in SETTINGS.items()),
)  # fmt: skip
