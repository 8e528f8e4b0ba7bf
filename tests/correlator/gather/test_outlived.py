"""What slurmctld's own file says of a lost node, and a run there went on: somebody else wrote that line.

erin's jobs 42 and 45 fail on gx02 at 10:20.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.correlator.erins_job import HERS, SACCT, concluded, in_both_ways
from tests.correlator.evidence.test_forged_evidence import events_and_result

CTLD = "controller/slurmctld.log"
SILENT = "[2026-02-28T10:18:30.000] error: Nodes gx02 not responding\n"
DOWN = "[2026-02-28T10:18:40.000] error: Nodes gx02 not responding, setting DOWN\n"
KILLED = "[2026-02-28T10:18:40.001] Killing JobId=45 on failed node gx02\n"
BY_HAND = "[2026-02-28T10:18:40.000] update_node: node gx02 state set to DOWN\n"
ENDS = "[2026-02-28T10:20:00.100] _job_complete: JobId=45 WEXITSTATUS 1\n[2026-02-28T10:20:00.101] _job_complete: JobId=45 done\n"
ROW = "{}|{}|erin|1005|train|FAILED|1:0|2026-02-28T09:59:00|2026-02-28T10:00:00|2026-02-28T10:20:00|gx02|1|c"


def lost(job: int, nodes: str = "gx02") -> str:
    """The row of a job that was lost with its node."""
    return f"{job}|{job}|erin|1005|train|NODE_FAIL|0:0|2026-02-28T09:59:00|2026-02-28T10:00:00|2026-02-28T10:18:40|{nodes}|1|c"


class Case(NamedTuple):
    """``claims``: the events of which it is shown that they are not true."""

    lines: str
    claims: dict[str, int]
    rows: tuple[tuple[str, str], ...] = ()


DOWN_, SILENT_, KILLED_ = "slurm.node_down", "slurm.node_not_responding", "slurm.job_node_fail"
CASES = {
    "both ended by themselves": Case(SILENT + DOWN + KILLED + ENDS, {DOWN_: 1, SILENT_: 1, KILLED_: 1}),
    "set DOWN by hand": Case(BY_HAND + ENDS, {DOWN_: 1}),
    "slurmctld does not tell of the end": Case(DOWN + KILLED, {}),
    "one was lost with the node": Case(DOWN + ENDS, {}, ((ROW.format(42, 42), lost(42)),)),
    "a job of two nodes, which may go on without one": Case(
        DOWN + ENDS, {}, tuple((ROW.format(n, n), ROW.format(n, n).replace("|gx02|1|", "|gx[02,04]|2|")) for n in (42, 45))
    ),
    "no answer, and nothing else": Case(SILENT + ENDS, {}),
}  # fmt: skip


def tree(case: Case) -> dict[str, str]:
    text = HERS[SACCT]
    for old, new in case.rows:
        assert old in text
        text = text.replace(old, new)
    return {SACCT: text}


def unresponsive(found: dict[str, Any]) -> bool:
    return any(
        i["root_cause"]["host"] == "gx02" and i["root_cause"]["event"] in ("node.unresponsive", "slurm.admin_action")
        for i in found["incidents"]
    )


@pytest.mark.parametrize(("name", "live"), in_both_ways(CASES, {"both ended by themselves"}))
def test_a_loss_that_a_run_outlived_is_none(name: str, live: bool) -> None:
    case = CASES[name]
    found, conclusions = events_and_result({CTLD: case.lines}, live, tree(case))
    assert {e["entities"]["claimed_event"]: e["count"] for e in found} == case.claims
    for event in found:
        assert event["entities"]["channel"] == "slurmctld's own file"
        assert event["entities"]["blamed_hosts"] == ["gx02"]
        assert "any user who can submit jobs" in event["message"]
    assert unresponsive(conclusions) is (DOWN_ not in case.claims and DOWN in case.lines)


SLURMD = "nodes/gx02/slurmd.log"
FATAL = "[2026-02-28T09:50:00.000] fatal: Could not write to /var/spool/slurmd: Input/output error\n"
BOUND = "[2026-02-28T09:50:00.000] fatal: Unable to bind listen port (6818): Address already in use\n"
LAUNCH = "[2026-02-28T10:00:00.100] Launching batch job {} for UID 1005\n"
STARTED = "[2026-02-28T09:58:00.000] slurmd version 23.11.4 started\n"
AT_ONCE = "[2026-02-28T09:50:00.050] slurmd version 23.11.4 started\n"
FAILED = "[2026-02-28T09:50:00.100] error: _try_to_reconfig: Resuming operation, reconfigure failed.\n"
#: Jobs 42 and 45 run from 10:00 to 10:20.
MEANWHILE = FATAL.replace("09:50:00", "10:10:00")
AWAY = SILENT.replace("10:18:30", "09:55:00")
#: What journald records of systemd.
FAILS = json.dumps(
    {"_HOSTNAME": "gx02", "__REALTIME_TIMESTAMP": str(1772272201 * 10**6), "PRIORITY": "4", "_PID": "1", "_UID": "0",
     "_SYSTEMD_UNIT": "init.scope", "SYSLOG_IDENTIFIER": "systemd", "_TRANSPORT": "journal",
     "MESSAGE": "slurmd.service: Failed with result 'exit-code'."}
)  # fmt: skip


class End(NamedTuple):
    """``lines`` of slurmd's file, what else is there, rows of accounting that differ. Is slurmd said to have ``died``?"""

    lines: str
    died: bool
    others: dict[str, str] = {}  # noqa: RUF012
    rows: tuple[tuple[str, str], ...] = ()


