"""Runs a query: compile, execute on DuckDB with bound parameters, fetch Arrow, return KQL values."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event, Lock
from typing import Any
from weakref import WeakSet

import duckdb
import pyarrow as pa

from queries.kql.budget import Budget
from queries.kql.catalog import CATALOG, Catalog
from queries.kql.cells import Document, cells, document, dumps, dynamic, in_calendar
from queries.kql.chart import Chart
from queries.kql.compile import Compiled, compile_script
from queries.kql.deadline import Deadline
from queries.kql.edges import UNDECIDED, AsciiFirst, Form, undecided
from queries.kql.errors import CannotExpress, KqlError, KqlRuntimeError
from queries.kql.failures import engine_error
from queries.kql.functions.python import give
from queries.kql.kept import Kept
from queries.kql.moment import Moment, at
from queries.kql.parsed import parsed
from queries.kql.textindex import Pruned, Pruner
from queries.kql.wall import few
from queries.kql.wall.batches import batches
from queries.kql.wall.cutting import BoundSql, Cut
from queries.kql.wall.guarding import Guarded
from queries.kql.wall.memory import memory_budget, too_much
from queries.kql.wall.remote_query import ask
from queries.kql.wall.tables import registered
from queries.kql.within import ALL_TIME, Within

# Copying a large answer takes a fifth longer; planning a second time takes most of a small query's time.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


@dataclass
class Result:
    """The answer to one tabular statement."""

    columns: list[tuple[str, str]]
    table: Any
    sql: str
    truncated: bool = False
    cut_at: str | None = None  # where the answer was cut, if it was: "rows" or "bytes"
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
        """Python values ready for JSON, as the contract defines them."""
        columns = [
            [dynamic(text) for text in found] if kind == "dynamic" else found
            for place, (_, kind) in enumerate(self.columns)
            for found in [cells(self.table.column(place), kind)]
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    def document(self, most_bytes: int | None = None, deadline: float | None = None) -> Document:
        """`{"columns": [...], "rows": [...]}` for ``cells.dumps``, several times faster than by way of ``rows``.

        Rows that do not fit into ``most_bytes`` of text are left out, and the result is then ``truncated``. Raises
        ``QueryTimeout`` when ``deadline`` (of ``time.monotonic``) passes.
        """
        made = document(self.columns, self.table, most_bytes, deadline)
        if not made.is_whole:
            self.truncated, self.cut_at = True, "bytes"
        return made

    def to_json(self) -> str:
        """`{"columns": [...], "rows": [...]}`."""
        return dumps(self.document().body).decode()


@dataclass(frozen=True)
class Limits:
    """What the answer to one query may cost; None is no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None
    timeout_s: float | None = None
    deadline: float | None = None
    stopped: Event | None = None

    @classmethod
    def begin(
        cls, max_rows: int | None, max_bytes: int | None, timeout_s: float | None, stopped: Event | None = None
    ) -> Limits:
        """Starts the time limit."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return cls(max_rows, max_bytes, timeout_s, deadline, stopped)

    def for_a_probe(self) -> Limits:
        """Limits for a probe: the values that name columns are read whole.

        They are few: no engine can make more columns.
        """
        return replace(self, max_rows=MOST_PROBED, max_bytes=PROBED_BYTES)

    def budget(self) -> Budget:
        """The budget for parsing and binding."""
        return Budget(self.deadline, self.timeout_s, self.stopped)

    def refuse_cancelled(self) -> None:
        """Raises ``KqlRuntimeError`` if the query was cancelled."""
        if self.stopped is not None and self.stopped.is_set():
            raise KqlRuntimeError("the query was cancelled")


#: Maximum rows and bytes of a subquery that is run while the rest is compiled.
MOST_PROBED, PROBED_BYTES = 100_000, 64 * 2**20


@dataclass
class _Probe:
    """Runs a subquery while the rest is compiled: some operators' columns depend on the data."""

    con: duckdb.DuckDBPyConnection
    text: str
    limits: Limits
    asked: bool = False

    def __call__(self, one: Compiled) -> list[tuple[Any, ...]]:
        self.asked = True
        _refuse_swallowed([one])
        harden(self.con)
        found = _execute(self.con, _later(one, timedelta()), self.text, self.limits.for_a_probe()).table
        return list(zip(*(found.column(i).to_pylist() for i in range(found.num_columns)), strict=True))


