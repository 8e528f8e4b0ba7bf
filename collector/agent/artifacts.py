"""A job's own files (batch script, standard output and error), fetched when its hook file is read.

The paths come from a job, hence from a user who may name ``/etc/shadow``, a FIFO, or a symbolic link into somebody
else's home. Three things keep that harmless: the files are opened *as that user* by a child process that dropped root;
only regular files that belong to the user are read; and never more than a head and a tail of each. A child that does
not answer (dead file server) is abandoned after a few seconds.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import select
import signal
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collector.agent.output_names import output_files
from collector.agent.redaction import redact

HEAD = 64 << 10
TAIL = 256 << 10
# A cut may split a secret, and the patterns would not recognise the rest: the torn line is dropped too.
TORN_LINE = 4 << 10
TIME_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where this site's Slurm keeps batch scripts; None if this host has no such directory."""

    state_save: Path | None = Path("/var/spool/slurmctld")
    slurmd_spool: Path | None = Path("/var/spool/slurmd")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a job, or the reason why it was not read.

    ``sha256`` is the digest of ``content`` as kept: after cutting and redaction.
    """

    kind: str
    path: str
    content: bytes = b""
    truncated: bool = False
    sha256: str = ""
    redacted: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The user whose files may be read; ``become``: whether the child switches to that user first."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    become: bool


class RefusedError(Exception):
    """Why a file was not read, worded for the operator."""


#: Reads an open file: a number and two byte strings, as ``_read_file``. Only system calls: it runs behind a fork.
Work = Callable[[int, os.stat_result], tuple[int, bytes, bytes]]


#: Events before the job writes: what its output files hold is an earlier run's or another job's.
BEFORE_IT_WRITES = ("prolog", "prologslurmctld")


def collect(env: Mapping[str, str], places: Places | None = None) -> list[Artifact]:
    """The batch script and the output of the job that ``env`` (of a hook file) describes. Raises ``OSError`` if no
    process can be started; a retry may succeed. At the job's begin there is only the script.

    >>> collect({"SLURM_JOB_ID": "12"})
    []
    """
    places = places or Places()
    owner = job_owner(env)
    if owner is None:
        return []
    found = [_script(env, owner, places)] if places.state_save or places.slurmd_spool else []
    if env.get("FAULTLINE_EVENT") in BEFORE_IT_WRITES:
        return [artifact for artifact in found if artifact is not None]
    return [artifact for artifact in (*found, *_outputs(env, owner)) if artifact is not None]


def job_owner(env: Mapping[str, str]) -> Owner | None:
    """The job's user as Slurm names it; None if it names none, or root, whose rights are never lent out."""
    try:
        uid = int(env["SLURM_JOB_UID"])
    except (KeyError, ValueError):
        return None
    if not 0 < uid < 2**32 - 1:
        return None
    try:
        account = pwd.getpwuid(uid)
        gid, name = account.pw_gid, account.pw_name
    except KeyError:
        gid, name = 0, ""
    with contextlib.suppress(KeyError, ValueError):
        gid = int(env["SLURM_JOB_GID"])
    if not 0 < gid < 2**32 - 1:
        return None
    groups = tuple(group for group in os.getgrouplist(name, gid) if group) if name else (gid,)
    return Owner(uid, gid, groups, become=os.geteuid() == 0)


def _outputs(env: Mapping[str, str], owner: Owner) -> Iterator[Artifact]:
    paths = output_files(env)
    for kind, name in (("stdout", "SLURM_JOB_STDOUT"), ("stderr", "SLURM_JOB_STDERR")):
        pattern = env.get(name)
        if kind in paths:
            if kind == "stdout" or paths[kind] != paths.get("stdout"):
                yield fetch(kind, paths[kind], owner)
        elif pattern and pattern != "/dev/null":
            yield Artifact(kind, pattern, reason="Slurm did not tell this hook enough to fill in the file's name")


def _script(env: Mapping[str, str], owner: Owner, places: Places) -> Artifact | None:
    """The batch script, from the node's spool (owned by the user) or the controller's state (owned by Slurm)."""
    missing = None
    for path, whose in _script_candidates(env, owner, places):
        artifact = fetch("script", path, whose)
        if artifact.reason is None:
            return artifact
        missing = missing or artifact
    return missing


