"""The time range that comes with a query, as Log Analytics' ``timespan`` does: every stored table is limited to it.

It holds in addition to what the query itself says about time. Rows with a time must lie in the range, both ends
included; jobs, incidents, drains and facts, which last, must overlap it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import cast

from queries.kql import syntax as ast
from queries.kql.catalog import Table
from queries.kql.parser import parse


@dataclass(frozen=True, slots=True)
class Within:
    """Naive UTC, as the store keeps it; ``None`` is an open end."""

    start: datetime | None = None
    end: datetime | None = None

    def condition(self, table: Table) -> tuple[ast.Node, ...]:
        """The operator that limits a stored table to the range; none for a table without times, or an open range."""
        if self.start is None and self.end is None:
            return ()
        first, last = _ends(frozenset(column.name for column in table.columns))
        return _where(first, last, self.start, self.end) if first else ()


def _ends(columns: frozenset[str]) -> tuple[str, str]:
    """KQL for when a row begins and ends; empty if it has no time. What has no end yet lasts."""
    for name in ("Time", "TimeGenerated", "Seen"):
        if name in columns:
            return name, name
    begin = next((name for name in ("Start", "Begin") if name in columns), "")
    if not begin or "End" not in columns:
        return "", ""
    if "Submit" in columns:
        begin = "coalesce(Start, Submit)"
    return begin, "End"


@lru_cache(maxsize=256)
def _where(first: str, last: str, start: datetime | None, end: datetime | None) -> tuple[ast.Node, ...]:
    after = f"{last} >= datetime({start.isoformat()})" if start else ""
    if start and last == "End":
        after = f"(isnull(End) or {after})"
    before = f"{first} <= datetime({end.isoformat()})" if end else ""
    script = parse(f"T | where {' and '.join(part for part in (after, before) if part)}")
    return cast(ast.Pipeline, script.statements[0]).operators


#: The open range.
ALL_TIME = Within()
