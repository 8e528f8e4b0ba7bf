"""Where a question reads rows that have a moment: all of them, or those of a stretch of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from sqlalchemy import FromClause, Table, select

from store.tables import BOOTS, LINES, METRICS, NODE_STATES


@dataclass(frozen=True)
class Source:
    """Rows from ``since`` (naive UTC) on; those before it are not there, nor are those without a moment. None: all rows."""

    since: datetime | None = None

    @cached_property
    def lines(self) -> FromClause:
        """Log lines, with the columns of ``parsers.record.LOGS``."""
        return self._of(LINES, "time")

    @cached_property
    def metrics(self) -> FromClause:
        return self._of(METRICS, "time")

    @cached_property
    def boots(self) -> FromClause:
        return self._of(BOOTS, "boot_time")

    @cached_property
    def node_states(self) -> FromClause:
        return self._of(NODE_STATES, "time")

    def _of(self, table: Table, moment: str) -> FromClause:
        return table if self.since is None else select(table).where(table.c[moment] >= self.since).subquery(table.name)


#: All rows that are stored.
ALL = Source()
