"""Reading a store for one report: bound parameters, one period, one notion of "ended badly"."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queries.reports.model import Column, Table
from store.node_names import NodeNames

if TYPE_CHECKING:
    from store.duckdb_store import DuckStore

#: States of a run that has not ended or of which nobody logged how it ended.
OPEN_STATES = ("RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "")

_OPEN = ", ".join(f"'{state}'" for state in OPEN_STATES)

#: A run that ended, and one that ended otherwise than COMPLETED.
ENDED = f"(\"end\" IS NOT NULL AND coalesce(state, '') NOT IN ({_OPEN}))"
BADLY = f"({ENDED} AND state <> 'COMPLETED')"

#: What a run had computed, in GPU-hours. A run whose GPU count nobody logged counts as none.
GPU_HOURS = '(coalesce(gpus, 0) * greatest(0, coalesce(epoch("end") - epoch(start), 0)) / 3600.0)'

#: When an incident counts as over.
INCIDENT_END = 'coalesce("end", start)'


class Reader:
    """A store and the period that a report is about (naive UTC; None is no bound)."""

    def __init__(self, store: DuckStore, since: datetime | None, until: datetime | None) -> None:
        self.store = store
        self.since = since
        self.until = until
        found = self.plain("SELECT DISTINCT cluster FROM model.runs UNION SELECT cluster FROM model.incidents")
        self.many_clusters = len(found) > 1
        self._names: NodeNames | None = None

    def plain(self, sql: str, parameters: object = None) -> list[dict[str, Any]]:
        """Rows of a query that does not ask for the period."""
        return self.store.rows(sql, parameters)

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """Rows of a query that names ``$since`` and ``$until``, as ``within`` writes them."""
        return self.store.rows(sql, {"since": self.since, "until": self.until, **parameters})

    def one(self, sql: str, **parameters: object) -> dict[str, Any]:
        """The only row of an aggregate over the period."""
        return self.rows(sql, **parameters)[0]

    def called(self, host: str | None, cluster: str | None) -> str:
        """What a cluster's host is called in the whole store."""
        if not self.many_clusters or not host:
            return host or ""
        if self._names is None:
            self._names = NodeNames(self.store.rows)
        return self._names.of(host, cluster)

    def table(self, title: str, columns: Sequence[Column], rows: list[dict[str, Any]], **more: str) -> Table:
        """A table, with its cluster in front when the store holds several."""
        cluster = (
            (Column("cluster", "Cluster", "name"),) if self.many_clusters and rows and "cluster" in rows[0] else ()
        )
        keys = [column.key for column in (*cluster, *columns)]
        return Table(title, (*cluster, *columns), [{key: row.get(key) for key in keys} for row in rows], **more)


def within(moment: str) -> str:
    """SQL: the expression ``moment`` (ours, never user text) lies in the period."""
    return (
        f"($since::TIMESTAMP IS NULL OR {moment} >= $since::TIMESTAMP) "
        f"AND ($until::TIMESTAMP IS NULL OR {moment} < $until::TIMESTAMP)"
    )
