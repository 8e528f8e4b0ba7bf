"""The time zones of accounting files: Slurm's commands write the local time of the machine they run on.

``sacct``, ``scontrol`` and the text file of ``jobcomp`` name no zone, and they need not run where slurmctld does: an
export made on a laptop is in the laptop's zone. slurmctld logs an allocation at the moment that accounting holds as the
start of the run. If the two are whole quarters of an hour apart for several jobs, the file is in another zone than
slurmctld's log. Sources that write epoch seconds have no zone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from correlator.clocks.zone_votes import LEAST, MOST, QUARTER_S, Stay, Vote, hours_off, zones
from correlator.model.moments import seconds_of
from store.questions import allocations, job_rows
from store.questions.authority import Speakers
from store.questions.times import Shift, WrittenTimes

if TYPE_CHECKING:
    from store.door import Asks

#: Sources of job rows that write local time without a zone (parsers/documents).
ACCOUNTING_SOURCES = ("sacct", "jobcomp", "scontrol", "squeue")

#: Sources that write epoch seconds, which also show in which zone slurmctld's log is.
EPOCHS = ("sacct_json", "slurmrestd", "hook")

#: slurmctld writes the line in the second that accounting holds; a larger difference is a start that was set otherwise
#: (a node that had to boot).
SAME_S = 2.0

_Word = tuple[float, tuple[str, ...]]


def _nobody() -> list[_Word]:
    return []


#: At most this many files are named as being in another zone.
FILES = 2


@dataclass(frozen=True)
class AccountingTime:
    """The zones of accounting files, relative to slurmctld's log.

    ``stays`` holds the zones of each file and ``default_stays`` those of files without evidence. ``epochs`` is, by job,
    how many quarters of an hour epoch seconds are ahead of the log. ``odd`` are votes that are not believed.
    """

    stays: Mapping[str, tuple[Stay, ...]] = field(default_factory=dict)
    default_stays: tuple[Stay, ...] = ()
    epochs: Mapping[int, int] = field(default_factory=dict)
    odd: frozenset[tuple[str, int, int]] = frozenset()
    #: How far slurmctld's log itself is ahead of true time, in seconds, and accounting files with it.
    log_ahead: float = 0.0

    @property
    def as_logged(self) -> AccountingTime:
        """Moves accounting times to slurmctld's log, not to true time."""
        return replace(self, log_ahead=0.0)

    @property
    def furthest(self) -> float:
        """The largest distance of an accounting time from true time, seconds."""
        stays = (stay for some in (*self.stays.values(), self.default_stays) for stay in some)
        return max((abs(s.quarters * QUARTER_S + self.log_ahead) for s in stays), default=abs(self.log_ahead))

    def __bool__(self) -> bool:
        return bool(self.stays or self.default_stays or self.log_ahead)

    def words(self) -> list[str]:
        """What was corrected, in sentences for people."""
        return self._words

    @cached_property
    def _words(self) -> list[str]:
        off = {
            file: {self.log_ahead + s.quarters * QUARTER_S for s in stays} for file, stays in sorted(self.stays.items())
        }
        offsets = off or {"Accounting": {self.log_ahead}}
        found = [
            f"{file.rsplit('/', 1)[-1]} was printed in another zone, {' and '.join(zones)}; its times are shown where they belong"
            for file, some in offsets.items() if (zones := [words for s in sorted(some) if (words := hours_off(s))])
        ]  # fmt: skip
        return [*found[:FILES], *([f"So were {len(found) - FILES} more files"] if len(found) > FILES else [])]

    def of_file(self, file: str | None, source: str) -> list[tuple[float, float, float]]:
        """(from, until, seconds): the file is ``seconds`` ahead while its own times are in this range."""
        if source in EPOCHS or not self:
            return []
        stays = self.stays.get(file or source, self.default_stays) or (Stay(float("-inf"), float("inf"), 0),)
        found = []
        for stay in stays:
            off = stay.quarters * QUARTER_S
            found.append((stay.start + off, stay.end + off, off + self.log_ahead))
        return [one for one in found if one[2]]

    def ahead(self, file: str | None, source: str, time: float) -> float:
        """How far a time in a file is ahead, seconds."""
        return next((off for start, end, off in self.of_file(file, source) if start <= time <= end), 0.0)

    @property
    def times(self) -> WrittenTimes:
        """The same offsets in the form that queries take."""
        shifts = [Shift(file, *one) for file in [*sorted(self.stays), None] for one in self.of_file(file or "", "")]
        return WrittenTimes(shifts, EPOCHS, self.log_ahead)

    def corrected(self, table: pl.DataFrame, columns: Sequence[str] = ("submit", "start", "end")) -> pl.DataFrame:
        """Rows about jobs in true time."""
        if not self or not table.height:
            return table
        name = pl.coalesce("file", "source")
        off: dict[str, pl.Expr] = {column: pl.lit(0.0) for column in columns}
        for file, source in table.select("file", "source").unique().iter_rows():
            for start, end, seconds in self.of_file(file, source or ""):
                ours = (name == (file or source)) & (pl.col("source") == source)
                for column in columns:
                    shown = pl.col(column).dt.epoch("us") / 1e6
                    off[column] = pl.when(ours & (shown >= start) & (shown <= end)).then(seconds).otherwise(off[column])
        return table.with_columns(
            pl.col(column) - pl.duration(microseconds=(off[column] * 1e6).cast(pl.Int64)) for column in columns
        )

    def corrected_steps(self, steps: list[dict[str, Any]], jobs: pl.DataFrame) -> list[dict[str, Any]]:
        """Rows about steps in true time. ``jobs``: rows about their jobs, which give the source of each file."""
        if not self:
            return steps
        sources = dict(jobs.select("file", "source").drop_nulls().unique().iter_rows())
        return [
            step | {c: self._earlier(step[c], step["file"], sources.get(step["file"], "")) for c in ("submit", "start", "end")}
            for step in steps
        ]  # fmt: skip

    def _earlier(self, moment: datetime | None, file: str | None, source: str) -> datetime | None:
        shown = seconds_of(moment)
        return None if moment is None or shown is None else moment - timedelta(seconds=self.ahead(file, source, shown))

    def contradicts(self, rows: pl.DataFrame, allocated: Mapping[int, float]) -> bool:
        """Do rows about jobs show other zones than the known ones?

        ``allocated`` is when slurmctld's log shows the allocation of jobs that began only once.
        """
        if not allocated or not rows.height:
            return False
        if not self.stays and not self.epochs and not _any_far(rows, allocated):
            return False  # the common case, on every tick
        begun = rows.filter(pl.col("start").is_not_null() & pl.col("source").is_in([*ACCOUNTING_SOURCES, *EPOCHS]))
        logged = pl.DataFrame(
            {"job_id": list(allocated), "t": list(allocated.values())}, schema={"job_id": pl.Int64, "t": pl.Float64}
        )
        start, quarters = pl.col("start").dt.epoch("us") / 1e6, pl.col("quarters")
        differences = begun.join(logged, on="job_id").select(
            pl.coalesce("file", "source").alias("file"), "source", "job_id", "t", (start - pl.col("t").floor()).alias("off")
        ).with_columns((pl.col("off") / QUARTER_S).round().alias("quarters"))  # fmt: skip
        quarters_off = differences.filter(
            (pl.col("off") - quarters * QUARTER_S).abs() <= SAME_S,
            (quarters == 0) | quarters.abs().is_between(LEAST, MOST),
        )
        if not self.stays and not self.epochs:
            quarters_off = quarters_off.filter(quarters != 0)
        return any(
            (r["file"], r["job_id"], int(r["quarters"])) not in self.odd and self._is_new(r)
            for r in quarters_off.iter_rows(named=True)
        )

    def _is_new(self, vote: Mapping[str, Any]) -> bool:
        if vote["source"] in EPOCHS:
            known = self.epochs.get(vote["job_id"], round(-self.log_ahead / QUARTER_S))
            return bool(known != vote["quarters"])
        if vote["file"] not in self.stays:
            return bool(vote["quarters"] or self.stays)
        known_quarters = (s.quarters for s in self.stays[vote["file"]] if s.start <= vote["t"] <= s.end)
        return bool(next(known_quarters, 0) != vote["quarters"])


