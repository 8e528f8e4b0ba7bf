"""Hooks see a run from one node: they add to runs that accounting or slurmctld know, and make none beside these.

The rows are those of a node that is lost and of a job that is requeued: the epilog of a lost node runs when the job's
restart counter has moved on (Slurm 22.05, ``tests/captures/mgmt_flap_requeue``).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from correlator.gather.runs import assemble
from correlator.live.ticker import Ticker
from correlator.model.nouns import Event, Run
from parsers.record import frame
from store import open_store
from tests.correlator.making import T0, event

START = datetime(1970, 1, 1) + timedelta(seconds=T0)
LOST_AT, AGAIN_AT, OVER_AT = 60, 400, 900
NODES = ["gpu01", "gpu02"]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def row(source: str, **stated: Any) -> dict[str, Any]:
    return {"job_id": 17, "user": "alice", "uid": 20001, "source": source, **stated}


def prolog(host: str, seconds: float, restarts: int) -> dict[str, Any]:
    return row("hook", host=host, start=at(seconds), observed_at=at(seconds), restarts=restarts, gpu_index="0,1")


def epilog(host: str, seconds: float, restarts: int) -> dict[str, Any]:
    return row("hook", host=host, end=at(seconds), observed_at=at(seconds), restarts=restarts, exit_code=0)


FIRST = row("sacct", db_index=4, state="NODE_FAIL", submit=at(-5), start=at(0), end=at(LOST_AT), nodes=NODES, node_list="gpu[01-02]", partition="gpu")  # fmt: skip
SECOND = row("sacct", db_index=5, state="COMPLETED", submit=at(LOST_AT), start=at(AGAIN_AT), end=at(OVER_AT), nodes=["gpu01", "gpu03"], node_list="gpu[01,03]", partition="gpu")  # fmt: skip
#: gpu02 was lost: its epilog runs when it is back, and reports the restart count of the job's next run.
LOST = epilog("gpu02", 130, 1)


def runs(rows: list[dict[str, Any]], events: list[Event] | None = None) -> list[Run]:
    return assemble([dict(r) for r in rows], [], events or [])


def said(found: list[Run]) -> list[tuple[str, str, float | None, float | None]]:
    return [(r.key, r.state, r.start and r.start - T0, r.end and r.end - T0) for r in found]


BOTH = [("17", "NODE_FAIL", 0.0, float(LOST_AT)), ("17#1", "COMPLETED", float(AGAIN_AT), float(OVER_AT))]


def test_a_lost_nodes_epilog_makes_no_run_whatever_the_order() -> None:
    rows = [FIRST, SECOND, prolog("gpu02", -1, 0), LOST, prolog("gpu03", AGAIN_AT - 1, 1)]
    for order in permutations(rows):
        assert said(runs(list(order))) == BOTH


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("seconds", [70.0, 395.0, 500.0, 5000.0])
@pytest.mark.parametrize("with_prologs", [False, True])
def test_whatever_a_lost_nodes_epilog_reports_and_whenever_it_runs(
    restarts: int, seconds: float, with_prologs: bool
) -> None:
    prologs = [prolog(h, -1, 0) for h in NODES] + [prolog("gpu03", AGAIN_AT - 1, 1)] if with_prologs else []
    late = epilog("gpu02", seconds, restarts)
    assert said(runs([late, SECOND, *prologs, FIRST])) == BOTH


def test_the_open_run_does_not_end_with_the_epilog_of_the_run_before_it() -> None:
    """Accounting has no end of the second run yet."""
    running = {**SECOND, "state": "RUNNING"}
    del running["end"]
    late = epilog("gpu02", AGAIN_AT + 50, 1)
    for order in permutations([FIRST, running, prolog("gpu03", AGAIN_AT - 1, 1), late]):
        assert said(runs(list(order))) == [BOTH[0], ("17#1", "RUNNING", float(AGAIN_AT), None)]


def test_before_accounting_speaks_of_the_next_run_there_is_one_run() -> None:
    """The job waits again: accounting and slurmctld know one run, which keeps its name."""
    waiting = row("squeue", state="PENDING", submit=at(LOST_AT), restarts=1, partition="gpu")
    survivors = epilog("gpu01", 62, 0)
    for order in permutations([FIRST, survivors, LOST]):
        assert said(runs(list(order))) == BOTH[:1]
    for order in permutations([FIRST, waiting, LOST, prolog("gpu02", -1, 0)]):
        assert [(key, state) for key, state, *_ in said(runs(list(order)))] == [
            ("17", "NODE_FAIL"),
            ("17#1", "PENDING"),
        ]


def test_slurmctlds_lines_make_the_runs_and_hooks_add_to_them() -> None:
    def ctl(seconds: float, kind: str, message: str, **more: Any) -> Event:
        return event(kind, seconds, "ctl", message, source="slurmctld", job_id=17, **more)

    lines = [
        ctl(0, "slurm.job_start", "Allocate", nodes=NODES),
        ctl(LOST_AT, "slurm.job_requeue", "requeue job JobId=17 due to failure of node gpu02"),
        ctl(AGAIN_AT, "slurm.job_start", "Allocate", nodes=["gpu01", "gpu03"]),
    ]
    hooks = [prolog("gpu02", 1, 0), LOST, prolog("gpu03", AGAIN_AT + 1, 1)]
    for order in permutations(hooks):
        found = runs(list(order), lines)
        assert said(found) == [BOTH[0], ("17#1", "RUNNING", float(AGAIN_AT), None)]
        assert [r.row["user"] for r in found] == ["alice", "alice"]


def test_where_only_hooks_speak_they_make_the_runs() -> None:
    hooks = [prolog("gpu02", 0, 0), LOST, prolog("gpu03", AGAIN_AT, 1), epilog("gpu03", OVER_AT, 1)]
    for order in permutations(hooks):
        assert said(runs(list(order))) == [("17", "", 0.0, 130.0), ("17#1", "", float(AGAIN_AT), float(OVER_AT))]


def test_accounting_takes_over_from_hooks() -> None:
    """A prolog of a run that accounting does not know yet waits for accounting once that knows the job."""
    hooks = [prolog("gpu02", 0, 0), prolog("gpu03", AGAIN_AT, 1)]
    assert [r.key for r in runs(hooks)] == ["17", "17#1"]
    assert said(runs([*hooks, FIRST])) == BOTH[:1]
    assert said(runs([*hooks, FIRST, SECOND])) == BOTH


def test_a_hook_of_a_user_whose_job_accounting_does_not_know_shows_a_number_used_again() -> None:
    others = {**prolog("gpu03", 5000, 0), "user": "bob", "uid": 20002}
    assert [(r.key.partition("@")[0], r.row["user"]) for r in runs([FIRST, others])] == [("17", "alice"), ("17", "bob")]


def test_the_restart_count_of_hooks_names_the_only_run_that_accounting_shows() -> None:
    """``sacct`` without ``--duplicates`` shows a job's last run, and Slurm 22.05 does not tell its restarts."""
    assert said(runs([SECOND, prolog("gpu03", AGAIN_AT - 1, 1), epilog("gpu03", OVER_AT, 1)])) == BOTH[1:]
    assert said(runs([SECOND, epilog("gpu03", OVER_AT + 1, 1)])) == BOTH[1:]


