"""The hook's way in memory: one shell, no process, no disk; and the agent makes of its file what the hook in Python writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_disks import needs_root

from collector import hooks
from collector.agent import exported, hook_memory
from collector.agent.exported import SUFFIX, hook_file
from collector.agent.hook_folder import HookFolder
from collector.agent.slurm.host import ROOT as ROOT_ACCOUNT
from collector.agent.slurm.host import Host
from collector.agent.slurm.programs import SPOOL
from parsers.documents.hook import read_spool

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
SHELLS = {"sh": ["/bin/sh"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
ODD = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_UID": "20001", "SLURM_A": "", "SLURM_B": "a=b=c", "SLURM_F": "\\", "SLURM_G": "it's \"so\"",
    "SLURM_JOB_COMMENT": "two\nlines\n\nexport SLURM_JOB_UID='0'\nfaultline-end\n", "SLURM_D": "naïve ☃", "SLURM_E": " \t ",
    "SLURM_C": "$(touch /tmp/never) `id` ; rm -rf / '\" \\0 \\n %s %n", "SLURM_X": "\x01\x7f\x1b[31m", "NCCL_DEBUG": "INFO",
    "SLURM_QQ": "''''\"'\"'", "SLURM_Z": "a\\\nb", "SLURMD_NODENAME": "gpu03", "CUDA_VISIBLE_DEVICES": "0,1",
}  # fmt: skip
NOT_OURS = {"HOME": "/root", "AWS_SECRET_ACCESS_KEY": "x\nexport SLURM_JOB_USER='root'", "SLURM_JWT": "eyJ.secret"}


@pytest.fixture(params=["sh", "bash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Each shell a site may have as /bin/sh."""
    command = SHELLS[str(request.param)]
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} on this machine")
    return command


