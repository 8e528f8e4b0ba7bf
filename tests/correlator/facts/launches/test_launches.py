"""Runs whose program never started: the submission, the node or the controller is at fault, and what only looks like that."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from correlator.engine import correlate
from correlator.live.ticker import Ticker
from store import open_store
from tests.correlator.engine.test_captures import ROOT
from tests.correlator.field import APP, UNKNOWN, Situation, concluded, ended, heard, wrong
from tests.correlator.rows import answer, rows_of

STALE, ABSENT, DENIED, READ_ONLY = (
    "Stale file handle", "No such file or directory", "Permission denied", "Read-only file system",
)  # fmt: skip
#: What opening a file gives where its FUSE mount was cut off.
ABORTED = "Software caused connection abort"
MOUNT = ("infra.node", "node.mount_failure", "gpu01")
SPOOL = ("infra.node", "node.spool_failure", "gpu01")
DEAF = ("infra.node", "node.unresponsive", "gpu01")
CANCEL = ("user.cancel", None, None)
SHARED = ("infra.storage", "storage.outage", None)
CONTROLLER = ("infra.scheduler", "slurm.controller_restart", "ctl")


def launched(at: str, host: str, job: int, uid: int = 1001) -> str:
    return f"{at} {host} slurmd: Launching batch job {{{job}}} for UID {uid}"


def unopened(at: str, host: str, job: int, path: str, why: str, stream: str = "out") -> tuple[str, ...]:
    """slurmstepd's lines about a file of a batch script that it could not open."""
    return (
        launched(at, host, job),
        f"{at} {host} slurmd: [{{{job}}}.batch] error: Could not open std{stream} file {path}: {why}",
        f"{at} {host} slurmd: [{{{job}}}.batch] error: _fork_all_tasks: IO setup failed: Slurmd could not connect IO",
        f"{at} {host} slurmd: [{{{job}}}.batch] get_exit_code task 0 died by signal: 53",
    )


def setup_failed(user: str, at: str = "0s", host: str = "gpu01", **more: Any) -> dict[str, Any]:
    """The accounting of a run that ended 0:53."""
    return ended(
        nodes=host, start=at, end=at, exit_code=0, signal=53, user=user, **{"work_dir": f"/home/{user}", **more}
    )


def fine(user: str, at: str = "0s", host: str = "gpu02", **more: Any) -> dict[str, Any]:
    return ended("COMPLETED", nodes=host, start=at, end="10min", user=user, **{"work_dir": f"/home/{user}", **more})


def by_root(at: str = "0s", end: str = "0s", state: str = "CANCELLED") -> dict[str, Any]:
    who = {"cancelled_by": "0"} if state == "CANCELLED" else {}
    return ended(state, nodes="gpu01", start=at, end=end, user="ada", uid="1001", work_dir="/home/ada", **who)


ADA, BOB = "/home/ada/x.out", "/home/bob/x.out"
#: Operators are shown a command with the name of the file system.
COMMAND = "/$(reboot)"
ELSEWHERE = launched("5s", "gpu02", 2, 1003)
ROOT_KILLS = "{} ctl slurmctld: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={{0}} uid 0"
TIMED_OUT = (
    "{} ctl slurmctld: error: slurm_receive_msgs: [[gpu01]:6818] failed: Socket timed out on send/recv operation"
)
UNCONFIRMED = "{} gpu01 slurmd: error: Could not confirm batch launch for job {{0}}, aborting request"
GIVEN_UP = "{} gpu01 slurmd: Could not launch job {{0}} and not able to requeue it, cancelling job"
SCRIPT = "{} gpu01 slurmd: [{{0}}.batch] error: batch script setup failed for job {{0}} on gpu01: Read-only file system"
ALLOCATED = "0s ctl slurmctld: sched: Allocate JobId={0} NodeList=gpu01 #CPUs=1 Partition=gpu"
CONTROLLER_STARTS = "20s ctl slurmctld: slurmctld version 23.02.1 started on cluster test"
BATCH_MISSING = (
    "80s ctl slurmctld: error: Batch JobId={0} missing from batch node gpu01 (not found BatchStartTime after startup)"
)
#: slurmd finds nobody at the socket of the batch script's slurmstepd.
DESERTED = (
    "{} gpu01 slurmd: _handle_stray_script: Purging vestigial job script /var/spool/slurm/d/job0{{0}}/slurm_script"
)
PURGED_AT_START = (
    "{} gpu01 slurmd: _stepd_cleanup_batch_dirs: Purging vestigial job script /var/spool/slurm/d/job0{{0}}/slurm_script"
)
LOST_BATCH = ("infra.scheduler", "slurm.slurmd_crash", "gpu01")
EARLIER = "-2h ctl slurmctld: sched: Allocate JobId=1 NodeList=gpu06 #CPUs=1 Partition=gpu"

