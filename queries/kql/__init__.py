"""KQL on DuckDB: parse, bind, compile to SQL with bound parameters, run. Refuses rather than approximates.

`parser` parses the text, `expressions`, `functions` and `operators` bind it against a `binder`, `compile` puts the
steps into one statement of an engine (`engines`), `wall` decides where that runs and bounds it, `run` returns the
answer. A store runs a `Query`: `store.run_kql(kql.Query(text))`. `run` and `explain` take the engine's own connection, for
tests of KQL.
"""

from __future__ import annotations

from queries.kql.catalog import CATALOG, Catalog, Column, Table
from queries.kql.errors import (
    CannotExpress,
    KqlBindError,
    KqlError,
    KqlRuntimeError,
    KqlSyntaxError,
    NotImplementedYet,
    QueryTimeout,
)
from queries.kql.query import Query
from queries.kql.run import Result, explain, run, validate
from queries.kql.within import Within

__all__ = [
    "CATALOG", "CannotExpress", "Catalog", "Column", "KqlBindError", "KqlError", "KqlRuntimeError", "KqlSyntaxError",
    "NotImplementedYet", "Query", "QueryTimeout", "Result", "Table", "Within", "explain", "run", "validate",
]  # fmt: skip
