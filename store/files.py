"""Files in data folders: their names brought to the disk, and what a killed process left of them removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import structlog

log = structlog.get_logger()


def flush_folder(folder: Path) -> None:
    """Brings the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_left(paths: Iterable[Path], of: str) -> None:
    """Removes what a process that was killed left of work that never ended, and says so."""
    count = size = 0
    for path in paths:
        with contextlib.suppress(OSError):
            size_of = path.stat().st_size
            path.unlink()
            count, size = count + 1, size + size_of
    if count:
        log.info("removed what a process left that was killed", of=of, files=count, bytes=size)
