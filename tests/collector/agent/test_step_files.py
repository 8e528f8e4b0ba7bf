"""The output files of steps, by what is open while they run: found by root's word alone, and read as the job's user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from made_host import Host, asked, tables

from collector.agent import step_files
from collector.agent.artifacts import Artifact, Owner
from collector.agent.sources import hooks as source
from collector.agent.step_files import MOST_FILES, MOST_SRUNS, StepFiles
from tests.collector.agent.sources.test_agent_hooks import EPILOG, OUTPUT, hook, output

UID = int(EPILOG["SLURM_JOB_UID"])
WRITE, READ, APPEND = "0100001", "0100000", "0102002"


class Proc:
    """A /proc with a slurmd and the processes of job 15, whose batch script is step "batch"."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add(1, "systemd", 0, 0)
        self.add(9, "agent", 1, 0)
        (folder / "self").symlink_to("9")
        self.add(100, "slurmstepd", 1, 0, title="slurmstepd: [15.batch]")
        self.add(101, "slurm_script", 100, UID)
        self.add(200, "slurmstepd", 1, 0, title="slurmstepd: [15.0]")

    def add(self, pid: int, name: str, parent: int, uid: int, *, title: str = "", mounts: str = "mnt:[1]", files: dict[int, tuple[str, str]] | None = None) -> None:  # fmt: skip
        place = self.folder / str(pid)
        for made in ("fd", "fdinfo", "ns"):
            (place / made).mkdir(parents=True)
        (place / "status").write_text(
            f"Name:\t{name}\nUmask:\t0022\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        )
        (place / "cmdline").write_text(title + "\0")
        (place / "ns/mnt").symlink_to(mounts)
        for number, (path, flags) in (files or {}).items():
            (place / "fd" / str(number)).symlink_to(path)
            (place / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t29\n")

    def found(self, owners: dict[str, int] | None = None) -> list[tuple[str, str]]:
        made = StepFiles(self.folder)
        made.look({"15": UID} if owners is None else owners)
        return [(file.kind, file.path) for file in made.of("15")]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def test_tasks_and_their_srun_show_what_they_write_to(proc: Proc) -> None:
    proc.add(201, "python", 200, UID, files={0: ("/dev/null", READ), 1: ("/home/a/out.0", WRITE), 2: ("/home/a/err.0", APPEND), 7: ("/home/a/data", WRITE)})  # fmt: skip
    proc.add(202, "python", 200, UID, files={1: ("pipe:[77]", WRITE), 2: ("/home/a/gone (deleted)", WRITE)})
    proc.add(102, "srun", 101, UID, files={1: ("/home/a/slurm-15.out", WRITE), 4: ("/home/a/step.out", WRITE), 5: ("/home/a/input", READ)})  # fmt: skip
    assert sorted(proc.found()) == [
        ("stderr", "/home/a/err.0"), ("stdout", "/home/a/out.0"), ("stdout", "/home/a/slurm-15.out"), ("stdout", "/home/a/step.out"),
    ]  # fmt: skip


def test_nobody_speaks_for_another_job(proc: Proc) -> None:
    other = {1: ("/home/b/secret", WRITE)}
    proc.add(300, "slurmstepd", 1, UID + 1, title="slurmstepd: [15.0]")  # a user's process with slurmstepd's title
    proc.add(301, "python", 300, UID + 1, files=other)
    proc.add(302, "python", 200, UID + 1, files=other)  # below the step, and not the job's user
    proc.add(303, "srun", 1, UID, files=other)  # the job's user, outside of any job
    proc.add(304, "bash", 101, UID, files=other)  # no task, no srun: what a script redirects is not the step's output
    proc.add(305, "systemd-logger", 200, 0, files=other)
    assert proc.found() == [] and proc.found({"16": UID}) == [] and proc.found({}) == []


def test_it_is_bounded_and_forgets(proc: Proc) -> None:
    for number in range(MOST_FILES + 5):
        proc.add(400 + number, "python", 200, UID, files={1: (f"/home/a/out.{number}", WRITE)})
    found = StepFiles(proc.folder)
    found.look({"15": UID})
    assert len(found.of("15")) == MOST_FILES
    found.forget("15")
    assert found.of("15") == []


def test_descriptors_of_a_task_are_not_listed(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.add(201, "python", 200, UID, files={1: ("/home/a/out.0", WRITE)})
    listed, listdir = [], os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(str(path)) or listdir(path))
    assert proc.found() == [("stdout", "/home/a/out.0")]
    assert listed == [str(proc.folder)]  # of a million descriptors a look would take minutes


def test_a_user_cannot_multiply_the_work_by_processes_named_srun(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MOST_SRUNS + 5):
        proc.add(400 + number, "srun", 101, UID)
    listed, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    assert proc.found() == [] and len(listed) == MOST_SRUNS


def test_an_agent_with_a_tmp_of_its_own_sees_all_but_that(proc: Proc) -> None:
    (proc.folder / "9/ns/mnt").unlink()
    (proc.folder / "9/ns/mnt").symlink_to("mnt:[5]")
    proc.add(201, "python", 200, UID, files={1: ("/home/a/out", WRITE), 2: ("/tmp/err", WRITE)})
    made = StepFiles(proc.folder)
    made.look({"15": UID})
    assert [(file.path, file.hidden) for file in made.of("15")] == [("/home/a/out", False), ("/tmp/err", True)]


def _looked(host: Host, where: dict[str, str]) -> Any:
    """The source of hooks after the prolog of job 15 and a look at what its steps have open."""
    runner = host.runner("hooks")
    hook(host, "prolog", "15.prolog.gpu01.7.1", SLURM_NODELIST="gpu[01-02]", **where)
    asked(runner)
    host.wait(source.STEPS_EVERY_S)
    asked(runner)
    host.wait(2.0)
    return runner


def test_an_epilog_brings_head_and_tail_of_what_a_step_wrote(host: Host) -> None:
    where = output(host)
    step = Path(where["SLURM_JOB_WORK_DIR"]) / "step.0.out"
    step.write_text("step 1\nRuntimeError: of the step\n")
    os.chown(step, UID, UID)
    shadow = host.put("/etc/shadow", "root:x")
    fifo = step.with_name("fifo")
    os.mkfifo(fifo)
    os.chown(fifo, UID, UID)
    link = step.with_name("link")
    link.symlink_to(shadow)
    made = Proc(host.root / "proc")
    for pid, path in enumerate((step, shadow, fifo, link), 500):
        made.add(pid, "python", 200, UID, files={1: (str(path), WRITE)})
    made.add(600, "python", 200, UID, mounts="mnt:[2]", files={1: ("/tmp/private", WRITE)})
    runner = _looked(host, where)
    followed = [path for _, path in host.context.jobs.steps("15")]
    assert str(step) in followed and "/tmp/private" not in followed, "another file may have that path here"
    hook(host, "epilog", "15.epilog.gpu01.8.2", SLURM_NODELIST="gpu01", **where)
    bodies = asked(runner)
    assert host.context.jobs.steps("15") == ()
    made_of = [tables(body) for body in bodies if "document" in body]
    brought = [row for found in made_of if "artifacts" in found for row in found["artifacts"].to_dicts()]
    assert [(row["kind"], row["path"]) for row in brought] == [
        ("stdout", f"{step.parent}/ring-15.out"),
        ("stdout", str(step)),
    ]
    assert [row["content"] for row in brought] == [OUTPUT, "step 1\nRuntimeError: of the step\n"]
    said = " ".join(str(body) for body in bodies if "document" not in body)
    for why in ("not a regular file", "mount namespace"):
        assert why in said
    assert "root:x" not in str(brought)


def test_a_file_system_that_hangs_is_asked_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    where = output(host)
    made = Proc(host.root / "proc")
    for pid in (500, 501, 502):
        made.add(pid, "python", 200, UID, files={1: (f"/hung/{pid}", WRITE)})
    runner = _looked(host, where)
    opened = []

    def fetch(kind: str, path: str, owner: Owner) -> Artifact:
        opened.append(path)
        return Artifact(kind, path, reason="no answer from the file system in 10 s")

    monkeypatch.setattr(source, "fetch", fetch)
    hook(host, "epilog", "15.epilog.gpu01.8.2", SLURM_NODELIST="gpu01", **where)
    bodies = asked(runner)
    assert len(opened) == 1 and sum("another file of the job did not answer" in str(body) for body in bodies) == 2


def test_a_look_has_little_time_and_the_next_one_goes_on(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_files, "MOST_CPU_S", -1.0)
    proc.add(201, "python", 200, UID, files={1: ("/home/a/out.0", WRITE)})
    proc.add(202, "python", 200, UID, files={1: ("/home/a/out.1", WRITE)})
    made, seen = StepFiles(proc.folder), []
    for _ in range(8):  # as many as there are processes
        made.look({"15": UID})
        seen.append(len(made.of("15")))
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 2 and 1 in seen


def test_an_agent_that_may_not_look_stops_looking(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.add(201, "python", 200, UID, files={1: ("/home/a/out.0", WRITE)})
    plain, asked_for = Path.readlink, []

    def readlink(path: Path) -> Path:
        asked_for.append(path)
        if path.parts[-2:] == ("ns", "mnt"):
            raise PermissionError(13, "no CAP_SYS_PTRACE", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "readlink", readlink)
    made = StepFiles(proc.folder)
    made.look({"15": UID})
    assert made.refused and not made.of("15")
    asked_for.clear()
    made.look({"15": UID})
    assert not asked_for
