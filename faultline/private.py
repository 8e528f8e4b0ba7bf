"""What is kept belongs to the account that runs the service: nobody else on the machine reads it past the service.

Logs, environments and output of everybody's jobs lie in the data folder, and whoever reads the files there is asked by nobody
who they are. So it has mode 0700, and all that is made has none of the others' bits.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from pathlib import Path

from faultline.failure import CommandError

UMASK, FOLDER_MODE = 0o077, 0o700
#: What this program makes in a data folder, and what file systems put there.
OURS = (
    "faultline.duckdb*", "archive", "spool", "quarantine", "hooks", "reports", "service.json", "audit.ndjson*", "session.*",
    ".session.*", "first.link", ".first.link*", "users.toml", ".users.toml*", "lost+found",
)  # fmt: skip


def begin(folder: Path) -> list[str]:
    """For a process that is about to write into a data folder: makes it, and shuts it to others. What is to be told of it.

    A folder that holds other things as well is somebody's for other uses: it stays as it is, and what is ours in it is shut.
    Raises ``CommandError`` where it cannot be made.
    """
    os.umask(UMASK)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        about = folder.stat()
        if not about.st_mode & UMASK:
            return []
        foreign = sorted(one.name for one in folder.iterdir() if not _is_ours(one.name))
    except OSError as error:
        raise CommandError(f"{folder}: cannot be made or opened: {error.strerror}") from error
    mode = f"{stat.S_IMODE(about.st_mode):04o}"
    if os.geteuid() not in (0, about.st_uid):
        return [
            f"{folder}: mode {mode} and not ours to change: others may see what lies in it; its owner may chmod 0700 it"
        ]
    if foreign:
        left = _shut(folder)
        also = f"; {', '.join(left)} could not be" if left else ""
        return [
            f"{folder}: mode {mode} stays, since it holds other things ({foreign[0]}); what is Faultline's in it was shut to "
            f"others{also}; a folder of its own is better"
        ]
    try:
        folder.chmod(FOLDER_MODE)
    except OSError as error:
        return [f"{folder}: mode {mode} lets others in, and cannot be changed: {error.strerror}; chmod 0700 it"]
    return [f"{folder}: had mode {mode}, has 0700 now; others ask the service (--server), not its files"]


def _is_ours(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in OURS)


def _shut(folder: Path) -> list[str]:
    """Takes others' rights from what is ours in a folder that is not; a shut folder shuts what is below it. What stays open."""
    left = []
    for entry in folder.iterdir():
        if not _is_ours(entry.name) or entry.name == "lost+found" or entry.is_symlink():
            continue
        try:
            mode = stat.S_IMODE(entry.lstat().st_mode)
            if mode & UMASK:
                entry.chmod(mode & ~UMASK)
        except OSError:
            left.append(entry.name)
    return sorted(left)
