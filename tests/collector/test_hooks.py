"""The hook as Slurm runs it: always exit code 0, always silent, and a file that parses."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_disks import breakable_disk, needs_root

from collector import hooks
from parsers.documents.hook import read_spool

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy" / "slurm"
# The environment that slurmd 22.05 gave an epilog on a real node.
SITE_ENV = {
    "SLURMD_NODENAME": "gpu03", "SLURM_CLUSTER_NAME": "mini", "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOBID": "35", "SLURM_JOB_ACCOUNT": "ml", "SLURM_JOB_CPUS_PER_NODE": "1(x2)", "SLURM_JOB_DERIVED_EC": "0",
    "SLURM_JOB_EXIT_CODE": "0", "SLURM_JOB_EXIT_CODE2": "0:0", "SLURM_JOB_GID": "20001", "SLURM_JOB_ID": "35",
    "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_RESTART_COUNT": "0", "SLURM_JOB_STDOUT": "/home/alice/%x-%j.out",
    "SLURM_JOB_UID": "20001", "SLURM_JOB_USER": "alice", "SLURM_JOB_WORK_DIR": "/home/alice",
    "SLURM_NODELIST": "gpu[03-04]", "SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "CUDA_VISIBLE_DEVICES": "0,1",
}  # fmt: skip

#: No test leaves a word on this machine.
NO_WORDS = {"FAULTLINE_HOOK_WORDS": "/proc/nowhere"}
SHELLS = {"sh": ["/bin/sh"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


def _command(kind: str, event: str) -> list[str]:
    if kind == "python":
        return [sys.executable, "-I", "-S", str(ROOT / "collector" / "hooks.py"), event]
    if not shutil.which(SHELLS[kind][0]):
        pytest.skip(f"no {SHELLS[kind][0]} on this machine")
    return [*SHELLS[kind], str(SCRIPTS / f"{event}.sh")]


def run(
    kind: str, spool: Path | str, env: dict[str, str] | None = None, event: str = "epilog"
) -> subprocess.CompletedProcess[bytes]:
    """Runs one hook with exactly this environment, as slurmd starts it."""
    full = {**NO_WORDS, **(SITE_ENV if env is None else env), "FAULTLINE_HOOK_SPOOL": str(spool)}
    return subprocess.run(_command(kind, event), env=full, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)


def dropped(spool: Path) -> int:
    """How many hooks reported that they gave up: a machine that gives one no CPU for a second loses it. One whose second ended
    just after its file was complete reports it all the same."""
    path = spool / hooks.DROPPED
    return path.stat().st_size if path.exists() else 0


def harmless(done: subprocess.CompletedProcess[bytes]) -> bool:
    """What Slurm must see, whatever happened."""
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def spooled(spool: Path) -> list[dict[str, str]]:
    """Every hook file of a spool, parsed as by the service."""
    return [read_spool(path.read_bytes()) for path in sorted(spool.glob("*.hook"))]


@pytest.fixture(params=["python", "sh", "bash", "busybox"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each implementation and each shell a site may have as /bin/sh."""
    return str(request.param)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one page."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a full disk")
    spot = tmp_path / "disk"
    spot.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1k,mode=0700", "tmpfs", str(spot)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs here")
    yield spot
    subprocess.run(["umount", "-l", str(spot)], check=True)


