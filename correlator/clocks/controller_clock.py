"""Slurm's answers about jobs by a controller's clock that was off.

slurmctld gives accounting, squeue and scontrol their times, by the clock that also stamps its log. If other hosts show
that this clock was off, its lines are moved to true time (``Clocks.corrected``), and the rows about the same jobs have
to move with them: otherwise a run ends a minute after the link that it was lost with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import polars as pl

from correlator.clocks.accounting_zones import ACCOUNTING_SOURCES, SAME_S
from correlator.clocks.offset import Offset, clock_ahead
from correlator.clocks.signs import PAIR_ACCOUNTING
from correlator.model.nouns import Event

#: Of the answers, those that slurmctld stamps; hooks run by the clock of a node.
_BY_SLURMCTLD = (*ACCOUNTING_SOURCES, "sacct_json", "slurmrestd")
_TIMES = ("submit", "start", "end")


def shared_with_accounting(offsets: Iterable[Offset], hosts: Collection[str]) -> list[Offset]:
    """By how much slurmctld's clock was off that also gave accounting its times. ``hosts``: the controllers.

    None if accounting shows that the log is off, or if one of several controllers may have answered.
    """
    own = [o for o in offsets if o.host in hosts and not o.zone] if len(hosts) == 1 else []
    return [] if any(PAIR_ACCOUNTING in o.why for o in own) else own


def rows_in_true_time(
    table: pl.DataFrame, steps: list[dict[str, Any]], events: Iterable[Event], shared: Sequence[Offset] = ()
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Rows about jobs and their steps, moved where slurmctld's line about the same start was. ``events`` are in true time.

    Rows that show another start than the log are by another clock, and stay. Rows about jobs whose start the log does not
    show move as its lines of that time (``shared_with_accounting``).
    """
    shown: dict[int, list[tuple[float, float]]] = defaultdict(list)
    logged: set[int | None] = set()
    for event in events:
        if event.kind == "slurm.job_start" and event.source == "slurmctld" and event.job_id:
            logged.add(event.job_id)
            if event.clock_offset:
                shown[event.job_id].append((event.written_at, event.clock_offset))
    if not (shown or shared) or not table.height:
        return table, steps
    offsets = [
        (_offset(start, shown.get(job, ())) if job in logged else clock_ahead(shared, start))
        if source in _BY_SLURMCTLD and start is not None
        else 0.0
        for job, source, start in table.select("job_id", "source", pl.col("start").dt.epoch("us") / 1e6).iter_rows()
    ]
    by = pl.lit(pl.Series([timedelta(seconds=off) for off in offsets], dtype=pl.Duration("us")))
    moved = {job: off for job, off in zip(table["job_id"].to_list(), offsets, strict=True) if off}
    return table.with_columns(pl.col(name) - by for name in _TIMES), [
        step | {name: step[name] - timedelta(seconds=moved[step["job_id"]]) for name in _TIMES if step[name] is not None}
        if step["job_id"] in moved else step
        for step in steps
    ]  # fmt: skip


def _offset(start: float, shown: Iterable[tuple[float, float]]) -> float:
    """By how much the clock was off that showed this start; 0 if slurmctld's log does not show the same."""
    return next((off for at, off in shown if abs(start - int(at)) <= SAME_S), 0.0)
