"""A second engine, in plain Python and Polars: the part of the protocol without SQL, which shows that the suite is
neutral.

It answers questions for whole tables only: plain columns, equal to given values, in the order of a column.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import polars as pl
import sqlalchemy as sa
from sqlalchemy.sql.dml import Delete, Insert, UpdateBase

from parsers.record import TABLES, conform
from store.changes import NOTHING, Change, ChangeLog, Changes, Mark, growth
from store.door import FileEntry, Listener, Sealed, Writer
from store.errors import EngineError, NoSuchTable
from store.tables import FACTS, FILES, LINES, LOGS, METADATA, STREAMS

Row = dict[str, Any]


def _holds(where: Any, row: Row) -> bool:
    """Is ``column == value [and ...]`` true for a row?"""
    if where is None:
        return True
    parts = getattr(where, "clauses", None)
    if parts is not None and not hasattr(where, "left"):
        return all(_holds(part, row) for part in parts)
    return bool(row[where.left.name] == where.right.value)


class MemoryWriter:
    """Changes to tables that are kept if everything succeeds."""

    def __init__(self, tables: dict[str, list[Row]], note: Callable[[str, Change], None]) -> None:
        self._tables, self._note = tables, note

    def _rows(self, table: Any) -> list[Row]:
        return self._tables.setdefault(LOGS.fullname if table is LINES else table.fullname, [])

    def ask(self, question: Any) -> list[Row]:
        (table,) = question.get_final_froms()
        rows = [row for row in self._rows(table) if _holds(question.whereclause, row)]
        for column in reversed(question._order_by_clauses):
            rows = sorted(rows, key=lambda row: row[column.name])
        return [{column.name: row[column.name] for column in question.selected_columns} for row in rows]

    def ask_frame(self, question: Any, *, many: bool = False) -> pl.DataFrame:
        return pl.DataFrame(self.ask(question))

    def change(self, statement: UpdateBase) -> int:
        assert not isinstance(statement, Insert)
        table, where = statement.entity_description["table"], statement.whereclause  # type: ignore[attr-defined]
        found = [row for row in self._rows(table) if _holds(where, row)]
        if isinstance(statement, Delete):
            self._tables[table.fullname] = [row for row in self._rows(table) if row not in found]
            self._noted(table, Change(removed=len(found)))
        else:
            for row in found:
                row |= {getattr(c, "name", c): getattr(v, "value", v) for c, v in statement._values.items()}  # type: ignore[attr-defined]
            self._noted(table, Change(amended=len(found)))
        return len(found)

    amend = change

    def insert(self, table: sa.Table, data: pl.DataFrame) -> None:
        empty = {column.name: None for column in table.columns}
        self._rows(table).extend(empty | row for row in data.iter_rows(named=True))
        self._noted(table, Change(added=data.height))

    def replace(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        given = set(data.select(keys).iter_rows())
        rest = [row for row in self._rows(table) if tuple(row[key] for key in keys) not in given]
        self._noted(table, Change(removed=len(self._rows(table)) - len(rest)))
        self._tables[table.fullname] = rest
        self.insert(table, data)

    def amend_by(self, table: sa.Table, keys: Sequence[str], data: pl.DataFrame) -> None:
        for given in data.iter_rows(named=True):
            for row in self._rows(table):
                if all(row[key] == given[key] for key in keys):
                    row |= given
                    self._noted(table, Change(amended=1))

    def name_hosts(self, table: sa.Table, names: Sequence[tuple[str | None, str, str]]) -> int:
        meant = {(cluster, host): node for cluster, host, node in names}
        found = [row for row in self._rows(table) if (row["cluster"], row["host"]) in meant]
        for row in found:
            row["host"] = meant[row["cluster"], row["host"]]
        self._noted(table, Change(amended=len(found)))
        return len(found)

    def _noted(self, table: sa.Table, change: Change) -> None:
        if table.schema == "raw" and table.name in TABLES:
            self._note(table.name, change)


class MemoryStore:
    """A store in this process; it ends with it."""

    folder: Path | None = None
    read_only = False
    is_notifying = False
    lost: Sequence[str] = ()

    def __init__(self) -> None:
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._tables: dict[str, list[Row]] = {}
        self._log, self._batch, self._takes_in = ChangeLog(uuid.uuid4().hex, 0), 0, False

    def ask(self, question: Any) -> list[Row]:
        if not self._takes_in and any(table.schema == "intake" for table in question.get_final_froms()):
            raise NoSuchTable("nothing was ever received here")
        return MemoryWriter(self._tables, lambda *_: None).ask(question)

    def ask_frame(self, question: Any, *, many: bool = False) -> pl.DataFrame:
        return pl.DataFrame(self.ask(question))

    @contextmanager
    def write(self) -> Iterator[Writer]:
        changed: dict[str, Change] = {}

        def note(table: str, change: Change) -> None:
            changed[table] = changed.get(table, NOTHING).and_then(change)

        tables = {name: [dict(row) for row in rows] for name, rows in self._tables.items()}
        yield MemoryWriter(tables, note)
        self._batch += 1
        self._log.add(self._batch, {name: change for name, change in changed.items() if change != NOTHING})
        self._tables = tables

    def append(
        self, rows: Mapping[str, pl.DataFrame], files: Sequence[FileEntry] = (), *, sealed: Sequence[pl.DataFrame] = (),
        also: Callable[[Writer], None] | None = None,
    ) -> None:  # fmt: skip
        added = [("logs", part) for part in sealed] + [(name, conform(name, data)) for name, data in rows.items()]
        with self.write() as writer:
            for entry in files:
                if not isinstance(entry.consumed, int):
                    raise EngineError(f"{entry.path}: consumed is no number")
                if entry.replaces_tail:
                    writer.change(sa.delete(LOGS).where(LOGS.c.file == entry.path, LOGS.c.line == entry.tail_line))
                known = {name: value for name, value in vars(entry).items() if name in FILES.c}
                writer.replace(FILES, ("path", "cluster"), pl.DataFrame([known | {"warnings": list(entry.warnings)}]))
            for name, data in added:
                writer.insert(METADATA.tables[f"raw.{name}"], data)
            if also is not None:
                also(writer)
        listeners = list(self.listeners)
        self.is_notifying = True
        for listener in listeners:
            listener.on_added(added)
        self.is_notifying = False
        for listener in listeners:
            listener.digest()

    def fact(self, name: str) -> str | None:
        found = self.ask(sa.select(FACTS.c.value).where(FACTS.c.name == name))
        return found[0]["value"] if found else None

    def set_fact(self, name: str, value: str) -> None:
        with self.write() as writer:
            writer.replace(FACTS, ("name",), pl.DataFrame({"name": [name], "value": [value]}))

    def open_intake(self) -> None:
        self._takes_in = True
        self._tables.setdefault(STREAMS.fullname, [])

    def changes(self, tables: Sequence[str], since: Mark | None = None) -> Changes:
        until = Mark(self._log.instance, self._batch)
        rows = {name: growth(self._log.between(0, self._batch, (name,))[name]) for name in tables}
        if since is None or not self._log.reaches(since, self._batch):
            return Changes(until, {name: Change(count) for name, count in rows.items()}, rows, too_old=True)
        return Changes(until, self._log.between(since.batch, self._batch, tables), rows)

    def seal(self, *, least: int) -> Sealed:
        """Lines are not sorted here."""
        return Sealed()

    def add_filters(self) -> None: ...

    def checkpoint(self, least: int = 0) -> None: ...

    def shrink(self, *, share: float) -> int:
        return 0

    def release_memory(self) -> None: ...

    def migrate(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
