"""Runs Core queries on DuckDB: returns rows or a frame, and translates the engine's errors."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import duckdb
import polars as pl
from sqlalchemy.sql.elements import ClauseElement

from store.door import KqlQuery
from store.duckdb.dialect import spelled
from store.errors import EngineError, NoSuchTable

Answer = TypeVar("Answer")

# ``connection.sql`` would plan a query a second time for its frame: 0.6 ms, a third of most of them. Copying the rows of
# a large one takes longer than that from some 10,000 rows on (14 of 50 ms for 200,000), and memory.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


@contextmanager
def store_errors() -> Iterator[None]:
    """Raises the engine's errors of its body as ``EngineError``, with their text."""
    try:
        yield
    except duckdb.Error as error:
        raise translated(error) from error


def translated(error: duckdb.Error) -> EngineError:
    """The store's error for one of the engine's."""
    kind = NoSuchTable if isinstance(error, duckdb.CatalogException) else EngineError
    return kind(str(error))


class Asks(ABC):
    """Runs queries on whatever provides cursors. Each query gets its own cursor, so any thread may call it."""

    @abstractmethod
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for one reading thread: for code of the store, and for tests of DuckDB's."""

    def opened(self) -> tuple[duckdb.DuckDBPyConnection, object | None]:
        """A connection as ``cursor`` gives, and what stands for its database (``store.door.KqlQuery.run_on``)."""
        return self.cursor(), None

    def ask(self, question: ClauseElement) -> list[dict[str, Any]]:
        """The rows of an answer as dicts. Raises ``EngineError``, or ``NoSuchTable`` in a store of an older version."""
        text, values = spelled(question)
        return self.rows(text, values)

    def ask_frame(self, question: ClauseElement, *, many: bool = False) -> pl.DataFrame:
        """An answer as a frame. ``many``: of so many rows that they are not to be held twice. Raises like ``ask``."""
        text, values = spelled(question)
        return self.frame(text, values, many=many)

    def run_kql(self, query: KqlQuery[Answer]) -> Answer:
        """The answer to a KQL query; see ``store.door``."""
        with store_errors():
            cursor, database = self.opened()
            try:
                return query.run_on(cursor, database)
            finally:
                cursor.close()

    def explain_kql(self, query: KqlQuery[Any]) -> str:
        """What would run for a KQL query, and the plan."""
        with self._own_cursor() as cursor:
            return query.explain_on(cursor)

    def kql_columns(self, query: KqlQuery[Any]) -> list[tuple[str, str]]:
        """The columns of a KQL query's answer."""
        with self._own_cursor() as cursor:
            return query.columns_on(cursor)

    def rows(self, sql: str, parameters: object = None) -> list[dict[str, Any]]:
        """Rows of SQL in the engine's own dialect; for code of the store only."""
        with self._own_cursor() as cursor:
            return rows_of(cursor.execute(sql, parameters) if parameters is not None else cursor.execute(sql))

    def frame(self, sql: str, parameters: object = None, *, many: bool = False) -> pl.DataFrame:
        """A frame of SQL in the engine's own dialect; for code of the store only."""
        with store_errors():
            return frame_of(self.cursor(), sql, parameters, many=many)

    @contextmanager
    def _own_cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that is closed afterwards."""
        with store_errors():
            cursor = self.cursor()
            try:
                yield cursor
            finally:
                cursor.close()


def rows_of(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The rows of a statement's result, as dicts."""
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def frame_of(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: object = None, *, many: bool = False
) -> pl.DataFrame:
    """A query's result as a frame."""
    if many:
        table = connection.sql(sql, params=parameters).to_arrow_table()
    else:
        result = connection.execute(sql, parameters) if parameters is not None else connection.execute(sql)
        table = result.to_arrow_table()
    data = pl.from_arrow(table)
    assert isinstance(data, pl.DataFrame)
    return data