@pytest.mark.parametrize("event", hooks.EVENTS)
def test_file_says_what_slurm_stated(kind: str, event: str, tmp_path: Path) -> None:
    before = time.time()
    given = {**SITE_ENV, "HOME": "/root", "AWS_SECRET": "x", "FAULTLINE_GATE": str(tmp_path / "none")}
    done = run(kind, tmp_path / "spool", given, event)
    if event == "healthcheck":  # prints the gate's answer, of which there is none here
        assert (done.returncode, done.stdout[:10], done.stdout.count(b"\n"), done.stderr) == (0, b"doubtful: ", 1, b"")
    else:
        assert harmless(done)
    (path,) = (tmp_path / "spool").iterdir()
    env = read_spool(path.read_bytes())
    assert list(env)[:3] == ["FAULTLINE_EVENT", "FAULTLINE_HOST", "FAULTLINE_TIME"]
    assert env["FAULTLINE_EVENT"] == event
    assert env["FAULTLINE_HOST"] == os.uname().nodename
    assert before - 2 <= float(env["FAULTLINE_TIME"]) <= time.time() + 2
    assert {name: value for name, value in env.items() if not name.startswith("FAULTLINE_")} == SITE_ENV
    job, named_event, _host, pid, epoch_ns, suffix = path.name.split(".")
    assert (job, named_event, suffix) == ("35", event, "hook")
    assert pid.isdigit() and len(epoch_ns) == 19
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_bytes_of_both_implementations_are_alike(tmp_path: Path) -> None:
    bodies = []
    for kind in ("python", "sh"):
        assert harmless(run(kind, tmp_path / kind))
        (path,) = (tmp_path / kind).iterdir()
        head, pairs = path.read_bytes().split(b"\n", 1)
        bodies.append((head, sorted(pair for pair in pairs.split(b"\0") if not pair.startswith(b"FAULTLINE_TIME"))))
    assert bodies[0] == bodies[1]


TASK = {
    "SLURM_JOB_ID": "35", "SLURM_PROCID": "0", "NCCL_IB_HCA": "mlx5_0,mlx5_1", "CUDA_HOME": "/opt/cuda", "UCX_TLS": "rc", "OMPI_MCA_pml": "ucx",
    "LOADEDMODULES": "gcc/12:openmpi/5", "_LMFILES_": "/m/gcc/12.lua", "CONDA_DEFAULT_ENV": "torch", "VIRTUAL_ENV": "/home/a/v",
    "PYXIS_X": "1", "MASTER_ADDR": "n1", "TORCH_LOGS": "all", "GIT_COMMIT": "0d9f", "APPTAINER_CONTAINER": "/images/a.sif",
}  # fmt: skip
HOME_ENV = {
    "HOME": "/home/a",
    "AWS_SECRET_ACCESS_KEY": "x",
    "LOADEDMODULES_OLD": "y",
    "XNCCL_A": "z",
    "SLURM_JWT": "eyJ.s",
}


def test_the_first_task_of_a_step_tells_what_it_ran_with(kind: str, tmp_path: Path) -> None:
    assert harmless(run(kind, tmp_path / "spool", {**TASK, **HOME_ENV}, "taskprolog"))
    (env,) = spooled(tmp_path / "spool")
    assert {name: value for name, value in env.items() if not name.startswith("FAULTLINE_")} == TASK


@pytest.mark.parametrize(("event", "rank"), [("taskprolog", "1"), ("prolog", "0"), ("epilog", "")])
def test_no_other_hook_tells_it(event: str, rank: str, tmp_path: Path) -> None:
    for kind in ("python", "sh"):
        assert harmless(run(kind, tmp_path / kind, {**TASK, "SLURM_PROCID": rank}, event))
        (env,) = spooled(tmp_path / kind)
        assert {name for name in env if not name.startswith("FAULTLINE_")} == {"SLURM_JOB_ID", "SLURM_PROCID"}


def test_a_site_names_more_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tmp_path / "slurm"
    shutil.copytree(SCRIPTS, scripts)
    (scripts / "environment.conf").write_text("# ours\n\nWANDB_MODE\nSITE_*  \n")
    more = {"WANDB_MODE": "offline", "SITE_X": "1", "SITE_": "2"}
    command = [*_command("sh", "taskprolog")[:-2], str(scripts / "faultline-hook.sh"), "taskprolog"]
    spool = {"FAULTLINE_HOOK_SPOOL": str(tmp_path / "spool"), "PATH": os.environ["PATH"]}
    assert harmless(
        subprocess.run(command, env={**TASK, **HOME_ENV, **more, "WANDB_MODE_X": "n", **spool}, capture_output=True)
    )
    (env,) = spooled(tmp_path / "spool")
    assert {name: value for name, value in env.items() if not name.startswith("FAULTLINE_")} == {**TASK, **more}
    monkeypatch.setattr(hooks, "SITE_ENVIRONMENT", str(scripts / "environment.conf"))
    environ = {os.fsencode(k): os.fsencode(v) for k, v in {**TASK, **HOME_ENV, **more, "WANDB_MODE_X": "n"}.items()}
    body = hooks.content(environ, "taskprolog", "gpu01", 0)  # type: ignore[arg-type]
    named = read_spool(body)
    assert {name: value for name, value in named.items() if not name.startswith("FAULTLINE_")} == {**TASK, **more}


