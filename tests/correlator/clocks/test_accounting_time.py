"""Accounting files of ``sacct`` and similar in another zone than slurmctld's log: an export from a laptop."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

from correlator.clocks.accounting_zones import AccountingTime, accounting_time
from correlator.clocks.zone_votes import Stay
from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from correlator.model.moments import moment_of
from parsers.record import TABLES
from store import open_store
from store.functions import epoch
from store.questions.authority import Speakers
from store.tables import JOBS
from tests.correlator.making import T0
from tests.correlator.rows import CAPTURES, rows_of

HOUR = 3600.0


def table(name: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    schema = {column: TABLES[name][column] for column in TABLES[name]}
    return pl.DataFrame(
        [{column: row.get(column) for column in schema} for row in rows], schema=schema, infer_schema_length=None
    )


def allocated(job: int, at: float) -> dict[str, Any]:
    return {"time": moment_of(T0 + at + 0.4), "time_quality": "inferred", "host": "ctl", "source": "slurmctld", "event": "slurm.job_start",
            "job_id": job, "message": f"sched: Allocate JobId={job}", "raw": "x", "file": "slurmctld.log", "line": job}  # fmt: skip


def begun(job: int, at: float, file: str = "sacct.txt", source: str = "sacct") -> dict[str, Any]:
    return {
        "job_id": job,
        "start": moment_of(T0 + at),
        "end": moment_of(T0 + at + 60),
        "state": "COMPLETED",
        "source": source,
        "file": file,
    }


@dataclass(frozen=True)
class Case:
    """``hours`` that each file is ahead.

    ``epochs``: quarters of an hour by which epoch seconds are ahead of slurmctld's log.
    """

    name: str
    rows: list[dict[str, Any]]
    hours: dict[str, list[float]]
    epochs: frozenset[int] = frozenset()


def of(shift: float, jobs: Iterable[int], file: str = "sacct.txt", source: str = "sacct") -> list[dict[str, Any]]:
    return [begun(job, job * 100.0 + shift, file, source) for job in jobs]


CASES = [
    Case("as slurmctld writes", of(0, range(1, 9)), {}),
    Case("two hours ahead", of(2 * HOUR, range(1, 9)), {"sacct.txt": [2.0]}),
    Case("half hours", of(-4.5 * HOUR, range(1, 9)), {"sacct.txt": [-4.5]}),
    Case("one run that began when its node had booted", [*of(0, range(1, 8)), begun(8, 800 + 1 * HOUR)], {}),
    Case("to no quarter of an hour", of(2 * HOUR + 100, range(1, 9)), {}),
    Case("one of two files", [*of(0, range(1, 9)), *of(HOUR, range(1, 9), "laptop.txt")], {"laptop.txt": [1.0]}),
    Case("a file that is named like SQL", of(HOUR, range(1, 9), "o' OR 1=1 --.txt"), {"o' OR 1=1 --.txt": [1.0]}),
    Case("summer time began", [*of(HOUR, range(1, 5)), *of(2 * HOUR, range(5, 9))], {"sacct.txt": [1.0, 2.0]}),
    Case("epoch seconds tell of slurmctld's log", of(-2 * HOUR, range(1, 9), "j", "sacct_json"), {}, frozenset({-8})),
]  # fmt: skip


def found(rows: list[dict[str, Any]]) -> AccountingTime:
    with open_store(None) as store:
        store.add({"logs": table("logs", [allocated(n, n * 100.0) for n in range(1, 9)]), "jobs": table("jobs", rows)})
        return accounting_time(store, None, Speakers(everybody=True))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_allocations_show_in_which_zone_accounting_was_printed(case: Case) -> None:
    known = found(case.rows)
    hours = {file: [s.quarters / 4 for s in stays] for file, stays in known.stays.items()}
    assert {file: reported for file, reported in hours.items() if reported != [0.0]} == case.hours
    assert frozenset(known.epochs.values()) == case.epochs
    logged = {n: T0 + n * 100.0 + 0.4 for n in range(1, 9)}
    assert not known.contradicts(table("jobs", case.rows), logged), "what is known already asks for nothing"


def test_lines_in_slurmctlds_name_that_do_not_count_show_no_zone() -> None:
    """They are found by the first question, which asks for no writer, and left out by the second."""
    with open_store(None) as store:
        store.add({
            "logs": table("logs", [allocated(n, n * 100.0 + HOUR) for n in range(1, 9)]), "jobs": table("jobs", of(0, range(1, 9))),
        })  # fmt: skip
        assert accounting_time(store, None, Speakers()) == AccountingTime()
        assert accounting_time(store, None, Speakers(hosts=("ctl",))) != AccountingTime()


@pytest.mark.parametrize(
    ("more", "asks"),
    [(of(2 * HOUR, [9]), False), (of(HOUR, [9]), True), (of(0, [9]), True), (of(0, [9], "new.txt"), True)],
)
def test_a_row_in_another_zone_than_is_known_asks_for_a_look_at_everything(more: list[Any], asks: bool) -> None:
    known = found(of(2 * HOUR, range(1, 9)))
    assert known.contradicts(table("jobs", more), {9: T0 + 900.4}) is asks


def test_the_store_frames_and_rows_are_corrected_alike() -> None:
    ever = float("inf")
    known = AccountingTime(
        {"a": (Stay(-ever, T0, 4), Stay(T0, ever, 8)), "it's": (Stay(-ever, ever, -2),)}, (), {}, log_ahead=-900.0
    )
    rows = [begun(n, at, file, source) for n, (at, file, source) in enumerate(
        [(0.0, "a", "sacct"), (9000.0, "a", "sacct"), (0.0, "it's", "scontrol"), (0.0, "b", "sacct"), (0.0, "a", "sacct_json")])]  # fmt: skip
    off = [3600.0 - 900, 7200.0 - 900, -1800.0 - 900, -900.0, 0.0]
    jobs = table("jobs", rows)
    with open_store(None) as store:
        store.add({"jobs": jobs})
        question = sa.select(epoch(known.times.of_job(JOBS, "start")).label("t")).order_by(JOBS.c.job_id)
        by_store = [r["t"] - T0 for r in store.ask(question)]
    by_frame = (known.corrected(jobs)["start"].dt.epoch("us") / 1e6 - T0).to_list()
    steps = [{"submit": None, "start": r["start"], "end": None, "file": r["file"]} for r in rows[:4]]
    by_row = [(r["start"] - moment_of(T0)).total_seconds() for r in known.corrected_steps(steps, jobs[:4])]
    wanted = [(row["start"] - moment_of(T0)).total_seconds() - by for row, by in zip(rows, off, strict=True)]
    assert by_store == by_frame == wanted and by_row == wanted[:4]


def on_a_laptop(rows: dict[str, pl.DataFrame], hours: float) -> dict[str, pl.DataFrame]:
    """A capture whose accounting was exported in another zone."""
    ours = pl.col("file").str.contains("sacct.*psv$")
    moved = {
        name: rows[name].with_columns(
            pl.when(ours).then(pl.col(c) + timedelta(hours=hours)).otherwise(pl.col(c)).alias(c) for c in ("submit", "start", "end")
        )
        for name in ("jobs", "steps")
    }  # fmt: skip
    return rows | moved


def said(store: Any) -> dict[str, Any]:
    return {
        key: (v["category"], v["root_cause"], v["confidence"], v["summary"])
        for key, v in result(store)["verdicts"].items()
    }


@pytest.mark.parametrize("name", ["oom", pytest.param("mgmt_flap_requeue", marks=pytest.mark.long)])
def test_an_export_made_elsewhere_changes_no_verdict_and_is_reported(name: str) -> None:
    (folder,) = [c for c in CAPTURES if c.name == name]
    rows = rows_of(folder)
    with open_store(None) as right, open_store(None) as moved, open_store(None) as ticked:
        right.add(rows)
        correlate(right)
        moved.add(on_a_laptop(rows, 2.0))
        correlate(moved)
        assert said(moved) == said(right) != {}
        doubts = [d for v in result(moved)["verdicts"].values() for d in v["doubts"]]
        assert any("in another zone, 2 h ahead" in d for d in doubts), doubts
        ticker = Ticker(ticked)
        late = on_a_laptop(rows, 2.0)
        ticked.add({k: v for k, v in late.items() if k not in ("jobs", "steps")})
        ticker.tick()
        ticked.add({k: late[k] for k in ("jobs", "steps")})
        ticker.tick()
        assert json.dumps(said(ticked), sort_keys=True) == json.dumps(said(moved), sort_keys=True)
