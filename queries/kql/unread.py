"""Leaves columns that no later step reads out of the SQL.

The engine drops them too, but first it parses and binds every word: half of what a small query takes. A column may go
only if it is passed on unchanged, by a step that neither groups its rows nor makes them distinct. Its uses are searched
by name alone, in all later steps, so a column may stay unnecessarily but never disappear wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import union_all
from sqlalchemy.sql import ColumnElement, Select
from sqlalchemy.sql.elements import ColumnClause, Label

from queries.kql.budget import look
from queries.kql.dialect import Col, Ident, Sql

#: What a table of the catalogue does to a column before the query sees it.
NULLS_AWAY, AS_JSON = "coalesce({0}, '')", "CAST({0} AS JSON)"
_QUOTED = re.compile(r'"([^"]+)"')
_STAR = re.compile(r"SELECT \*|\.\*", re.IGNORECASE)


@dataclass(frozen=True)
class Narrowable:
    """A step whose plain columns may be dropped; ``around`` is the text around its SELECT. If no column in ``costly`` is
    read, it may read ``narrower`` in place of ``source``, and ``every`` row in place of those of ``query``, which needs the
    steps ``helping``."""

    query: Select[Any]
    items: tuple[Label[Any], ...]
    around: Sql | None = None
    source: Sql | None = None
    narrower: Sql | None = None
    costly: frozenset[str] = frozenset()
    every: Select[Any] | None = None
    helping: frozenset[str] = frozenset()

    def takes_every(self, read: set[str]) -> bool:
        return self.every is not None and not self.costly & read

    def without(self, read: set[str]) -> ColumnElement[Any]:
        """The step with the columns that are read, and those that are not plain columns."""
        kept = [item for item in self.items if item.name.casefold() in read or not _passed_on(item.element)]
        whole = self.every if self.every is not None and self.takes_every(read) else self.query
        query = whole.with_only_columns(*(kept or self.items[:1]), maintain_column_froms=False)
        if self.around is None:
            return Sql("{0}", query)
        around = self.around
        if self.costly and not self.costly & read:
            around = _replaced(around, self.source, self.narrower)
        return _replaced(around, self.query, query)


@dataclass(frozen=True)
class Stacked:
    """A step of rows of several others, one below the other: each SELECT has the columns of all, in one order."""

    parts: tuple[tuple[Select[Any], tuple[Label[Any], ...]], ...]
    helping: ClassVar[frozenset[str]] = frozenset()

    def takes_every(self, read: set[str]) -> bool:
        return False

    def without(self, read: set[str]) -> ColumnElement[Any]:
        """The step with the columns that are read."""
        names = [item.name.casefold() for item in self.parts[0][1]]
        places = [place for place, name in enumerate(names) if name in read] or [0]
        kept = [
            query.with_only_columns(*(items[place] for place in places), maintain_column_froms=False)
            for query, items in self.parts
        ]
        return Sql("{0}", union_all(*kept) if len(kept) > 1 else kept[0])


Step = tuple[str, Any, bool]


def without_unread(steps: Sequence[Step], narrowable: Mapping[str, Narrowable | Stacked], last: Any) -> list[Step]:
    """The steps, narrowed; ``last`` is the statement that reads them."""
    read, out = _Read(), []
    read.add(last)
    idle: frozenset[str] = frozenset()
    for name, body, materialized in reversed(steps):
        found = narrowable.get(name)
        if name in idle:
            continue
        if found is not None and not read.everything:
            if found.takes_every(read.names):
                idle |= found.helping
            made = found.without(read.names)
            body = Sql("{0}", made, origin=getattr(body, "origin", None))
        read.add(body)
        out.append((name, body, materialized))
    return out[::-1]


class _Read:
    """The names of columns that statements mention; ``everything`` once one of them selects all columns by a star."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.everything = False

    def add(self, element: Any) -> None:
        look()
        if isinstance(element, Sql):
            self._say(element.template)
            for arg in element.args:
                self.add(arg)
        elif isinstance(element, Col):
            self.names.add(element.column_name.casefold())
        elif isinstance(element, Ident):
            self.names.add(element.ident.casefold())
        elif isinstance(element, Label):
            self.add(element.element)
        else:  # other elements of SQLAlchemy's, which contain ours; ours contain nothing that it can list
            if isinstance(element, ColumnClause):
                self._say(f'"{element.name}"{element.name}')
            for part in element.get_children():
                self.add(part)

    def _say(self, template: str) -> None:
        if '"' in template:
            self.names.update(name.casefold() for name in _QUOTED.findall(template))
        if "*" in template and _STAR.search(template):
            self.everything = True


def _passed_on(element: Any) -> bool:
    while isinstance(element, Sql) and element.template in ("{0}", NULLS_AWAY, AS_JSON):
        element = element.args[0]
    return isinstance(element, Col)


def _replaced(around: Sql, old: Any, new: Any) -> Sql:
    args: Iterable[Any] = (
        new if arg is old else _replaced(arg, old, new) if isinstance(arg, Sql) else arg for arg in around.args
    )
    return Sql(around.template, *args, origin=around.origin)