@dataclass(frozen=True)
class _Made:
    """Statements as they were compiled at a moment. ``ascii_first``: terms are recognised by the ASCII rules (``edges``);
    ``segments``: of the store whose blocks they name, and what was reported of them."""

    statements: list[Compiled]
    when: datetime
    ascii_first: bool
    segments: tuple[str, ...] | None
    report: tuple[Pruned, ...]

    def fits(self, pruner: Pruner, edges: AsciiFirst) -> bool:
        """May they run now?"""
        return (not self.ascii_first or edges.use()) and (self.segments is None or self.segments == pruner.segments())


#: Compiled texts that depend only on themselves, their parameters, the moment and the segments of the store: dashboards
#: and rules repeat.
_KEPT: Kept[_Made] = Kept()
#: Statements that name more blocks are not kept.
MOST_KEPT_BLOCKS = 1_000


def _later(one: Compiled, by: timedelta) -> Compiled:
    """A statement when the query's moment is that much later."""

    def moved(part: BoundSql) -> BoundSql:
        return replace(part, parameters=[at(value, by) for value in part.parameters])

    cut = one.cut and replace(
        one.cut, near=tuple(replace(s, statement=moved(s.statement)) for s in one.cut.near), far=moved(one.cut.far)
    )
    return replace(one, parameters=[at(value, by) for value in one.parameters], cut=cut)


def _key(text: str, parameters: Mapping[str, Any] | None, form: Form) -> str | None:
    """None if the parameters are not plain JSON."""
    try:
        return json.dumps([text, parameters or {}, form], sort_keys=True)
    except (TypeError, ValueError):
        return None


def run(
    con: duckdb.DuckDBPyConnection,
    text: str,
    *,
    parameters: dict[str, Any] | None = None,
    catalog: Catalog = CATALOG,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    timeout_s: float | None = None,
    now: datetime | None = None,
    stopped: Event | None = None,
    within: Within = ALL_TIME,
    own: Own | None = None,
) -> Result:
    """Runs a text of statements; the last tabular one is the answer, the ones before are in `others`.

    ``max_rows`` applies to each table, ``max_bytes`` (of Arrow) to all together. Setting ``stopped`` and interrupting
    ``con`` cancels it. ``within`` limits every stored table to a range, in addition to what the text says. ``own``: ``con``
    is a new connection; without it the engine is asked whether the caller holds a transaction.
    """
    limits = Limits.begin(max_rows, max_bytes, timeout_s, stopped)
    moment = Moment(now, may_move=True)
    asked = _Asked(con, text, parameters, catalog, within, limits, own)
    for form in (Form.ASCII_ROWS, Form.ASCII_SIDES):
        if form < (_LEAST.get(text) or form):
            continue
        try:
            return _answered(asked, Moment(moment.at, may_move=True), form)
        except CannotExpress as problem:
            if not undecided(problem):
                raise
            _LEAST.put(text, Form(form + 1))
    return _answered(asked, moment, Form.LETTERS)


@dataclass(frozen=True)
class Own:
    """What is known of a new connection, which nobody else uses and which has no transaction. ``database``: an object that
    all connections of the database share until it is closed; None if that is unknown."""

    database: object | None = None


@dataclass(frozen=True)
class _Asked:
    """One query, and what it may read and cost."""

    con: duckdb.DuckDBPyConnection
    text: str
    parameters: dict[str, Any] | None
    catalog: Catalog
    within: Within
    limits: Limits
    own: Own | None = None


#: The form of terms that a text needs at least: shorter ones did not decide all rows (``edges``).
_LEAST: Kept[Form] = Kept()


