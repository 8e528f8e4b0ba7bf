"""Which user a run belongs to: accounting decides, then root's hooks, never a user's word.

A contradiction leaves it without an owner.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl

from correlator.gather.runs import gather, of_table
from correlator.live.ticker import Ticker
from parsers.record import TABLES, frame
from store import open_store
from store.questions.job_rows import COLUMNS, job_rows, rows_by_slurm

START = datetime(2026, 11, 21, 10)


def row(source: str, user: str | None, **reported: Any) -> dict[str, Any]:
    common = {
        "job_id": 15, "user": user, "state": "FAILED", "exit_code": 1, "submit": START, "start": START,
        "end": START + timedelta(hours=1), "node_list": "gpu01", "nodes": ["gpu01"], "partition": "p", "source": source,
    }  # fmt: skip
    return {**common, **reported}


def hook(user: str, after: timedelta, **reported: Any) -> dict[str, Any]:
    at = START + after
    return {"job_id": 15, "user": user, "source": "hook", "end": at, "observed_at": at, **reported}


def runs(*rows: dict[str, Any]) -> list[Any]:
    table = pl.DataFrame(
        [{name: r.get(name) for name in COLUMNS} for r in rows], schema={n: TABLES["jobs"][n] for n in COLUMNS}
    )
    return of_table(table, [], [])


def test_sources_that_agree_are_no_dispute() -> None:
    (run,) = runs(row("sacct", "alice", uid=1), row("squeue", "alice"), hook("alice", timedelta(hours=1), uid=1))
    assert run.row["user"] == "alice" and "disputed" not in run.row


def test_a_name_that_squeue_cut_is_the_same_name() -> None:
    (run,) = runs(row("sacct", "bartholomew"), row("squeue", "bartholo"))
    assert run.row["user"] == "bartholomew" and "disputed" not in run.row


def test_two_trusted_sources_that_name_different_users_make_a_run_nobodys() -> None:
    (run,) = runs(row("sacct", "alice", uid=1), hook("mallory", timedelta(hours=1), uid=2))
    assert run.row.get("user") is None and run.row.get("uid") is None
    assert "sacct: alice (1)" in run.row["disputed"] and "hook: mallory (2)" in run.row["disputed"]


def test_uids_show_where_names_are_missing() -> None:
    (run,) = runs(row("sacct", None, uid=1), hook("", timedelta(hours=1), uid=2))
    assert run.row.get("uid") is None and run.row["disputed"]


def test_a_number_that_is_used_again_is_another_run() -> None:
    later = START + timedelta(days=3)
    first, second = runs(
        row("sacct", "alice", db_index=1),
        row("sacct", "mallory", db_index=2, submit=later, start=later, end=later + timedelta(hours=1)),
    )
    assert (first.row["user"], second.row["user"]) == ("alice", "mallory") and "disputed" not in {
        *first.row,
        *second.row,
    }


def test_a_hook_soon_after_the_end_of_a_run_of_another_user_is_another_run() -> None:
    found = runs(row("sacct", "alice"), hook("mallory", timedelta(hours=1, minutes=10)))
    assert sorted(run.row["user"] for run in found) == ["alice", "mallory"]


def test_a_task_prologs_word_makes_no_run_and_changes_none() -> None:
    stated = {"job_id": 15, "uid": 2, "user": "mallory", "source": "task_hook", "observed_at": START, "name": "mine"}
    old = {**stated, "source": "hook", "file": "gpu01:/var/spool/faultline/task-hooks/15.taskprolog.gpu01.1.2.hook"}
    with open_store(None) as store:
        store.add({"jobs": frame("jobs", [stated, old, {**stated, "job_id": 99}])})
        assert gather(store, None, []) == []
        store.add({"jobs": frame("jobs", [row("sacct", "alice", uid=1)])})
        (run,) = gather(store, None, [])
    assert (run.row["user"], run.row.get("name")) == ("alice", None) and "disputed" not in run.row


def test_rows_in_memory_and_in_the_store_pass_the_same_condition() -> None:
    files = (
        None,
        "",
        "gpu01:/x/task-hooks/1.hook",
        "gpu01:/x/1.taskprolog.gpu01.1.hook",
        "gpu01:/x/hooks/1.prolog.hook",
    )
    sources = (None, "hook", "task_hook", "sacct")
    rows = [{"job_id": n, "source": s, "file": f} for n, (s, f) in enumerate((s, f) for s in sources for f in files)]
    table = frame("jobs", rows)
    with open_store(None) as store:
        store.add({"jobs": table})
        stored = {row["job_id"] for row in store.ask(job_rows(None))}
    assert stored == set(rows_by_slurm(table)["job_id"].to_list()) and 0 < len(stored) < len(rows)


def test_a_task_prologs_word_makes_no_run_in_a_tick_either() -> None:
    """A tick takes rows as they are stored, without asking the store again."""
    stated = {"job_id": 46, "uid": 2, "source": "task_hook", "observed_at": START, "cluster": "mini"}
    old = {**stated, "job_id": 47, "source": "hook", "file": "gpu01:/var/spool/task-hooks/47.taskprolog.gpu01.1.2.hook"}
    with open_store(None) as store:
        store.add({"jobs": frame("jobs", [{**row("sacct", "alice", uid=1), "cluster": "mini"}])})
        ticker = Ticker(store)
        ticker.tick()
        store.add({"jobs": frame("jobs", [stated, old])})
        assert not ticker.tick().full
        store.add({"jobs": frame("jobs", [{**row("sacct", "alice", uid=1), "cluster": "mini", "job_id": 16}])})
        ticker.tick()
        assert sorted(r["job_id"] for r in store.rows("SELECT job_id FROM model.runs")) == [15, 16]
