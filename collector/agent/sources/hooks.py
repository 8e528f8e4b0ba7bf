"""The spools of Slurm's hooks: what prolog and epilog were told of a job, its batch script and the ends of its output.

A file is removed when what it says is on the agent's disk. In a spool that users may write into (that of task prologs) a file
is its owner's word: it is taken as a task prolog of that user's job, and nothing is fetched for it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from collector.agent import wire
from collector.agent.artifacts import Artifact, Places, collect
from collector.agent.failure import Denied, Missing
from collector.agent.hook_folder import HookFolder, words_given_up, words_unfinished
from collector.agent.output_names import batch_host, first_host
from collector.agent.source import Context, Reading, SourceKind

_MAGIC = b"faultline-hook/1\n"
#: A hook writes 256 KiB at most.
_MOST_BYTES = 512 << 10
#: One look takes so many files; the next comes at once.
_MOST_FILES = 100
#: Runs whose batch script runs here, remembered from their prolog to their epilog.
_MOST_RUNS = 4096
#: Events behind which the job's own files are complete, or lie where they will be gone later.
_FETCHED = ("epilog", "epilogslurmctld", "prologslurmctld")
#: What opening says of links, sockets and what only others may read.
_NO_HOOKS = (errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM)
_NO_FILE = os.strerror(errno.ENOENT).lower()
#: Which process read a file: positions of another one are those that it kept.
_PROCESS = f"{os.getpid()}.{time.time_ns()}"


class _Unreadable(Exception):  # noqa: N818 - the reason in words
    """Why a file is no hook's."""


@dataclass
class Hooks:
    context: Context
    folders: list[str]
    places: Places
    interval: float
    _taken: set[str] = field(default_factory=set)
    _begun: dict[str, None] = field(default_factory=dict)
    _dropped: dict[str, int] = field(default_factory=dict)
    #: What is no hook's file and cannot be moved away: not looked at again, and not removed.
    _refused: set[str] = field(default_factory=set)
    _open: dict[Path, HookFolder] = field(default_factory=dict)
    _trouble: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, positions: Mapping[str, Any]) -> None:
        if not any(self.context.path(folder).is_dir() for folder in self.folders):
            raise Missing(f"no spool of hooks: {', '.join(self.folders)}")
        told = positions.get("hooks") or {}
        self._taken = set(told.get("taken", ()))
        self._begun = dict.fromkeys(told.get("begun", ()))
        self._dropped = dict(told.get("dropped", {}))
        if told.get("process") != _PROCESS:  # the agent ended between keeping them and removing them
            for name in sorted(self._taken):
                self._remove(name)

    def poll(self) -> Iterator[Reading]:
        for name in self.folders:
            folder = self.context.path(name)
            if not folder.is_dir():
                continue
            spool = self._open.setdefault(folder, HookFolder(folder))
            if not spool.claim():
                self._trouble = f"{folder} is emptied by another process"
                continue
            yield from self._told_lost(spool)
            waiting = (str(path) for path in sorted(folder.glob("*.hook"), key=_written) if path.name[0] != ".")
            fresh = (path for path in waiting if path not in self._taken and path not in self._refused)
            for path in islice(fresh, _MOST_FILES):
                yield self._reading(Path(path))
        if self._trouble:
            trouble, self._trouble = self._trouble, ""
            raise Denied(trouble)

    def _reading(self, path: Path) -> Reading:
        now = self.context.now()
        try:
            data, is_slurms = _content(path)
            env = _environment(data)
            if not is_slurms:
                _check_users(env, path)
        except (OSError, _Unreadable) as why:
            if isinstance(why, OSError) and why.errno not in _NO_HOOKS:
                raise  # no handle to be had, a disk that does not answer: it is read later
            return self._set_aside(path, str(why), now)
        text = data.decode("utf-8", "replace")
        body = wire.document("hook_spool", text, "hooks", now, path=str(path), timezone="UTC")
        if is_slurms:
            body += self._files(env, now)
        with self._lock:
            self._taken.add(str(path))
        return Reading(body, 1, self._positions(), kept=partial(self._remove, str(path)))

    def _positions(self) -> dict[str, Any]:
        with self._lock:
            taken = sorted(self._taken)
        begun = list(self._begun)[-_MOST_RUNS:]
        return {"hooks": {"process": _PROCESS, "taken": taken, "begun": begun, "dropped": dict(self._dropped)}}

    def _remove(self, name: str) -> None:
        """Whoever calls must go on whatever happens: what cannot be removed is not read again, and that is the status."""
        try:
            os.unlink(name)  # noqa: PTH108
        except FileNotFoundError:
            pass
        except OSError as error:
            self._trouble = f"{name} was delivered and cannot be removed: {error.strerror}"
            return
        with self._lock:
            self._taken.discard(name)

    # ------------------------------------------------------------------------------------------- the job's own files

    def _files(self, env: Mapping[str, str], now: float) -> bytes:
        """The job's script and output: from the node where its batch script runs, and from the controller."""
        event = env.get("FAULTLINE_EVENT", "")
        run = f"{env.get('SLURM_JOB_ID')}.{env.get('SLURM_JOB_RESTART_COUNT', 0)}"
        if event == "prolog" and _is_first(env):
            self._begun[run] = None
            while len(self._begun) > _MOST_RUNS:
                self._begun.pop(next(iter(self._begun)))
        elsewhere = event == "epilog" and run not in self._begun and not _is_first(env)
        if event == "epilog":
            self._begun.pop(run, None)
        if event not in _FETCHED or elsewhere:
            return b""
        return b"".join(self._file(found, env, now) for found in collect(env, self.places))

    def _file(self, found: Artifact, env: Mapping[str, str], now: float) -> bytes:
        job, restarts = (_number(env.get(name)) for name in ("SLURM_JOB_ID", "SLURM_JOB_RESTART_COUNT"))
        if found.kind == "script" and found.reason == _NO_FILE:  # slurmd removes it at the job's end
            return b""
        if found.reason is not None:
            return self._said(f"job {job}: {found.kind} {found.path} was not read: {found.reason}", now)
        text, host = found.content.decode("utf-8", "replace"), batch_host(env)
        told = {
            "job_id": job, "restarts": restarts, "kind": found.kind, "path": found.path, "content": text,
            "truncated": found.truncated, "ran_at": env.get("FAULTLINE_TIME"),
        }  # fmt: skip
        about = {"path": found.path, "host": host, "cluster": env.get("SLURM_CLUSTER_NAME"), "timezone": "UTC"}
        return wire.document("job_file", json.dumps(told), "hooks", now, **about)

    # ------------------------------------------------------------------------------------------- what was not taken

    def _told_lost(self, spool: HookFolder) -> Iterator[Reading]:
        """What hooks could not hand over: those that gave up, and those that were killed in the middle of writing."""
        (size, at), before = spool.given_up(), self._dropped.get(str(spool.path), 0)
        if size and size != before:
            self._dropped[str(spool.path)] = size
            count = size - before if size > before else size
            why = words_given_up(spool.path, count)
            yield Reading(wire.blind("hooks", "hook_spool", at, at, why, count), 0, self._positions())
        for path in islice((path for path in spool.unfinished() if str(path) not in self._taken), _MOST_FILES):
            with self._lock:
                self._taken.add(str(path))
            now = self.context.now()
            told = wire.blind("hooks", "hook_spool", now, now, words_unfinished(path), 1)
            yield Reading(told, 0, self._positions(), kept=partial(self._remove, str(path)))

    def _set_aside(self, path: Path, why: str, now: float) -> Reading:
        try:
            aside = path.parent / "bad"
            aside.mkdir(mode=0o700, exist_ok=True)
            path.rename(aside / path.name)
        except OSError as error:
            why += f"; it cannot be moved to bad/: {error.strerror}"
            self._refused.add(str(path))
        return Reading(self._said(f"{path} was not read: {why}", now), 1)

    def _said(self, text: str, now: float) -> bytes:
        line = f"{wire.stamp(now)} {self.context.host} faultline-agent[{os.getpid()}]: hooks: {text}"
        about = b'{"stream":"hooks","source":"syslog","timezone":"UTC"'
        return wire.lines_record(about, " ".join(line.split()).encode(), read=wire.stamp(now))

    def close(self) -> None:
        for spool in self._open.values():
            spool.release()


