"""Processes of other users that change the folder of task prologs while the agent reads it.

Files, folders, links, FIFOs and leases are made, renamed and removed under the names that the agent reads, its own
(``bad``, ``.reader``) included. Whatever the order: nothing outside the folder is read, moved or removed, no poll waits
for a user, no handle is left open, and what other users and root's hooks hand over arrives.

``FAULTLINE_RACE_S``: seconds of the long run (10).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_host import Host, rows
from test_agent_strangers import ALICE, MALLORY, SPOOL, TASKS, env, handles, owned

from collector.agent.hook_folder import MOST_ASIDE, HookFolder, Odd
from tests.measured import Measured

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: processes of several users")
#: Job numbers that the attackers name; the secret files name 666.
CLAIMED = range(100, 112)
SECRET = "666.prolog.gpu01.1.1.hook"
NAMES = [f"{job}.taskprolog.gpu01.{job}.1.hook" for job in CLAIMED]
SPECIAL = ["bad", ".reader", "dropped", ".dropped.told", f".{NAMES[0]}.tmp", SECRET]
#: No poll of the folder may wait for a user; a machine that is busy with other tests meets this limit.
HANGS_S = 60


def attack(secret: Path, outside: int, seed: int, end: float) -> None:
    """One attacker, in the folder. Its own errors are ignored."""
    choose = random.Random(seed)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # another process opens the file on which it holds a lease
    leased: list[int] = []

    def write(name: str) -> None:
        job = choose.choice(CLAIMED)
        data = env("taskprolog", SLURM_JOB_ID=str(job)) if choose.random() < 0.7 else bytes(choose.randrange(2000))
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if choose.random() < 0.1:
                file.truncate(choose.choice((0, 1 << 20, 1 << 36)))

    def lease(name: str) -> None:
        while len(leased) > 4:
            os.close(leased.pop(0))
        leased.append(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600))
        fcntl.fcntl(leased[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def folder(name: str) -> None:
        Path(name).mkdir(0o777)
        with contextlib.suppress(OSError):
            write(f"{name}/inside.hook")

    doings: list[Callable[[str], Any]] = [
        write, write, write, lease, folder,
        lambda name: Path(name).symlink_to(secret),
        lambda name: Path(name).symlink_to(f"{secret}/{SECRET}"),
        lambda name: Path(name).symlink_to(choose.choice(NAMES)),
        lambda name: os.link(SECRET, name, src_dir_fd=outside),  # where the kernel does not protect hard links
        lambda name: os.link(choose.choice(NAMES), name),
        lambda name: os.mkfifo(name, 0o666),
        os.unlink, os.rmdir,
        lambda name: Path(name).rename(choose.choice(NAMES + SPECIAL)),
        lambda name: Path(choose.choice(NAMES)).rename(name),
    ]  # fmt: skip
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            choose.choice(doings)(choose.choice(NAMES if choose.random() < 0.7 else SPECIAL))


def attacker(folder: Path, secret: Path, uid: int, seed: int, end: float) -> int:
    """A process of that user, with the folder as its working directory.

    The folders above it are closed to all but root.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        outside = os.open(secret, os.O_RDONLY)
        os.chdir(folder)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        attack(secret, outside, seed, end)
    finally:
        os._exit(0)


#: Seconds that attackers may wait for their first turn on a busy machine.
STARVED_S = 120.0


@contextlib.contextmanager
def attacked(folder: Path, secret: Path, seconds: float) -> Iterator[Callable[[], bool]]:
    """Four attackers, two of each user; the function returns whether the race goes on: for so many seconds, and until something
    of theirs was set aside. A busy machine may give them no time before."""
    end = time.monotonic() + seconds
    latest = end + STARVED_S
    pids = [
        attacker(folder, secret, uid, seed, latest)
        for seed, uid in enumerate((MALLORY, MALLORY, MALLORY + 1, MALLORY + 1))
    ]
    try:
        yield lambda: time.monotonic() < (end if os.path.lexists(folder / "bad") else latest)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def everything(folder: Path) -> list[tuple[str, int, int, int, int, bytes]]:
    """Names, kinds, owners, times and contents."""
    found = []
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        found.append((str(path), about.st_mode, about.st_uid, about.st_ino, about.st_mtime_ns, content))
    return found


def hung(_signal: int, _frame: object) -> None:
    raise AssertionError(f"one look at the folder took more than {HANGS_S} s")