def _script_candidates(env: Mapping[str, str], owner: Owner, places: Places) -> Iterator[tuple[str, Owner]]:
    # All tasks of an array share one script, kept under the array's own ID.
    jobs = [int(env[name]) for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID") if env.get(name, "").isdecimal()]
    for job in dict.fromkeys(jobs):
        if places.slurmd_spool:
            yield str(places.slurmd_spool / f"job{job:05d}" / "slurm_script"), owner
        if places.state_save:
            with contextlib.suppress(OSError):
                # Only Slurm's user writes below this directory: its owner is the one whose file we want.
                state = places.state_save.stat()
                keeper = Owner(state.st_uid, state.st_gid, (state.st_gid,), become=os.geteuid() == 0)
                yield str(places.state_save / f"hash.{job % 10}" / f"job.{job}" / "script"), keeper


def fetch(kind: str, path: str, owner: Owner, *, time_limit_s: float = TIME_LIMIT_S) -> Artifact:
    """Head and tail of one file of ``owner``, with secrets removed; with a ``reason`` instead if it may not be read."""
    if "\0" in path or len(os.fsencode(path)) > 4096:
        return Artifact(kind, path.replace("\0", "\\0")[:4096], reason="not a path")
    try:
        size, head, tail = _read_in_child(path, owner, time_limit_s)
    except RefusedError as refusal:
        return Artifact(kind, path, reason=str(refusal))
    if kind == "script":
        tail, head = tail.rstrip(b"\0"), head if tail else head.rstrip(b"\0")  # the controller keeps C strings
    truncated = size > HEAD + TAIL
    if truncated:
        head, tail = _drop_torn_lines(head, tail)
        gap = b"\n[faultline: %d bytes left out]\n" % (size - len(head) - len(tail))
        # Redact separately: a key that begins in the head and ends in the gap must hide neither the gap's text nor the
        # tail.
        (head, first), (tail, second) = redact(head), redact(tail)
        content, redacted = head + gap + tail, first + second
    else:
        content, redacted = redact(head + tail)
    return Artifact(kind, path, content, truncated, hashlib.sha256(content).hexdigest(), redacted)


def part(path: str, owner: Owner, work: Work, time_limit_s: float) -> tuple[int, bytes, bytes]:
    """What ``work`` makes of the open file of ``owner`` and its status, in a child with a deadline: a number and two byte
    strings. Raises ``RefusedError`` with the reason if the file may not be read, and ``OSError`` without a process."""
    if "\0" in path or len(os.fsencode(path)) > 4096:
        raise RefusedError("not a path")
    return _read_in_child(path, owner, time_limit_s, work)


def _drop_torn_lines(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    end = head.rfind(b"\n", len(head) - TORN_LINE)
    start = tail.find(b"\n", 0, TORN_LINE)
    return head[: end + 1 if end >= 0 else -TORN_LINE], tail[start + 1 if start >= 0 else TORN_LINE :]


# -- the child: it answers with a status byte, the file's size, the head's length, head and tail --------------------
_ANSWER = struct.Struct("!cQI")


def _read_in_child(path: str, owner: Owner, time_limit_s: float, work: Work | None = None) -> tuple[int, bytes, bytes]:
    """Reads in a child, or in a second one if the first died without an answer (a fork from many threads may)."""
    answer = _ask_child(path, owner, time_limit_s, work)
    if answer is not None and len(answer) < _ANSWER.size:
        answer = _ask_child(path, owner, time_limit_s, work)
    if answer is None:
        raise RefusedError(f"no answer from the file system in {time_limit_s:g} s")
    if len(answer) < _ANSWER.size:
        raise RefusedError("could not be read")
    status, size, head_length = _ANSWER.unpack_from(answer)
    body = answer[_ANSWER.size :]
    if status != b"+":
        raise RefusedError(body.decode("utf-8", "replace"))
    return size, body[:head_length], body[head_length:]


def _ask_child(path: str, owner: Owner, time_limit_s: float, work: Work | None) -> bytes | None:
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:  # no process available at the moment: the caller retries
        os.close(ours)
        os.close(theirs)
        raise
    if pid == 0:
        # Only system calls from here on: another thread of the parent may have held any lock at the fork.
        try:
            _answer(theirs, path, owner, work)
        finally:
            os._exit(0)
    os.close(theirs)
    try:
        return _read_all(ours, time.monotonic() + time_limit_s)
    finally:
        os.close(ours)
        _reap(pid)


def _answer(pipe: int, path: str, owner: Owner, work: Work | None) -> None:
    try:
        # A child that hangs on a dead file server must not keep the service's sockets and locks open.
        os.closerange(3, pipe)
        os.closerange(pipe + 1, 1 << 20)
        if owner.become:
            os.setgroups(owner.groups)
            os.setgid(owner.gid)
            os.setuid(owner.uid)
        size, head, tail = work(*_open(path, owner.uid)) if work else _read_file(path, owner.uid)
        answer = _ANSWER.pack(b"+", size, len(head)) + head + tail
    except RefusedError as refusal:
        answer = _ANSWER.pack(b"-", 0, 0) + str(refusal).encode()
    except OSError as error:
        why = "a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0).lower()
        answer = _ANSWER.pack(b"-", 0, 0) + why.encode()
    view = memoryview(answer)
    while view:
        view = view[os.write(pipe, view) :]


def _open(path: str, uid: int) -> tuple[int, os.stat_result]:
    """A regular file of a user, and its status."""
    # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("not a regular file")
    if status.st_uid != uid:
        raise RefusedError(f"belongs to uid {status.st_uid}, not to the job's user {uid}")
    return fd, status


def _read_file(path: str, uid: int) -> tuple[int, bytes, bytes]:
    fd, status = _open(path, uid)
    head = _pread(fd, HEAD, 0)
    if len(head) < HEAD:
        return len(head), head, b""
    size = status.st_size
    return size, head, _pread(fd, TAIL, max(HEAD, size - TAIL))


def _pread(fd: int, length: int, offset: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = os.pread(fd, length - len(data), offset + len(data))
        if not piece:
            break
        data += piece
    return data


def _read_all(fd: int, deadline: float) -> bytes | None:
    data, waiting = bytearray(), select.poll()  # select() cannot handle descriptors above 1,023
    waiting.register(fd, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            return None
        piece = os.read(fd, 1 << 16)
        if not piece:
            return bytes(data)
        data += piece


_left_behind: set[int] = set()
_left_behind_lock = threading.Lock()


def _reap(pid: int) -> None:
    """Ends the child without waiting if it hangs in the kernel; a later call reaps it then."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for _ in range(50):
        if _is_gone(pid):
            break
        time.sleep(0.002)
    else:
        with _left_behind_lock:
            _left_behind.add(pid)
    hanging()


def hanging() -> int:
    """How many children hang in the kernel; those that ended meanwhile are collected."""
    with _left_behind_lock:
        _left_behind.difference_update([child for child in _left_behind if _is_gone(child)])
        return len(_left_behind)


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