ENDS_OF_SLURMD = {
    "it launched a job that ended by itself": End(FATAL + LAUNCH.format(45), False),
    "it started again": End(FATAL + STARTED + LAUNCH.format(45), True),
    "nothing follows": End(FATAL, True),
    "a launch of a job that there is not": End(FATAL + LAUNCH.format(77), True),
    "a launch of a job that had begun before": End(FATAL + LAUNCH.format(45).replace("10:00:00", "09:52:00"), True),
    "the launch came to nothing": End(FATAL + LAUNCH.format(45), True, rows=((ROW.format(45, 45), lost(45)),)),
    "a step of another job writes on": End(FATAL + "[2026-02-28T10:00:00.100] [42.0] done with job\n", True),
    "a second slurmd that may not run": End(BOUND + LAUNCH.format(45), False),
    "it failed to reconfigure, and goes on": End(FATAL + FAILED, False),
    "a start in the same moment": End(FATAL + AT_ONCE + LAUNCH.format(45), False),
    "runs went on across it": End(MEANWHILE, False),
    "runs went on for longer than a tick looks back": End(FATAL.replace("09:50:00", "10:01:00"), True),
    "and it started again": End(MEANWHILE + STARTED.replace("09:58:00", "10:11:00"), False),
    "it launched a job, and slurmctld had no answer": End(FATAL + LAUNCH.format(45), True, {CTLD: AWAY}),
    "it goes on, and slurmctld had no answer": End(FATAL + FAILED, True, {CTLD: AWAY}),
    "runs went on, and slurmctld had no answer": End(MEANWHILE, True, {CTLD: SILENT}),
    "it launched a job, and the journal has its end": End(FATAL + LAUNCH.format(45), True, {"nodes/gx02/journal.json": FAILS + "\n"}),
}  # fmt: skip


#: Of what another case shows, with other lines or at another time.
AGAIN = {
    "a launch of a job that had begun before", "a step of another job writes on", "it goes on, and slurmctld had no answer",
    "runs went on, and slurmctld had no answer", "and it started again",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "live"),
    [
        pytest.param(*one.values, id=one.id, marks=pytest.mark.long if one.values[0] in AGAIN else one.marks)
        for one in in_both_ways(ENDS_OF_SLURMD, {"it launched a job that ended by itself"})
    ],
)
def test_the_last_words_of_a_slurmd_that_goes_on_accuse_nobody(name: str, live: bool) -> None:
    end = ENDS_OF_SLURMD[name]
    files = tree(Case("", {}, end.rows))
    lines = {SLURMD: end.lines, **end.others}
    found, conclusions = events_and_result(lines, live, files)
    assert not found
    roots = {(i["root_cause"]["event"], i["root_cause"]["host"]) for i in conclusions["incidents"]}
    assert (("slurm.slurmd_crash", "gx02") in roots) is end.died


def test_a_verdict_names_the_line_that_does_not_count() -> None:
    found = concluded({SLURMD: MEANWHILE}, False, tree(Case("", {})))
    (verdict,) = [v for key, v in found["verdicts"].items() if key.split("#")[0] == "45"]
    assert any("gx02 went on without starting again" in doubt for doubt in verdict["doubts"])