def _written(path: Path) -> tuple[int, str]:
    """In the order in which hooks ran, which stands in the name: an epilog is told apart by its prolog."""
    at = path.name.split(".")[-2]
    return int(at) if at.isascii() and at.isdigit() else 0, path.name


def _content(path: Path) -> tuple[bytes, bool]:
    """The bytes of a spool's file, and whether they are Slurm's word: its owner is root's or the folder's."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise _Unreadable("not a regular file")
        if about.st_size > _MOST_BYTES:
            raise _Unreadable(f"{about.st_size} bytes are more than a hook writes")
        return stream.read(_MOST_BYTES), about.st_uid in (0, path.parent.stat().st_uid)


def _environment(data: bytes) -> dict[str, str]:
    if not data.startswith(_MAGIC):
        raise _Unreadable(f"does not begin with {_MAGIC.decode().strip()}")
    pieces = data[len(_MAGIC) :].decode("utf-8", "replace").split("\0")
    return {name: value for name, equals, value in (piece.partition("=") for piece in pieces) if equals}


def _check_users(env: Mapping[str, str], path: Path) -> None:
    """A user may speak of task prologs of jobs of their own."""
    owner = str(path.lstat().st_uid)
    if env.get("FAULTLINE_EVENT") != "taskprolog" or owner not in (env.get("SLURM_JOB_UID"), env.get("SLURM_UID")):
        raise _Unreadable(f"uid {owner} may not say what Slurm says")


def _is_first(env: Mapping[str, str]) -> bool:
    """Whether the batch script runs on this node: it is the only one, or the first of the list. (slurmd's epilog is told no
    list but of itself: there a job of several nodes is known from its prolog.)"""
    if (env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES")) == "1":
        return True
    whole = env.get("SLURM_JOB_NODELIST") or (
        env.get("SLURM_NODELIST", "") if env.get("FAULTLINE_EVENT") == "prolog" else ""
    )
    return bool(whole) and first_host(whole) == env.get("SLURMD_NODENAME")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _make(context: Context, options: Mapping[str, Any]) -> Hooks:
    places = (context.path(options[name]) if options[name] else None for name in ("state_save", "slurmd_spool"))
    return Hooks(context, list(options["folders"]), Places(*places), options["every_s"])


SOURCE = SourceKind(
    "hooks", _make,
    {"folders": ["/var/spool/faultline/hooks", "/var/spool/faultline/task-hooks"], "state_save": "/var/spool/slurmctld",
     "slurmd_spool": "/var/spool/slurmd", "every_s": 2.0},
    reads="what Slurm's hooks left in their spools, and for an epilog the job's script and the ends of its output, "
    "opened as the job's user, where its batch script ran and on the controller",
    costs="one listing a folder every 2 s; for a job's end a child process and at most 320 KiB a file",
    blind_to="the output of a job of several nodes without a prolog or a hook of slurmctld; the name %x where Slurm does not "
    "tell it; files in the agent's own /tmp (PrivateTmp)",
)  # fmt: skip