def test_an_empty_environment(kind: str, tmp_path: Path) -> None:
    assert harmless(run(kind, tmp_path / "spool", {}))
    (path,) = (tmp_path / "spool").iterdir()
    assert path.name.startswith("0.epilog.")
    assert [name for name in read_spool(path.read_bytes()) if not name.startswith("FAULTLINE_")] == []


def test_odd_values_stay_what_they_are(kind: str, tmp_path: Path) -> None:
    odd = {
        "SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": "two\nlines\n\nFAULTLINE_EVENT=prolog", "SLURM_A": "",
        "SLURM_B": "a=b=c", "SLURM_F": "\\",
        "SLURM_C": "$(touch /tmp/never) `id` ; rm -rf / '\" \\0 \\n %s %n", "SLURM_D": "naïve ☃", "SLURM_E": " \t ",
    }  # fmt: skip
    assert harmless(run(kind, tmp_path / "spool", odd))
    (env,) = spooled(tmp_path / "spool")
    assert {name: env[name] for name in odd} == odd
    assert env["FAULTLINE_EVENT"] == "epilog"


def test_a_job_id_cannot_name_another_folder(kind: str, tmp_path: Path) -> None:
    assert harmless(run(kind, tmp_path / "spool", {"SLURM_JOB_ID": "../../etc/5"}))
    (path,) = (tmp_path / "spool").iterdir()
    assert path.name.startswith("0.")


def test_the_users_token_is_left_out(kind: str, tmp_path: Path) -> None:
    assert harmless(run(kind, tmp_path / "spool", {**SITE_ENV, "SLURM_JWT": "eyJ.secret"}))
    (env,) = spooled(tmp_path / "spool")
    assert "SLURM_JWT" not in env


def test_a_huge_environment_is_cut(kind: str, tmp_path: Path) -> None:
    huge = {f"SLURM_X{number}": "x" * 100_000 for number in range(18)} | SITE_ENV
    for _ in range(100):  # a machine that gives a hook no CPU for a second loses it, and reports it
        assert harmless(run(kind, tmp_path / "spool", huge))
        others = list((tmp_path / "spool").glob("*.hook"))
        if others:
            break
    (path,) = others
    assert path.stat().st_size <= hooks.MAX_FILE
    env = read_spool(path.read_bytes())
    assert int(env["FAULTLINE_TRUNCATED"]) >= 1
    assert len(env["FAULTLINE_TIME"]) > 10


