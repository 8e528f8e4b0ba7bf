"""The service's own spool of hooks: the environment and the job's files."""

from __future__ import annotations

import errno
import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from collector.agent.hook_folder import HookFolder
from collector.hook_spool import HookSpool, spool_problem
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


def test_what_hooks_lost_is_reported_once(tmp_path: Path) -> None:
    reported: dict[str, str] = {}

    def keep(records: bytes, key: str) -> None:
        reported[key] = json.loads(records)["blind"]["reason"]

    (tmp_path / "dropped").write_text("..")
    dead = tmp_path / ".15.epilog.gpu01.7.1.hook.tmp"
    dead.write_text("faultline-hook/1")
    os.utime(dead, (0, 0))
    spool = HookSpool(tmp_path, keep=keep)
    spool.report_lost()
    spool.report_lost()
    assert [reason.split(":")[0] for reason in reported.values()] == [
        "2 hooks gave up", "the epilog hook of job 15 on gpu01 ended in the middle of writing"
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_what_hooks_lost_waits_until_it_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "dropped").write_text("..")

    def refuse(_records: bytes, _key: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    reported: list[bytes] = []
    spool = HookSpool(tmp_path, keep=refuse)
    with pytest.raises(OSError, match="No space"):
        spool.report_lost()
    (tmp_path / "dropped").write_text(".")  # meanwhile
    spool.keep = lambda records, _key: reported.append(records)
    spool.report_lost()
    spool.report_lost()
    assert [json.loads(records)["blind"]["lines"] for records in reported] == [2, 1]


def test_a_spool_that_an_agent_empties_is_left_alone_and_stated(tmp_path: Path) -> None:
    output = tmp_path / "15.out"
    output.write_text("step 1\n")
    path, agent, spool = epilog(tmp_path, output), HookFolder(tmp_path), HookSpool(tmp_path)
    assert agent.claim()
    with open_store(None) as store:
        assert spool.take(store) == spool.take(store) == 0 and path.exists()
        assert len(spool.warnings) == 1 and "emptied by another process" in spool.warnings[0]
        agent.release()
        assert spool.take(store) == 1 and not path.exists()


def test_a_hook_that_cannot_be_removed_is_stored_once_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: a service that may read its hooks and not remove them concluded nothing any more."""
    output = tmp_path / "15.out"
    output.write_text("step 1\n")
    path, spool = epilog(tmp_path, output), HookSpool(tmp_path)

    def refuse(name: str, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuse)
    with open_store(None) as store:
        assert spool.take(store) == 1 and path.exists()
        assert [warning for warning in spool.warnings if "cannot be removed" in warning]
        assert spool.take(store) == HookSpool(tmp_path).take(store) == 0


def test_a_hook_whose_files_nobody_can_be_sent_for_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "15.out"
    output.write_text("step 1\n")
    path, spool = epilog(tmp_path, output), HookSpool(tmp_path)

    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with open_store(None) as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fork", refuse)
            assert spool.take(store) == 0 and path.exists() and "waits" in spool.warnings[0]
        assert spool.take(store) == 1 and not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")
@pytest.mark.parametrize(
    ("mode", "uid", "cure"),
    [(0o777, 0, "chmod 0700"), (0o1733, 0, "the agent reads that one"), (0o700, 20002, "chown root")],
)
def test_a_spool_that_users_may_write_is_refused_stated_once_and_named_by_check(
    mode: int, uid: int, cure: str, tmp_path: Path
) -> None:
    folder, output = tmp_path / "above" / "spool", tmp_path / "15.out"
    folder.mkdir(parents=True)
    output.write_text("step 1\n")
    path, spool = epilog(folder, output), HookSpool(folder)
    os.mkfifo(folder / "1.epilog.gpu01.1.1.hook")
    folder.parent.chmod(0o777 if uid else 0o755)
    os.chown(folder, uid, uid)
    folder.chmod(mode)
    with open_store(None) as store:
        assert spool.take(store) == spool.take(store) == 0 and path.exists()
    assert len(spool.warnings) == 1 and cure in spool.warnings[0] and cure in spool_problem(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")
def test_only_plain_files_of_slurms_are_read_and_nobody_waits_for_a_fifo(tmp_path: Path) -> None:
    folder, output = tmp_path / "spool", tmp_path / "15.out"
    folder.mkdir(mode=0o700)
    output.write_text("step 1\n")
    good = epilog(folder, output)
    folder.chmod(0o700)
    os.mkfifo(folder / "1.epilog.gpu01.1.1.hook")
    (folder / "2.epilog.gpu01.1.1.hook").mkdir()
    (folder / "3.epilog.gpu01.1.1.hook").write_bytes(good.read_bytes())
    os.chown(folder / "3.epilog.gpu01.1.1.hook", 20002, 20002)
    spool = HookSpool(folder)
    with open_store(None) as store:
        assert spool.take(store) == 1 and not list(folder.glob("*.hook"))
        assert len(store.rows("SELECT * FROM raw.jobs")) == 1
    assert len(list((folder / "bad").iterdir())) == 3 and not spool_problem(folder)
