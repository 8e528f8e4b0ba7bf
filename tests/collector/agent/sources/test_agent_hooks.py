"""Spools of Slurm's hooks on a node: delivered with the job's files, and removed once stored.

They are trusted according to their owner.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from made_host import Host, asked, rows, tables

from collector.agent.hook_folder import CLAIM, HookFolder
from collector.agent.sources import hooks as source

EPILOG = {
    "SLURM_JOB_ID": "15", "SLURM_JOB_RESTART_COUNT": "0", "SLURM_JOB_UID": str(os.geteuid() or 20001),
    "SLURM_JOB_GID": str(os.getegid() or 20001), "SLURM_JOB_USER": "alice", "SLURM_JOB_NUM_NODES": "2",
    "SLURMD_NODENAME": "gpu01", "SLURM_CLUSTER_NAME": "mini", "SLURM_JOB_EXIT_CODE2": "1:0",
}  # fmt: skip
OUTPUT = "step 100\nRuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error\n"
SPOOL, TASKS = "/var/spool/faultline/hooks", "/var/spool/faultline/task-hooks"


def hook(host: Host, event: str, name: str = "", folder: str = SPOOL, **reported: str) -> Path:
    env = {"FAULTLINE_EVENT": event, "FAULTLINE_HOST": "gpu01", "FAULTLINE_TIME": "1795278590.5", **EPILOG, **reported}
    text = "faultline-hook/1\n" + "\0".join(f"{key}={value}" for key, value in env.items())
    return host.put(f"{folder}/{name or f'15.{event}.gpu01.7.1'}.hook", text)


def output(host: Host, text: str = OUTPUT) -> dict[str, str]:
    """A job's output at the place that its hook names, readable for the user that a child of root becomes."""
    path = host.put("/home/alice/ring-15.out", text)
    os.chown(path, int(EPILOG["SLURM_JOB_UID"]), int(EPILOG["SLURM_JOB_GID"]))
    for folder in (path, *path.parents):
        if folder.is_relative_to(host.root) or folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(folder.stat().st_mode | 0o755)
    return {"SLURM_JOB_STDOUT": "ring-%j.out", "SLURM_JOB_WORK_DIR": str(path.parent)}


def kept(readings: list[Any]) -> None:
    for reading in readings:
        if reading.kept:
            reading.kept()


def test_an_epilog_brings_its_environment_and_the_end_of_the_output(host: Host) -> None:
    hook(host, "epilog", SLURM_JOB_NUM_NODES="1", **output(host))
    found = asked(host.runner("hooks"))
    reported, file = found
    (job,) = tables(reported)["jobs"].to_dicts()
    assert (job["job_id"], job["exit_code"], job["user"], job["source"]) == (15, 1, "alice", "hook")
    (artifact,) = tables(file)["artifacts"].to_dicts()
    assert (artifact["kind"], artifact["content"], artifact["job_id"], artifact["restarts"]) == (
        "stdout",
        OUTPUT,
        15,
        0,
    )
    assert artifact["taken_at"] == datetime(
        2026, 11, 21, 16, 29, 50, 500_000
    )  # when the hook ran, however late it is delivered


def test_a_job_that_ends_at_once_brings_its_output_too(host: Host) -> None:
    """Found by reading: prolog and epilog are there together, the epilog came first by its name, and so knew no prolog."""
    where = output(host)
    hook(host, "epilog", "15.epilog.gpu01.8.1795278591000000000", SLURM_NODELIST="gpu01", **where)
    hook(host, "prolog", "15.prolog.gpu01.7.1795278590000000000", SLURM_NODELIST="gpu[01-02]")
    found = asked(host.runner("hooks"))
    assert [row["document"] for row in found] == ["hook_spool", "hook_spool", "job_file"]