@pytest.mark.parametrize(
    "spool", ["/proc/nowhere/spool", "/dev/null", "/dev/full/x", "relative/\x01", "/" + "x" * 5000]
)
def test_a_spool_that_cannot_be(kind: str, spool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert harmless(run(kind, spool))


def test_a_spool_that_is_read_only(kind: str, tiny_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    assert harmless(run(kind, tiny_disk))
    assert harmless(run(kind, tiny_disk / "below"))


def test_a_full_disk_leaves_nothing_torn(kind: str, tiny_disk: Path) -> None:
    (tiny_disk / "fill").write_bytes(b"x" * 4096)
    assert harmless(run(kind, tiny_disk))
    assert spooled(tiny_disk) == []
    assert [path for path in tiny_disk.iterdir() if path.name.endswith(".tmp")] == []


def test_the_disk_fills_while_writing(kind: str, tiny_disk: Path) -> None:
    assert harmless(run(kind, tiny_disk, {**SITE_ENV, "SLURM_JOB_COMMENT": "x" * 30_000}))
    assert list(tiny_disk.iterdir()) == []


def test_a_spool_that_nobody_empties_is_bounded(kind: str, tmp_path: Path) -> None:
    bound = {**SITE_ENV, "FAULTLINE_HOOK_MAX_FILES": "3"}
    for _ in range(5):
        assert harmless(run(kind, tmp_path, bound))
    assert len(spooled(tmp_path)) == 3
    assert (tmp_path / hooks.DROPPED).stat().st_size == 2


def test_a_spool_is_bounded_in_bytes(kind: str, tmp_path: Path) -> None:
    (tmp_path / "1.epilog.h.1.1.hook").write_bytes(b"x" * 2_000_000)
    assert harmless(run(kind, tmp_path, {**SITE_ENV, "FAULTLINE_HOOK_MAX_BYTES": "1000000"}))
    assert len(list(tmp_path.glob("*.hook"))) == 1


@pytest.mark.parametrize("kind", [pytest.param("python", marks=pytest.mark.long), "sh"])
def test_two_hundred_in_a_rush(kind: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(12) as pool:  # more would measure this machine: a hook gives up after a second
        done = list(pool.map(lambda job: run(kind, tmp_path / "s", {**SITE_ENV, "SLURM_JOB_ID": str(job)}), range(200)))
    assert all(map(harmless, done))
    jobs = sorted(int(env["SLURM_JOB_ID"]) for env in spooled(tmp_path / "s"))
    others = {path.name for path in (tmp_path / "s").iterdir() if path.suffix != ".hook"}
    assert len(set(jobs)) == len(jobs) and 200 - dropped(tmp_path / "s") <= len(jobs) and len(jobs) > 100
    assert others <= {hooks.DROPPED}


def test_one_that_gives_up_is_counted(kind: str, tmp_path: Path) -> None:
    """Its spool answers, but checking it takes longer than the available second."""
    spool = tmp_path / "s"
    spool.mkdir()
    if kind == "python":
        text = f"import sys, time; sys.path.insert(0, {str(ROOT)!r}); from collector import hooks; "
        text += "hooks._is_full = lambda spool: time.sleep(9); raise SystemExit(hooks.main(['epilog']))"
        command = [sys.executable, "-c", text]
    else:
        script = (SCRIPTS / "faultline-hook.sh").read_text().replace("full=$(du -ak", "full=$(sleep 9; du -ak")
        assert "sleep 9" in script
        (tmp_path / "faultline-hook.sh").write_text(script)
        command = [*_command(kind, "epilog")[:-1], str(tmp_path / "faultline-hook.sh"), "epilog"]
    env = {**SITE_ENV, **NO_WORDS, "FAULTLINE_HOOK_SPOOL": str(spool)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert harmless(done)
    assert [path.name for path in spool.iterdir()] == [hooks.DROPPED]
    assert (spool / hooks.DROPPED).read_bytes() == b"."


@pytest.mark.parametrize("stopped", [False, True])
def test_a_spool_that_does_not_answer(kind: str, stopped: bool, tmp_path: Path) -> None:
    """Opening a FIFO without a reader waits for ever, as a dead file server does.

    The hook aborts after a second, or on a signal.
    """
    os.mkfifo(tmp_path / hooks.DROPPED)
    env = {**SITE_ENV, **NO_WORDS, "FAULTLINE_HOOK_SPOOL": str(tmp_path), "FAULTLINE_HOOK_MAX_FILES": "0"}
    process = subprocess.Popen(_command(kind, "epilog"), env=env, stdin=subprocess.DEVNULL)
    if stopped:
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, "without an end of its own it would wait for ever"


def test_callers_that_stop_at_errors_go_on(tmp_path: Path) -> None:
    script = f"set -eu; {SCRIPTS}/epilog.sh; . {SCRIPTS}/faultline-hook.sh epilog; echo went on"
    for shell in ("/bin/sh", "bash"):
        done = subprocess.run([shell, "-c", script], env={"FAULTLINE_HOOK_SPOOL": "/proc/no"}, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b"went on\n")


def test_through_a_symbolic_link(tmp_path: Path) -> None:
    link = tmp_path / "50-faultline"
    link.symlink_to(SCRIPTS / "prolog.sh")
    done = subprocess.run(
        [str(link)], env={**SITE_ENV, "FAULTLINE_HOOK_SPOOL": str(tmp_path / "s")}, capture_output=True
    )
    assert harmless(done)
    assert [env["FAULTLINE_EVENT"] for env in spooled(tmp_path / "s")] == ["prolog"]


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.long)])
def test_how_long_a_job_waits(count: int, kind: str, tmp_path: Path) -> None:
    """The times are printed for docs/hooks.md; the assertion is that each of them ends and leaves its file."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        run(kind, tmp_path)
        times.append(time.perf_counter() - begin)
    print(f"{kind}: median of {count}: {statistics.median(times) * 1000:.1f} ms")
    assert len(spooled(tmp_path)) >= count - dropped(tmp_path)


def test_nothing_is_imported_that_costs(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]); import collector.hooks;"
        "collector.hooks.main(['epilog']); print(sorted(set(sys.modules) - before))"
    )
    env = {"FAULTLINE_HOOK_SPOOL": str(tmp_path)}
    done = subprocess.run([sys.executable, "-I", "-c", code, str(ROOT)], env=env, capture_output=True, text=True)
    assert set(eval(done.stdout)) <= {"collector", "collector.hooks", "_signal", "time"}


def test_called_in_a_process_that_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_HOOK_SPOOL", str(tmp_path))
    handler = signal.getsignal(signal.SIGTERM)
    assert hooks.main([]) == 0
    assert hooks.main(["no such event"]) == 0
    assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.alarm(0) == 0
    assert [env["FAULTLINE_EVENT"] for env in spooled(tmp_path)] == ["unknown", "unknown"]


@needs_root
@pytest.mark.parametrize(
    "kind", ["python", "sh", *(pytest.param(k, marks=pytest.mark.long) for k in ("bash", "busybox"))]
)
def test_a_disk_that_hangs_holds_no_job(kind: str, tmp_path: Path) -> None:
    """No signal ends a process that waits for a frozen file system: found by reading, a hook waited for it for ever."""
    with breakable_disk(tmp_path / "disk", 16) as disk:
        if subprocess.run(["fsfreeze", "-f", str(disk.folder)], capture_output=True, check=False).returncode:
            pytest.skip("no file system can be frozen here")
        process = None
        try:
            env = {**SITE_ENV, **NO_WORDS, "FAULTLINE_HOOK_SPOOL": str(disk.folder)}
            process = subprocess.Popen(
                _command(kind, "epilog"), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
            assert process.communicate(timeout=120) == (b"", None) and process.returncode == 0
        finally:
            subprocess.run(["fsfreeze", "-u", str(disk.folder)], check=True)
            if process is not None:
                process.communicate(timeout=120)


def test_a_full_spool_of_task_prologs_writes_into_nothing_that_lies_there(kind: str, tmp_path: Path) -> None:
    """A user puts a link named ``dropped`` there; another one's task prolog appended to its own file through it."""
    mine = tmp_path / "mine"
    mine.write_text("kept")
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "dropped").symlink_to(mine)
    env = {**SITE_ENV, **NO_WORDS, "FAULTLINE_HOOK_SPOOL": str(spool), "FAULTLINE_HOOK_MAX_FILES": "0"}
    assert subprocess.run(_command(kind, "taskprolog"), env=env, stdin=subprocess.DEVNULL, check=False).returncode == 0
    assert mine.read_text() == "kept" and [path.name for path in spool.iterdir()] == ["dropped"]