PLUGINS = ("infra.node", "node.plugin_failure", "gpu02")
NO_PLUGIN = (
    "0s gpu02 slurmd: [{}.0] error: spank: /etc/slurm/plugstack.conf:1: Failed to load plugin /opt/site/quota.so. Aborting.",
    "0s gpu02 slurmd: [{}.0] error: job_manager: exiting abnormally: Plugin initialization failed",
)  # fmt: skip


#: Where slurmd repeats what a user chose, and what users may choose.
USERS_TEXT = (
    "execve(): /home/ada/{}: Permission denied", "couldn't chdir to `/home/ada/{}': Permission denied: going to /tmp instead",
    "Could not open stdout file /home/ada/{}: Permission denied", "Unable to create TMPDIR [/home/ada/{}]: Permission denied",
)  # fmt: skip
SLURMDS_WORDS = (
    "Plugin stack initialization failed", "batch script setup failed for job 1 on gpu01", "mkdir(/a/job00001)", "Job 1 already running, do not launch second copy",
    "Could not launch job 1 and not able to requeue it, cancelling job",
)  # fmt: skip


def peers(state: str = "FAILED", **more: Any) -> dict[str, Any]:
    """A run of two nodes whose other task ended half a minute after its launch."""
    return ended(state, nodes="gpu[01-02]", start="-1s", end="30s", user="ada", work_dir="/home/ada", **more)


