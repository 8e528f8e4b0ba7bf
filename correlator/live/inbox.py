"""Collects rows as they are stored between two ticks, so that a tick, whose answer is waited for, need not query for
them.

The thread that stores rows announces them (``Door.announce``) and prepares what the next tick needs from them. Nothing
waits for that work: the rows were acknowledged before. A tick compares row counts. It uses the inbox only if the tables
have gained exactly the rows received, and queries the database otherwise.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import structlog

from correlator.gather.collected import USED, Spans, spans_in
from correlator.gather.events import Lines, Part, joined, prepared
from correlator.gather.runs_fast import prepared_runs
from correlator.gc_pause import long_lived
from correlator.model.json_text import from_json
from correlator.model.moments import all_seconds, moment_of, seconds
from correlator.model.nouns import Event, Run
from correlator.site.senders import NOBODY, Senders
from parsers.record import TABLES
from store.changes import Changes, growth
from store.line_frames import texts_of
from store.questions import event_lines, job_rows
from store.questions.job_output import may_show_pace
from store.questions.kernel_lines import may_show_clock
from store.questions.time_limits import may_change_limit

if TYPE_CHECKING:
    from store.door import Added, Door

log = structlog.get_logger()

#: Events that may end something: links, nodes, daemons and targets that recover.
ENDING = ("nic.", "switch.", "fabric.", "slurm.node_", "slurm.daemon_", "kernel.boot", "storage.")

#: Tables whose rows are collected; a tick queries the others.
FOLLOWED = ("logs", "jobs")

#: At most this many event lines and job rows wait for a tick, about a kilobyte each. Beyond that, as after a
#: standstill, the tick queries the database.
MOST_ROWS = 100_000

#: Fewer event lines than this wait for more until the tick: reading a batch takes a few milliseconds, however small it
#: is.
FEW_LINES = 500

#: Lines are kept beyond their tick if they are at most this many seconds older than the last one: later lines may be
#: copies.
KEPT_S = 30.0

#: A job, the first moment of its latest news, and the first moment of its beginning.
Moments = tuple[int, float | None, float | None]


class MayShow(NamedTuple):
    """What new lines may show that those of most clusters never do: the kernel's clock, a changed time limit, the pace
    of a job. Until one does, ticks need not query for it."""

    kernel_clock: bool
    new_limit: bool
    pace: bool

    def or_else(self, more: MayShow) -> MayShow:
        """What these lines and ``more`` may show."""
        return MayShow(*(one or other for one, other in zip(self, more, strict=True)))


NOTHING = MayShow(kernel_clock=False, new_limit=False, pace=False)
#: What lines may show that are not known.
EVERYTHING = MayShow(kernel_clock=True, new_limit=True, pace=True)


@dataclass
class NewRows:
    """What new rows contain about one cluster.

    ``lines`` counts the log lines, ``timed`` those with a time; ``earliest`` is the first time (epoch seconds).
    ``jobs`` are the jobs that they name and ``unstamped`` the jobs of lines without a time. On the hosts in ``ending``
    something may have ended. ``collected`` are the spans of the lines (gather/collected.py). Event lines are ``parts`` once read
    and ``loose`` before. ``rows`` are the rows about jobs, with their ``moments`` and the ``prepared_runs`` made of
    them.
    """

    lines: int = 0
    timed: int = 0
    earliest: float | None = None
    jobs: set[int] = field(default_factory=set)
    unstamped: set[int] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)
    collected: list[Spans] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    loose: list[pl.DataFrame] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)
    moments: list[Moments] = field(default_factory=list)
    prepared_runs: dict[int, Run] = field(default_factory=dict)
    may_show: MayShow = NOTHING

    def add(self, more: NewRows) -> None:
        self.lines += more.lines
        self.timed += more.timed
        self.earliest = min((t for t in (self.earliest, more.earliest) if t is not None), default=None)
        self.jobs |= more.jobs
        self.unstamped |= more.unstamped
        self.ending |= more.ending
        self.collected += more.collected
        self.parts += more.parts
        self.loose += more.loose
        self.rows += more.rows
        self.moments += more.moments
        self.prepared_runs |= more.prepared_runs
        self.may_show = self.may_show.or_else(more.may_show)

    @property
    def size(self) -> int:
        """The number of event lines and job rows."""
        return sum(part.lines.height for part in self.parts) + sum(rows.height for rows in (*self.loose, *self.rows))

    def read(self, senders: Senders) -> None:
        """Reads all loose event lines. ``senders``: whose addresses are known."""
        if self.loose:
            self.parts.append(prepared(pl.concat(self.loose), senders))
            self.loose = []


#: The number of rows received of each table in ``FOLLOWED``.
Received = tuple[int, ...]


@dataclass(frozen=True)
class Recalled:
    """All event lines of a cluster from ``since`` (epoch seconds) on."""

    since: float
    parts: Sequence[Part]

    def read(self, cut: float) -> tuple[list[Event], Lines] | None:
        """The events read from the lines at or after ``cut``; None if not all of those lines are here."""
        if cut < self.since:
            return None
        moment = moment_of(cut)
        assert moment is not None
        return joined([part.since(moment) for part in self.parts if part.holds(moment)] or [_nothing()])

    def recalled(self) -> Recalled:
        """The lines that the next tick need not read again."""
        return self

    def lately(self) -> Recalled:
        """The parts that reach into the last ``KEPT_S`` seconds before the last line."""
        until = max((part.last for part in self.parts), default=float("-inf")) - KEPT_S
        gone = [part.last for part in self.parts if part.last < until]
        return Recalled(
            max([self.since, *(last + BEHIND_S for last in gone)]), [p for p in self.parts if p.last >= until]
        )


#: The kept lines begin this far after the last dropped one, seconds: more than what a float loses of a microsecond.
BEHIND_S = 0.00001


class Inbox:
    """What a store added since the last tick. Any thread may store; one thread ticks."""

    def __init__(self, store: Door) -> None:
        self._store = store
        self._rows = tuple(0 for _ in FOLLOWED)
        self._waiting: deque[tuple[tuple[int, ...], Added]] = deque()
        self._received: deque[tuple[tuple[int, ...], dict[str | None, NewRows]]] = deque()
        self._size = 0
        #: Since this count no received rows were dropped; None until the first mark.
        self._whole_from: tuple[int, ...] | None = None
        self._one_at_a_time = threading.Lock()
        #: Lines by cluster that were received or read already.
        self.recalled: dict[str | None, Recalled] = {}
        #: Whose addresses are known, by cluster.
        self.senders: Mapping[str | None, Senders] = {}
        store.listeners.add(self)

    def on_added(self, added: Added) -> None:
        """See ``store.door.Listener``."""
        more = [sum(rows.height for name, rows in added if name == table) for table in FOLLOWED]
        after = tuple(map(sum, zip(self._rows, more, strict=True)))
        if self._whole_from is not None and any(more):
            self._waiting.append((after, [(name, rows) for name, rows in added if name in FOLLOWED]))
        self._rows = after

    def digest(self) -> None:
        """Prepares what was received. Unreadable rows are dropped: the query that fetches them later reports the error."""
        with self._one_at_a_time:
            self._read_waiting()

    def mark(self) -> Received | None:
        """The count of rows received so far; None while more are being committed.

        Rows are collected from the first mark on: a tick takes the inbox to hold all rows after its mark.
        """
        if self._whole_from is None:
            self._whole_from = self._rows
        rows = self._rows
        return None if self._store.is_notifying else rows

    def take(
        self, since: Received | None, until: Received | None, changes: Changes
    ) -> dict[str | None, NewRows] | None:
        """What the rows between two marks contain, by cluster, and removes it from the inbox.

        Returns None unless these rows are all that changed in the tables meanwhile.
        """
        with self._one_at_a_time:
            self._read_waiting()
            found: dict[str | None, NewRows] = {}
            whole, self._whole_from = self._whole_from, self._rows if until is None else until
            while self._received and self._received[0][0] <= self._whole_from:
                for cluster, new_rows in self._received.popleft()[1].items():
                    found.setdefault(cluster, NewRows()).add(new_rows)
                    self._size -= new_rows.size
        if since is None or until is None or changes.too_old or any(c.amended for c in changes.tables.values()):
            self.recalled.clear()
            return None
        rows = {table: now - then for table, then, now in zip(FOLLOWED, since, until, strict=True)}
        if whole is None or whole > since or any(rows[table] != growth(changes.tables[table]) for table in FOLLOWED):
            return None
        for cluster, new_rows in found.items():
            new_rows.read(self.senders.get(cluster, NOBODY))
        return found

    def keep(self, cluster: str | None, lines: Recalled) -> None:
        """Keeps the lines that the next tick may need again."""
        self.recalled[cluster] = lines.lately()

    def _read_waiting(self) -> None:
        while self._waiting:
            until, added = self._waiting.popleft()
            try:
                found = _new_rows(added, self.senders)
            except Exception:
                log.warning("new rows cannot be read ahead; the next tick asks the database for them", exc_info=True)
                self._leave_out(until)
                continue
            self._received.append((until, found))
            self._size += sum(new_rows.size for new_rows in found.values())
            if self._size > MOST_ROWS:
                self._leave_out(until)

    def _leave_out(self, until: tuple[int, ...]) -> None:
        self._received.clear()
        self._size = 0
        self._whole_from = until


def _new_rows(added: Added, senders: Mapping[str | None, Senders]) -> dict[str | None, NewRows]:
    """What the rows of one transaction contain, by cluster."""
    with long_lived():  # scanning the events is a tenth of the time, and the next tick would have to
        return _read(added, senders)


def _read(added: Added, senders: Mapping[str | None, Senders]) -> dict[str | None, NewRows]:
    found: dict[str | None, NewRows] = {}
    for name, rows in added:
        for cluster, new_rows in _of_lines(rows) if name == "logs" else _of_jobs(rows):
            found.setdefault(cluster, NewRows()).add(new_rows)
    for cluster, new_rows in found.items():
        if sum(rows.height for rows in new_rows.loose) >= FEW_LINES:
            new_rows.read(senders.get(cluster, NOBODY))
    return found


def _of_lines(lines: pl.DataFrame) -> Iterator[tuple[str | None, NewRows]]:
    events = _events_in(lines)
    # Of any cluster: if one has such lines, most do.
    may_show = MayShow(*lines.select(clock=may_show_clock(), limit=may_change_limit(), pace=may_show_pace()).row(0))
    for cluster, of_all in _by_cluster(lines.select("cluster", "job_id", *USED)):
        times, jobs = of_all["time"], of_all["job_id"]
        untimed = jobs.filter(times.is_null()).to_list() if times.null_count() else []
        ours = events
        if of_all.height < lines.height:  # others are of another cluster
            ours = events.filter(pl.col("cluster").eq_missing(pl.lit(cluster, pl.String)))
        timed = ours.drop_nulls("time") if ours["time"].null_count() else ours
        yield cluster, NewRows(
            of_all.height, of_all.height - times.null_count(), seconds(times.dt.epoch("us").min()),  # type: ignore[arg-type]
            set(jobs.unique().to_list()) - {None}, set(untimed) - {None},
            ending_in(ours), [spans_in(of_all)], loose=[timed] if timed.height else [],
            may_show=may_show,
        )  # fmt: skip


def _events_in(lines: pl.DataFrame) -> pl.DataFrame:
    """The lines that mean an event, with the columns of ``raw.log_view`` that an event needs."""
    words = pl.col("message").fill_null(pl.col("raw").str.slice(pl.col("msg_start")))
    ours = lines.lazy().filter(pl.col("event") != "other")
    return ours.with_columns(words, *texts_of(lines)).select(event_lines.COLUMNS).collect(engine="in-memory")


def _of_jobs(rows: pl.DataFrame) -> Iterator[tuple[str | None, NewRows]]:
    for cluster, of_all in _by_cluster(job_rows.rows_by_slurm(rows.filter(pl.col("job_id").is_not_null()))):
        ours = of_all.select(job_rows.COLUMNS)
        yield cluster, NewRows(rows=[ours], moments=moments_of(ours), prepared_runs=prepared_runs(ours))


def _by_cluster(rows: pl.DataFrame) -> Iterator[tuple[str | None, pl.DataFrame]]:
    clusters = rows["cluster"].unique().to_list()
    for cluster in clusters:
        own = pl.col("cluster").eq_missing(pl.lit(cluster, pl.String))
        yield cluster, rows.filter(own) if len(clusters) > 1 else rows


@cache
def _nothing() -> Part:
    return prepared(pl.DataFrame(schema={name: TABLES["logs"][name] for name in event_lines.COLUMNS}))


def ending_in(lines: pl.DataFrame) -> set[str]:
    """Hosts on which something may have ended according to event lines."""
    kinds = [kind for kind in lines["event"].unique().to_list() if kind.startswith(ENDING)]
    ending = lines.filter(pl.col("event").is_in(kinds)).select("host", "entities")
    found = {host for host in ending["host"].unique().to_list() if host}
    entities = ending["entities"].unique()
    for text in entities.filter(entities.str.contains('"nodes"', literal=True)).to_list():  # a few of very many texts
        nodes = from_json(text).get("nodes")
        found.update(listed(nodes) if nodes else [])
    return found


def listed(value: object) -> list[str]:
    return [str(n) for n in value] if isinstance(value, list) else [str(value)]


def moments_of(rows: pl.DataFrame) -> list[Moments]:
    """For each job, the first moment of its latest news and of its beginning according to its rows."""
    found = rows.group_by("job_id").agg(
        pl.coalesce("end", "observed_at", "start", "submit").dt.epoch("us").min().alias("told"),
        pl.coalesce("start", "submit", "end").dt.epoch("us").min().alias("begun"),
    )
    return list(zip(found["job_id"].to_list(), all_seconds(found["told"]), all_seconds(found["begun"]), strict=True))
