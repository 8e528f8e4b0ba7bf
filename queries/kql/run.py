"""Running a query: compile, execute on DuckDB with bound parameters, fetch Arrow, give KQL values."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any, Generic, TypeVar

import duckdb

from queries.kql.bind import Moment
from queries.kql.catalog import CATALOG, Catalog
from queries.kql.cells import cells, document, dumps, dynamic, in_calendar
from queries.kql.compile import Compiled, compile_script
from queries.kql.deadline import Deadline
from queries.kql.errors import CannotExpress, KqlError, KqlRuntimeError, QueryTimeout
from queries.kql.functions.python import give
from queries.kql.operators.rendering import Chart
from queries.kql.regex import said as complaint_of_re2
from queries.kql.textindex import Pruned, Pruner

Made = TypeVar("Made")
_LOG = logging.getLogger(__name__)
# The copy of a large answer takes a fifth longer; a second plan takes most of a small query's time.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


@dataclass
class Result:
    """The answer to one tabular statement."""

    columns: list[tuple[str, str]]
    table: Any
    sql: str
    truncated: bool = False
    elapsed_ms: float = 0.0
    others: list[Result] = field(default_factory=list)
    pruned: tuple[Pruned, ...] = ()
    chart: Chart | None = None
    name: str = ""  # of one table among several, as `fork` and `facet` make them

    def arrow(self) -> Any:
        """The answer as a pyarrow Table: timespans as ticks, dynamics as JSON text."""
        return self.table

    @property
    def rows(self) -> list[list[Any]]:
        """Python values ready for JSON, as the contract says."""
        columns = [
            [dynamic(text) for text in found] if kind == "dynamic" else found
            for place, (_, kind) in enumerate(self.columns)
            for found in [cells(self.table.column(place), kind)]
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    def document(self) -> dict[str, Any]:
        """`{"columns": [...], "rows": [...]}` for ``cells.dumps``, several times faster than by way of ``rows``."""
        return document(self.columns, self.table)

    def to_json(self) -> str:
        """`{"columns": [...], "rows": [...]}`."""
        return dumps(self.document()).decode()


@dataclass
class _Probe:
    """Runs a part of a query while the rest is compiled: some operators' columns depend on the data."""

    con: duckdb.DuckDBPyConnection
    text: str
    timeout_s: float | None
    deadline: float | None
    asked: bool = False

    def __call__(self, one: Compiled) -> list[tuple[Any, ...]]:
        self.asked = True
        harden(self.con)
        found = _execute(self.con, one, self.text, None, self.timeout_s, self.deadline).table
        return list(zip(*(found.column(i).to_pylist() for i in range(found.num_columns)), strict=True))


class _Kept(Generic[Made]):
    """What was made of a text, those used last."""

    def __init__(self, most: int = 512) -> None:
        self._most, self._lock = most, Lock()
        self._made: OrderedDict[str, Made] = OrderedDict()

    def get(self, key: str | None) -> Made | None:
        with self._lock:
            if key is None or key not in self._made:
                return None
            self._made.move_to_end(key)
            return self._made[key]

    def put(self, key: str | None, made: Made) -> None:
        with self._lock:
            if key is not None:
                self._made[key] = made
                while len(self._made) > self._most:
                    self._made.popitem(last=False)


#: Compiled texts that depend on nothing but themselves and their parameters: dashboards and rules repeat.
_KEPT: _Kept[list[Compiled]] = _Kept()
#: SQL as the engine's parser understands it, of no connection: reading it anew takes a fifth of a small query's time.
_READ: _Kept[duckdb.Statement] = _Kept()
#: Longer statements (lists of blocks, datatables) hardly come again.
_READ_MOST = 20_000


def _key(text: str, parameters: Mapping[str, Any] | None) -> str | None:
    """None when the parameters are not plain JSON."""
    try:
        return json.dumps([text, parameters or {}], sort_keys=True)
    except (TypeError, ValueError):
        return None


def _read(con: duckdb.DuckDBPyConnection, statement: str) -> duckdb.Statement:
    read = _READ.get(statement)
    if read is None:
        (read,) = con.extract_statements(statement)
        _READ.put(statement if len(statement) <= _READ_MOST else None, read)
    return read


