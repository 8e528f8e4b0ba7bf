"""A statement that was compiled once, and its steps recombined.

What runs behind the wall is cut out of the whole statement. Compiling each piece by itself took SQLAlchemy longer than
all the rest of a query, although it had written the same texts already.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.compiler import compiles

from queries.kql.budget import look
from queries.kql.dialect import Sql
from queries.kql.functions.declaration import LINEAR, Cost, Function
from queries.kql.wall.cutting import BoundSql, Step


class Part(Sql):
    """One step of a statement, or the final reader of its steps (``name`` is empty); the dialect records its text."""

    def __init__(self, name: str, body: Any) -> None:
        super().__init__("{0}", body)
        self.name = name
        self.size = body.size if isinstance(body, Sql) else 1  # no larger than without a name


@compiles(Part)
def _compile_part(element: Part, compiler: Any, **kw: Any) -> str:
    dialect = compiler.dialect
    around, dialect.called = dialect.called, set()
    text: str = compiler.process(element.args[0], **kw)
    dialect.parts[element.name] = _Written(text, frozenset(dialect.called))
    dialect.called = around | dialect.called
    return text


@dataclass(frozen=True, slots=True)
class _Written:
    """The text of a step, with values still referred to by name, and the functions that it calls."""

    text: str
    called: frozenset[Function]


class Parts:
    """The steps of one compiled statement. ``last`` is the final reader."""

    def __init__(self, compiled: Any) -> None:
        self._written: dict[str, _Written] = compiled.dialect.parts
        self._values: dict[str, Any] = compiled.params  # a property that is computed on each access
        self._name: re.Pattern[str] = compiled._pyformat_pattern  # how it finds the names of values itself

    def alone(self, name: str) -> BoundSql:
        """One step, without those that it reads."""
        part = self._written[name]
        return self._numbered(part.text, part.called)

    @property
    def last(self) -> BoundSql:
        """The final reader of the steps, without them."""
        return self.alone("")

    def together(self, template: str, steps: Sequence[Step], reader: str | None = None) -> BoundSql:
        """Steps and their reader, put into a template with a hole for each.

        ``reader`` is SQL without values; by default it is the final reader of the whole statement.
        """
        written = [self._written[name] for name, _, _ in steps]
        written.append(self._written[""] if reader is None else _Written(reader, frozenset()))
        called = frozenset[Function]().union(*(part.called for part in written))
        return self._numbered(template.format(*(part.text for part in written)), called)

    def _numbered(self, text: str, called: frozenset[Function]) -> BoundSql:
        look()
        numbers: dict[str, int] = {}

        def numbered(found: re.Match[str]) -> str:
            name = found.group(1)
            return f"${numbers.setdefault(name, len(numbers) + 1)}" if name in self._values else found.group()

        sql = self._name.sub(numbered, text)
        return bound_sql(sql, [self._values[name] for name in numbers], called)


def bound_sql(sql: str, parameters: list[Any], called: frozenset[Function]) -> BoundSql:
    """SQL that calls these functions."""
    linear = all(function.cost is LINEAR for function in called)
    bounded = linear or all(function.cost is not Cost.WALL for function in called)
    return BoundSql(sql, parameters, linear, frozenset[str]().union(*(function.words for function in called)), bounded)
