"""When the event lines without a time were probably written.

A program wrote such a line between the stamped lines before and after it. In a file without timestamps it was near the
end of the run, which is when programs write errors: the end from accounting, else from slurmctld, else the last line
that names the job.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import TYPE_CHECKING

import polars as pl

from correlator.model.moments import UNSTAMPED_S
from parsers.record import TABLES
from store.questions import event_lines
from store.questions.authority import Speakers
from store.questions.times import AS_WRITTEN

if TYPE_CHECKING:
    from correlator.clocks.clocks import AccountingTime
    from store.door import Asks, Question

_MOMENT = pl.Datetime("us")
#: A run: its job and how often that was restarted, which is null if the run is unknown.
_RUN = {"job_id": pl.Int64, "restarts": pl.Int64}


def placed(
    store: Asks,
    cluster: str | None,
    speakers: Speakers,
    jobs: Collection[int] | None = None,
    known: AccountingTime | None = None,
) -> pl.DataFrame:
    """The event lines without a time, with the time at which they were probably written; those of ``jobs``, or all.

    ``speakers``: which of slurmctld's lines count for the ends of jobs. ``known``: the zones of accounting.
    """
    listed: list[int] = []
    if jobs is None or jobs:
        wanted = set(map(itemgetter("job_id"), store.ask(event_lines.jobs_of_unstamped(cluster))))
        listed = sorted(wanted if jobs is None else wanted.intersection(jobs))
    if not listed:
        return pl.DataFrame(schema={name: TABLES["logs"][name] for name in event_lines.COLUMNS})
    rows = _Placing(store, cluster, listed).moments(speakers, known)
    return rows.filter(pl.col("time").is_not_null()).select(event_lines.COLUMNS).with_columns(
        time_quality=pl.lit("inferred"), resolution_us=pl.lit(int(UNSTAMPED_S * 2e6), pl.Int64)
    )  # fmt: skip


class _Placing:
    """Gives lines their time, source after source.

    Each source is asked about the lines that those before it left without one, and not at all if there are none. One
    query for everything took the engine 30 ms to plan, for no more than a few lines.
    """

    def __init__(self, store: Asks, cluster: str | None, jobs: list[int]) -> None:
        self._store, self._cluster = store, cluster
        self._rows = store.ask_frame(event_lines.unstamped(cluster, jobs))

    def moments(self, speakers: Speakers, known: AccountingTime | None) -> pl.DataFrame:
        """The lines with ``time``, null where nothing gives it."""
        times = known.times if known else AS_WRITTEN
        self._between_stamps()
        if open_jobs := self._open_jobs():
            ends = self._ends(event_lines.ends(self._cluster, open_jobs, times))
            self._at_end(ends)
            if unknown := sorted(set(self._open_jobs()).difference(ends["job_id"])):
                self._at_end(self._ends(event_lines.logged_ends(self._cluster, unknown, speakers, times)))
        self._fill("before")
        if open_jobs := self._open_jobs():
            last = pl.DataFrame(
                self._store.ask(event_lines.last_lines(self._cluster, open_jobs)),
                schema={"job_id": pl.Int64, "last": _MOMENT},
            )
            self._rows = self._rows.join(last, on="job_id", how="left", maintain_order="left")
            self._fill("last")
        return self._rows

    def _between_stamps(self) -> None:
        """Adds ``time``, from the stamped line after each; ``before``; and ``restarts`` of the run that wrote the file."""
        files = sorted(set(self._rows["file"].drop_nulls()))
        around = pl.DataFrame(
            self._store.ask(event_lines.stamps_around(files)),
            schema={"file": pl.String, "line": pl.Int64, "before": _MOMENT, "behind": _MOMENT},
        )
        runs = pl.DataFrame(
            self._store.ask(event_lines.runs_of_files(files)), schema={"file": pl.String, "restarts": pl.Int64}
        )
        rows = self._rows.join(around, on=["file", "line"], how="left", maintain_order="left")
        rows = rows.join(runs, on="file", how="left", maintain_order="left")
        self._rows = rows.rename({"behind": "time"}).with_columns(pl.col("job_id", "restarts").cast(pl.Int64))

    def _open_jobs(self) -> list[int]:
        """The jobs of lines that have no time yet."""
        return sorted(set(self._rows.filter(pl.col("time").is_null())["job_id"]))

    def _ends(self, question: Question) -> pl.DataFrame:
        return pl.DataFrame(self._store.ask(question), schema=_RUN | {"ended": _MOMENT})

    def _at_end(self, ends: pl.DataFrame) -> None:
        """The end of the run that wrote a line; of the job's last run if the run is unknown."""
        last = ends.group_by("job_id").agg(pl.lit(None, pl.Int64).alias("restarts"), pl.col("ended").max())
        both = pl.concat([ends, last.select(ends.columns)])
        self._rows = self._rows.join(both, on=list(_RUN), how="left", nulls_equal=True, maintain_order="left")
        self._fill("ended")

    def _fill(self, name: str) -> None:
        """Gives the lines without a time that of a column, which is dropped."""
        self._rows = self._rows.with_columns(time=pl.coalesce("time", name)).drop(name)
