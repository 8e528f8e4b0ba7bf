"""Slurm's ``jobcomp/script``: our script writes what it is told into the hooks' spool, and the record is accounting's."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from parsers.documents import read
from parsers.record import Origin

SCRIPT = Path(__file__).parents[2] / "deploy/slurm/jobcomp.sh"
#: The names of slurm src/plugins/jobcomp/script (23.02); a job in no array has NO_VAL as its task.
TOLD = {
    "JOBID": "4711", "EXITCODE": "139:0", "DERIVED_EC": "0:9", "ARRAYJOBID": "0", "ARRAYTASKID": "4294967294", "UID": "20001",
    "START": "1795278000", "END": "1795278590", "SUBMIT": "1795277000", "PROCS": "4", "NODECNT": "2", "BATCH": "yes", "CLUSTER": "mini",
    "NODES": "gpu[01-02]", "ACCOUNT": "ml", "JOBNAME": "two\nlines $(id) `id`", "JOBSTATE": "FAILED", "PARTITION": "gpu", "QOS": "normal",
    "WORK_DIR": "/home/alice", "RESERVATION": "", "USERNAME": "alice", "LIMIT": "1-00:00:00", "PATH": "/bin:/usr/bin",
}  # fmt: skip


@pytest.mark.parametrize("shell", ["sh", "bash --posix", "busybox sh"])
def test_an_ended_run_is_recorded_as_slurmctld_tells_it(shell: str, tmp_path: Path) -> None:
    command = shell.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    spool = tmp_path / "hooks"
    done = subprocess.run(
        [*command, str(SCRIPT)],
        env={**TOLD, "FAULTLINE_HOOK_SPOOL": str(spool)},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == done.stderr == b""
    (file,) = spool.glob("4711.jobcomp.*.hook")
    (job,) = read("hook_spool", file.read_bytes(), Origin(path=str(file))).rows("jobs").to_dicts()
    assert (job["source"], job["job_id"], job["state"], job["exit_code"], job["exit_signal"]) == (
        "jobcomp",
        4711,
        "FAILED",
        139,
        0,
    )
    assert (job["uid"], job["user"], job["name"], job["nodes"]) == (20001, "alice", TOLD["JOBNAME"], ["gpu01", "gpu02"])
    assert (job["derived_exit_code"], job["time_limit_s"], job["cluster"]) == ("0:9", 86_400, "mini")
    assert (job["start"], job["end"]) == (datetime(2026, 11, 21, 16, 20), datetime(2026, 11, 21, 16, 29, 50))
    assert (job["array_job_id"], job["array_task_id"], job["reservation"]) == (None, None, None)
