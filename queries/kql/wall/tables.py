"""Rows of a step that were read before, as a table for the statement that reads the step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa

#: Types that Arrow hands back as they were.
_SAME = frozenset(("VARCHAR", "BIGINT", "INTEGER", "DOUBLE", "BOOLEAN", "TIMESTAMP"))
#: The words before the first step of a statement.
_WITH = re.compile("WITH (?:RECURSIVE )?")


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a near step, and the engine's types of its columns."""

    name: str
    types: list[tuple[str, str]]
    table: pa.Table

    @property
    def is_same(self) -> bool:
        """Does Arrow hand back the types as they were?"""
        return all(kind in _SAME for _, kind in self.types)

    @property
    def registered_as(self) -> str:
        return self.name if self.is_same else f"in {self.name}"


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def casts(types: Sequence[tuple[str, str]]) -> str:
    """Columns of Arrow with the types that they had in the engine: Arrow has none of its own for JSON."""
    return ", ".join(f"CAST({quoted(column)} AS {kind}) AS {quoted(column)}" for column, kind in types)


@contextmanager
def registered(con: duckdb.DuckDBPyConnection, rows: Sequence[Rows], sql: str) -> Iterator[str]:
    """The statement for which the rows are tables of this connection."""
    for one in rows:
        con.register(one.registered_as, one.table)
    steps = ", ".join(
        f"{quoted(one.name)} AS (SELECT {casts(one.types)} FROM {quoted(one.registered_as)})"
        for one in rows
        if not one.is_same
    )
    words = _WITH.match(sql)
    try:
        if not steps:
            yield sql
        elif words is None:
            yield f"WITH {steps} {sql}"
        else:
            yield f"{words[0]}{steps}, {sql[words.end() :]}"
    finally:
        for one in rows:
            with suppress(duckdb.Error):  # an answer that was not read to its end holds it; the next query replaces it
                con.unregister(one.registered_as)