SITUATIONS = [
    heard("a node lacks a plugin that its plugstack.conf requires", [line.format("{0}") for line in NO_PLUGIN], (peers(),), (PLUGINS,)),
    heard(
        "a program prints that a node lacks a plugin",
        ["0s {0} stderr: srun: error: task 1 launch failed: Plugin initialization failed", *("0s {0} stderr: " + n.partition("slurmd: ")[2].format("{0}") for n in NO_PLUGIN)],
        (peers(),), (APP,),
    ),
    heard("a plugin refuses a job's own image", ["0s gpu02 slurmd: [{0}.0] error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1"], (peers(),), (APP,)),
    heard(
        "a plugin refuses what a job's environment asks for",
        ["0s gpu02 slurmd: [{0}.0] error: spank: Unable to get remote options from environment", "0s gpu02 slurmd: [{0}.0] error: Plugin stack initialization failed.", NO_PLUGIN[1].format("{0}")],
        (peers(),), (UNKNOWN,), not_told=(PLUGINS[1],),
    ),
    heard(
        "a node lacks a plugin for many, and the last waits for half an hour",
        [*(line.format(f"{{{n}}}").replace("0s", f"{200 * n}s", 1) for n in range(7) for line in NO_PLUGIN), *(line.format("{7}").replace("0s", "1251s", 1) for line in NO_PLUGIN)],
        (*(ended(nodes="gpu02", start=f"{200 * n - 1}s", end=f"{200 * n + 1}s", user="ada") for n in range(7)), ended(nodes="gpu[01-02]", start="1250s", end="3050s", user="bob")),
        (PLUGINS,) * 8,
    ),
    heard(
        "a script tries again for an hour on a node that lacks a plugin",
        [line.format("{0}").replace("0s", at, 1) for at in ("0s", "1h") for line in NO_PLUGIN], (ended(nodes="gpu02", start="-1s", end="3602s", user="ada"),), (PLUGINS,),
    ),
    heard("two users' steps find no control groups", [NO_PLUGIN[1].format("{0}"), NO_PLUGIN[1].format("{1}")], (peers(), peers()), (PLUGINS, PLUGINS)),
    *(
        heard(
            f"a user's text in slurmd's words reads like slurmd's own: {own[:24]}: {text[:12]}",
            [f"0s gpu02 slurmd: [{{0}}.0] error: {own.format(text)}"], (peers(),), (("app.error|unknown", None, None),), not_told=(PLUGINS[1], SPOOL[1]),
        )
        for own in USERS_TEXT for text in SLURMDS_WORDS
    ),
    heard("a node lacks a plugin for another job's step", [line.format("{1}") for line in NO_PLUGIN], (peers(), fine("bob")), (APP, None)),
    # file systems
    heard(
        "two users' homes are stale on one node",
        [*unopened("0s", "gpu01", 0, ADA, STALE), *unopened("3s", "gpu01", 1, BOB, STALE), ELSEWHERE],
        (setup_failed("ada"), setup_failed("bob", "3s"), fine("cyd")),
        (MOUNT, MOUNT, None),
    ),
    heard(
        "two users' homes are missing on one node",
        [*unopened("0s", "gpu01", 0, ADA, ABSENT), *unopened("3s", "gpu01", 1, BOB, ABSENT), ELSEWHERE],
        (setup_failed("ada"), setup_failed("bob", "3s"), fine("cyd")),
        (MOUNT, MOUNT, None),
    ),
    heard(
        "two users name folders that they never made",
        [*unopened("0s", "gpu01", 0, "/home/ada/no/x", ABSENT), *unopened("3s", "gpu01", 1, "/home/bob/no/x", ABSENT), ELSEWHERE],
        (setup_failed("ada"), setup_failed("bob", "3s"), fine("cyd")),
        (("app.error|unknown", None, None), ("app.error|unknown", None, None), None),
        at_most=0.85,
    ),
    heard(
        "two users' homes are missing, and a third user's job of that node writes to hers",
        [
            *unopened("0s", "gpu01", 0, ADA, ABSENT), *unopened("6s", "gpu01", 1, BOB, ABSENT), launched("3s", "gpu01", 2, 1003),
            launched("3s", "gpu02", 3, 1004),
        ],
        (setup_failed("ada"), setup_failed("bob", "6s"), fine("cyd", "3s", "gpu01"), fine("dan", "3s")),
        (("app.error|unknown", None, None), ("app.error|unknown", None, None), None, None),
    ),
    heard(
        "two users submit from a folder that only the login host has",
        [*unopened("0s", "gpu01", 0, "/tmp/a/x", ABSENT), *unopened("3s", "gpu01", 1, "/tmp/b/x", ABSENT), ELSEWHERE],
        (setup_failed("ada", work_dir="/tmp/a"), setup_failed("bob", "3s", work_dir="/tmp/b"), fine("cyd")),
        (("app.error|unknown", None, None), ("app.error|unknown", None, None), None),
    ),
    heard(
        "two users make up a folder whose name is a command",
        [*unopened("0s", "gpu01", 0, f"{COMMAND}/x", ABSENT), *unopened("3s", "gpu01", 1, f"{COMMAND}/y", ABSENT), ELSEWHERE],
        (setup_failed("ada", work_dir=COMMAND), setup_failed("bob", "3s", work_dir=COMMAND), fine("cyd", work_dir=COMMAND)),
        (("app.error|unknown", None, None), ("app.error|unknown", None, None), None),
    ),
    heard(
        "one user's folder is missing",
        [*unopened("0s", "gpu01", 0, ADA, ABSENT), launched("5s", "gpu02", 1, 1003)],
        (setup_failed("ada"), fine("cyd")),
        (APP, None),
        at_most=0.85,
    ),
    heard(
        "one user's folder is missing on two nodes",
        [*unopened("0s", "gpu01", 0, "/home/ada/no/x", ABSENT), *unopened("9s", "gpu02", 1, "/home/ada/no/x", ABSENT)],
        (setup_failed("ada"), setup_failed("ada", "9s", "gpu02")),
        (APP, APP),
    ),
    heard(
        "one user may not write to another's folder",
        [*unopened("0s", "gpu01", 0, BOB, DENIED)],
        (setup_failed("ada"),),
        (APP,),
        at_most=0.9,
    ),
    heard(
        "the file of --input is missing",
        [*unopened("0s", "gpu01", 0, "/home/ada/in.txt", ABSENT, "in")],
        (setup_failed("ada"),),
        (APP,),
        at_most=0.85,
    ),
    heard(
        "two users' files are stale on two nodes, and nobody's are well",
        [*unopened("0s", "gpu01", 0, ADA, STALE), *unopened("3s", "gpu02", 1, BOB, STALE)],
        (setup_failed("ada"), setup_failed("bob", "3s", "gpu02")),
        (SHARED, SHARED),
    ),
    heard(
        "one user's home is stale on a node, and in use on another",
        [*unopened("0s", "gpu01", 0, ADA, STALE), launched("5s", "gpu02", 1, 1003)],
        (setup_failed("ada"), fine("cyd")),
        (MOUNT, None),
        at_most=0.6,
    ),
    heard(
        "one user's home is stale on a node, and nobody else shows whether it is elsewhere",
        [*unopened("0s", "gpu01", 0, ADA, STALE)],
        (setup_failed("ada"),),
        (UNKNOWN,),
        at_most=0.7,
    ),
    heard(
        "a file system is gone for two users, by an error of its own kind",
        [*unopened("0s", "gpu01", 0, "/work/ada/x.out", ABORTED), *unopened("3s", "gpu01", 1, "/work/bob/x.out", ABORTED), launched("5s", "gpu02", 2, 1003)],
        (setup_failed("ada", work_dir="/work/ada"), setup_failed("bob", "3s", work_dir="/work/bob"), fine("cyd", work_dir="/work/cyd")),
        (MOUNT, MOUNT, None),
    ),
    *(heard(
        f"one user's file, and nobody else shows the file system: {why}",
        [*unopened("0s", "gpu01", 0, "/beegfs/ada/x.out", why)],
        (setup_failed("ada", work_dir="/beegfs/ada"),),
        (UNKNOWN,),
        at_most=0.7,
    ) for why in (ABORTED, "Communication error on send", "No route to host", "Link has been severed")),
    heard(
        "one user's own FUSE mount has died, and others use the file system that it is in",
        [*unopened("0s", "gpu01", 0, "/home/ada/mnt/x.out", "Transport endpoint is not connected"), launched("5s", "gpu02", 1, 1003)],
        (setup_failed("ada"), fine("cyd")),
        (UNKNOWN, None),
        ("node.mount_failure",),
    ),
    *(heard(
        f"one user's own FUSE mount passes on an error of its connection: {why}",
        [*unopened("0s", "gpu01", 0, "/home/ada/mnt/x.out", why), launched("5s", "gpu02", 1, 1003)],
        (setup_failed("ada"), fine("cyd")),
        (UNKNOWN, None),
        ("node.mount_failure",),
    ) for why in ("No route to host", "Network is unreachable", "Connection refused")),
    heard(
        "one user names a folder where a file is",
        [*unopened("0s", "gpu01", 0, "/beegfs/ada/x/y.out", "Not a directory")],
        (setup_failed("ada", work_dir="/beegfs/ada"),),
        (APP,),
    ),
    heard(
        "one user writes where a file system is read-only for everybody",
        [*unopened("0s", "gpu01", 0, "/software/out/x", READ_ONLY), launched("5s", "gpu02", 1, 1003)],
        (setup_failed("ada"), fine("cyd", work_dir="/home/cyd")),
        (UNKNOWN, None),
    ),
    heard(
        "a step's output could not be opened an hour before the program failed",
        [
            launched("-2h", "gpu01", 0),
            f"-1h gpu01 slurmd: [{{0}}.3] error: Could not open stdout file /home/ada/no/x: {ABSENT}",
            "-1s {0} stderr: KeyError: 'train_loss'",
        ],
        (ended(nodes="gpu01", start="-2h", user="ada", work_dir="/home/ada"),),
        (APP,),
    ),
    heard(
        "slurmd's log was not collected: 53 is Slurm's code",
        [],
        (setup_failed("ada"),),
        (UNKNOWN,),
        at_most=0.7,
    ),
    heard(
        "a program dies of the real-time signal 53",
        [launched("-1h", "gpu01", 0), "-1s {0} stdout: step 7"],
        (ended(nodes="gpu01", exit_code=0, signal=53, user="ada"),),
        (APP,),
    ),
    heard(
        "any user of a node writes such lines into its syslog",
        [
            f"-1s gpu01 slurmstepd: error: Could not open stdout file {ADA}: {STALE}",
            f"-1s gpu01 slurmstepd: error: Could not open stdout file {BOB}: {STALE}",
            launched("-1min", "gpu01", 0), launched("-1min", "gpu01", 1, 1002), ELSEWHERE,
        ],
        (ended(nodes="gpu01", start="-1min", user="ada", work_dir="/home/ada"), ended(nodes="gpu01", start="-1min", user="bob", work_dir="/home/bob"), fine("cyd")),
        (APP, APP, None),
        ("node.mount_failure", "storage.outage"),
    ),
    heard(
        "the programs of one user print such lines",
        [
            f"-1s {{0}} stderr: slurmstepd: error: Could not open stdout file {ADA}: {STALE}",
            f"-1s {{1}} stderr: slurmstepd: error: Could not open stdout file {BOB}: {STALE}",
            launched("-1min", "gpu01", 0), launched("-1min", "gpu01", 1), ELSEWHERE,
        ],
        (ended(nodes="gpu01", start="-1min", user="ada", work_dir="/home/ada"), ended(nodes="gpu01", start="-1min", user="ada", work_dir="/home/ada"), fine("cyd")),
        (("app.error|unknown", None, None), ("app.error|unknown", None, None), None),
        ("node.mount_failure",),
    ),
    heard(
        "a step's working folder is stale for two users, who then fail",
        [
            launched("0s", "gpu01", 0), launched("0s", "gpu01", 1, 1002), ELSEWHERE,
            f"10s gpu01 slurmd: [{{0}}.0] error: couldn't chdir to `/home/ada': {STALE}: going to /tmp instead",
            f"11s gpu01 slurmd: [{{1}}.0] error: couldn't chdir to `/home/bob': {STALE}: going to /tmp instead",
        ],
        (
            ended(nodes="gpu01", start="0s", end="12s", user="ada", work_dir="/home/ada"),
            ended(nodes="gpu01", start="0s", end="12s", user="bob", work_dir="/home/bob"), fine("cyd"),
        ),
        (MOUNT, MOUNT, None),
    ),
    # slurmd's spool
    heard(
        "slurmd's spool is read-only",
        [SCRIPT.format("0.1s"), GIVEN_UP.format("0.2s"), ROOT_KILLS.format("0.3s")],
        (by_root(),),
        (SPOOL,),
    ),
    heard(
        "slurmd's spool is read-only, and Slurm requeues the job",
        [SCRIPT.format("0.1s"), "0.3s ctl slurmctld: Requeuing JobId={0}"],
        (by_root(state="REQUEUED"),),
        (SPOOL,),
    ),
    heard(
        "another folder than the spool is read-only",
        [f"-1s gpu01 slurmd: error: mkdir(/local/7): {READ_ONLY}", ROOT_KILLS.format("0s"), launched("-1min", "gpu01", 0)],
        (by_root("-1min"),),
        (CANCEL,),
        ("node.spool_failure",),
    ),
    # slurmd that does not answer
    heard(
        "slurmd hears nothing of a launch for two minutes",
        [TIMED_OUT.format("10s"), UNCONFIRMED.format("122s"), GIVEN_UP.format("122.1s"), ROOT_KILLS.format("122.2s")],
        (by_root(end="122s"),),
        (DEAF,),
    ),
    heard(
        "slurmd did not answer in the night, and root cancels a job by day",
        [TIMED_OUT.format("-8h"), launched("-1min", "gpu01", 0), ROOT_KILLS.format("0s")],
        (by_root("-1min"),),
        (CANCEL,),
    ),
    # a slurmstepd that died while its job goes on
    heard(
        "the slurmstepd of a batch script dies, and root cancels the job that cannot end",
        [EARLIER, launched("-2h", "gpu01", 0), DESERTED.format("-50min"), DESERTED.format("-10min"), ROOT_KILLS.format("0s"), DESERTED.format("0.1s")],
        (by_root("-2h"),),
        (LOST_BATCH,),
        at_most=0.92,
    ),
    heard(
        "root cancels all jobs, one of which has lost its slurmstepd",
        [
            EARLIER, launched("-2h", "gpu01", 0), launched("-2h", "gpu02", 1), DESERTED.format("-50min"),
            ROOT_KILLS.format("0s"), ROOT_KILLS.format("0.4s").replace("{0}", "{1}"),
        ],
        (by_root("-2h"), by_root("-2h") | {"nodes": "gpu02"}),
        (CANCEL, CANCEL),
    ),
    heard(
        "root cancels all jobs, and only accounting tells of it",
        [EARLIER, launched("-2h", "gpu01", 0), launched("-2h", "gpu02", 1), DESERTED.format("-50min")],
        (by_root("-2h"), by_root("-2h") | {"nodes": "gpu02"}),
        (CANCEL, CANCEL),
    ),
    heard(
        "root cancels such a job in the minute in which a slurmd cancels one that it cannot launch",
        [
            EARLIER, launched("-2h", "gpu01", 0), launched("-22s", "gpu02", 1, 1005), DESERTED.format("-50min"), ROOT_KILLS.format("0s"),
            GIVEN_UP.format("-21s").replace("{0}", "{1}").replace("gpu01", "gpu02"), ROOT_KILLS.format("-20s").replace("{0}", "{1}"),
        ],
        (by_root("-2h"), by_root("-25s", "-20s") | {"nodes": "gpu02"}),
        (LOST_BATCH, UNKNOWN),
    ),
    heard(
        "slurmd looks for the slurmstepd of a batch script while that ends: its socket is closed and not yet removed",
        [EARLIER, launched("-2h", "gpu01", 0), DESERTED.format("-1s")],
        (ended(nodes="gpu01", start="-2h"),),
        (APP,),
        ("slurm.slurmd_crash",),
    ),
    heard(
        "its user cancels such a job",
        [EARLIER, launched("-2h", "gpu01", 0), DESERTED.format("-50min"), ROOT_KILLS.format("0s").replace("uid 0", "uid 1001")],
        (by_root("-2h") | {"cancelled_by": "1001"},),
        (CANCEL,),
    ),
    heard(
        "slurmd finds the slurmstepd gone when root has cancelled the job",
        [EARLIER, launched("-2h", "gpu01", 0), ROOT_KILLS.format("0s"), DESERTED.format("0.2s"), DESERTED.format("40s")],
        (by_root("-2h"),),
        (CANCEL,),
        ("slurm.slurmd_crash",),
    ),
    heard(
        "slurmd purges old scripts when it starts, and root cancels a job",
        [EARLIER, launched("-2h", "gpu01", 0), PURGED_AT_START.format("-50min"), ROOT_KILLS.format("0s")],
        (by_root("-2h"),),
        (CANCEL,),
        ("slurm.slurmd_crash",),
    ),
    heard(
        "a program prints that its slurmstepd is gone, and root cancels it",
        [EARLIER, launched("-2h", "gpu01", 0), "-50min {0} stdout: " + DESERTED.split("slurmd: ")[1].format(), ROOT_KILLS.format("0s")],
        (by_root("-2h"),),
        (CANCEL,),
        ("slurm.slurmd_crash",),
    ),
    # the controller
    heard(
        "slurmctld ends in the middle of a launch",
        [EARLIER, ALLOCATED, CONTROLLER_STARTS, BATCH_MISSING],
        (by_root(end="80s", state="NODE_FAIL"),),
        (CONTROLLER,),
        ("slurm.slurmd_crash",),
    ),
    heard(
        "slurmctld is restarted, and a batch script that had begun is lost",
        [EARLIER, ALLOCATED, launched("1s", "gpu01", 0), CONTROLLER_STARTS, BATCH_MISSING],
        (by_root(end="80s", state="NODE_FAIL"),),
        (("infra.scheduler", "slurm.slurmd_crash", "gpu01"),),
    ),
    heard(
        "slurmd cannot confirm a launch, and nothing else is known",
        [UNCONFIRMED.format("1s"), GIVEN_UP.format("1.1s"), ROOT_KILLS.format("1.2s")],
        (by_root(end="1s"),),
        (("unknown", None, None),),
    ),
]  # fmt: skip


