"""Changes to the store inside one transaction, in Core or as frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import polars as pl
import sqlalchemy as sa
from sqlalchemy.sql.dml import Delete, Insert, UpdateBase

from parsers.record import TABLES
from store import disowned
from store.changes import Change
from store.door import Question
from store.duckdb.archived_hosts import Name
from store.duckdb.arrow import as_arrow
from store.duckdb.dialect import spelled
from store.duckdb.incoming import incoming
from store.duckdb.logs_view import has_claims, show_claims
from store.duckdb.querying import frame_of, rows_of, store_errors
from store.functions import PLACE
from store.questions import settling
from store.tables import FACTS, LOGS, METADATA


class DuckWriter:
    """The result of ``DuckStore.write``. All changes of one writer are stored, or none; errors of the engine end it."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, note: Callable[[str, Change], None],
        name_archived: Callable[[duckdb.DuckDBPyConnection, Sequence[Name]], int] | None = None,
    ) -> None:  # fmt: skip
        self.connection = connection
        self._noted, self._name_archived = note, name_archived

    def ask(self, question: Question | UpdateBase) -> list[dict[str, Any]]:
        """Rows as this transaction sees them; also for a change that returns some (``returning``)."""
        with store_errors():
            found = rows_of(self.connection.execute(*spelled(question)))
        if isinstance(question, UpdateBase):
            self._note(question, len(found))
        return found

    def ask_frame(self, question: Question, *, many: bool = False) -> pl.DataFrame:
        """The same as a frame."""
        text, values = spelled(question)
        with store_errors():
            return frame_of(self.connection, text, values, many=many)

    def change(self, statement: UpdateBase) -> int:
        """Runs an insert, update or delete; returns the number of rows it changed."""
        with store_errors():
            found = self.connection.execute(*spelled(statement)).fetchone()
        rows = int(found[0]) if found else 0
        self._note(statement, rows)
        return rows

    def amend(self, statement: UpdateBase) -> int:
        """Like ``change``, for existing rows of ``raw``; see ``store.door``."""
        return self.change(statement)

    def name_hosts(self, table: sa.Table, names: Sequence[Name]) -> int:
        """Gives rows the node that their host was learned to mean, also lines in files of days that are not closed."""
        rows = self.amend(settling.name_hosts(table, names))
        if table is LOGS and self._name_archived is not None:
            with store_errors():
                rows += self._name_archived(self.connection, names)
        return rows

    def _note(self, statement: UpdateBase, rows: int) -> None:
        table = statement.entity_description["table"]
        if isinstance(statement, Insert):
            self._note_of(table, Change(added=rows))
        elif isinstance(statement, Delete):
            self._note_of(table, Change(removed=rows))
        else:
            lists = any(
                isinstance(column.type, sa.ARRAY) for column in table.columns if column.name in _set_by(statement)
            )
            self._note_of(table, _amended(rows, lists))

    def _note_of(self, table: sa.Table, change: Change) -> None:
        if table.schema == "raw" and table.name in TABLES:
            self._noted(table.name, change)

    def amend_by(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        """Updates rows of ``raw`` with the same values in ``keys`` with the other columns of ``data``; see
        ``store.door``."""
        columns = {key: "rowid" if key == PLACE else f'"{key}"' for key in keys}
        where = " AND ".join(f'old.{own} IS NOT DISTINCT FROM changed."{key}"' for key, own in columns.items())
        values = ", ".join(f'"{name}" = changed."{name}"' for name in data.columns if name not in keys)
        rows = self._beside(data, f"UPDATE {table.schema}.{table.name} AS old SET {values} FROM", f"WHERE {where}")
        lists = any(isinstance(table.c[name].type, sa.ARRAY) for name in data.columns if name not in keys)
        self._note_of(table, _amended(rows, lists))

    def insert(self, table: sa.Table, data: pl.DataFrame) -> None:
        """Adds the rows of a frame, by column name; columns that it lacks are null or get their default."""
        if data.height:
            with store_errors():
                insert(self.connection, f"{table.schema}.{table.name}", data)
            self._note_of(table, Change(added=data.height))

    def replace(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        """Adds the rows of a frame, replacing those with the same values in ``keys`` (none of them null)."""
        of_claims = table is FACTS and (data["name"] == disowned.FACT).any()
        shown = has_claims(self.connection) if of_claims else None
        if data.height == 1:
            self.change(sa.delete(table).where(*(table.c[key] == data[key][0] for key in keys)))
        elif data.height:
            where = " AND ".join(f'old."{key}" = changed."{key}"' for key in keys)
            gone = self._beside(
                data.select(keys), f"DELETE FROM {table.schema}.{table.name} AS old USING", f"WHERE {where}"
            )
            self._note_of(table, Change(removed=gone))
        self.insert(table, data)
        if of_claims:
            with store_errors():
                show_claims(self.connection, shown=shown)

    def _beside(self, data: pl.DataFrame, before: str, behind: str) -> int:
        """Runs a statement of ours that refers to a frame as ``changed``: what stands before and behind its name. Returns
        the number of rows it changed."""
        with store_errors(), incoming(self.connection, as_arrow(data)) as name:
            found = self.connection.execute(f"{before} {name} AS changed {behind}").fetchone()
        return int(found[0]) if found else 0


def _set_by(statement: UpdateBase) -> set[str]:
    """Names of the columns that an update sets."""
    return {column if isinstance(column, str) else column.name for column in getattr(statement, "_values", None) or {}}


def _amended(rows: int, lists: bool) -> Change:
    """Lists are not updated in place: the engine appends such rows after all others."""
    return Change(amended=rows, moved=rows if lists else 0)


#: From so many rows on, it pays to insert in one piece.
MANY_ROWS = 500
#: A frame in a form that DuckDB cannot divide among threads (it knows no batch numbers of a positional join's rows).
#: Otherwise each thread collects rows for itself, and those are appended a second time: one and a half times the CPU of
#: the whole statement for ten thousand rows, twice for a hundred thousand (DuckDB 2.0, "Batch Insert" in its plan). The
#: other side has one row, so no row of the frame is lost or added.
_IN_ONE_PIECE = "SELECT * EXCLUDE (one_row) FROM {} POSITIONAL JOIN (SELECT 1 AS one_row)"


#: Columns with a default of their own: a null is not the same as no value there.
_WITH_DEFAULT = frozenset(
    column.name for table in METADATA.tables.values() for column in table.columns if column.server_default is not None
)


def insert(connection: duckdb.DuckDBPyConnection, table: str, data: pl.DataFrame) -> None:
    """Inserts a frame by column name, through Arrow. ``table`` is one of ours, never user text."""
    # Half of a job's columns are empty in most sources: each costs 15 microseconds, even for one row.
    every = data.get_columns()
    given = [column for column in every if column.null_count() < len(column) or column.name in _WITH_DEFAULT] or every
    with incoming(connection, as_arrow(given)) as rows:
        source = _IN_ONE_PIECE.format(rows) if data.height >= MANY_ROWS else f"FROM {rows}"
        # The names are not listed: the engine's parser takes 0.1 ms for a list of twenty, and there would be two.
        connection.execute(f"INSERT INTO {table} BY NAME {source}")