def run(
    con: duckdb.DuckDBPyConnection,
    text: str,
    *,
    parameters: dict[str, Any] | None = None,
    catalog: Catalog = CATALOG,
    max_rows: int | None = None,
    timeout_s: float | None = None,
    now: datetime | None = None,
) -> Result:
    """Run a text of statements; the last tabular one is the answer, the ones before are in `others`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pruner, probe = Pruner(con), _Probe(con, text, timeout_s, deadline)
    key = _key(text, parameters) if catalog is CATALOG else None
    moment = Moment(now)
    try:
        compiled = _KEPT.get(key)
        if compiled is None:
            compiled = compile_script(text, catalog, parameters=parameters, now=moment, pruner=pruner, probe=probe)
            if not (probe.asked or moment.asked or pruner.asked):
                _KEPT.put(key, compiled)
        harden(con)
        results = [_execute(con, one, text, max_rows, timeout_s, deadline) for one in compiled]
    finally:
        pruner.finish()
    results[-1].others = results[:-1]
    results[-1].pruned = tuple(pruner.report)
    return results[-1]


def _execute(
    con: duckdb.DuckDBPyConnection, one: Compiled, text: str, max_rows: int | None, timeout_s: float | None,
    deadline: float | None,
) -> Result:  # fmt: skip
    statement, values = one.sql, list(one.parameters)
    if max_rows is not None:  # the statement's last SELECT has no limit of its own
        values.append(max_rows + 1)
        statement = f"{statement} LIMIT ${len(values)}"
    started = time.monotonic()
    with Deadline(con, deadline) as limit:
        try:
            give(con, statement)
            # Not con.sql(): a relation is planned once more, for the names of its columns.
            table = con.execute(_read(con, statement), values).to_arrow_table()
        except duckdb.Error as problem:
            raise _engine_error(problem, limit.fired, timeout_s).locate(text) from None
    assert table is not None  # a query has columns
    truncated = max_rows is not None and table.num_rows > max_rows
    if truncated:
        table = table.slice(0, max_rows)
    if not all(in_calendar(table.column(place)) for place, c in enumerate(one.columns) if c.type == "datetime"):
        raise CannotExpress("a date lies outside the years 1 to 9999").locate(text)
    columns = [(c.name, c.type) for c in one.columns]
    table = table.rename_columns([n for n, _ in columns])
    return Result(
        columns, table, one.sql, truncated, (time.monotonic() - started) * 1000, chart=one.chart, name=one.name
    )


# What the engine says about a value, said in words of the query's author.
_RUNTIME_WORDS: tuple[tuple[type[duckdb.Error], str], ...] = (
    (duckdb.OutOfMemoryException, "the query needs more memory than it may use"),
    (duckdb.OutOfRangeException, "a number or a date is out of its range"),
    (duckdb.ConversionException, "a value does not fit the type it is converted to"),
    (duckdb.PermissionException, "queries read the store only, no files and no network"),
)
REFUSED = "kql: "  # how our own error('...') calls in SQL begin


#: What the service's own parts change while it runs; anything else is as it was when the store was opened.
_CHANGED_LATER = ["TimeZone", "checkpoint_threshold", "wal_autocheckpoint"]
_HARDENING = Lock()


def harden(con: duckdb.DuckDBPyConnection) -> None:
    """Shut the whole database off from files and the network and lock its configuration; neither can be undone while
    the database is open.

    The settings are of the database, not of the connection: writers keep their database file and `register()`ed Arrow
    tables, but lose COPY, read_csv and Python variables as tables.
    """
    with _HARDENING:  # the first queries come side by side
        ((locked,),) = con.execute("SELECT current_setting('lock_configuration')").fetchall()
        if not locked:
            con.execute("SET enable_external_access = false")
            con.execute("SET allowed_configs = ?", [_CHANGED_LATER])
            con.execute("SET lock_configuration = true")


def _engine_error(problem: duckdb.Error, interrupted: bool, timeout_s: float | None) -> KqlError:
    """No SQL leaks: only our own words come out, the engine's go to the debug log."""
    if interrupted:
        return QueryTimeout(f"the query took longer than {timeout_s:g} s and was stopped")
    said = str(problem).split("\n")[0]
    _LOG.debug("engine error: %s", problem)
    if REFUSED in said:
        return CannotExpress(said.split(REFUSED, 1)[1].strip())
    if isinstance(problem, duckdb.InterruptException):
        return KqlRuntimeError("the query was cancelled")
    if isinstance(problem, (duckdb.BinderException, duckdb.ParserException, duckdb.InternalException)):
        return CannotExpress("the engine cannot express this query")
    if isinstance(problem, duckdb.CatalogException):
        return KqlRuntimeError("a table that the query needs is not in this store")
    if regex := complaint_of_re2(said):
        return KqlRuntimeError(f"a regular expression of the query cannot be read: {regex}")
    words = next((w for kind, w in _RUNTIME_WORDS if isinstance(problem, kind)), "a value cannot be computed")
    return KqlRuntimeError(f"the query stopped while running: {words}")


def validate(
    text: str, catalog: Catalog = CATALOG, *, parameters: dict[str, Any] | None = None,
    con: duckdb.DuckDBPyConnection | None = None, timeout_s: float | None = None,
) -> list[tuple[str, str]]:  # fmt: skip
    """Bind without running; the columns of the last tabular statement.

    Where columns depend on the data (``bag_unpack`` and ``pivot`` without declared ones) what they need is read through
    ``con``; without it such a query is refused.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    probe = None if con is None else _Probe(con, text, timeout_s, deadline)
    return [(c.name, c.type) for c in compile_script(text, catalog, parameters=parameters, probe=probe)[-1].columns]


def explain(
    text: str, catalog: Catalog = CATALOG, *, con: duckdb.DuckDBPyConnection | None = None,
    parameters: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """What would run: columns, SQL with its parameters' number and, with a store, the segments that can match and the
    engine's plan; for each tabular statement in turn."""
    pruner = Pruner(con) if con is not None else None
    out = []
    try:
        for one in compile_script(text, catalog, parameters=parameters, pruner=pruner):
            columns = ", ".join(f"{c.name}:{c.type}" for c in one.columns)
            part = f"columns: {columns}\nsteps: {len(one.stages)}\nparameters: {len(one.parameters)}\n\n{one.sql}\n"
            out.append(part + (_plan(con, one, text) if con is not None else ""))
        pruned = "".join(f"segments: {p}\n" for p in pruner.report) if pruner else ""
    finally:
        if pruner:
            pruner.finish()
    return pruned + "\n".join(out)


def _plan(con: duckdb.DuckDBPyConnection, one: Compiled, text: str) -> str:
    try:
        give(con, one.sql)
        rows = con.execute(f"EXPLAIN {one.sql}", one.parameters).fetchall()
    except duckdb.Error as problem:
        raise _engine_error(problem, False, None).locate(text) from None
    # A list of blocks may be long; the plan repeats it.
    return "\nplan:\n" + "\n".join(line[:160].rstrip() for _, plan in rows for line in str(plan).splitlines()) + "\n"