def _any_far(rows: pl.DataFrame, allocated: Mapping[int, float]) -> bool:
    """Does any run begin at least the smallest zone difference from its allocation?"""
    logged = np.array([allocated.get(job, np.nan) for job in rows["job_id"].to_list()])
    starts = rows["start"].dt.epoch("us").to_numpy() / 1e6  # not a number where there is none
    return bool((np.abs(logged - starts) > LEAST * QUARTER_S - SAME_S - 1).any())


TRUE_ACCOUNTING_TIME = AccountingTime()


@dataclass(frozen=True)
class Books:
    """What accounting shows about zones.

    ``failures()`` returns (time by slurmctld's log, nodes) of runs that ended because a node failed. ``rows`` are new
    rows about jobs.
    """

    accounting_time: AccountingTime = field(default_factory=AccountingTime)
    failures: Callable[[], list[_Word]] = _nobody
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)


NO_BOOKS = Books()


def accounting_time(store: Asks, cluster: str | None, speakers: Speakers) -> AccountingTime:
    """The zones in which files give job times, from all stored rows. ``speakers``: which lines of slurmctld count."""
    sources, limits = (*ACCOUNTING_SOURCES, *EPOCHS), (SAME_S, LEAST, MOST)
    if not store.ask(allocations.any_in_another_zone(cluster, sources, *limits)):
        return AccountingTime()
    pairs = store.ask(allocations.pairs(cluster, speakers, sources, *limits))
    if not any(row["quarters"] for row in pairs):  # a job that ran twice has allocations far from each other
        return AccountingTime()
    votes_by_file: dict[str, list[Vote]] = defaultdict(list)
    epochs: dict[int, int] = {}
    for row in pairs:
        if row["source"] in EPOCHS:
            epochs[row["job_id"]] = row["quarters"]
        else:
            rest = row["off"] - row["quarters"] * QUARTER_S
            votes_by_file[row["file"]].append(Vote(row["t"], row["job_id"], row["quarters"], rest, True))
    return _of_votes(votes_by_file, epochs)