def _answered(asked: _Asked, moment: Moment, form: Form) -> Result:
    con, text, catalog, limits = asked.con, asked.text, asked.catalog, asked.limits
    pruner, probe = Pruner(con, callers=False if asked.own else None), _Probe(con, text, limits)
    key = _key(text, asked.parameters, form) if catalog is CATALOG and asked.within == ALL_TIME else None
    # An error would end the caller's transaction.
    edges = AsciiFirst(lambda: form < Form.LETTERS and not pruner.in_callers_transaction(), form)
    try:
        kept = _KEPT.get(key)
        compiled = _at(kept, moment) if kept is not None and kept.fits(pruner, edges) else None
        if compiled is None:
            with edges:
                made = compile_script(
                    text, catalog, parameters=asked.parameters, now=moment, pruner=pruner, probe=probe,
                    budget=limits.budget(), within=asked.within,
                )  # fmt: skip
            _refuse_swallowed(made)
            segments = pruner.segments() if pruner.asked else None
            few = sum(one.blocks_left for one in pruner.report if one.used) <= MOST_KEPT_BLOCKS
            if not (probe.asked or moment.asked or (pruner.asked and (segments is None or not few))):
                _KEPT.put(key, _Made(made, moment.at, edges.used, segments, tuple(pruner.report)))
            compiled = [_later(one, timedelta()) for one in made]
        elif kept is not None:
            pruner.repeat(kept.report)
        harden(con, asked.own.database if asked.own else None)
        results = _executed(con, compiled, text, limits)
    finally:
        pruner.finish()
    results[-1].others = results[:-1]
    results[-1].pruned = tuple(pruner.report)
    return results[-1]


#: What makes null of an error, also of one that a row raises that needs all letters (``edges``).
_SWALLOWS = re.compile(r"\bTRY\s*\(", re.IGNORECASE)


def _refuse_swallowed(made: list[Compiled]) -> None:
    """Stops as such a row would, if a statement would not notice one."""
    for one in made:
        near = [stream.statement.sql for stream in one.cut.near] if one.cut else []
        parts = [one.sql, *near, *([one.cut.far.sql] if one.cut else [])]
        if any(UNDECIDED in part and _SWALLOWS.search(part) for part in parts):
            raise CannotExpress(UNDECIDED)


def _at(kept: _Made, moment: Moment) -> list[Compiled] | None:
    """Statements that were kept, at another moment; None if it is too far away for a date that they name."""
    try:
        return [_later(one, moment.at - kept.when) for one in kept.statements]
    except OverflowError:
        return None


def _executed(con: duckdb.DuckDBPyConnection, compiled: list[Compiled], text: str, limits: Limits) -> list[Result]:
    results = []
    for one in compiled:
        results.append(_execute(con, one, text, limits))
        if limits.max_bytes is not None:
            limits = replace(limits, max_bytes=max(0, limits.max_bytes - results[-1].table.nbytes))
    return results


def _execute(con: duckdb.DuckDBPyConnection, one: Compiled, text: str, limits: Limits) -> Result:
    values, statement = list(one.parameters), one.sql
    cut = one.cut
    if limits.max_rows is not None:  # the statement's last SELECT has no limit of its own
        values, statement = _limited(values, statement, limits.max_rows)
        cut = cut and replace(cut, far=BoundSql(*_limited(cut.far.parameters, cut.far.sql, limits.max_rows)[::-1]))
    started = time.monotonic()
    limits.refuse_cancelled()
    with Deadline(con, limits.deadline) as limit:
        try:
            table, cut_at = _behind(con, cut, limits) if cut else _beside(con, statement, values, limits)
        except duckdb.Error as problem:
            raise engine_error(problem, limit.fired, limits.timeout_s).locate(text) from None
        except KqlError as problem:
            raise problem.locate(text) from None
    if not all(in_calendar(table.column(place)) for place, c in enumerate(one.columns) if c.type == "datetime"):
        raise CannotExpress("a date lies outside the years 1 to 9999").locate(text)
    columns = [(c.name, c.type) for c in one.columns]
    table = table.rename_columns([n for n, _ in columns])
    return Result(
        columns, table, one.sql, cut_at is not None, cut_at, (time.monotonic() - started) * 1000, chart=one.chart,
        name=one.name,
    )  # fmt: skip


