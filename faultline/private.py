"""Stored data belongs to the service's account: nobody else on the machine can read it around the service.

The data folder contains logs, environments and output of everybody's jobs, and reading its files needs no sign-in. So
it has mode 0700, and new files have no permissions for others.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from pathlib import Path

from faultline.failure import CommandError

UMASK, FOLDER_MODE = 0o077, 0o700
#: What this program creates in a data folder, and what file systems add.
OURS = (
    "faultline.duckdb*", "archive", "spool", "quarantine", "hooks", "reports", "service.json", "audit.ndjson*", "session.*",
    ".session.*", "first.link", ".first.link*", "users.toml", ".users.toml*", "lost+found",
)  # fmt: skip


def begin(folder: Path) -> list[str]:
    """For a process that is about to write into a data folder: creates it, and closes it to others. Returns messages
    for the operator.

    A folder that also contains other things has other uses: it stays unchanged, and our files in it are closed. Raises
    ``CommandError`` if it cannot be created.
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
    """Removes others' permissions from our files in a folder that is not ours; a closed folder protects everything
    below it. Returns what stays open."""
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
