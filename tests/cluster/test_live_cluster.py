"""The hooks under a real Slurm: a job with them is unharmed, with a working spool and with a broken one."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.agent.environment import is_first_task, step_of
from collector.agent.gate.answer_file import ANSWER, KEY, KEY_BYTES, Answer, signed
from parsers.documents.hook import read_spool
from spaces import RT, STATE
from tests.measured import Measured

HERE = Path(__file__).resolve().parent
HOOKS = HERE.parents[1] / "deploy" / "slurm"
DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "munged", "rsyslogd", "mariadbd", "ip")
SPOOL = "var/spool/faultline-hooks"  # below a directory that each host has of its own


def _why_not() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a mini cluster needs root on Linux"
    missing = [name for name in DAEMONS if not shutil.which(name)]
    if missing:
        return f"a mini cluster needs {', '.join(missing)} (see tests/prepare.sh)"
    if not Path("/sys/fs/cgroup/memory").is_dir() or not os.access("/dev/kmsg", os.R_OK | os.W_OK):
        return "a mini cluster needs cgroup v1 under /sys/fs/cgroup and /dev/kmsg"
    if Path(STATE).exists():
        return "a mini cluster is up already: tests/cluster/cluster.py down"
    return None


REASON = _why_not()
pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(REASON is not None, reason=REASON or "")]


@contextmanager
def alone() -> Iterator[None]:
    """One at a time, whichever process runs the tests: there is one mini cluster of a name (``FAULTLINE_MINI_NAME``)."""
    with Path(f"{RT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cluster(*argv: str, check: bool = True) -> str:
    """Runs the harness as an operator would; returns its output."""
    done = subprocess.run(
        [sys.executable, str(HERE / "cluster.py"), *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def host(name: str) -> Path:
    """A host's files below the cluster's folder."""
    return Path(RT) / "hosts" / name


@pytest.fixture(scope="module")
def mini() -> Iterator[list[str]]:
    """Two nodes whose prolog and epilog call the hooks before the site's own scripts."""
    nodes = ["gpu01", "gpu02"]
    with alone():
        try:
            cluster("up", "--nodes", "2", "--hooks", str(HOOKS))
            yield nodes
        finally:
            cluster("down")


def run_job(nodes: list[str]) -> int:
    """Runs a job on all nodes to its end; returns its id."""
    job = int(cluster("submit", "export NCCL_IB_HCA=mlx5_0; srun hostname", "--nodes", str(len(nodes))))
    end = time.monotonic() + 40
    while time.monotonic() < end:
        state = cluster("run", "ctl", "squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            break
        time.sleep(0.3)
    assert state == "COMPLETED"
    time.sleep(1.5)  # the epilogs of the nodes report after the job has ended
    assert set(cluster("run", "ctl", "sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}
    return job


def test_hooks_report_a_job_and_a_broken_spool_does_not_harm_it(mini: list[str]) -> None:
    job = run_job(mini)
    seen = set()
    for name in ("ctl", *mini):
        for path in (host(name) / SPOOL).glob("*.hook"):
            env = read_spool(path.read_bytes())
            assert env["SLURM_JOB_ID"] == str(job)
            assert env["FAULTLINE_HOST"] == name
            seen.add((name, env["FAULTLINE_EVENT"]))
    assert seen == {
        *((node, event) for node in mini for event in ("prolog", "epilog")),
        *(("ctl", event) for event in ("prologslurmctld", "epilogslurmctld")),
    }
    # The task prologs of the batch script and of the step's first task tell what these ran with, each with its number.
    tasks = [
        read_spool(p.read_bytes())
        for n in mini
        for p in (host(n) / f"{SPOOL.replace('hooks', 'task-hooks')}").glob("*.hook")
    ]
    told = {step_of(env): env.get("NCCL_IB_HCA") for env in tasks if is_first_task(env)}
    assert told == {"batch": None, "0": "mlx5_0"}

    for name in ("ctl", *mini):
        where = f"/{SPOOL}"
        cluster("run", name, "sh", "-c", f"rm -rf {where}/*; mount -t tmpfs -o ro,size=1k tmpfs {where}")
    run_job(mini)
    for name in ("ctl", *mini):
        assert cluster("run", name, "ls", "-A", f"/{SPOOL}") == ""


def put_answer(name: str, verdict: str, refuses: bool) -> None:
    """The answer of a host's agent about its node, below the host's own /run."""
    folder = host(name) / "run" / "gate"
    folder.mkdir(mode=0o700, exist_ok=True)
    boot, uptime, _ = cluster("run", name, "cat", "/proc/sys/kernel/random/boot_id", "/proc/uptime").split()
    now = int(float(uptime))
    answer = Answer(name, verdict, ("GPU 0000:1b:00 is lost",), boot, now, now + 600, now + 600 if refuses else 0, 5)
    (folder / KEY).write_bytes(b"k" * KEY_BYTES)
    (folder / ANSWER).write_bytes(signed(answer, b"k" * KEY_BYTES))


def states() -> dict[str, str]:
    """Nodes as Slurm has them: state and reason."""
    lines = cluster("run", "ctl", "sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
    return {name: f"{state} {reason}" for name, state, reason in (line.strip().split("|") for line in lines)}


def state_of(job: str) -> str:
    return cluster("run", "ctl", "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def is_done(job: str) -> bool:
    return state_of(job) == "COMPLETED"


def until(holds: Callable[[], bool], seconds: float = 40.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not holds():
        time.sleep(0.3)
    return holds()


def test_an_unfit_node_is_drained_only_where_its_answer_may_refuse(mini: list[str], measured: Measured) -> None:
    """The job starts elsewhere, or later; what is only said harms nobody."""
    put_answer("gpu01", "unfit", refuses=False)
    first = cluster("submit", "--nodes", "1", "--", "hostname", "-w", "gpu01").strip()
    assert until(lambda: is_done(first))
    put_answer("gpu01", "unfit", refuses=True)
    begun = time.monotonic()
    job = cluster("submit", "--nodes", "1", "--", "hostname", "-w", "gpu01").strip()
    assert until(lambda: "drain" in states()["gpu01"]), states()
    measured(f"gate refused a job, node drained after {time.monotonic() - begun:.1f} s: {states()['gpu01']}")
    assert "drain" not in states()["gpu02"]
    assert state_of(job) in ("PENDING", "REQUEUED", "REQUEUE_HOLD")
    put_answer("gpu01", "fit", refuses=False)
    cluster("run", "ctl", "scontrol", "update", "nodename=gpu01", "state=resume")
    # Slurm keeps the refused job for two minutes; another one runs at once.
    third = cluster("submit", "--nodes", "1", "--", "hostname", "-w", "gpu01").strip()
    assert until(lambda: is_done(third))
