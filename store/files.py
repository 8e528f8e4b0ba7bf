"""Files in data folders: syncs their names, removes leftovers of a killed process, and records the serving process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import structlog

log = structlog.get_logger()

#: In a data folder while a service runs on it: its address and process ID.
SERVICE_FILE = "service.json"


def flush_folder(folder: Path) -> None:
    """Syncs the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file's content. Raises ``OSError``."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remove_left(paths: Iterable[Path], of: str) -> None:
    """Removes unfinished work of a killed process, and logs it."""
    count = size = 0
    for path in paths:
        with contextlib.suppress(OSError):
            size_of = path.stat().st_size
            path.unlink()
            count, size = count + 1, size + size_of
    if count:
        log.info("removed what a process left that was killed", of=of, files=count, bytes=size)


def service_address(folder: Path) -> str | None:
    """The address in the note of a running service, if that process is still alive."""
    try:
        note = json.loads((folder / SERVICE_FILE).read_text())
        os.kill(int(note["pid"]), 0)
        return str(note["address"])
    except (OSError, ValueError, KeyError):
        return None