@cache
def all_of_them() -> dict[str, tuple[Any, list[Any]]]:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *all_of_them()[situation.name]) == []


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if "signal" not in s.name], ids=lambda s: s.name)
def test_slurms_code_is_never_called_a_signal(situation: Situation) -> None:
    _, verdicts = all_of_them()[situation.name]
    for verdict in filter(None, verdicts):
        shown = {k: v for k, v in verdict.items() if k not in ("evidence", "chain")}
        assert "signal 53" not in json.dumps(shown).lower()


HEADLINES = {
    "one user's folder is missing": "Slurm could not open its output file /home/ada/x.out on gpu01 (No such file or directory).",
    "the file of --input is missing": "Slurm could not open its input file /home/ada/in.txt on gpu01 (No such file or directory).",
    "one user may not write to another's folder": "Slurm could not open its output file /home/bob/x.out on gpu01 (Permission denied).",
    "two users' homes are stale on one node": "Slurm could not open its output file /home/ada/x.out on gpu01 (Stale file handle). "
    "Your job died because a file system could not be used on its node, not because of your code.",
    "slurmd's spool is read-only": "gpu01 could not launch it (Read-only file system). "
    "Your job died because a node's own file system failed, not because of your code.",
    "slurmd's log was not collected: 53 is Slurm's code": "Slurm could not set up its input and output.",
}


