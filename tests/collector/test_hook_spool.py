"""The service's own spool of hooks: the environment, the job's files, and its output as lines; nothing is taken by halves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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


def test_output_becomes_lines_of_its_run_and_a_full_spool_takes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "home" / "15.out"
    output.parent.mkdir()
    output.write_text("step 1\nCUDA out of memory\n")
    path = epilog(tmp_path, output)
    told: list[tuple[dict[str, Any], str]] = []

    def full(records: bytes, key: str) -> None:
        raise OSError("the spool is full")

    with open_store(None) as store:
        assert HookSpool(tmp_path, deliver=full).take(store) == 0
        assert path.exists() and store.rows("SELECT * FROM raw.jobs") == [] == store.rows("SELECT * FROM raw.artifacts")
        spool = HookSpool(tmp_path, deliver=lambda records, key: told.append((json.loads(records), key)))
        assert spool.take(store) == 1 and not path.exists()
        ((job,), (artifact,)) = (store.rows(f"SELECT * FROM raw.{table}") for table in ("jobs", "artifacts"))
    ((record, key),) = told
    assert (record["source"], record["job_id"], record["restarts"]) == ("job_stdout", 15, 1)
    assert record["lines"] == "step 1\nCUDA out of memory" and key == "hook 15.epilogslurmctld.ctl.7.1.hook stdout"
    assert record["host"] == "gpu01"  # whose words they are, whoever fetched them
    # The lines' file and the artifact's are one name: that is how a line finds its run.
    assert artifact["file"] == f"{record['host']}:{record['path']}" and artifact["kind"] == "stdout"
    assert job["user"] == "alice"