@pytest.mark.parametrize(
    "seconds", [0.4, pytest.param(float(os.environ.get("FAULTLINE_RACE_S", "10")), marks=pytest.mark.long)]
)
@needs_root
def test_users_who_race_the_reader_gain_nothing_and_stop_nothing(
    host: Host, tmp_path: Path, seconds: float, measured: Measured
) -> None:
    root, tasks = (host.root / name.lstrip("/") for name in (SPOOL, TASKS))
    for folder, mode in ((root, 0o700), (tasks, 0o1733)):
        folder.mkdir(parents=True)
        folder.chmod(mode)
    secret = tmp_path / "secret"
    (secret / "bad").mkdir(parents=True)
    (secret / SECRET).write_bytes(env("prolog", SLURM_JOB_ID="666", SLURM_JOB_UID="0"))
    (secret / "bad" / "667.taskprolog.gpu01.1.1.hook").write_bytes(env("taskprolog", SLURM_JOB_ID="667"))
    outside, before = everything(secret), handles()
    runner, found, looks, longest, given = host.runner("hooks"), [], 0, 0.0, 0
    kept = signal.signal(signal.SIGALRM, hung)
    denied: dict[str, int] = {}

    def look() -> None:
        nonlocal looks, longest
        host.wait(61)
        begun = time.monotonic()
        signal.alarm(HANGS_S)
        for reading in runner.poll():
            found.extend(rows(iter([reading])))
            if reading.kept is not None:
                reading.kept()
        signal.alarm(0)
        looks, longest = looks + 1, max(longest, time.monotonic() - begun)
        if runner.status.state != "ok":
            denied[runner.status.detail] = denied.get(runner.status.detail, 0) + 1

    try:
        with attacked(tasks, secret, seconds) as going:
            while going():
                owned(
                    tasks / f"{20_000 + given}.taskprolog.gpu01.1.1.hook",
                    env("taskprolog", SLURM_JOB_ID=str(20_000 + given)),
                    ALICE,
                )
                (root / f"{30_000 + given}.prolog.gpu01.1.1.hook").write_bytes(
                    env("prolog", SLURM_JOB_ID=str(30_000 + given))
                )
                given += 1
                look()
        for _ in range(200):  # the rest: at most a hundred files per poll
            look()
            if not any(name.name.endswith(".hook") for folder in (root, tasks) for name in folder.iterdir()):
                break
        assert runner.status.state == "ok", runner.status
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, kept)
    words = [json.loads(row["raw"]) for row in found if row.get("document") == "task_hook"]
    prologs = [row["raw"] for row in found if row.get("document") == "hook_spool"]
    measured(f"racing for {seconds} s: {looks} looks, the longest {longest:.2f} s, {len(words):,} words taken, of others "
          f"{given} of {given}, looks without an answer: {denied or 0}")  # fmt: skip
    assert everything(secret) == outside, "nothing outside is moved, changed or removed"
    reported = "".join(row.get("raw", "") for row in found) + "".join(row.get("lines", "") for row in found)
    assert not any(
        f"SLURM_JOB_ID={job}\0" in reported + "\0" or f'"job_id": {job},' in reported for job in (666, 667)
    ), "nor read"
    assert all(word["owner_uid"] != 0 for word in words)
    assert {word["job_id"] for word in words if word["owner_uid"] == ALICE} == set(range(20_000, 20_000 + given))
    assert {word["job_id"] for word in words if word["owner_uid"] != ALICE} <= set(CLAIMED)
    assert len(prologs) == given and all(f"SLURM_JOB_ID={30_000 + n}" in "".join(prologs) for n in range(given))
    aside = (tasks / "bad").lstat()
    assert stat.S_ISDIR(aside.st_mode) and (aside.st_uid, aside.st_mode & 0o777) == (0, 0o700)
    assert len(list((tasks / "bad").iterdir())) <= MOST_ASIDE
    runner.close()
    assert handles() <= before


@needs_root
def test_a_lease_on_a_file_keeps_nobody_waiting(host: Host) -> None:
    """Opened without waiting, such a file is "temporarily unavailable"; that once ended the poll of all files."""
    tasks = host.root / TASKS.lstrip("/")
    tasks.mkdir(parents=True)
    tasks.chmod(0o1733)
    held = owned(tasks / "1.taskprolog.gpu01.1.0.hook", env("taskprolog", SLURM_JOB_ID="1"), MALLORY)
    owned(tasks / "2.taskprolog.gpu01.1.1.hook", env("taskprolog", SLURM_JOB_ID="2"), ALICE)
    ignored = signal.signal(signal.SIGIO, signal.SIG_IGN)
    handle = os.open(held, os.O_WRONLY)
    try:
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        runner = host.runner("hooks")
        found = rows(runner.poll())
        assert runner.status.state == "ok"
    finally:
        os.close(handle)
        signal.signal(signal.SIGIO, ignored)
    assert [json.loads(row["raw"])["job_id"] for row in found if row.get("document")] == [2]
    assert [row for row in found if "temporarily unavailable" in row.get("lines", "")]
    runner.close()


def test_an_entry_that_cannot_even_be_looked_at_is_odd_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user's own file system (FUSE) answers root. No such file system can be made in a test."""
    real = os.stat

    def refusing(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str) and path.startswith(("mounted", ".mounted")):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    for name in ("mounted.1.hook", ".mounted.2.hook.tmp", "fine.3.hook"):
        (tmp_path / name).write_bytes(env("epilog"))
    tmp_path.chmod(0o700)
    folder = HookFolder(tmp_path)
    folder.look()
    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(Odd, match="permission denied"):
        folder.read("mounted.1.hook")
    assert "cannot be moved" in folder.set_aside("mounted.1.hook")
    assert folder.unfinished() == []
    assert folder.waiting() == ["fine.3.hook"]
    monkeypatch.undo()
    (tmp_path / "mounted.1.hook").unlink()
    (tmp_path / ".mounted.2.hook.tmp").unlink()
    folder.waiting()
    assert not folder._stuck, "names that are gone are forgotten"
    folder.release()
