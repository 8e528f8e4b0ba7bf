"""A KQL query for a store: ``store.door.Asks.run_kql`` gives it the connection that it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Lock
from typing import Any

import duckdb

from queries.kql.run import Own, Result, explain, run, validate
from queries.kql.within import ALL_TIME, Within


@dataclass(eq=False)
class Query:
    """A text of statements and what its answer may cost; the limits are those of ``queries.kql.run``. Implements
    ``store.door.KqlQuery``.

    Only a store holds the connection, so a query that runs is cancelled here, from any thread.
    """

    text: str
    parameters: dict[str, Any] | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    timeout_s: float | None = None
    now: datetime | None = None
    within: Within = ALL_TIME

    def __post_init__(self) -> None:
        self._stopped, self._lock = Event(), Lock()
        self._running: list[duckdb.DuckDBPyConnection] = []

    def cancel(self) -> None:
        """Stops it, and everything that it would still run. Call it again until the query has ended: between two
        statements there is nothing to interrupt."""
        self._stopped.set()
        with self._lock:
            for connection in self._running:
                with suppress(duckdb.Error):
                    connection.interrupt()

    def run_on(self, connection: duckdb.DuckDBPyConnection, database: object | None = None) -> Result:
        """The answer of the last tabular statement; those before it are in ``others``. Raises ``KqlError``."""
        with self._interruptible(connection):
            return run(
                connection, self.text, parameters=self.parameters, max_rows=self.max_rows, max_bytes=self.max_bytes,
                timeout_s=self.timeout_s, now=self.now, stopped=self._stopped, within=self.within, own=Own(database),
            )  # fmt: skip

    def explain_on(self, connection: duckdb.DuckDBPyConnection) -> str:
        """What would run, and the engine's plan. Raises ``KqlError``."""
        with self._interruptible(connection):
            return explain(
                self.text, con=connection, parameters=self.parameters, timeout_s=self.timeout_s, stopped=self._stopped
            )

    def columns_on(self, connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
        """Names and types of the last statement's columns; only what they depend on is read. Raises ``KqlError``."""
        with self._interruptible(connection):
            return validate(
                self.text, con=connection, parameters=self.parameters, timeout_s=self.timeout_s, stopped=self._stopped
            )

    def columns(self) -> list[tuple[str, str]]:
        """``columns_on`` without a store: refuses a query whose columns depend on rows. Raises ``KqlError``."""
        return validate(self.text, parameters=self.parameters, timeout_s=self.timeout_s, stopped=self._stopped)

    @contextmanager
    def _interruptible(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Lets ``cancel`` interrupt the connection meanwhile, and never the statement of somebody else after that."""
        with self._lock:
            self._running.append(connection)
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(connection)
