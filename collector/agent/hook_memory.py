"""Folders in memory where hooks leave their records without touching a disk, each beside the spool on disk that it relieves.

Only the agent makes them, where it reads the spool on disk: a hook that finds none writes to the disk. An agent that is
stopped takes them away again, so that nothing lies in memory over a reboot; one that is killed leaves them for the next.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from collector.agent.hook_folder import ASIDE, CLAIM, HookFolder, Odd
from collector.agent.slurm.host import Account, Host
from collector.agent.slurm.programs import SPOOL, TASK_SPOOL

#: Spool on disk -> folder in memory, and its mode. Users fill /dev/shm in any case, and must not fill /run.
MEMORY = {SPOOL: ("/run/faultline/hooks", 0o700), TASK_SPOOL: ("/dev/shm/faultline-task-hooks", 0o1733)}
#: File systems that never wait for a device.
_NEVER_WAIT = ("tmpfs", "ramfs")


def read(folders: Sequence[str]) -> Iterator[str]:
    """``folders`` in the order to be read: a spool on disk before its folder in memory, which took over from it."""
    for folder in folders:
        yield folder
        if folder in MEMORY:
            yield MEMORY[folder][0]


def make(host: Host, folders: Sequence[str], owner: Account) -> None:
    """Makes the folders in memory of spools that are there; ``owner`` runs Slurm's hooks. Where none can be made, hooks write
    to the disk."""
    if os.geteuid() != 0:
        return
    for folder in folders:
        name, mode = MEMORY.get(folder, ("", 0))
        place = host.path(name)
        if not name or place.exists() or not host.path(folder).is_dir() or not in_memory(place.parent):
            continue
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700)
            place.chmod(mode)  # before it is another's: the unit takes CAP_FOWNER
            if folder != TASK_SPOOL and owner.uid != 0:
                os.chown(place, owner.uid, owner.gid, follow_symlinks=False)


def in_memory(folder: Path) -> bool:
    """Whether a folder is there and its file system needs no device."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        real = folder.resolve(strict=True)
    except OSError:
        return False
    deepest, kind = Path("/"), ""
    for line in lines:
        fields, _, system = line.partition(" - ")
        place = Path(re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), fields.split()[4]))
        if real.is_relative_to(place) and place.is_relative_to(deepest):
            deepest, kind = place, system.split()[0]
    return kind in _NEVER_WAIT


def leave(host: Host, folders: Sequence[str], taken: Collection[str]) -> None:
    """Takes the folders in memory away, and what lies there to the spools on disk, but what was ``taken`` (paths)."""
    for folder in folders:
        place = host.path(MEMORY[folder][0]) if folder in MEMORY else None
        if place is None or not place.is_dir():
            continue
        memory = HookFolder(place)
        with contextlib.suppress(Exception):  # it stays, and the next agent reads it
            memory.look()
            if not memory.claim():
                continue
            for name in memory.waiting({Path(path).name for path in taken if Path(path).parent == place}):
                _move(memory, name, host.path(folder))
            for left in (CLAIM, ASIDE):
                with contextlib.suppress(OSError):
                    (place / left).rmdir() if left == ASIDE else (place / left).unlink()
            place.rmdir()
        memory.release()


def _move(memory: HookFolder, name: str, disk: Path) -> None:
    try:
        word = memory.read(name)
    except (Odd, FileNotFoundError):
        return
    path = disk / f"0.moved.{name.partition('.')[0]}.{os.getpid()}.{memory.written_ns(name)}.hook"
    new = path.with_name(f".{path.name}.tmp")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, word.data)
        os.fchown(handle, word.uid, -1)
    finally:
        os.close(handle)
    new.rename(path)
    memory.remove(name)
