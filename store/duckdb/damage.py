"""Damage that a kill or a bad disk leaves in the data folder: an unreadable write-ahead log, files of unfinished work.

The engine replays its log when it is opened. It refuses a log damaged in the middle, and silently ignores one whose
beginning is damaged. Neither may lose lines unnoticed: the log is kept, and whoever starts the store decides.
"""

from __future__ import annotations

import contextlib
import fcntl
from datetime import UTC, datetime
from pathlib import Path

import structlog

from store.duckdb import log_head

log = structlog.get_logger()

#: Part of every DuckDB error about its log.
_ABOUT_LOG = "replaying WAL"


def wal_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.wal")


def unreadable_start(database: Path) -> str | None:
    """Why a non-empty file is not a log; None if it may be one, or is empty."""
    with contextlib.suppress(OSError), wal_of(database).open("rb") as file:
        try:
            log_head.read_head(file.read(log_head.LONGEST))
        except log_head.NotAHeadError as error:
            return f"its first bytes are none of a write-ahead log: {error}"
    return None


def about_log(error: Exception) -> str | None:
    """What is wrong with the log, if the engine refused it."""
    text = str(error).splitlines()[0] if str(error) else ""
    return text.split(": ", 2)[-1][:300] if _ABOUT_LOG in text else None


def report_damage(database: Path, reason: str) -> str:
    """Message for whoever starts the store: what is damaged, what that may cost, what to do."""
    wal = wal_of(database)
    with contextlib.suppress(OSError):
        size, at = wal.stat().st_size, datetime.fromtimestamp(wal.stat().st_mtime, UTC)
        reason = f"{reason} ({size:,} bytes, last written {at:%Y-%m-%d %H:%M:%S} UTC)"
    return (
        f"{wal}: the store's write-ahead log is damaged: {reason}. In it lies what was stored since the last checkpoint. "
        f"Bring the file back from a copy, or run 'faultline archive --without-log --data {database.parent}' to go on from the "
        "checkpoint: the damaged file is kept beside it, and lines that the spool still holds are stored again at the next start"
    )


def set_aside(database: Path) -> Path | None:
    """Renames the log, so that the store opens at its last checkpoint; None if there is no log. Raises ``OSError``;
    ``BlockingIOError`` if another process has the store open."""
    wal = wal_of(database)
    if not wal.exists():
        return None
    with database.open("rb+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the same lock as the engine's
        aside = wal.with_name(f"{wal.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        wal.rename(aside)
    return aside
