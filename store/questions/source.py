"""Where a query reads rows with a time: all of them, or those of a time range.

A query of the running service is built once for each of the two; later runs only bind other values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import FromClause, Select, Table, bindparam, select

from store.tables import BOOTS, LINES, METRICS, NODE_STATES, TEXT, TIME

#: The cluster of a query; null selects rows without one.
CLUSTER = bindparam("cluster", type_=TEXT)
_SINCE = bindparam("since", type_=TIME)


@dataclass(frozen=True)
class Rows:
    """The relations to read: log ``lines`` (with the columns of ``parsers.record.LOGS``), ``metrics``, ``boots`` and
    ``node_states``."""

    lines: FromClause
    metrics: FromClause
    boots: FromClause
    node_states: FromClause


def _stretch(table: Table, moment: str) -> FromClause:
    return select(table).where(table.c[moment] >= _SINCE).subquery(table.name)


_WHOLE = Rows(LINES, METRICS, BOOTS, NODE_STATES)
_STRETCH = Rows(
    _stretch(LINES, "time"), _stretch(METRICS, "time"), _stretch(BOOTS, "boot_time"), _stretch(NODE_STATES, "time")
)


@dataclass(frozen=True)
class Source:
    """Rows from ``since`` (naive UTC) on; earlier ones and those without a time are excluded. None: all rows."""

    since: datetime | None = None

    def asked(self, question: Callable[..., Select[Any]], cluster: str | None, *given: object) -> Select[Any]:
        """The query ``question(rows, *given)`` on these rows, with ``CLUSTER`` bound."""
        made = _made(question, self.since is None, *given)
        return made.params(cluster=cluster) if self.since is None else made.params(cluster=cluster, since=self.since)


@lru_cache(maxsize=100)
def _made(question: Callable[..., Select[Any]], whole: bool, *given: object) -> Select[Any]:
    return question(_WHOLE if whole else _STRETCH, *given)


#: All rows that are stored.
ALL = Source()
