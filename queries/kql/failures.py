"""The engine's errors in terms of the query's language, without SQL."""

from __future__ import annotations

import re

import duckdb
import structlog

from queries.kql.errors import CannotExpress, KqlError, KqlRuntimeError, QueryTimeout
from queries.kql.regex import re2_message

log = structlog.get_logger()
# What the engine reports about a value, in terms of the query.
_RUNTIME_WORDS: tuple[tuple[type[duckdb.Error], str], ...] = (
    (duckdb.OutOfMemoryException, "the query needs more memory than it may use"),
    (duckdb.OutOfRangeException, "a number or a date is out of its range"),
    (duckdb.ConversionException, "a value does not fit the type it is converted to"),
    (duckdb.PermissionException, "queries read the store only, no files and no network"),
)
_NO_FUNCTION = re.compile(r"Function with name \"?(\w+)\"? (?:does not exist|is not)")
REFUSED = "kql: "  # the prefix of our own error('...') calls in SQL


def engine_error(problem: duckdb.Error, interrupted: bool, timeout_s: float | None) -> KqlError:
    """No SQL leaks: only our own messages are shown, the engine's go to the debug log."""
    if interrupted:
        return QueryTimeout(f"the query took longer than {timeout_s:g} s and was stopped")
    message = str(problem).split("\n")[0]
    log.debug("the engine refused a query", error=str(problem))
    if REFUSED in message:
        return CannotExpress(message.split(REFUSED, 1)[1].strip())
    if isinstance(problem, duckdb.InterruptException):
        return KqlRuntimeError("the query was cancelled")
    if isinstance(problem, (duckdb.BinderException, duckdb.ParserException, duckdb.InternalException)):
        return CannotExpress("the engine cannot express this query")
    if isinstance(problem, duckdb.CatalogException):
        if function := _NO_FUNCTION.search(message):
            return CannotExpress(f"the engine has no function {function[1]}()")
        return KqlRuntimeError("a table that the query needs is not in this store")
    if regex := re2_message(message):
        return KqlRuntimeError(f"a regular expression of the query cannot be read: {regex}")
    words = next((w for kind, w in _RUNTIME_WORDS if isinstance(problem, kind)), "a value cannot be computed")
    return KqlRuntimeError(f"the query stopped while running: {words}")
