"""The files that steps of jobs write their output to (``srun --output``), known by the descriptors that are open meanwhile.

No hook learns of them, and ``scontrol`` must not be asked. But while a step runs, its tasks have their file as descriptor 1
or 2 if slurmstepd opened it for them (patterns with %t, %n, %N), or the step's srun holds it. Which job a process belongs to is
named by slurmstepd, a process of root that names its step in its title, and whose child it is: nothing that a user wrote.

Only links, descriptors' flags and status files of /proc are read here, none of which waits for a file system. A path is a
user's word: whoever reads the file opens it as that user (``collector.agent.artifacts``).
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path

#: Most files remembered of one job, descriptors looked at of one process, and processes of one look.
MOST_FILES, MOST_DESCRIPTORS, MOST_PROCESSES = 16, 64, 20_000
#: Most processes named srun of one job that a look reads.
MOST_SRUNS = 16
#: CPU seconds of a look beyond reading which processes there are: users can have very many.
MOST_CPU_S = 0.05
#: ``slurmstepd: [17.0]``; of a het job's component ``[17+1.0]``; the batch script is a step, too.
_TITLE = re.compile(rb"slurmstepd: \[(?P<job>\d{1,18})(?:\+\d+)?\.(?P<step>\w+)(?:\+\d+)?\]")
_STATUS = re.compile(rb"^(Name|PPid|Uid):\s+(\S+)", re.MULTILINE)
#: How far a process may be from its slurmstepd: batch script, shells, launchers, srun.
_DEEPEST = 32
#: A file's name here ends so after it was removed.
_REMOVED = " (deleted)"
#: What PrivateTmp= of a unit makes its own.
_PRIVATE = ("/tmp/", "/var/tmp/")
_NO_FILES = ("/dev/", "/proc/", "/sys/")


@dataclass(frozen=True)
class StepFile:
    """A file that was open for writing. ``kind``: stdout or stderr; which of both srun writes to it cannot be seen.
    ``hidden``: its mount namespace is not slurmstepd's, or it is in a /tmp that the agent has of its own, where the same path may be another file."""

    kind: str
    path: str
    hidden: bool = False


@dataclass(frozen=True)
class _Process:
    name: bytes
    parent: int
    uid: int


@dataclass
class StepFiles:
    """What was seen of each job that runs on this node. ``proc``: /proc."""

    proc: Path = Path("/proc")
    #: The agent may not read what processes have open: it lacks CAP_SYS_PTRACE. No further look is taken then.
    refused: bool = False
    #: Where the next look begins: the process at which the last one had used its CPU.
    _next: int = 0
    _found: dict[str, dict[str, StepFile]] = field(default_factory=dict)

    def look(self, owners: Mapping[str, int]) -> None:
        """Adds what the processes of jobs have open. ``owners``: the uid of each job, by root's prolog."""
        if not owners or self.refused:
            return
        processes, sruns = self._processes(), dict[str, int]()
        stepds = {pid: title for pid, one in processes.items() if one.uid == 0 and (title := self._title(pid, one))}
        begun = time.thread_time()
        for pid, one in self._from_there(processes):
            if self._next:  # no time is left
                return
            if time.thread_time() - begun > MOST_CPU_S:
                self._next = pid + 1  # this is the last one
            above = _stepd_of(pid, processes, stepds)
            if above is None or one.uid == 0:
                continue
            job, depth = stepds[above], 1 if one.parent == above else 2
            if owners.get(job) != one.uid or (depth > 1 and one.name != b"srun"):
                continue
            if one.name == b"srun":  # anybody can call a thousand processes that
                sruns[job] = sruns.get(job, 0) + 1
                if sruns[job] > MOST_SRUNS:
                    continue
            for file in self._open_files(pid, above, None if one.name == b"srun" else (1, 2)):
                known = self._found.setdefault(job, {})
                if len(known) < MOST_FILES:
                    known.setdefault(file.path, file)

    def _from_there(self, processes: Mapping[int, _Process]) -> list[tuple[int, _Process]]:
        """The processes, from the one on at which the last look had no time left."""
        ordered = sorted(processes.items())
        place, self._next = bisect_left(ordered, self._next, key=itemgetter(0)), 0
        return ordered[place:] + ordered[:place]

    def of(self, job: str, but: Collection[str] = ()) -> list[StepFile]:
        """The files of a job, in the order in which they were seen, without those at some paths."""
        return [file for path, file in self._found.get(job, {}).items() if path not in but]

    def forget(self, job: str) -> None:
        self._found.pop(job, None)

    def _processes(self) -> dict[int, _Process]:
        found: dict[int, _Process] = {}
        try:
            names = [name for name in os.listdir(self.proc) if name.isdigit()]  # noqa: PTH208  (many; no objects needed)
        except OSError:
            return {}
        for name in names[:MOST_PROCESSES]:
            with suppress(OSError, ValueError, KeyError):  # it ended meanwhile
                read = dict(_STATUS.findall((self.proc / name / "status").read_bytes()))
                found[int(name)] = _Process(read[b"Name"], int(read[b"PPid"]), int(read[b"Uid"]))
        return found

    def _title(self, pid: int, process: _Process) -> str:
        """The job of a slurmstepd; "" of another process."""
        if process.name != b"slurmstepd":
            return ""
        with suppress(OSError):
            read = _TITLE.match((self.proc / str(pid) / "cmdline").read_bytes())
            return read["job"].decode() if read else ""
        return ""

    def _open_files(self, pid: int, stepd: int, wanted: Collection[int] | None) -> Iterator[StepFile]:
        """The files that a process may write to, of some descriptors or of all (None)."""
        place = self.proc / str(pid)
        with suppress(OSError):
            numbers = _numbers(place) if wanted is None else wanted
            try:
                mounts = (self.proc / str(stepd) / "ns/mnt").readlink()
            except PermissionError:
                self.refused = True
                return
            own = (place / "ns/mnt").readlink() == mounts
            same = (self.proc / "self/ns/mnt").readlink() == mounts  # not with PrivateTmp
            for number in numbers:
                path = _path_of(place, number)
                if path:
                    yield StepFile(
                        "stderr" if number == 2 else "stdout", path, not own or (not same and path.startswith(_PRIVATE))
                    )


def _numbers(place: Path) -> list[int]:
    """The first descriptors of a process, which may have a million: no more are listed."""
    with os.scandir(place / "fd") as listed:
        return sorted(int(one.name) for one in islice(listed, MOST_DESCRIPTORS) if one.name.isdigit())


def _path_of(place: Path, number: int) -> str:
    """The file of a process's descriptor, if it may write to it; "" of pipes, devices and removed files."""
    with suppress(OSError):
        path = str((place / "fd" / str(number)).readlink())
        is_file = path.startswith("/") and not path.startswith(_NO_FILES) and not path.endswith(_REMOVED)
        if is_file and _is_writable((place / "fdinfo" / str(number)).read_bytes()):
            return path
    return ""


def _stepd_of(pid: int, processes: Mapping[int, _Process], stepds: Mapping[int, str]) -> int | None:
    """The slurmstepd whose descendant a process is."""
    for _ in range(_DEEPEST):
        one = processes.get(pid)
        if one is None:
            return None
        pid = one.parent
        if pid in stepds:
            return pid
    return None


def _is_writable(info: bytes) -> bool:
    """By ``flags:`` of /proc/PID/fdinfo, which are octal."""
    flags = re.search(rb"^flags:\s+([0-7]+)", info, re.MULTILINE)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)


__all__ = ["StepFile", "StepFiles"]
