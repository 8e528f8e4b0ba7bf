"""What a user of Slurm's hooks may do with files, asked in a child that has become that user: modes, groups, access
lists, and a file server's own ideas all count."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

from collector.agent.slurm.host import Account, group_name, owner_name

LIMIT_S = 5.0
#: Of the file system, for a hook that writes a few KiB.
LEAST_FREE = 1 << 20


def as_user(account: Account, work: Callable[[], str], limit_s: float = LIMIT_S) -> str | None:
    """Runs ``work`` in a child as ``account`` and returns its text; None if this process may not become that user.

    Raises ``TimeoutError`` if the file system does not answer in time.
    """
    own = os.geteuid()
    if own not in (0, account.uid):
        return None
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError:
        os.close(ours)
        os.close(theirs)
        raise
    if child == 0:
        _answer(theirs, account, work)
    os.close(theirs)
    try:
        return _read(ours, time.monotonic() + limit_s)
    finally:
        os.close(ours)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _reap(child)


def _answer(pipe: int, account: Account, work: Callable[[], str]) -> None:
    """The child: it leaves by ``os._exit`` whatever happens."""
    text = "failed"
    try:
        os.closerange(3, pipe)
        os.closerange(pipe + 1, 1 << 16)
        if os.geteuid() == 0 and account.uid != 0:
            os.setgroups(account.groups or (account.gid,))
            os.setgid(account.gid)
            os.setuid(account.uid)
        text = work()
    except OSError as error:
        text = os.strerror(error.errno or 0).lower()
    except BaseException as error:
        text = f"{type(error).__name__}"
    finally:
        with contextlib.suppress(OSError):
            os.write(pipe, text.encode("utf-8", "replace")[:2000])
        os._exit(0)


def _read(handle: int, until: float) -> str:
    waiting, data = select.poll(), b""
    waiting.register(handle, select.POLLIN)
    while True:
        left = until - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            raise TimeoutError
        piece = os.read(handle, 4096)
        if not piece:
            return data.decode("utf-8", "replace")
        data += piece


def _reap(child: int) -> None:
    """Waits for the child, not for one that hangs in the kernel."""
    for _ in range(100):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                time.sleep(0.002)
                continue
        return


def may_write(folder: Path, account: Account) -> str:
    """Why ``account`` could not leave a file in ``folder``, in words; empty if it could. Writes nothing."""

    def look() -> str:
        if os.access(folder, os.W_OK | os.X_OK):
            return ""
        return os.strerror(_why_not(folder)).lower()

    try:
        found = as_user(account, look)
    except TimeoutError:
        return f"its file system did not answer in {LIMIT_S:g} s"
    return _by_mode(folder, account) if found is None else found


def _why_not(folder: Path) -> int:
    """The error of the first step on the way that fails."""
    for step in (*reversed(folder.parents), folder):
        try:
            step.stat()
        except OSError as error:
            return error.errno or errno.EACCES
    with contextlib.suppress(OSError):
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return errno.EROFS
    return errno.EACCES


def _by_mode(folder: Path, account: Account) -> str:
    """From modes alone, for a caller that may not become that user."""
    if account.uid == 0:
        return ""
    for step in (*reversed(folder.parents), folder):
        try:
            about = step.stat()
        except OSError as error:
            return os.strerror(error.errno or 0).lower()
        shift = 6 if about.st_uid == account.uid else 3 if about.st_gid in (account.gid, *account.groups) else 0
        wanted = 0o3 if step == folder else 0o1
        if (about.st_mode >> shift) & wanted != wanted:
            return os.strerror(errno.EACCES).lower()
    return ""


def try_to_write(folder: Path, account: Account) -> str | None:
    """Writes a file into ``folder`` as ``account`` and removes it: a quota or a full disk shows only so. Returns why it
    failed, empty if it did not; None if this process may not become that user."""
    name = folder / f".faultline-verify.{os.getpid()}"

    def write() -> str:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"\0" * 4096)
            os.fsync(handle)
        finally:
            os.close(handle)
            os.unlink(name)  # noqa: PTH108
        return ""

    try:
        return as_user(account, write)
    except TimeoutError:
        return f"its file system did not answer in {LIMIT_S:g} s"


def may_run(script: Path, account: Account) -> str:
    """Why ``account`` could not run ``script``; empty if it could."""

    def look() -> str:
        if os.access(script, os.R_OK | os.X_OK):
            return ""
        script.stat()
        return "not executable" if not os.access(script, os.X_OK) else "not readable"

    try:
        found = as_user(account, look)
    except TimeoutError:
        return f"its file system did not answer in {LIMIT_S:g} s"
    if found is None:
        return "" if script.stat().st_mode & 0o111 else "not executable"
    return found


def room(folder: Path) -> str:
    """Why the file system of ``folder`` takes no more files; empty if it does, or if it cannot be asked."""
    try:
        about = os.statvfs(folder)
    except OSError:
        return ""
    if about.f_flag & os.ST_RDONLY:
        return "its file system is mounted read-only"
    if about.f_blocks and about.f_bavail * about.f_frsize < LEAST_FREE:
        return f"its disk is full ({about.f_bavail * about.f_frsize} bytes left)"
    if about.f_files and about.f_favail == 0:
        return "its disk has no inodes left"
    return ""


def described(path: Path) -> str:
    """Owner, group and mode for a person: ``root:root 0700``."""
    about = path.stat()
    return f"{owner_name(about.st_uid)}:{group_name(about.st_gid)} {stat.S_IMODE(about.st_mode):04o}"
