"""Hooks that could not do their work: counted, reported with reason and cure, and never called well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_host import NOW, Host, rows
from made_slurm import CONF, SLURM_UID, SPOOL, MadeSlurm

from collector.agent import hook_failures
from collector.agent.hook_failures import TASK_WORDS, WORDS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files get owners, and children become users")


@pytest.fixture
def controller(host: Host) -> Iterator[MadeSlurm]:
    """A controller whose slurm.conf calls the hooks; the agent sees the same files."""
    made = MadeSlurm(host.root, CONF, daemons=("slurmctld",))
    assert made.slurm("install", "--yes", "--edit-slurm-conf", "--hooks", "prologslurmctld,epilogslurmctld") == 0
    made.put("/run/.keep", "")
    made.put("/dev/shm/.keep", "")
    yield made
    made.end_agent()


def left(
    host: Host, reason: str, event: str = "prologslurmctld", count: int = 1, uid: int = SLURM_UID, at: str = WORDS
) -> None:
    for place in range(count):
        path = host.put(f"{at}/faultline-hook.{reason}.{event}.{place}", "")
        os.chown(path, uid, uid)
        os.utime(path, (host.time, host.time))


def blind(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(row["blind"]["reason"], row["blind"]["lines"]) for row in found if "blind" in row]  # type: ignore[index]


def test_a_spool_closed_to_slurmuser_is_no_hooks_ok(host: Host, controller: MadeSlurm) -> None:
    """Found on a real cluster: root's spool, hooks that wrote nothing and exited 0, and ``agent status`` said ``ok``."""
    os.chown(controller.path(SPOOL), 0, 0)
    runner = host.runner("hooks")
    list(runner.poll())
    assert runner.status.state == "error"
    assert (
        f"slurm (uid {SLURM_UID}) may not write into {SPOOL} (root:root 0700): permission denied"
        in runner.status.detail
    )
    assert "faultline slurm install" in runner.status.detail
    assert controller.slurm("install", "--yes") == 0
    host.wait(61)
    list(runner.poll())
    assert (runner.status.state, runner.status.detail) == ("ok", "")


def test_a_missing_spool_is_named_with_its_cure(host: Host, controller: MadeSlurm) -> None:
    controller.path(SPOOL).rmdir()
    runner = host.runner("hooks")
    list(runner.poll())
    assert runner.status.state == "denied" and f"may not write into {SPOOL} (missing)" in runner.status.detail


def test_where_slurm_conf_calls_no_hook_nothing_is_amiss(host: Host, controller: MadeSlurm) -> None:
    controller.put("/etc/slurm/slurm.conf", CONF)
    os.chown(controller.path(SPOOL), 0, 0)
    runner = host.runner("hooks")
    list(runner.poll())
    assert runner.status.state == "ok"


def test_words_are_counted_reported_and_taken_away(host: Host, controller: MadeSlurm) -> None:
    runner = host.runner("hooks")
    list(runner.poll())
    words = controller.path(WORDS)
    assert (words.stat().st_uid, words.stat().st_mode & 0o7777) == (SLURM_UID, 0o700), "SlurmUser's hooks write there"
    left(host, "denied", count=3)
    host.wait(3)
    readings = list(runner.poll())
    ((why, count),) = blind(rows(iter(readings)))
    assert (
        count == 3 and str(why).startswith("3 prologslurmctld hooks, run as") and "faultline slurm install" in str(why)
    )
    assert (
        runner.status.state == "error" and SPOOL in runner.status.detail and "3 prologslurmctld" in runner.status.detail
    )
    host.wait(3)
    assert not blind(rows(runner.poll())), "reported, though not yet removed"
    for reading in readings:
        if reading.kept:
            reading.kept()
    assert not list(words.iterdir())

    positions = runner.positions
    runner.close()
    again = host.runner("hooks", positions)
    list(again.poll())
    assert again.status.state == "error", "an agent that starts anew still says it"
    left(host, "denied", count=32)
    host.wait(3)
    ((why, count),) = blind(rows(again.poll()))
    assert str(why).startswith("at least 32") and count == 32

    host.put(
        f"{SPOOL}/9.prologslurmctld.ctl.1.1.hook", "faultline-hook/1\nFAULTLINE_EVENT=prologslurmctld\0SLURM_JOB_ID=9"
    )
    host.wait(3)
    list(again.poll())
    host.wait(3)
    list(again.poll())
    assert again.status.state == "ok", "a hook of that kind wrote again"


def test_hooks_that_gave_up_are_said_until_one_writes_after_them(host: Host, controller: MadeSlurm) -> None:
    """A spool that was full: the records that lie in it are older than the failures."""
    (controller.path(SPOOL) / "dropped").write_bytes(b"..")
    os.utime(controller.path(SPOOL) / "dropped", (NOW, NOW))
    runner = host.runner("hooks")
    for job, age in ((7, -60), (8, 60)):
        text = f"FAULTLINE_EVENT=epilogslurmctld\0SLURM_JOB_ID={job}\0FAULTLINE_TIME={NOW + age}"
        host.put(f"{SPOOL}/{job}.epilogslurmctld.ctl.1.{job}.hook", f"faultline-hook/1\n{text}")
        for _ in range(2):
            list(runner.poll())
            host.wait(3)
        if age < 0:
            assert runner.status.state == "error" and "2 hooks gave up" in runner.status.detail
    assert runner.status.state == "ok"


def test_a_hook_that_was_killed_while_writing_is_said(host: Host, controller: MadeSlurm) -> None:
    torn = host.put(f"{SPOOL}/.9.epilogslurmctld.ctl.7.1.hook.tmp", "")
    os.utime(torn, (NOW - 7200, NOW - 7200))
    runner = host.runner("hooks")
    list(runner.poll())
    assert runner.status.state == "error" and "epilogslurmctld hook of job 9" in runner.status.detail


def test_what_a_user_leaves_is_a_claim(host: Host, controller: MadeSlurm) -> None:
    """No user can make an agent's status an error, speak for Slurm's hooks, or have anything else removed."""
    left(host, "disk", "taskprolog", uid=20001, at=TASK_WORDS)
    left(host, "denied", "prologslurmctld", uid=20001, at=TASK_WORDS)
    other = host.put(f"{TASK_WORDS}/faultline-hook.disk.taskprolog.99", "")
    (controller.path(TASK_WORDS) / "faultline-hook.disk.taskprolog.5").symlink_to("/etc/passwd")
    runner = host.runner("hooks")
    readings = list(runner.poll())
    ((why, count),) = blind(rows(iter(readings)))
    assert count == 1 and "taskprolog hook of uid 20001" in str(why) and runner.status.state == "ok"
    for reading in readings:
        if reading.kept:
            reading.kept()
    assert other.exists() and len(list(controller.path(TASK_WORDS).iterdir())) == 4


def test_a_folder_of_words_that_users_may_write_into_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "faultline-hook.denied.prolog.0").touch()
    assert len(hook_failures.words(folder, of_users=False)) == 1
    folder.chmod(0o1777)
    assert hook_failures.words(folder, of_users=False) == []
    assert hook_failures.words(tmp_path / "none", of_users=False) == []


def test_every_reason_of_a_hook_has_a_cure() -> None:
    script = (Path(__file__).resolve().parents[3] / "deploy/slurm/faultline-hook.sh").read_text()
    for reason in hook_failures.REASONS:
        assert f"word {reason}" in script or f"lost {reason}" in script