def test_a_run_that_hooks_showed_first_is_gone_from_the_users_page_once_accounting_speaks() -> None:
    """In the running service: a lost node's epilog arrives first, accounting some ticks later."""
    with open_store(None) as store:
        store.add({"jobs": frame("jobs", [{**FIRST, "cluster": "mini", "job_id": 16}])})
        ticker = Ticker(store)
        assert ticker.tick().full
        seen = []
        for some in ([LOST], [prolog("gpu02", 0, 0)], [FIRST], [SECOND]):
            store.add({"jobs": frame("jobs", [{**r, "cluster": "mini"} for r in some])})
            assert not ticker.tick().full
            seen.append(sorted(r["run_key"] for r in store.rows("SELECT run_key FROM model.runs WHERE job_id = 17")))
    assert seen == [["17#1"], ["17"], ["17"], ["17", "17#1"]]


def test_two_runs_have_two_keys_though_one_source_counts_late() -> None:
    """scontrol shows a job that waits again with the restart count that it had (Slurm 22.05, a burst buffer's failure)."""
    waits = row("sacct", db_index=5, state="PENDING", submit=at(LOST_AT), partition="gpu")
    shown = row("scontrol", state="PENDING", submit=at(LOST_AT), restarts=0, partition="gpu")
    found = runs([{**FIRST, "state": "REQUEUED"}, waits, shown])
    assert [(r.key, r.state) for r in found] == [("17", "REQUEUED"), ("17#1", "PENDING")]


@pytest.mark.parametrize("submitted", [0.05, 0.4, 0.95])
@pytest.mark.parametrize("prolog_took", [0.0, 1.0])
def test_a_job_whose_prolog_failed_in_the_second_of_its_submission_has_one_name(
    submitted: float, prolog_took: float
) -> None:
    """Accounting has whole seconds, slurmctld's log has milliseconds: the job's own submission is no other job's with its number."""
    first = row("sacct", db_index=9, state="REQUEUED", submit=at(0), start=at(0), end=at(prolog_took), nodes=["gpu02"])
    second = row("sacct", db_index=11, state="CANCELLED", submit=at(prolog_took + 1), end=at(5))
    line = event("slurm.job_submit", submitted, "ctl", source="slurmctld", job_id=17)
    hooks = [prolog("gpu02", 0.2 + submitted, 0), epilog("gpu02", 0.3 + submitted, 1)]
    for rows in ([first, second], [first, second, *hooks]):
        assert [found.key for found in runs(rows, [line])] == ["17", "17#1"]


def test_a_number_that_was_used_again_is_another_job() -> None:
    """A submission after the end of the run before, by more than a second."""
    first = row("sacct", db_index=9, state="REQUEUED", submit=at(0), start=at(0), end=at(0), nodes=["gpu02"])
    second = row("sacct", db_index=11, state="CANCELLED", submit=at(60), end=at(65))
    lines = [event("slurm.job_submit", moment, "ctl", source="slurmctld", job_id=17) for moment in (0.1, 59.9)]
    assert [found.key for found in runs([first, second], lines)] == [f"17@{at(0):%Y-%m-%dT%H:%M:%S}", "17"]
