"""The service's own spool of hooks: the environment and the job's files."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from collector.hook_spool import HookSpool
from store import open_store

UID = os.geteuid() or 20001


def epilog(folder: Path, output: Path) -> Path:
    os.chown(output, UID, UID)
    for parent in (output.parent, *output.parent.parents):
        if parent.is_relative_to(folder) or parent.name.startswith(("pytest-", "popen-", "test_")):
            parent.chmod(parent.stat().st_mode | 0o755)
    env = {
        "FAULTLINE_EVENT": "epilogslurmctld", "FAULTLINE_HOST": "ctl", "FAULTLINE_TIME": "1795278590.5", "SLURM_JOB_ID": "15",
        "SLURM_JOB_UID": str(UID), "SLURM_JOB_GID": str(UID), "SLURM_JOB_USER": "alice", "SLURM_CLUSTER_NAME": "mini",
        "SLURM_JOB_STDOUT": str(output), "SLURM_JOB_WORK_DIR": str(output.parent), "SLURM_JOB_RESTART_COUNT": "1", "SLURM_JOB_NODELIST": "gpu[01-02]",
    }  # fmt: skip
    path = folder / "15.epilogslurmctld.ctl.7.1.hook"
    path.write_text("faultline-hook/1\n" + "\0".join(f"{name}={value}" for name, value in env.items()))
    return path


def test_an_epilogs_environment_and_output_are_stored_under_the_batch_hosts_name(tmp_path: Path) -> None:
    output = tmp_path / "home" / "15.out"
    output.parent.mkdir()
    output.write_text("step 1\nCUDA out of memory\n")
    path = epilog(tmp_path, output)
    with open_store(None) as store:
        assert HookSpool(tmp_path).take(store) == 1 and not path.exists()
        ((job,), (artifact,)) = (store.rows(f"SELECT * FROM raw.{table}") for table in ("jobs", "artifacts"))
    assert (artifact["kind"], artifact["file"]) == ("stdout", f"gpu01:{output}")
    assert artifact["taken_at"] == datetime(2026, 11, 21, 16, 29, 50, 500_000) and job["user"] == "alice"
