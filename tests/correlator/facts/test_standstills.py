"""Time limits after a standstill that no log or only storage explains, limits that somebody changed, and I/O errors of
several users; and what only looks like that. Each truth was written before the correlator ran."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import polars as pl
import pytest

from correlator.clocks.clocks import Zones
from correlator.conclusions import Conclusions
from correlator.facts.time_limits import LIMIT_SHORTENED, change_of
from correlator.gather.of_timeouts import outputs
from correlator.model.measurements import NewLimit
from parsers.record import frame
from store import open_store
from tests.correlator.field import (
    ANY,
    APP,
    TIMELIMIT,
    UNKNOWN,
    Situation,
    at,
    concluded,
    ended,
    heard,
    wrong,
)
from tests.correlator.making import T0, run, world

TIMEOUT = ("app.timeout", None, None)
STORAGE = ("infra.storage", "storage.outage", ANY)
ADMIN = ("infra.scheduler", "slurm.admin_action", None)
#: Two hours on one node; the storage of it is lost an hour and a half before the limit.
LIMIT = (ended("TIMEOUT", start="-2h", nodes="gpu01", time_limit_s=7200),)
LOST = "-90min gpu01 kernel: nfs: server nas1 not responding, still trying"
BACK = "{} gpu01 kernel: nfs: server nas1 OK"
LUSTRE = "-90min gpu01 kernel: Lustre: fs1-OST0001-osc-ffff: Connection to fs1-OST0001 (at 10.0.0.9@o2ib) was lost; in progress operations using this service will wait for recovery to complete"
UNKILLED = "65s gpu01 slurmd: [{0}.0] error: *** STEP {0}.0 STEPD TERMINATED ON gpu01 AT 2026-03-03T10:01:05 DUE TO JOB NOT ENDING WITH SIGNALS ***"
NONE_TELLS = "nothing that was collected tells"


def wrote(first: int, last: int, job: int = 0) -> tuple[str, ...]:
    """A line a minute without a pace, from minute ``first`` to ``last``."""
    return tuple(f"{m}min {{{job}}} stdout: loaded shard {m + 999}" for m in range(first, last))


def lowered(at: str, minutes: int, uid: int) -> tuple[str, ...]:
    return (
        f"{at} ctl slurmctld: sched: _update_job: setting time_limit to {minutes} for JobId={{0}}",
        f"{at} ctl slurmctld: _slurm_rpc_update_job: complete JobId={{0}} uid={uid} usec=229",
    )


SITUATIONS = [
    heard(
        "the file server is away to the limit, and output has no times",
        [LOST, TIMELIMIT],
        LIMIT,
        (STORAGE,),
        at_most=0.75,
    ),
    heard("the same, and the processes cannot be killed", [LOST, TIMELIMIT, UNKILLED], LIMIT, (STORAGE,), at_most=0.95),
    heard("Lustre is away to the limit", [LUSTRE, TIMELIMIT, UNKILLED], LIMIT, (STORAGE,)),
    heard("the output stops with the file server", [*wrote(-119, -90), LOST, TIMELIMIT], LIMIT, (STORAGE,)),
    heard("the output goes on without the file server", [*wrote(-119, -1), LOST, TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard(
        "the file server is back and the output goes on",
        [*wrote(-119, -90), LOST, BACK.format("-20min"), *wrote(-19, -1), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard("the file server is back long before the limit", [LOST, BACK.format("-40min"), TIMELIMIT], LIMIT, (TIMEOUT,)),
    heard(
        "the file server is back half a minute before the limit",
        [LOST, BACK.format("-30s"), TIMELIMIT],
        LIMIT,
        (STORAGE,),
    ),
    heard(
        "the file server of another node is away",
        [LOST.replace("gpu01", "gpu03"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "the file server was away already when the run began",
        [LOST.replace("-90min", "-150min"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "the file server is lost two minutes before the limit",
        [LOST.replace("-90min", "-2min"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "the file server is lost 20 minutes before the limit",
        [LOST.replace("-90min", "-20min"), TIMELIMIT],
        LIMIT,
        (STORAGE,),
        at_most=0.6,
    ),
    heard(
        "the output had stopped an hour before the file server did",
        [*wrote(-119, -90), LOST.replace("-90min", "-30min"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
        at_most=0.7,
    ),
    heard(
        "a soft mount gives errors and nobody waits",
        [LOST.replace("still trying", "timed out"), TIMELIMIT],
        LIMIT,
        (TIMEOUT,),
    ),
    heard(
        "its user cancels what hangs",
        [LOST],
        (ended("CANCELLED", start="-2h", cancelled_by="1000", uid="1000"),),
        (("user.cancel", None, None),),
    ),
    # output that stopped, and no log that tells why
    heard("the output stops long before the limit", [*wrote(-119, -60), TIMELIMIT], LIMIT, (TIMEOUT,), at_most=0.7),
    # limits that were changed
    heard(
        "root shortens the limit",
        lowered("-1min", 30, 0),
        (ended("TIMEOUT", start="-90min", uid="1000", user="alice"),),
        (ADMIN,),
    ),
    heard(
        "the submission names a longer limit",
        lowered("-50min", 60, 0),
        (ended("TIMEOUT", uid="1000", user="alice", submit_line="sbatch -J x -t 10:00:00 job.sh -t 5"),),
        (ADMIN,),
    ),
    heard(
        "root lengthens the limit",
        lowered("-50min", 60, 0),
        (ended("TIMEOUT", uid="1000", user="alice", submit_line="sbatch --parsable --time=30 job.sh"),),
        (TIMEOUT,),
    ),
    heard(
        "nothing tells what the limit had been",
        lowered("-50min", 60, 0),
        (ended("TIMEOUT", uid="1000", user="alice"),),
        (TIMEOUT,),
        at_most=0.7,
    ),
    heard(
        "its own user shortens the limit",
        lowered("-1min", 30, 1000),
        (ended("TIMEOUT", start="-90min", uid="1000", user="alice"),),
        (TIMEOUT,),
    ),
    heard(
        "root shortens it, and lengthens it again",
        [*lowered("-80min", 5, 0), *lowered("-79min", 600, 0)],
        (ended("TIMEOUT", start="-90min", uid="1000"),),
        (TIMEOUT,),
    ),
]


def io_error(job: int, path: str = "/scratch/u/x.pt", at: str = "-2s") -> str:
    return f"{at} {{{job}}} stderr: OSError: [Errno 5] Input/output error: '{path}'"


def of_users(*users: str, nodes: tuple[str, ...] = ("gpu01", "gpu02", "gpu03")) -> tuple[dict[str, Any], ...]:
    return tuple(ended(nodes=node, user=user) for user, node in zip(users, nodes, strict=False))


SITUATIONS += [
    heard("three users on three nodes meet I/O errors", [io_error(n) for n in range(3)], of_users("a", "b", "c"), (STORAGE,) * 3, at_most=0.75),
    heard("two users on two nodes", [io_error(n) for n in range(2)], of_users("a", "b"), (STORAGE,) * 2, at_most=0.5),
    heard("one user on three nodes", [io_error(n) for n in range(3)], of_users("a", "a", "a"), (UNKNOWN,) * 3),
    heard("three users on one node", [io_error(n) for n in range(3)], of_users("a", "b", "c", nodes=("gpu01",) * 3), (UNKNOWN,) * 3),
    heard(
        "three users, each on a file system of their own",
        [io_error(0, "/scratch/x/a"), io_error(1, "/home/x/a"), io_error(2, "/work/x/a")],
        of_users("a", "b", "c"),
        (UNKNOWN,) * 3,
    ),
    heard(
        "three users meet stale handles",
        [f"-2s {{{n}}} stderr: OSError: [Errno 116] Stale file handle: '/home/u{n}/x.pt'" for n in range(3)],
        of_users("a", "b", "c"),
        (STORAGE,) * 3,
        at_most=0.75,
    ),
    heard(
        "one of them fails by itself",
        [io_error(0), io_error(1), io_error(2), "-1s {3} stderr: KeyError: 'x'"],
        of_users("a", "b", "c", "d", nodes=("gpu01", "gpu02", "gpu03", "gpu04")),
        (STORAGE, STORAGE, STORAGE, APP),
    ),
]  # fmt: skip


@cache
def all_concluded() -> dict[str, tuple[Conclusions, list[Any]]]:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *all_concluded()[situation.name]) == []


def test_the_words_say_what_is_known() -> None:
    found = all_concluded()

    def summary(name: str) -> str:
        return str(found[name][1][0]["summary"])

    assert "its output stopped 61 min before its time limit" in summary("the output stops long before the limit")
    assert NONE_TELLS in summary("the output stops long before the limit")
    assert "alice had set to 30 min" in summary("its own user shortens the limit")
    assert "root had set to 60 min" in summary("nothing tells what the limit had been")
    assert "root shortened the time limit to 60 min" in summary("the submission names a longer limit")


def test_runs_of_several_users_that_stop_together_are_a_doubt_and_no_blame() -> None:
    lines = [*wrote(-119, -60), *wrote(-119, -60, 1), *wrote(-119, -20, 2)]
    jobs = [ended("TIMEOUT", start="-2h", nodes=f"gpu0{n}", user=user) for n, user in ((1, "a"), (2, "b"), (3, "c"))]
    reported = heard("together", lines, tuple(jobs), (TIMEOUT,) * 3)
    found, verdicts = concluded([reported])["together"]
    assert wrong(reported, found, verdicts) == []
    assert "that of 1 run of 1 other user on other nodes" in verdicts[0]["summary"]
    assert "other user" not in verdicts[2]["summary"]


@pytest.mark.parametrize(
    ("submit_line", "before"),
    [
        ("sbatch -t 10 job.sh", 600.0),
        ("sbatch -t10 job.sh", 600.0),
        ("sbatch --time 2:00:00 -N 2 job.sh", 7200.0),
        ("sbatch --parsable --time=1-0 job.sh --time=5", 86400.0),
        ("sbatch job.sh -t 5", None),
        ("sbatch -H job.sh -t 5", None),
        ("sbatch --parsable job.sh -t 5", None),
        ("sbatch -J x -N 2 job.sh -t 5", None),
        ("", None),
    ],
)
def test_the_limit_of_a_submission_is_not_taken_from_its_script(submit_line: str, before: float | None) -> None:
    one = run(1, ["n1"], -600, 60, "TIMEOUT", submit_line=submit_line, uid="1000")
    where = world([], [one], new_limits=lambda jobs, since, until: {1: [NewLimit(T0 - 30, 600.0, "0")]})
    found = change_of(where, one)
    assert found is not None and found.before == before
    assert [f.run for f in where.facts_of(LIMIT_SHORTENED.name)] == (["1"] if before and before > 600 else [])


def output_rows(*lines: tuple[int, int, str, float | None, float | None]) -> pl.DataFrame:
    """Output of jobs: job, line number, text, its own time, when it was received (seconds after ``BEGINNING``)."""
    rows = [
        {"job_id": job, "line": number, "message": text, "raw": text, "source": "job_stdout", "file": f"jobs/{job}/stdout", "event": "other",
         "time": None if time is None else at(time), "time_quality": "line" if time is not None else "received",
         "received_time": None if received is None else at(received)}
        for job, number, text, time, received in lines
    ]  # fmt: skip
    return frame("logs", rows)


def test_when_output_was_written_as_far_as_the_store_knows() -> None:
    end = "slurmstepd-gpu01: error: *** JOB 1 ON gpu01 CANCELLED AT 2026-03-03T12:00:00 DUE TO TIME LIMIT ***"
    rows = output_rows(
        (1, 1, "a", 0.0, 0.0), (1, 2, "b", 30.0, 30.0), (1, 3, "no time", None, 31.0), (1, 4, end, 7200.0, 7200.0),
        (2, 1, "a", None, 10.0), (2, 2, "b", None, 70.0), (2, 3, "srun: Job step aborted", None, 7200.0),
        (3, 1, "a", 5.0, None), (3, 2, "nothing tells when", None, None), (4, 1, "nothing tells when", None, None), (4, 2, "a", 5.0, None),
    )  # fmt: skip
    epoch = (at(0.0) - datetime(1970, 1, 1)).total_seconds()
    with open_store(None) as store:
        store.add({"logs": rows})
        found = outputs(store, None, Zones())([1, 2, 3, 4, 5])
    read = {job: ([t - epoch for t in o.stamps], [t - epoch for t in o.read_by], o.undated) for job, o in found.items()}
    assert read == {
        1: ([30.0], [31.0], False), 2: ([], [10.0, 70.0], False), 3: ([5.0], [], True), 4: ([5.0], [], False),
    }  # fmt: skip
