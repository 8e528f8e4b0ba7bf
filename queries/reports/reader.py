"""Reading a store for one report: one period, one notion of "ended badly" (``store.questions.ended``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from parsers import extensions
from queries.reports.model import Column, Table
from store.door import Question
from store.node_names import NodeNames
from store.questions import ended
from store.questions.ended import Period

if TYPE_CHECKING:
    from store.door import Door


class Reader:
    """A store and the period that a report is about (naive UTC; None is no bound); ``report`` names the report in messages."""

    def __init__(self, store: Door, since: datetime | None, until: datetime | None, report: str = "a report") -> None:
        self.store = store
        self._report = report
        self.since = since
        self.until = until
        found = store.ask(ended.CLUSTERS)
        self.many_clusters = len(found) > 1
        self._names: NodeNames | None = None

    @property
    def period(self) -> Period:
        """The bounds that questions take."""
        return Period(self.since, self.until)

    def rows(self, question: Question) -> list[dict[str, Any]]:
        """Rows of a named question."""
        return self.store.ask(question)

    def one(self, question: Question) -> dict[str, Any]:
        """The only row of an aggregate."""
        return self.rows(question)[0]

    def called(self, host: str | None, cluster: str | None) -> str:
        """The name of a cluster's host in the whole store."""
        if not self.many_clusters or not host:
            return host or ""
        if self._names is None:
            self._names = NodeNames(self.store)
        return self._names.of(host, cluster)

    def table(self, title: str, columns: Sequence[Column], rows: list[dict[str, Any]], **more: str) -> Table:
        """A table, with its cluster in front if the store holds several.

        A column that is in none of the rows is named in the log, with those that exist.
        """
        cluster = (
            (Column("cluster", "Cluster", "name"),) if self.many_clusters and rows and "cluster" in rows[0] else ()
        )
        keys = [column.key for column in (*cluster, *columns)]
        there = {key: None for row in rows for key in row}
        if absent := [key for key in keys if rows and key not in there]:
            extensions.warn_once(
                f"{self._report}: table {title!r}: column {', '.join(map(repr, absent))} is in no row; there is {', '.join(there)}"
            )
        return Table(title, (*cluster, *columns), [{key: row.get(key) for key in keys} for row in rows], **more)