# ---------------------------------------------------------------------------- what could not be written leaves a word


def words(folder: Path) -> list[str]:
    for path in folder.iterdir():
        assert path.is_symlink() or not path.is_file() or path.stat().st_size == 0
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("spool", "reason"), [("/proc/nowhere/spool", "absent"), ("/dev/null/x", "absent"), ("/proc/self/task", "disk")]
)
def test_a_hook_that_cannot_write_leaves_a_word(kind: str, spool: str, reason: str, tmp_path: Path) -> None:
    env = {**SITE_ENV, "FAULTLINE_HOOK_WORDS": str(tmp_path)}
    for _ in range(2):
        assert harmless(run(kind, spool, env))
    assert words(tmp_path) == [f"faultline-hook.{reason}.epilog.{place}" for place in (0, 1)]


@needs_root
def test_a_user_without_rights_leaves_a_word(kind: str, tmp_path: Path) -> None:
    """SlurmUser and a spool of root's: found on a real cluster, it wrote nothing and told nobody."""
    place = Path("/tmp") / tmp_path.name  # all folders above are open there
    spool, left = place / "spool", place / "words"
    try:
        place.mkdir()
        spool.mkdir(mode=0o700)
        left.mkdir(mode=0o700)
        os.chown(left, 64031, 64031)
        command = _command(kind, "prologslurmctld")
        if kind == "python":
            command = [sys.executable, "-I", "-S", "-c", f"import sys, os; os.setuid(64031); sys.argv[1:] = ['prologslurmctld']; "
                       f"exec({(ROOT / 'collector/hooks.py').read_text()!r})"]  # fmt: skip
        else:
            shutil.copytree(SCRIPTS, place / "scripts")
            command[-1] = str(place / "scripts/prologslurmctld.sh")
        env = {**SITE_ENV, "FAULTLINE_HOOK_SPOOL": str(spool), "FAULTLINE_HOOK_WORDS": str(left)}
        done = subprocess.run(
            command, env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
            **({} if kind == "python" else {"user": 64031, "group": 64031, "extra_groups": []}),
        )  # fmt: skip
        assert harmless(done)
        assert words(left) == ["faultline-hook.denied.prologslurmctld.0"] and not list(spool.iterdir())
        assert (left / "faultline-hook.denied.prologslurmctld.0").stat().st_uid == 64031
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_a_full_disk_leaves_a_word(kind: str, tiny_disk: Path, tmp_path: Path) -> None:
    left = tmp_path / "words"
    left.mkdir()
    (tiny_disk / "fill").write_bytes(b"x" * 4096)
    assert harmless(run(kind, tiny_disk, {**SITE_ENV, "FAULTLINE_HOOK_WORDS": str(left)}))
    assert words(left) == ["faultline-hook.disk.epilog.0"]