def _of_votes(votes_by_file: Mapping[str, list[Vote]], epochs: Mapping[int, int]) -> AccountingTime:
    votes = {file: sorted(some) for file, some in votes_by_file.items()}
    found = {file: zones({file: some}, (), ()).get(file) for file, some in votes.items()}
    stays = {file: zoned.stays if (zoned := found[file]) and not zoned.doubt else _EVERYWHERE for file in votes}
    odd = frozenset(
        (file, vote.job, vote.quarters) for file, some in votes.items() for vote in some
        if vote.quarters != next((s.quarters for s in stays[file] if s.start <= vote.time <= s.end), 0)
    )  # fmt: skip
    if not any(stay.quarters for some in stays.values() for stay in some):
        return AccountingTime(epochs=epochs if any(epochs.values()) else {}, odd=odd)
    return AccountingTime(stays, _common(stays.values()), epochs, odd)


_EVERYWHERE = (Stay(float("-inf"), float("inf"), 0),)


def _common(some: Iterable[tuple[Stay, ...]]) -> tuple[Stay, ...]:
    """The zones that all files share; empty if they differ."""
    different = set(some)
    return different.pop() if len(different) == 1 else ()


def node_failures(store: Asks, cluster: str | None, known: AccountingTime) -> list[_Word]:
    """The rows that ``Books.failures`` returns."""
    return [
        (row["t"] - known.ahead(row["file"], row["source"], row["t"]), tuple(row["nodes"]))
        for row in store.ask(job_rows.node_failures(cluster, ACCOUNTING_SOURCES))
    ]