@pytest.mark.parametrize("name", HEADLINES)
def test_the_user_reads_that_the_program_never_started(name: str) -> None:
    _, verdicts = all_of_them()[name]
    assert verdicts[0]["headline"] == f"Your program never started: {HEADLINES[name]}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one user's folder is missing", "Create /home/ada, or correct --output, then submit again. The same command would fail again."),
        ("one user may not write to another's folder", "Name a file that you may write (--output), then submit again."),
        ("the file of --input is missing", "Correct --input, then submit again. The same command would fail again."),
        ("two users' homes are stale on one node", "Tell ada, bob to submit again, without gpu01 until it is mended (--exclude=gpu01)"),
        ("slurmd's spool is read-only", "Tell ada to submit again, without gpu01 until it is mended (--exclude=gpu01)"),
    ],
)  # fmt: skip
def test_who_is_told_to_submit_again_learns_what_to_change(name: str, words: str) -> None:
    _, verdicts = all_of_them()[name]
    assert any(row["text"].startswith(words) for row in verdicts[0]["advice"])


def test_nobody_is_told_to_submit_a_job_again_that_slurm_requeued() -> None:
    found, verdicts = all_of_them()["slurmd's spool is read-only, and Slurm requeues the job"]
    advice = [row["text"] for rows in (verdicts[0], *found.incidents) for row in rows["advice"]]
    assert advice and not any("submit again" in text for text in advice)