def _limited(values: list[Any], statement: str, max_rows: int) -> tuple[list[Any], str]:
    return [*values, max_rows + 1], f"{statement} LIMIT ${len(values) + 1}"


def _behind(con: duckdb.DuckDBPyConnection, cut: Cut, limits: Limits) -> tuple[Any, str | None]:
    rows = few.read(con, cut)
    if rows is not None and cut.is_far_small:
        share = int(few.REST_SHARE * memory_budget())
        with registered(con, rows, cut.far.sql) as statement, Guarded(con, share) as guarded:
            try:
                return _fetched(con, statement, cut.far.parameters, limits)
            except duckdb.Error:
                if not guarded.struck:
                    raise
    return ask(
        con, cut, rows, max_rows=limits.max_rows, max_bytes=limits.max_bytes, deadline=limits.deadline,
        timeout_s=limits.timeout_s, stopped=limits.stopped,
    )  # fmt: skip


def _beside(
    con: duckdb.DuckDBPyConnection, statement: str, values: list[Any], limits: Limits
) -> tuple[Any, str | None]:
    """The answer of a statement that runs in this process, and where it was cut."""
    with Guarded(con) as guarded:
        try:
            return _fetched(con, statement, values, limits)
        except duckdb.Error:
            if guarded.struck:
                raise KqlRuntimeError(too_much(guarded.budget)) from None
            raise


def _fetched(
    con: duckdb.DuckDBPyConnection, statement: str, values: list[Any], limits: Limits
) -> tuple[Any, str | None]:
    give(con, statement)
    if limits.max_bytes is None:
        table, cut_at = con.execute(parsed(con, statement), values).to_arrow_table(), None
    else:
        table, cut_at = _within(_reader(con, statement, values, limits), limits.max_bytes)
    assert table is not None  # a query has columns
    if limits.max_rows is not None and table.num_rows > limits.max_rows:
        return table.slice(0, limits.max_rows), "rows"
    return table, cut_at


#: Rows of an answer that are fetched together; its bytes are counted after each batch.
ROWS_AT_ONCE = 8_192
#: An answer of at most this many rows is fetched at once.
FEW_ROWS = 100_000


def _reader(con: duckdb.DuckDBPyConnection, statement: str, values: list[Any], limits: Limits) -> Any:
    """A reader that streams the answer.

    The reader of execute() holds the whole answer before its first row is read. That of a relation does not, but a
    relation is planned twice, which takes up to half of a small query's time.
    """
    if limits.max_rows is not None and limits.max_rows <= FEW_ROWS:
        return con.execute(parsed(con, statement), values).to_arrow_reader(ROWS_AT_ONCE)
    return con.sql(parsed(con, statement), params=values).to_arrow_reader(ROWS_AT_ONCE)


