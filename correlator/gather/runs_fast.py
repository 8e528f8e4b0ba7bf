"""The fast path for plain jobs, column by column.

A plain job has one accounting row about a finished run, and at most one allocation in slurmctld's log, at the same
moment. Nearly all jobs are plain. slurmctld's lines could add nothing, so the run equals its row. ``runs.assemble``
would give the same result row by row, in five times the time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate, groupby, pairwise
from sys import intern
from types import MappingProxyType
from typing import Any

import polars as pl

from correlator.gather.events import shared
from correlator.model.daemon_words import HEAD
from correlator.model.moments import all_seconds
from correlator.model.nouns import Event, Run
from parsers.job_states import OPEN
from store.line_frames import different

#: The fields of its rows that a run keeps besides its own attributes: there are very many runs.
KEPT = (
    "array_job_id", "array_task_id", "name", "user", "uid", "account", "partition", "cancelled_by", "exit_code", "exit_signal",
    "submit", "start", "end", "time_limit_s", "node_list", "gpus", "gpu_index", "work_dir", "submit_line", "failed_node", "reason",
)  # fmt: skip

#: Sources that take precedence over slurmctld's log for a finished run.
ACCOUNTING = ("sacct", "sacct_json", "slurmrestd", "jobcomp", "scontrol", "squeue")

#: slurmd's last line about a job whose prolog failed and that may not be requeued (slurm src/slurmd/slurmd/req.c).
_GIVEN_UP = "not able to requeue it, cancelling job"
_GIVEN_UP_WORDS = re.compile(rf"{HEAD}(?i:could not launch job(?:id=| ))\S+ and {_GIVEN_UP}")

#: No prepared runs.
EMPTY: Mapping[int, Run] = MappingProxyType({})

#: An allocation this near to the start in accounting is certainly the same: within ``runs.LOGGED_START_S`` despite
#: rounding.
SAME_MOMENT_S = 29.0


def prepared_runs(table: pl.DataFrame) -> dict[int, Run]:
    """The runs that ``plain_runs`` would make of rows, by job, as long as nothing else is known of these jobs."""
    return {run.job_id: run for run in _runs(table.filter(_without_exceptions()))} if table.height else {}


@cache
def _without_exceptions() -> pl.Expr:
    return _complete() & pl.col("job_id").is_unique()


def plain_runs(
    table: pl.DataFrame, events: Iterable[Event], others: Collection[int], prepared: Mapping[int, Run] = EMPTY
) -> tuple[list[Run], pl.DataFrame]:
    """The runs of plain jobs, in no order, and the rows of the other jobs.

    ``others``: jobs that are not plain. ``prepared``: ``prepared_runs`` of some of the rows.
    """
    if table["job_id"].null_count():
        table = table.filter(pl.col("job_id").is_not_null())
    if table.height == 0:
        return [], table
    started, tasks, doubtful = _allocations(events)
    logged = pl.Series([started.get(job) for job in table["job_id"].to_list()], dtype=pl.Float64)
    tests = [
        _without_exceptions(),
        ((pl.col("start").dt.epoch("us") / 1e6 - logged).abs() <= SAME_MOMENT_S).fill_null(True),
    ]
    if doubtful or others:
        tests.append(~pl.col("job_id").is_in([*doubtful, *others]))
    if tasks:
        tests.append(
            ~pl.col("job_id").is_in(list(tasks))
            | pl.all_horizontal(pl.col("array_job_id", "array_task_id").is_not_null())
        )
    # Nearly all rows are plain, and have many columns: one mask says which, so that few rows are copied.
    is_plain = table.select(pl.all_horizontal(tests)).to_series()
    jobs = table["job_id"].filter(is_plain).to_list()
    made = [prepared[job] for job in jobs if job in prepared]
    if len(made) < len(jobs):
        made += _runs(table.filter(is_plain & ~table["job_id"].is_in(list(prepared))))
    return made, table.filter(~is_plain)


def _complete() -> pl.Expr:
    """Selects rows about finished runs to which slurmctld's log could add nothing."""
    given = [pl.col(name).is_not_null() & (pl.col(name) != "") for name in ("node_list", "partition")]
    return pl.all_horizontal(
        pl.col("source").is_in(ACCOUNTING), ~pl.col("state").is_in(sorted(OPEN)), pl.col("exit_code").is_not_null(),
        pl.col("end") >= pl.col("start"), pl.col("nodes").list.len() > 0, *given,
    ).fill_null(False)  # fmt: skip