def test_without_a_process_to_be_had_a_hook_waits_and_nothing_is_held_open(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: each attempt left two handles open, until the agent had none for its spool."""
    path = hook(host, "epilog", SLURM_JOB_NUM_NODES="1", **output(host))
    runner = host.runner("hooks")

    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", refuse)
        list(runner.poll())
        handles = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            host.wait(30)
            assert not rows(runner.poll()) and runner.status.state == "error" and path.exists()
        assert len(list(Path("/proc/self/fd").iterdir())) <= handles
    host.wait(30)
    assert [row["document"] for row in asked(runner)] == ["hook_spool", "job_file"]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_a_hook_that_cannot_be_read_at_the_moment_is_read_later(
    code: int, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(host, "prolog")
    runner = host.runner("hooks")

    def refuse(_folder: HookFolder, _name: str) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(HookFolder, "read", refuse)
        assert not rows(runner.poll()) and runner.status.state == "error"
    host.wait(30)
    assert [row["document"] for row in asked(runner)] == ["hook_spool"]


def test_a_file_goes_when_it_is_kept_and_is_read_once(host: Host) -> None:
    path = hook(host, "epilog")
    runner = host.runner("hooks")
    (reading,) = runner.poll()
    assert path.exists()
    host.wait(3)
    assert list(runner.poll()) == []  # read, and not yet on the agent's disk
    kept([reading])
    assert not path.exists()


def test_which_hooks_of_a_job_arrived_is_known_once_they_are_on_the_agents_disk(host: Host) -> None:
    """``faultline slurm verify --job`` waits for that. A user's word counts only for a job that root's prolog gave to that user."""
    runner = host.runner("hooks")
    for event in ("prolog", "epilog"):
        hook(host, event)
    readings = list(runner.poll())
    assert runner.source.arrived == {}
    kept(readings)
    assert {job: set(events) for job, events in runner.source.arrived.items()} == {"15": {"prolog", "epilog"}}
    task = hook(host, "taskprolog", folder=TASKS)
    task.parent.chmod(0o1733)
    other = hook(host, "taskprolog", name="16.taskprolog.gpu01.7.1", folder=TASKS, SLURM_JOB_ID="16")
    for path in (task, other):
        os.chown(path, int(EPILOG["SLURM_JOB_UID"]), -1)
    host.wait(3)
    kept(list(runner.poll()))
    assert set(runner.source.arrived["15"]) == {"prolog", "epilog", "taskprolog"} and set(runner.source.arrived) == {
        "15"
    }


def test_what_cannot_be_removed_is_a_status_and_is_not_read_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hook(host, "epilog")
    runner = host.runner("hooks")
    readings = list(runner.poll())

    def read_only(name: str, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", read_only)
        kept(readings)
    host.wait(3)
    assert list(runner.poll()) == [] and runner.status.state == "denied" and "cannot be removed" in runner.status.detail
    host.wait(61)
    assert list(runner.poll()) == [] and path.exists()


def test_after_a_crash_what_was_kept_is_removed_and_what_was_not_is_read_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hook(host, "epilog")
    runner = host.runner("hooks")
    list(runner.poll())
    held = json.loads(json.dumps(runner.positions))
    runner.close()

    def readings(positions: dict[str, Any]) -> int:
        runner = host.runner("hooks", positions)
        found = list(runner.poll())
        runner.close()
        return len(found)

    # The positions were lost with the reading: nothing was on disk.
    assert readings({}) == 1 and path.exists()
    # The same process opens its source again: what it read may still be in memory.
    assert readings(dict(held)) == 0 and path.exists()
    # Another process has them from the disk, where the reading is, too.
    monkeypatch.setattr(source, "_PROCESS", "another")
    assert readings(dict(held)) == 0 and not path.exists()


@pytest.mark.parametrize(
    ("nodes", "node", "fetched"), [("gpu[01-02]", "gpu01", True), ("gpu[01-02]", "gpu02", False), ("", "gpu01", False)]
)
def test_of_many_nodes_the_first_one_fetches(host: Host, nodes: str, node: str, fetched: bool) -> None:
    """slurmd's epilog of Slurm 22.05 gets no node list: the prolog did."""
    where = output(host)
    if nodes:
        hook(host, "prolog", SLURM_NODELIST=nodes, SLURMD_NODENAME=node)
    runner = host.runner("hooks")
    kept(list(runner.poll()))
    runner.close()
    hook(host, "epilog", SLURM_NODELIST=node, SLURMD_NODENAME=node, **where)
    again = host.runner("hooks", json.loads(json.dumps(runner.positions)))  # also over a restart of the agent
    assert [row.get("document") for row in asked(again) if row.get("document") == "job_file"] == ["job_file"] * fetched


def test_the_controller_fetches_whoever_ran_it(host: Host) -> None:
    hook(host, "epilogslurmctld", SLURM_JOB_NODELIST="gpu[01-02]", SLURMD_NODENAME="", **output(host))
    _, file = asked(host.runner("hooks"))
    assert (file["document"], file["host"], file["cluster"]) == ("job_file", "gpu01", "mini")


def test_a_file_that_may_not_be_read_is_reported_with_its_reason(host: Host) -> None:
    reported = output(host)
    path = Path(reported["SLURM_JOB_WORK_DIR"]) / "ring-15.out"
    path.unlink()
    path.symlink_to("/etc/passwd")
    hook(host, "epilog", SLURM_JOB_NUM_NODES="1", **reported)
    _, line = asked(host.runner("hooks"))
    assert "stdout" in line["lines"] and "a symbolic link" in line["lines"] and "root:" not in json.dumps(line)


@pytest.mark.parametrize("content", ["SLURM_JOB_ID=1", "x" * 600_000])
def test_what_is_no_hooks_file_is_set_aside_and_stated(host: Host, content: str) -> None:
    host.put(f"{SPOOL}/1.epilog.hook", content)
    (line,) = asked(host.runner("hooks"))
    assert "was not read" in line["lines"] and (host.root / SPOOL.lstrip("/") / "bad" / "1.epilog.hook").exists()


def test_a_link_in_the_spool_is_not_followed(host: Host) -> None:
    secret = host.put("/etc/secret", "faultline-hook/1\nSLURM_JOB_ID=1")
    (host.root / SPOOL.lstrip("/")).mkdir(parents=True)
    (host.root / SPOOL.lstrip("/") / "1.epilog.hook").symlink_to(secret)
    (line,) = asked(host.runner("hooks"))
    assert "was not read" in line["lines"] and secret.exists()


def test_hooks_that_gave_up_are_a_blind_period(host: Host) -> None:
    hook(host, "epilog")
    dropped = host.put(f"{SPOOL}/dropped", "...")
    runner = host.runner("hooks")
    reported, _ = rows(runner.poll())
    assert reported["blind"]["lines"] == 3 and "3 hooks gave up" in reported["blind"]["reason"]
    with dropped.open("a") as stream:
        stream.write(".")
    host.wait(3)
    runner.close()
    again = host.runner("hooks", json.loads(json.dumps(runner.positions)))
    assert [row["blind"]["lines"] for row in rows(again.poll())] == [1]


def test_a_hook_killed_in_the_middle_of_writing_is_reported_once_and_cleared_away(host: Host) -> None:
    hook(host, "epilog")
    dead = host.put(f"{SPOOL}/.15.epilog.gpu01.7.1.hook.tmp", "faultline-hook/1\nFAULTLINE_EV")
    writing = host.put(f"{SPOOL}/.16.epilog.gpu01.8.1.hook.tmp", "faultline-hook/1\n")
    os.utime(dead, (dead.stat().st_mtime - 61,) * 2)
    runner = host.runner("hooks")
    found = list(runner.poll())
    reported, _ = rows(found)
    assert reported["blind"]["lines"] == 1 and "the epilog hook of job 15 on gpu01" in reported["blind"]["reason"]
    assert dead.exists() and rows(runner.poll()) == []
    kept(found)
    assert not dead.exists() and writing.exists()


def test_a_spool_is_emptied_by_one_process(host: Host) -> None:
    path = hook(host, "epilog")
    other = HookFolder(path.parent)
    assert other.claim()
    runner = host.runner("hooks")
    assert list(runner.poll()) == [] and runner.status.state == "denied"
    assert "emptied by another process" in runner.status.detail
    other.release()
    host.wait(3600)
    assert len(rows(runner.poll())) == 1 and not other.claim()


@pytest.mark.parametrize(("mode", "lock_mode"), [(0o700, 0o644), (0o1733, 0o600)])
def test_a_lock_is_for_whoever_may_look_into_the_spool_and_never_for_users(
    host: Host, mode: int, lock_mode: int
) -> None:
    folder = hook(host, "epilog").parent
    folder.chmod(mode)
    assert HookFolder(folder).claim()
    assert (folder / CLAIM).stat().st_mode & 0o777 == lock_mode


def test_a_users_lock_keeps_nobody_out(host: Host) -> None:
    lock = host.put(f"{SPOOL}/.reader", "")
    hook(host, "epilog")
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        os.chown(lock, 20001, 20001)
        assert len(asked(host.runner("hooks"))) == 1


MEMORY = "/run/faultline/hooks"


def in_memory(host: Host, name: str, event: str, **more: str) -> Path:
    """As ``faultline-memory.sh`` leaves it: with all that Slurm gave it."""
    printed = "".join(f"export {key}='{value}'\n" for key, value in {**EPILOG, "HOME": "/root", **more}.items())
    return host.put(f"{MEMORY}/{name}.exported", f"faultline-shell/1\n{event}\ngpu01\n15\n{printed}faultline-end\n")


def test_what_lies_in_memory_is_read_like_what_lies_on_the_disk(host: Host) -> None:
    """A hook of either way tells the same; the spool on disk comes first, because memory took over from it."""
    in_memory(host, "0aa", "epilog", SLURM_NODELIST="gpu01", **output(host))
    hook(host, "prolog", SLURM_NODELIST="gpu[01-02]")
    prolog, epilog, file = asked(host.runner("hooks"))
    assert "HOME" not in epilog["raw"] and "FAULTLINE_EVENT=prolog" in prolog["raw"]
    (job,) = tables(epilog)["jobs"].to_dicts()
    assert (job["job_id"], job["exit_code"], job["host"], file["document"]) == (15, 1, "gpu01", "job_file")


def test_a_name_in_memory_that_is_used_again_over_a_crash_is_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_memory(host, "0aa", "prolog")
    runner = host.runner("hooks")
    kept(list(runner.poll()))
    assert not path.exists()
    in_memory(host, "0aa", "prolog").rename(path.with_name("0ab.exported"))
    host.wait(3)
    list(runner.poll())  # stored, and the agent is killed before it removes it
    held = json.loads(json.dumps(runner.positions))
    for spool in runner.source._open.values():  # type: ignore[union-attr]
        spool.release()
    monkeypatch.setattr(source, "_PROCESS", "another")
    second = in_memory(host, "0ac", "epilog")
    second.replace(path.with_name("0ab.exported"))
    (found,) = rows(host.runner("hooks", held).poll())
    assert "FAULTLINE_EVENT=epilog" in found["raw"]


def test_an_agent_that_is_stopped_leaves_records_on_the_disk(host: Host) -> None:
    hook(host, "prolog")
    runner = host.runner("hooks")
    (reading,) = runner.poll()
    path = in_memory(host, "0aa", "epilog")
    runner.close()
    kept([reading])
    assert not path.parent.exists()
    host.wait(3)
    (found,) = asked(host.runner("hooks"))
    assert "FAULTLINE_EVENT=epilog" in found["raw"]


def test_no_spool_is_a_status(host: Host) -> None:
    runner = host.runner("hooks")
    assert list(runner.poll()) == [] and runner.status.state == "absent"