def test_a_wrong_path_names_the_broken_mount_as_its_rival() -> None:
    _, verdicts = all_of_them()["one user's folder is missing"]
    assert any("missing on gpu01" in doubt for doubt in verdicts[0]["doubts"])


@pytest.mark.long
@pytest.mark.parametrize(
    "late", [True, pytest.param(False, marks=pytest.mark.long)], ids=["accounting last", "accounting first"]
)
@pytest.mark.parametrize(
    "name",
    ["home_stale", *(pytest.param(n, marks=pytest.mark.long) for n in ("spool_read_only", "slurmd_deaf_at_launch"))],
)
def test_ticks_say_what_a_full_pass_says(name: str, late: bool) -> None:
    """Also where the accounting of the run that shows the file system to be well elsewhere comes last."""
    rows = rows_of(ROOT / "tests" / "captures" / "endings" / name)
    logs, rest = rows["logs"], {table: found for table, found in rows.items() if table not in ("logs", "jobs")}
    jobs = [{"jobs": rows["jobs"][n : n + 1]} for n in range(rows["jobs"].height)]
    lines = [{"logs": logs[n : n + 60]} for n in range(0, logs.height, 60)]
    with open_store(None) as store:
        store.add(rest)
        ticker = Ticker(store)
        ticker.tick()
        for part in [*lines, *jobs] if late else [lines[0], *jobs, *lines[1:]]:
            store.add(part)
            ticker.tick()
            ticked = answer(store)
            correlate(store)
            assert ticked == answer(store)


def test_a_step_that_a_run_outlived_does_not_explain_its_end() -> None:
    _, verdicts = all_of_them()["a step's output could not be opened an hour before the program failed"]
    assert "KeyError" in verdicts[0]["summary"] and "never started" not in json.dumps(verdicts[0])