def _within(reader: Any, max_bytes: int) -> tuple[Any, str | None]:
    kept, size = [], 0
    for batch in batches(reader):
        size += batch.nbytes
        if size > max_bytes:
            fits = max(0, batch.num_rows - -(-batch.num_rows * (size - max_bytes) // max(batch.nbytes, 1)))
            kept.append(batch.slice(0, fits))
            return pa.Table.from_batches(kept, reader.schema), "bytes"
        kept.append(batch)
    return pa.Table.from_batches(kept, reader.schema), None


#: Settings that the service's own components change while it runs; all others stay as they were when the store was
#: opened.
_CHANGED_LATER = [
    "TimeZone",
    "checkpoint_threshold",
    "experimental_metadata_reuse",
    "memory_limit",
    "wal_autocheckpoint",
]
_HARDENING = Lock()
#: Databases that are locked.
_LOCKED: WeakSet[object] = WeakSet()
_IS_LOCKED = "SELECT current_setting('lock_configuration')"
#: For sorts and joins that do not fit into memory: a full disk could take in no more lines.
TEMP_FILES = "8GB"


def harden(con: duckdb.DuckDBPyConnection, database: object | None = None) -> None:
    """Closes the whole database to files and the network and locks its configuration, until the database is closed.
    ``database`` stands for it (``Own``): one that is known to be locked is not asked again, since nothing unlocks it.

    The settings are of the database, not of the connection: writers keep their database file and `register()`ed Arrow
    tables, but lose COPY, read_csv and Python variables as tables.
    """
    if database is not None and database in _LOCKED:
        return
    with _HARDENING:  # the first queries arrive concurrently
        ((locked,),) = con.execute(parsed(con, _IS_LOCKED)).fetchall()
        if not locked:
            con.execute("SET max_temp_directory_size = ?", [TEMP_FILES])
            con.execute("SET enable_external_access = false")
            con.execute("SET allowed_configs = ?", [_CHANGED_LATER])
            con.execute("SET lock_configuration = true")
        if database is not None:
            _LOCKED.add(database)


def validate(
    text: str, catalog: Catalog = CATALOG, *, parameters: dict[str, Any] | None = None,
    con: duckdb.DuckDBPyConnection | None = None, timeout_s: float | None = None, stopped: Event | None = None,
) -> list[tuple[str, str]]:  # fmt: skip
    """Binds without running; returns the columns of the last tabular statement.

    If columns depend on the data (``bag_unpack`` and ``pivot`` without declared ones), the necessary values are read
    through ``con``; without it such a query is refused.
    """
    limits = Limits.begin(None, None, timeout_s, stopped)
    limits.refuse_cancelled()
    probe = None if con is None else _Probe(con, text, limits)
    made = compile_script(text, catalog, parameters=parameters, probe=probe, budget=limits.budget())
    return [(c.name, c.type) for c in made[-1].columns]


def explain(
    text: str, catalog: Catalog = CATALOG, *, con: duckdb.DuckDBPyConnection | None = None,
    parameters: dict[str, Any] | None = None, timeout_s: float | None = None, stopped: Event | None = None,
) -> str:  # fmt: skip
    """What would run, for each tabular statement: columns, SQL with the number of its parameters.

    With a store, also the segments that can match and the engine's plan.
    """
    pruner = Pruner(con) if con is not None else None
    out = []
    limits = Limits.begin(None, None, timeout_s, stopped)
    limits.refuse_cancelled()
    try:
        for one in compile_script(text, catalog, parameters=parameters, pruner=pruner, budget=limits.budget()):
            columns = ", ".join(f"{c.name}:{c.type}" for c in one.columns)
            part = f"columns: {columns}\nsteps: {len(one.stages)}\nparameters: {len(one.parameters)}\n\n{one.sql}\n"
            out.append(part + (_plan(con, one, text, limits) if con is not None else ""))
        pruned = "".join(f"segments: {p}\n" for p in pruner.report) if pruner else ""
    finally:
        if pruner:
            pruner.finish()
    return pruned + "\n".join(out)


def _plan(con: duckdb.DuckDBPyConnection, one: Compiled, text: str, limits: Limits) -> str:
    """The engine's plan; for a statement that is cut in two, the plan of each half that reads the store."""
    parts = [BoundSql(one.sql, one.parameters)] if one.cut is None else [stream.statement for stream in one.cut.near]
    rows: list[Any] = []
    with Deadline(con, limits.deadline) as limit:
        try:
            for part in parts:
                limits.refuse_cancelled()
                give(con, part.sql)
                rows += con.execute(f"EXPLAIN {part.sql}", part.parameters).fetchall()
        except duckdb.Error as problem:
            raise engine_error(problem, limit.fired, limits.timeout_s).locate(text) from None
    if one.cut is not None:
        rows.append(("", "what is made of these rows runs in a process of its own"))
    # A list of blocks may be long; the plan repeats it.
    return "\nplan:\n" + "\n".join(line[:160].rstrip() for _, plan in rows for line in str(plan).splitlines()) + "\n"