def test_words_are_bounded_and_nothing_that_lies_there_is_opened(kind: str, tmp_path: Path) -> None:
    """A user fills the places of others with links, folders and pipes."""
    victim = tmp_path / "victim"
    left = tmp_path / "words"
    left.mkdir()
    name = "faultline-hook.absent.taskprolog."
    (left / f"{name}0").symlink_to(victim)
    os.mkfifo(left / f"{name}1")
    (left / f"{name}2").mkdir()
    for place in range(4, 32):
        (left / f"{name}{place}").touch()
    env = {**SITE_ENV, "FAULTLINE_HOOK_WORDS": str(left)}
    for _ in range(2):
        assert harmless(run(kind, "/proc/nowhere/spool", env, "taskprolog"))
    assert words(left) == sorted(f"{name}{place}" for place in range(32)) and not victim.exists()


def test_a_spool_that_hangs_leaves_a_word(kind: str, tmp_path: Path) -> None:
    """Its ``dropped`` is a pipe that nobody reads, as a dead file server is."""
    left = tmp_path / "words"
    left.mkdir()
    spool = tmp_path / "spool"
    spool.mkdir()
    os.mkfifo(spool / hooks.DROPPED)
    env = {**SITE_ENV, "FAULTLINE_HOOK_WORDS": str(left), "FAULTLINE_HOOK_MAX_FILES": "0"}
    assert harmless(run(kind, spool, env))
    assert words(left) == ["faultline-hook.slow.epilog.0"]
