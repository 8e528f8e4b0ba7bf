"""Finds what was stored since the last tick: a few queries over new rows only, run once for all clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import polars as pl

from correlator.gather.collected import Spans, asked, hosts_of
from correlator.gather.collected import joined as joined_spans
from correlator.gather.events import Lines, Part, joined, prepared, stamped
from correlator.gather.runs import no_rows, rows_since
from correlator.gather.runs_fast import prepared_runs
from correlator.gather.since import since as rows_from
from correlator.live.inbox import ENDING, EVERYTHING, MayShow, Moments, NewRows, Recalled, ending_in, listed, moments_of
from correlator.model.moments import moment_of
from correlator.model.nouns import Event, Run
from correlator.site.senders import NOBODY, Senders
from store.questions import arrivals as new_rows
from store.tables import BOOTS, JOBS, LOGS, METRICS, NODE_STATES, STEPS

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.changes import Changes
    from store.door import Door, Question

P = ParamSpec("P")

#: Event lines are read ahead only if at most this many lines are new; after a standstill everything is read anyway.
AHEAD_LINES = 4_000_000


@dataclass(frozen=True)
class Ahead:
    """The event lines of a cluster from ``since`` (epoch seconds) on and the events read from them.

    Both are futures: they are read while the other queries run.
    """

    since: float
    lines: Future[Part]
    events: Future[tuple[list[Event], Lines]]

    def read(self, cut: float) -> tuple[list[Event], Lines] | None:
        """The events read from the lines at or after ``cut``; None if not all of those lines were read ahead."""
        if cut < self.since:
            return None
        moment = moment_of(cut)
        assert moment is not None
        return self.events.result() if cut == self.since else joined([self.lines.result().since(moment)])

    def recalled(self) -> Recalled:
        """The lines that the next tick need not read again."""
        return Recalled(self.since, [self.lines.result()])


@dataclass(frozen=True)
class Change:
    """What was stored about one cluster since the last tick.

    ``earliest`` is the first moment (epoch seconds) that the new rows can affect. ``jobs`` are the jobs that they name;
    ``unstamped`` are those whose new output has no timestamps. On the hosts in ``ending`` something may have ended. The
    own log of the hosts in ``reporting_hosts`` begins in the new lines. ``collected`` are the spans of the new lines
    (gather/collected.py). ``states`` is true if there are new node states. ``new`` selects the new rows, ``job_rows``
    are those about jobs, and ``prepared_runs`` are the runs that those most probably describe. ``empty`` names the
    tables of ``raw`` without rows. ``may_show``: what the new lines may show.
    """

    earliest: float
    jobs: frozenset[int]
    ending: frozenset[str] = frozenset()
    reporting_hosts: frozenset[str] = frozenset()
    collected: Spans = field(default_factory=dict, compare=False)
    unstamped: frozenset[int] = frozenset()
    states: bool = True
    new: Changes | None = None
    job_rows: pl.DataFrame = field(default_factory=no_rows, compare=False)
    prepared_runs: Mapping[int, Run] = field(default_factory=dict, compare=False)
    ahead: Ahead | Recalled | None = field(default=None, compare=False)
    empty: frozenset[str] = frozenset()
    may_show: MayShow = EVERYTHING


@dataclass
class _Lines:
    """What the new log lines of one cluster contain."""

    count: int = 0
    timed: int = 0
    earliest: float | None = None
    jobs: set[int] = field(default_factory=set)
    unstamped: set[int] = field(default_factory=set)
    ending: Future[set[str]] | set[str] | None = None
    collected: Spans = field(default_factory=dict)
    ahead: Ahead | Recalled | None = None
    may_show: MayShow = EVERYTHING

    def ended(self) -> frozenset[str]:
        """Hosts on which something may have ended, from the inbox or a query, else from the lines read ahead."""
        if isinstance(self.ending, Future):
            return frozenset(self.ending.result())
        if self.ending is None and isinstance(self.ahead, Ahead):
            return frozenset(ending_in(self.ahead.lines.result().lines))
        return frozenset(self.ending or ())


#: If the lines read ahead begin at most this long (seconds) before the latest known line, nearly all of them are new.
AGAIN_S = 60.0


class Arrivals:
    """Queries over the rows selected by ``new``.

    ``changed_tables`` names the tables of ``raw`` that have such rows. Independent queries run concurrently, here and
    in the executor ``beside``, because most of them keep only one core busy. ``received`` is what the inbox collected
    if it is complete. ``recalled`` holds lines that need not be read again. ``empty`` names the tables without rows.
    ``senders``: whose addresses are known, by cluster.
    """

    def __init__(
        self, store: Door, new: Changes, changed_tables: Collection[str], beside: Executor,
        received: Mapping[str | None, NewRows] | None = None, recalled: Mapping[str | None, Recalled] | None = None,
        empty: frozenset[str] = frozenset(), senders: Mapping[str | None, Senders] | None = None,
    ) -> None:  # fmt: skip
        self.store, self.new, self.changed_tables, self.beside = store, new, changed_tables, beside
        self.received, self.recalled, self.empty, self.senders = received, recalled or {}, empty, senders or {}

    def _new(self, rows: sa.FromClause) -> sa.ColumnElement[bool]:
        """The condition that selects the new rows of a table."""
        return self.store.stored_since(rows, self.new)

    def _rows(
        self, table: sa.Table, question: Callable[Concatenate[str | None, sa.ColumnElement[bool], P], Question],
        cluster: str | None, *rest: P.args, **named: P.kwargs,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """The answer to a question about the new rows of a table; empty if it has none."""
        if table.name not in self.changed_tables:
            return []
        return self.store.ask(question(cluster, self._new(table), *rest, **named))

    def further(self, known: Collection[str | None]) -> set[str | None]:
        """Clusters outside ``known`` that new lines or job records name."""
        if self.received is not None:
            return self.received.keys() - set(known)
        tables = (table for table in (LOGS, JOBS) if table.name in self.changed_tables)
        questions = (new_rows.further_clusters(table, self._new(table), known) for table in tables)
        return {row["cluster"] for question in questions for row in self.store.ask(question)}

    def _lines(self, cluster: str | None, latest: float, since: Callable[[float], float]) -> _Lines:
        """Summarises the new lines with one query per column.

        DuckDB groups by one column ten times as fast as by several.
        """
        if self.received is not None:
            return self._from_inbox(cluster, self.received.get(cluster) or NewRows(), since)
        found = _Lines()
        for row in self._rows(LOGS, new_rows.span, cluster):
            found.count, found.timed, found.earliest = row["n"], row["timed"], row["t"]
        if not found.count:
            return found
        if found.earliest is not None and found.count <= AHEAD_LINES:
            found.ahead = self._ahead(cluster, since(found.earliest))
        if found.ahead is None or found.timed < found.count or found.ahead.since < latest - AGAIN_S:
            found.ending = self.beside.submit(self._ending, cluster)
        found.jobs = self._jobs(cluster)
        if found.timed < found.count:
            found.unstamped = self._jobs(cluster, unstamped=True)
        found.collected = asked(self.store, cluster, self._new(LOGS))
        return found

    def _from_inbox(self, cluster: str | None, received: NewRows, since: Callable[[float], float]) -> _Lines:
        """The same summary from the inbox, without a query."""
        ahead: Ahead | Recalled | None = None
        if received.earliest is not None:
            first, known = since(received.earliest), self.recalled.get(cluster)
            if known is not None and known.since <= first:
                ahead = Recalled(known.since, [*known.parts, *received.parts])
            elif received.lines <= AHEAD_LINES:
                ahead = self._ahead(cluster, first)
        return _Lines(
            received.lines,
            received.timed,
            received.earliest,
            received.jobs,
            received.unstamped,
            received.ending,
            joined_spans(received.collected),
            ahead,
            received.may_show,
        )

    def _ahead(self, cluster: str | None, since: float) -> Ahead:
        known = self.senders.get(cluster, NOBODY)
        lines = self.beside.submit(lambda: prepared(stamped(self.store, cluster, rows_from(since)), known))
        return Ahead(since, lines, self.beside.submit(lambda: joined([lines.result()])))

    def _jobs(self, cluster: str | None, *, unstamped: bool = False) -> set[int]:
        # There are usually very many: fetching a column takes half the time of fetching rows.
        jobs = self.store.ask_frame(new_rows.jobs_of_lines(cluster, self._new(LOGS), unstamped=unstamped))
        return set(jobs["job_id"].to_list())

    def _ending(self, cluster: str | None) -> set[str]:
        """Hosts on which something may have ended according to the new lines."""
        found: set[str] = set()
        for row in self._rows(LOGS, new_rows.hosts_of_events, cluster, ENDING):
            found.update([row["host"]] if row["host"] else [])
            found.update(_names(row["nodes"]) if row["nodes"] else [])
        return found

    def change(
        self, cluster: str | None, last_runs: Callable[[Collection[int]], Mapping[int, Run]], latest: float, reporting_hosts: frozenset[str],
        since: Callable[[float], float],
    ) -> Change | None:  # fmt: skip
        """What the new rows mean for a cluster; None if there are none.

        ``last_runs`` returns the last known run of each of the given jobs. Rows without a time count as of ``latest``.
        ``reporting_hosts`` are the hosts whose own log is known already. ``since`` maps the timestamp of the first new
        line to the timestamp from which lines are needed.
        """
        job_rows = self.beside.submit(self._job_rows, cluster)
        lines = self._lines(cluster, latest, since)
        moments = [lines.earliest]
        jobs = set(lines.jobs)
        rows, ended, prepared = job_rows.result()
        jobs.update(job for job, _, _ in ended)
        jobs |= {r["job_id"] for r in self._rows(STEPS, new_rows.jobs_of_steps, cluster)}
        known = last_runs(jobs) if jobs else {}
        for job, last_line, begun in ended:
            # A run that no row mentioned before may have existed since its start.
            run = known.get(job)
            going_on = run is not None and run.start is not None and run.nodes and run.end is None
            moments.append(last_line if going_on else begun)
        moments += [run.end for run in known.values()]
        states = False
        for table in (METRICS, NODE_STATES):
            for row in self._rows(table, new_rows.first_moment, cluster, table):
                moments.append(row["t"])
                states = table is NODE_STATES and row["t"] is not None
        moments += self._boots(cluster)
        times = [m for m in moments if m is not None]
        if not lines.count and not jobs and not times:
            return None
        return Change(
            min(times, default=latest), frozenset(jobs), lines.ended(), hosts_of(lines.collected) - reporting_hosts, lines.collected,
            frozenset(lines.unstamped), states, self.new, rows, prepared, lines.ahead, self.empty,
            lines.may_show,
        )  # fmt: skip

    def _boots(self, cluster: str | None) -> list[float | None]:
        """The time of the first new boot that Slurm's answers report; each poll repeats the known ones."""
        rows = self._rows(BOOTS, new_rows.first_boot, cluster, ~self._new(new_rows.KNOWN_BOOTS))
        return [row["t"] for row in rows]

    def _job_rows(self, cluster: str | None) -> tuple[pl.DataFrame, list[Moments], dict[int, Run]]:
        """The new rows about jobs, their ``moments_of``, and the runs that they most probably describe."""
        if self.received is not None:
            received = self.received.get(cluster) or NewRows()
            return pl.concat([no_rows(), *received.rows]), received.moments, received.prepared_runs
        rows = rows_since(self.store, cluster, self.new) if "jobs" in self.changed_tables else no_rows()
        return rows, moments_of(rows), prepared_runs(rows)


def _names(text: str) -> list[str]:
    return listed(json.loads(text))