def _allocations(events: Iterable[Event]) -> tuple[dict[int, float], set[int], set[int]]:
    """When slurmctld allocated each job, which jobs it called array tasks, and which jobs are not plain.

    The last are those that started more than once or that a node gave up.
    """
    started: dict[int, float] = {}
    tasks: set[int] = set()
    doubtful: set[int] = set()
    for event in events:
        if event.kind == "slurm.job_start" and event.source == "slurmctld":
            if (job := event.job_id) is None:
                continue
            if job in started:
                doubtful.add(job)
            if "array_job_id" in event.entities or "array_task" in event.entities:
                tasks.add(job)
            started[job] = event.time
        elif event.source == "slurmd" and event.job_id is not None and is_given_up(event.message):
            doubtful.add(event.job_id)
    return started, tasks, doubtful


def is_given_up(message: str) -> bool:
    """Is it slurmd's line that it cancels a job which it could not launch?"""
    return _GIVEN_UP in message and _GIVEN_UP_WORDS.search(message) is not None


def _runs(rows: pl.DataFrame) -> list[Run]:
    array = pl.concat_str("array_job_id", pl.lit("_"), "array_task_id")  # null if either is null
    restarts = pl.col("restarts").fill_null(0)
    again = pl.when(restarts != 0).then(pl.concat_str(pl.lit("#"), restarts)).otherwise(pl.lit(""))
    names = rows.select(array.fill_null(pl.col("job_id").cast(pl.String)) + again).to_series()
    hosts, places = different(rows["nodes"].explode())
    hosts = [intern(h) for h in hosts]
    listed = list(map(hosts.__getitem__, places.to_list()))
    cuts = pairwise(accumulate(rows["nodes"].list.len().to_list(), initial=0))
    return list(map(
        Run, names.to_list(), rows["job_id"].to_list(), rows["restarts"].fill_null(0).to_list(), shared(rows["state"]),
        [tuple(listed[first:end]) for first, end in cuts], *(all_seconds(rows[name].dt.epoch("us")) for name in ("submit", "start", "end")),
        rows_of(rows.select(KEPT)),
    ))  # fmt: skip


class Row(Mapping[str, Any]):
    """The fields of a row that have a value, as in ``stated_rows``.

    The rows of a table share its columns: there are very many rows, and few are read.
    """

    __slots__ = ("columns", "place")

    def __init__(self, columns: Mapping[str, list[Any]], place: int) -> None:
        self.columns, self.place = columns, place

    def get(self, name: str, default: Any = None) -> Any:
        column = self.columns.get(name)
        value = None if column is None else column[self.place]
        return default if value is None else value

    def __getitem__(self, name: str) -> Any:
        value = self.columns[name][self.place]
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        column = self.columns.get(name)  # type: ignore[call-overload]
        return column is not None and column[self.place] is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name, column in self.columns.items() if column[self.place] is not None)

    def __len__(self) -> int:
        return sum(column[self.place] is not None for column in self.columns.values())


def rows_of(table: pl.DataFrame) -> list[Row]:
    """The rows of ``stated_rows``, for a table without list columns."""
    table = table.with_columns(pl.col(pl.String).replace("", None))
    columns = {column.name: _values(column) for column in table if column.null_count() < len(column)}
    return [Row(columns, place) for place in range(table.height)]


#: Moments as the store has them: in UTC, without a zone.
_MOMENTS = pl.Datetime("us")


def _values(column: pl.Series) -> list[Any]:
    if column.dtype == pl.String:
        return shared(column)
    # NumPy makes the objects of 2,000 moments in 0.05 ms, Polars in 0.4.
    found: list[Any] = column.to_numpy().tolist() if column.dtype == _MOMENTS else column.to_list()
    return found


class Fields:
    """Reads one field of many rows at a time."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._parts: list[tuple[Mapping[str, list[Any]] | None, list[Any]]] = []
        for _, some in groupby(rows, lambda row: id(row.columns) if type(row) is Row else None):
            part = list(some)
            shared_by = [row for row in part if type(row) is Row]
            self._parts.append((shared_by[0].columns, [row.place for row in shared_by]) if shared_by else (None, part))

    def of(self, name: str) -> list[Any]:
        found: list[Any] = []
        for columns, part in self._parts:
            if columns is None:
                found += [row.get(name) for row in part]
            else:
                found += map(columns[name].__getitem__, part) if name in columns else [None] * len(part)
        return found


def stated_rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows without the fields that have no value; column by column, because there are many rows."""
    whole: dict[str, list[Any]] = {}
    gaps: dict[str, list[Any]] = {}
    for column in table:
        nothing = column.null_count()
        if nothing < len(column):
            values = shared(column) if column.dtype == pl.String else column.to_list()
            empty: Any = "" if column.dtype == pl.String else [] if column.dtype == pl.List else None
            (gaps if nothing or (empty is not None and empty in values) else whole)[column.name] = values
    rows = [dict(zip(whole, values, strict=True)) for values in zip(*whole.values(), strict=True)]
    for name, values in gaps.items():
        for row, value in zip(rows, values, strict=True):
            if value not in NOTHING:
                row[name] = value
    return rows


#: Values of a field that count as no value.
NOTHING: tuple[Any, ...] = (None, "", [])