def run(shell: list[str], folder: Path, env: dict[str, str], event: str = "epilog", **more: str) -> None:
    """One hook, that leaves nothing outside: its words and its spool on disk lie beside ``folder``."""
    for name in ("words", "disk"):
        (folder.parent / name).mkdir(exist_ok=True)
    places = {
        "FAULTLINE_HOOK_MEMORY": str(folder),
        "FAULTLINE_HOOK_WORDS": str(folder.parent / "words"),
        "FAULTLINE_HOOK_SPOOL": str(folder.parent / "disk"),
    }
    command = [*shell, str(SCRIPTS / f"{event}.sh")]
    done = subprocess.run(command, env={**env, **places, **more}, stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize("event", ["epilog", "taskprolog"])
def test_the_record_is_the_one_that_the_hook_in_python_writes(shell: list[str], event: str, memory: Path) -> None:
    run(shell, memory, ODD | NOT_OURS, event)
    (name,) = names(memory)
    about = (memory / name).stat()
    assert about.st_mode & 0o777 == 0o600 and not names(memory.parent / "disk")
    assert (len(name) == len("abc" + SUFFIX)) == (event == "epilog"), "users cannot guess a name"
    spool = HookFolder(memory)
    spool.look()
    assert spool.waiting() == [name]
    environ = {os.fsencode(key): os.fsencode(value) for key, value in (ODD | NOT_OURS).items()}
    wanted = hooks.content(environ, event, os.uname().nodename, about.st_mtime_ns)  # type: ignore[arg-type]
    assert read_spool(spool.read(name).data) == read_spool(wanted)
    assert read_spool(wanted)["SLURM_JOB_UID"] == "20001"


def test_no_process_is_started(memory: Path) -> None:
    """What a process costs is twice the time that there is."""
    if not shutil.which("strace"):
        pytest.skip("no strace on this machine")
    command = ["strace", "-f", "-e", "trace=fork,vfork,clone,clone3,execve", "/bin/sh", str(SCRIPTS / "epilog.sh")]
    env = {"FAULTLINE_HOOK_MEMORY": str(memory), "PATH": os.environ["PATH"], "SLURM_JOB_ID": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stderr.count("execve(") == 1 and "clone" not in done.stderr and "fork" not in done.stderr


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "memory"
    folder.mkdir()
    for number in range(4096):
        (folder / f"{number:03x}{SUFFIX}").touch()
    return folder


def test_a_full_folder_is_a_word_and_takes_no_more(shell: list[str], full: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run(shell, full, {"SLURM_JOB_ID": "7"}, FAULTLINE_HOOK_WORDS=str(tmp_path))
    assert len(names(full)) == 4096 and not names(full.parent / "disk")
    assert names(tmp_path) == [f"faultline-hook.full.epilog.{place}" for place in (0, 1)]
    for place in range(2, 32):
        (tmp_path / f"faultline-hook.full.epilog.{place}").touch()
    run(shell, full, {"SLURM_JOB_ID": "7"}, FAULTLINE_HOOK_WORDS=str(tmp_path))
    assert len(names(tmp_path)) == 32 and not names(full.parent / "disk")


@needs_root
def test_memory_without_room_is_a_word_and_a_large_environment_goes_to_the_disk(
    shell: list[str], tmp_path: Path
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=0700", "tmpfs", str(memory)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        (memory / "fill").write_bytes(b"x" * 4096)
        run(shell, memory, {"SLURM_JOB_ID": "7"})
        assert names(tmp_path / "words") == ["faultline-hook.disk.epilog.0"] and not names(tmp_path / "disk")
    finally:
        subprocess.run(["umount", "-l", str(memory)], check=True)
    run(shell, memory, {f"SLURM_{letter}": "x" * 100_000 for letter in "ABC"} | {"SLURM_JOB_ID": "8"})
    (record,) = names(tmp_path / "disk")
    assert record.startswith("8.epilog.") and names(tmp_path / "words") == ["faultline-hook.disk.epilog.0"]
    spool = HookFolder(memory)
    spool.look()
    assert spool.waiting() == [] and names(memory) == [], "given up, and cleared away"


def test_without_a_folder_in_memory_the_record_goes_to_the_disk(shell: list[str], tmp_path: Path) -> None:
    run(shell, tmp_path / "none", {"SLURM_JOB_ID": "7"})
    assert [name.split(".")[:2] for name in names(tmp_path / "disk")] == [["7", "epilog"]]


@pytest.mark.parametrize("event", ["epilog", "prolog-gate", "healthcheck"])
def test_without_an_output_to_write_to_it_is_no_failure(shell: list[str], event: str, memory: Path) -> None:
    """An error of ``exec`` ends a shell, and a prolog that ends so drains the node."""
    env = {"SLURM_JOB_ID": "7", "FAULTLINE_HOOK_MEMORY": str(memory), "FAULTLINE_GATE": str(memory / "none")}
    line = '"$@" <&- >&- 2>&-'
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", *shell, str(SCRIPTS / f"{event}.sh")], env={**env, "PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0 and len(names(memory)) == 1


@pytest.mark.parametrize("broken", ["faultline-memory.sh", "faultline-gate.sh"])
def test_a_script_that_no_shell_can_read_drains_no_node(shell: list[str], broken: str, memory: Path) -> None:
    scripts = memory.parent / "scripts"
    shutil.copytree(SCRIPTS, scripts)
    (scripts / broken).write_text("if then {")
    env = {"SLURM_JOB_ID": "7", "FAULTLINE_HOOK_MEMORY": str(memory), "FAULTLINE_HOOK_SPOOL": str(memory)}
    for event in ("prolog", "prolog-gate", "healthcheck"):
        command = [*shell, str(scripts / f"{event}.sh")]
        assert subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def test_a_torn_file_waits_and_is_named_at_last(memory: Path) -> None:
    run(["/bin/sh"], memory, {"SLURM_JOB_ID": "7"})
    (name,) = names(memory)
    whole = (memory / name).read_bytes()
    (memory / name).write_bytes(whole[:-1])
    spool = HookFolder(memory)
    spool.look()
    assert spool.waiting() == [] and spool.unfinished() == [], "its hook may be writing"
    os.utime(memory / name, (0, 0))
    assert spool.unfinished() == [name] and spool.about(name) == ("epilog", os.uname().nodename, "7")
    (memory / name).write_bytes(whole)
    os.utime(memory / name, (0, 0))
    assert spool.waiting() == [name] and spool.unfinished() == []


def test_records_are_read_in_the_order_in_which_hooks_ran(memory: Path) -> None:
    for name, at in ((f"fff{SUFFIX}", 5), ("9.epilog.h.1.7000000000.hook", 0), (f"000{SUFFIX}", 9)):
        (memory / name).write_bytes(exported.MAGIC + exported.END)
        os.utime(memory / name, (at, at))
    spool = HookFolder(memory)
    spool.look()
    assert spool.waiting() == [f"fff{SUFFIX}", "9.epilog.h.1.7000000000.hook", f"000{SUFFIX}"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"shell/1", b"shell/2"),
        lambda data: data.replace(b"export SLURM", b"touch SLURM"),
        lambda data: data.replace(b"'7'", b"'7"),
        lambda data: data + data,
        lambda data: b"",
    ],
)
def test_what_no_shell_prints_is_refused(change: Callable[[bytes], bytes]) -> None:
    data = b"faultline-shell/1\nepilog\ngpu01\n7\nexport SLURM_JOB_ID='7'\nfaultline-end\n"
    assert hook_file(data, 0)
    with pytest.raises(ValueError, match=r"begin with|is not what"):
        hook_file(change(data), 0)


@settings(max_examples=10, deadline=None)
@given(values=st.lists(st.binary(max_size=40).map(lambda value: value.replace(b"\0", b"")), min_size=30, max_size=30))
def test_a_shell_gives_back_every_value(values: list[bytes]) -> None:
    env = {b"SLURM_V%d" % number: value for number, value in enumerate(values)}
    for shell in (["/bin/sh"], ["bash", "--posix"]):
        if shutil.which(shell[0]):
            printed = subprocess.run([*shell, "-c", "export -p"], env=env, capture_output=True, check=True).stdout
            found = hook_file(exported.MAGIC + b"epilog\nh\n1\n" + printed + exported.END, 0)
            pairs = dict(pair.partition(b"=")[::2] for pair in found.split(b"\n", 1)[1].split(b"\0"))
            assert {name: value for name, value in pairs.items() if not name.startswith(b"FAULTLINE_")} == env


@needs_root
def test_an_agent_makes_the_folder_and_takes_it_away_with_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, {})
    (tmp_path / "run/faultline").mkdir(parents=True)
    disk, memory = host.path(SPOOL), host.path(hook_memory.MEMORY[SPOOL][0])
    hook_memory.make(host, [SPOOL], ROOT_ACCOUNT)
    assert not memory.exists(), "nobody reads it without its spool"
    disk.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(hook_memory, "in_memory", lambda folder: False)
    hook_memory.make(host, [SPOOL], ROOT_ACCOUNT)
    assert not memory.exists(), "a disk may hang"
    monkeypatch.setattr(hook_memory, "in_memory", lambda folder: True)
    hook_memory.make(host, [SPOOL], ROOT_ACCOUNT)
    assert memory.stat().st_mode & 0o7777 == 0o700
    run(["/bin/sh"], memory, ODD)
    spool = HookFolder(memory)
    spool.look()
    (name,) = spool.waiting()
    said = read_spool(spool.read(name).data)
    spool.release()
    hook_memory.leave(host, [SPOOL], ())
    assert not memory.exists()
    (moved,) = disk.glob("*.hook")
    assert read_spool(moved.read_bytes()) == said and moved.stat().st_mode & 0o777 == 0o600


def test_memory_is_told_from_disks() -> None:
    assert hook_memory.in_memory(Path("/dev/shm"))
    assert not hook_memory.in_memory(Path("/proc/self"))
    assert not hook_memory.in_memory(Path("/nowhere"))
