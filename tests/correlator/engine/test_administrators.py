"""What administrators and Slurm itself do to runs: it is not the nodes' fault, and nobody is blamed without evidence."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.correlator.field import KILLED, SET_DOWN, UNKNOWN, Situation, concluded, ended, heard, wrong

CONTROLLER = ("infra.scheduler", "slurm.controller_restart", "ctl")
BOOTED = ("infra.node", "node.reboot", "gpu01")
ADMIN = ("infra.scheduler", "slurm.admin_action", "ctl")
AT_NODE = ("infra.scheduler", "slurm.admin_action", "gpu01")
SILENT = ("infra.node", "node.unresponsive", "gpu01")
CANCEL = ("user.cancel", None, None)
APP = ("app.error", None, None)
PROLOG = "infra.scheduler", "slurm.prolog_failure"
ALICE = {"uid": "1000", "user": "alice"}
NODE_FAIL = (ended("NODE_FAIL"),)
ONE_NODE = (ended("NODE_FAIL", nodes="gpu01"),)
STARTED = "-1s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue"
SLURMD = "-1h gpu01 slurmd: Launching batch job {0} for UID 1000"


def killed(code: int, **more: Any) -> tuple[dict[str, Any]]:
    return (ended(nodes="gpu01", exit_code=code, **ALICE, **more),)


ASKED = "{} ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={{0}} uid {}"
VIOLATION = "{} ctl slurmctld: _slurm_rpc_kill_job: job_str_signal() uid={} JobId={{0}} sig=9 returned: Access/permission denied"
DIES = "-0.1s gpu01 slurmd: [{0}.0] get_exit_code task 0 died by signal: 9"
LOW = "-0.5s gpu01 earlyoom: mem avail:   131 of  3950 MiB ( 3.32%), swap free:    0 of    0 MiB ( 0.00%)"
GUARD = '-0.3s gpu01 earlyoom: sending SIGKILL to process 4242 uid 1000 "python": badness 888, VmRSS {} MiB'
TASKS = "-0.05s {0} stderr: srun: error: gpu01: tasks 0-{}: Killed"
LONG = 5000 * "1"


def cancelled(by: str | None, **more: Any) -> tuple[dict[str, Any]]:
    return (ended("CANCELLED", **({"cancelled_by": by} if by else {}), **ALICE, **more),)


KILL = "-0.5s ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={{0}} uid {}"
ALLOCATED = "-1h ctl slurmctld: sched: Allocate JobId={0} NodeList=gpu[01-02] #CPUs=2 Partition=gpu"
LOGGED = tuple(f"-1h gpu0{i} slurmd: Launching batch job {{0}} for UID 1000" for i in (1, 2))
WATCHDOG = "-0.5s {0} stderr: RuntimeError: watchdog: the loop stood still for 18 s, giving up"


def suspended(since: str, until: str) -> tuple[str, str]:
    words = "{} ctl slurmctld: _slurm_rpc_suspend({}) for {{0}} usec=143"
    return words.format(since, "suspend"), words.format(until, "resume")


RESTARTED = "15s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue"
FORGOTTEN = [*LOGGED, ALLOCATED, RESTARTED, "20s ctl slurmctld: error: Orphan StepId={0}.0 reported on node gpu01"]
BOOT = "-10min gpu01 kernel: Linux version 6.1.0-18-amd64 (builder@host) (gcc-12) #1 SMP"


def prolog(at: str, host: str, job: int) -> str:
    return f"{at} {host} slurmd: error: [job {{{job}}}] prolog failed status=1:0"


SITUATIONS = [
    # slurm.conf
    heard("a node vanishes from slurm.conf under a run", [
        STARTED, "0s ctl slurmctld: error: Node gpu01 has vanished from configuration",
        "0.1s ctl slurmctld: error: Invalid nodes (gpu[01-02]) for JobId={0}"], NODE_FAIL, (ADMIN,)),
    heard("the same, and slurmctld's line about the job is lost", [
        STARTED, "0s ctl slurmctld: error: Node gpu01 has vanished from configuration"], ONE_NODE, (ADMIN,)),
    heard("only slurmctld's line about the job is left", [
        "0.1s ctl slurmctld: error: Invalid node gpu01 in JobId={0}"], ONE_NODE, (ADMIN,)),
    heard("a partition is gone", [STARTED, "0.9s ctl slurmctld: error: Invalid partition (urgent) for JobId={0}"], ONE_NODE, (ADMIN,)),
    heard("a partition is deleted by a command", ["0s ctl slurmctld: Killing JobId={0} on defunct partition urgent"], NODE_FAIL, (ADMIN,)),
    heard("another node vanishes as a node falls silent", [
        "0s ctl slurmctld: error: Node gpu05 has vanished from configuration", KILLED, SET_DOWN], NODE_FAIL, (SILENT,)),
    heard("the partition of another run is gone as a node falls silent", [
        "0s ctl slurmctld: error: Invalid partition (urgent) for JobId=9", KILLED, SET_DOWN], NODE_FAIL, (SILENT,)),
    heard("a node that vanished an hour before", [
        "-30min ctl slurmctld: error: Node gpu01 has vanished from configuration", KILLED, SET_DOWN], NODE_FAIL, (SILENT,)),
    heard("the output of the job has the line", [
        "0s {0} stderr: slurmctld: error: Node gpu01 has vanished from configuration", ALLOCATED, KILLED, SET_DOWN], NODE_FAIL, (SILENT,)),
    # scontrol update state=...
    heard("a node is powered down under a run", [
        "-0.01s ctl slurmctld: update_node: node gpu01 reason set to: save power", KILLED, "0s ctl slurmctld: powering down node gpu01"],
        NODE_FAIL, (AT_NODE,)),
    heard("a node falls silent that was powered down an hour before", [
        "-30min ctl slurmctld: powering down node gpu01", KILLED, SET_DOWN], NODE_FAIL, (SILENT,)),
    heard("an idle node is powered down", ["-10min ctl slurmctld: powering down node gpu03"], (ended("COMPLETED"),), (None,),
          not_told=("slurm.admin_action",)),
    # who cancelled it
    heard("its user", [*LOGGED, KILL.format(1000)], cancelled("1000"), (CANCEL,)),
    heard("an operator", [*LOGGED, KILL.format(20003)], cancelled("20003"), (CANCEL,)),
    heard("root", [*LOGGED, KILL.format(0)], cancelled("0"), (CANCEL,)),
    heard("only slurmctld says who", [*LOGGED, KILL.format(20003)], cancelled(None), (CANCEL,)),
    heard("root, after slurmd's launch had failed", [
        "-2s gpu01 slurmd: error: _forkexec_slurmstepd: slurmstepd failed to send return code got 0: No such process", KILL.format(0)],
        cancelled("0", start="-5s"), (CANCEL,), at_most=0.6),
    heard("root, long before slurmd's trouble", [
        *LOGGED, KILL.format(0), "20s gpu01 slurmd: error: _forkexec_slurmstepd: slurmstepd failed to send return code got 0: No such process"],
        cancelled("0"), (CANCEL,)),
    heard("slurmctld itself, which had lost the job", [
        *LOGGED, ALLOCATED, "-20s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue",
        "-1s ctl slurmctld: error: Orphan JobId={0} reported on node gpu01"], cancelled("0"), (UNKNOWN,)),
    heard("nobody, while slurmctld restarts", [
        *LOGGED, ALLOCATED, "-20s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue"], cancelled("0"), (UNKNOWN,), at_most=0.7),
    heard("root, while slurmctld restarts", [
        *LOGGED, ALLOCATED, "-20s ctl slurmctld: slurmctld version 24.05.3 started on cluster blue", KILL.format(0)], cancelled("0"), (CANCEL,)),
    heard("slurmctld without its record of jobs", FORGOTTEN, cancelled(None), (CONTROLLER,)),
    heard("its user, before slurmctld started without its record", FORGOTTEN, cancelled("1000"), (CANCEL,)),
    heard("nobody says who, and another job's node reports it", [
        *LOGGED, ALLOCATED, RESTARTED, "25s ctl slurmctld: error: Orphan StepId=999.0 reported on node gpu03"], cancelled(None), (CANCEL,)),
    heard("nobody says who, and a job's output has the words", [
        *LOGGED, ALLOCATED, RESTARTED, "-1s {0} stderr: slurmctld: error: Orphan StepId={0}.0 reported on node gpu01"], cancelled(None), (CANCEL,)),
    heard("root, what a node's boot had left of it", [*LOGGED, BOOT, KILL.format(0)], cancelled("0"), (BOOTED,), at_most=0.8),
    heard("its user, after a node's boot", [*LOGGED, BOOT, KILL.format(1000)], cancelled("1000"), (CANCEL,)),
    heard("root, several after a node's boot", [*LOGGED, BOOT, KILL.format(0), KILL.format(0).replace("{0}", "{1}")],
          (*cancelled("0"), ended("CANCELLED", nodes="gpu05", cancelled_by="0", **ALICE)), (CANCEL, CANCEL)),
    # stopped for a while
    heard("its watchdog, right after a suspension", [SLURMD, *suspended("-20s", "-1s"), WATCHDOG], killed(1), (UNKNOWN,), at_most=0.6),
    heard("its watchdog, half a minute after a suspension", [SLURMD, *suspended("-60s", "-30s"), WATCHDOG], killed(1), (UNKNOWN,), at_most=0.6),
    heard("an error of its own, half a minute after a suspension", [
        SLURMD, *suspended("-60s", "-30s"), "-1s {0} stderr: KeyError: 'loss'"], killed(1), (APP,)),
    heard("its watchdog, and another job was suspended", [
        SLURMD, *(line.replace("{0}", "4711") for line in suspended("-20s", "-1s")), WATCHDOG], killed(1), (APP,)),
    heard("its watchdog, and a stranger's suspension was refused", [
        SLURMD, "-20s ctl slurmctld: _slurm_rpc_suspend(suspend) for {0} Access/permission denied", WATCHDOG], killed(1), (APP,)),
    heard("its watchdog, and its output has the words", [
        SLURMD, "-20s {0} stderr: slurmctld: _slurm_rpc_suspend(suspend) for {0} usec=1", WATCHDOG], killed(1), (APP,)),
    # killed by whom
    heard("somebody kills it", [SLURMD, DIES], killed(137), (UNKNOWN,), at_most=0.8),
    heard(
        "a stranger's scancel is refused, and the program ends with 9 by itself",
        [SLURMD, ASKED.format("-8s", 20007), VIOLATION.format("-8s", 20007)],
        (ended(nodes="gpu01", exit_code=9, **ALICE),),
        (APP,),
    ),
    heard(
        "a busy slurmctld refuses a stranger's scancel five seconds after it has logged it",
        [SLURMD, ASKED.format("-12s", 20007), VIOLATION.format("-7s", 20007)],
        (ended(nodes="gpu01", exit_code=9, **ALICE),),
        (APP,),
    ),
    *(heard(
        f"srun finds no address for a node: {words}",
        [SLURMD, f"-1s {{0}} stderr: srun: error: {words}"],
        (ended(nodes="gpu[01-02]", exit_code=1, **ALICE),),
        (UNKNOWN,),
    ) for words in ("fwd_tree_thread: can't find address for host gpu02, check slurm.conf", 'slurm_set_addr: Unable to resolve "gpu02"')),
    heard(
        "a stranger's scancel is refused beside her own",
        [SLURMD, ASKED.format("-8s", 20007), VIOLATION.format("-8s", 20007), ASKED.format("-7.5s", 1000)],
        (ended(nodes="gpu01", exit_code=15, **ALICE),),
        (("user.cancel", None, None),),
    ),
    heard(
        "a request comes twice, and the second finds the job ending",
        [
            SLURMD, ASKED.format("-8s", 1000), ASKED.format("-7.9s", 20001),
            "-7.9s ctl slurmctld: _slurm_rpc_kill_job: job_str_signal() uid=1000 JobId={0} sig=15 returned: Job/step already completing or completed",
        ],
        (ended(nodes="gpu01", exit_code=15, **ALICE),),
        (("user.cancel", None, None),),
    ),
    heard("a script that somebody killed", [SLURMD], (ended(nodes="gpu01", exit_code=0, signal=9, **ALICE),), (UNKNOWN,), at_most=0.8),
    heard("a program returns 137", [SLURMD], killed(137), (APP,)),
    heard("sacct prints 9", [SLURMD], killed(9), (APP,)),
    heard("srun ends the rest after its first task", [
        SLURMD, "-1s {0} stderr: srun: First task exited 30s ago", DIES], killed(137), (APP,)),
    heard("a guard kills it for what others took", [SLURMD, LOW, GUARD.format(402), DIES], killed(137),
          (("infra.node", "node.memory_pressure", "gpu01"),), at_most=0.5),
    heard("a guard kills it for what it took", [SLURMD, LOW, GUARD.format(3402), DIES], killed(137), (("app.oom", None, None),)),
    heard("a guard kills one of eight tasks that took it all", [SLURMD, LOW, GUARD.format(402), DIES, TASKS.replace("{}", "7")], killed(137),
          (("app.oom", None, None),)),
    heard("a guard kills it and tells no numbers", [SLURMD, GUARD.format(402), DIES], killed(137), (UNKNOWN,), at_most=0.8),
    heard("a guard kills a process of another user", [SLURMD, LOW, GUARD.format(402).replace("uid 1000", "uid 1001"), DIES], killed(137), (UNKNOWN,)),
    # Anybody on a node can write such lines, with numbers of any length.
    heard("a guard names a user by 5000 digits", [SLURMD, LOW, GUARD.format(402).replace("uid 1000", f"uid {LONG}"), DIES], killed(137), (UNKNOWN,)),
    heard("another guard names a job by 5000 digits", [
        SLURMD, f"-0.3s gpu01 systemd-oomd: Killed /slurm/job_{LONG}/step_0 due to memory used (9) / total (9)", DIES], killed(137), (UNKNOWN,)),
    heard("a line in the kernel's name names a job by 5000 digits", [
        SLURMD, f"-0.3s gpu01 kernel: Tasks in /slurm/uid_7/job_{LONG}/step_0 are going to be killed due to memory.oom.group set", DIES], killed(137), (UNKNOWN,)),
    heard("a program names a task by 5000 digits", [SLURMD, LOW, GUARD.format(402), DIES, TASKS.replace("0-{}", LONG)], killed(137),
          (("infra.node", "node.memory_pressure", "gpu01"),), at_most=0.5),
    heard("a guard killed something a minute before", [SLURMD, LOW.replace("-0.5s", "-60.5s"), GUARD.format(402).replace("-0.3s", "-60s"), DIES],
          killed(137), (UNKNOWN,), not_told=("node.memory_pressure",)),
    heard("a guard kills something as the program fails by itself", [SLURMD, LOW, GUARD.format(402), "-0.1s {0} stderr: KeyError: 'x'"], killed(1),
          (APP,), not_told=("node.memory_pressure",)),
    # the prolog
    heard("the prolog fails on one node", [prolog("-8s", "gpu01", 0)], (ended("CANCELLED", start="-10s", cancelled_by="0", nodes="gpu01"),),
          ((*PROLOG, "gpu01"),)),
    heard("the prolog fails on one node after another", [
        prolog("-300s", "gpu01", 0), prolog("-150s", "gpu02", 1), prolog("-8s", "gpu03", 2)],
        tuple(ended("CANCELLED", start=f"{at - 2}s", end=f"{at + 2}s", cancelled_by="0", nodes=f"gpu0{i}") for i, at in enumerate((-300, -150, -8), 1)),
        ((*PROLOG, None),) * 3),
    heard("the prolog fails on two nodes, and others begin jobs meanwhile", [
        prolog("-150s", "gpu01", 0), "-100s gpu04 slurmd: Launching batch job 99 for UID 1000", prolog("-8s", "gpu02", 1)],
        tuple(ended("CANCELLED", start=f"{at - 2}s", end=f"{at + 2}s", cancelled_by="0", nodes=f"gpu0{i}") for i, at in enumerate((-150, -8), 1)),
        ((*PROLOG, "gpu01"), (*PROLOG, "gpu02"))),
]  # fmt: skip


@cache
def all_concluded() -> dict[str, Any]:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_who_did_it(situation: Situation) -> None:
    found, verdicts = all_concluded()[situation.name]
    assert wrong(situation, found, verdicts) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a node vanishes from slurm.conf under a run", "gpu01 was removed from Slurm's configuration"),
        ("a partition is gone", "partition urgent was removed from Slurm's configuration"),
        ("a node is powered down under a run", "somebody had gpu01 powered down under its jobs (save power)"),
        ("its user", "cancelled by its user alice"),
        ("an operator", "cancelled by uid 20003, who is not its user"),
        ("only slurmctld says who", "cancelled by uid 20003, who is not its user"),
        ("root", "cancelled by root, an administrator"),
        ("root, after slurmd's launch had failed", "after slurmd of gpu01 had logged"),
        ("somebody kills it", "killed by signal 9: by itself, or by somebody outside of Slurm"),
        ("a program returns 137", "exit code 137"),
        ("sacct prints 9", "exit code 9, or 137, of which sacct prints 9"),
        ("the prolog fails on one node after another", "the prolog failed on every node that was tried (gpu[01-03])"),
    ],
)
def test_the_sentence_says_who(name: str, says: str) -> None:
    _, verdicts = all_concluded()[name]
    assert says in verdicts[0]["summary"]


@pytest.mark.parametrize("name", ["its user", "an operator", "root", "only slurmctld says who"])
def test_nobody_is_told_to_run_a_command_for_a_cancelled_job(name: str) -> None:
    _, verdicts = all_concluded()[name]
    assert [a for a in verdicts[0]["advice"] if a["command"]] == []


@pytest.mark.parametrize(("name", "own"), [("its user", True), ("an operator", False), ("root", False)])
def test_the_headline_tells_a_user_whether_it_was_them(name: str, own: bool) -> None:
    _, verdicts = all_concluded()[name]
    assert ("not by you" in verdicts[0]["headline"]) is not own
