"""A commit counter beside the store: reveals that the engine dropped a part of its own log.

DuckDB ignores a write-ahead log whose head does not match, and takes an entry with a wrong length for the torn end of a
crash; both without an error. So each transaction increments a counter in the store, and after its commit the number is
written (and fsynced) to a separate file. A store that has a smaller number when it is opened has lost commits.

The file may lag behind the store (a kill in between, a full disk), which can only hide a loss, never report a false
one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from store.duckdb.damage import wal_of
from store.duckdb.log_head import ENTRY, LONGEST, NotAHeadError, read_head

log = structlog.get_logger()

#: The row of ``model.facts`` that counts transactions.
FACT = "transactions"
#: Size of the mark's line, padded with spaces: a count, a head in hexadecimal, a checksum.
_LINE = 2 * LONGEST + 32


@dataclass(frozen=True)
class Mark:
    """The store has ``count`` transactions; its log then began with ``head`` (hexadecimal; "" for none)."""

    count: int
    head: str


def mark_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.mark")


def note_of(database: Path) -> Path:
    """The note of losses, a line each in words; whoever has read it removes it."""
    return database.with_name(f"{database.name}.lost")


def _head_bytes(wal: Path) -> bytes:
    """The log's head, byte for byte; empty if there is no log or its head cannot be parsed."""
    with contextlib.suppress(OSError, NotAHeadError), wal.open("rb") as file:
        if (head := read_head(data := file.read(LONGEST))) is not None:
            return data[: head.length]
    return b""


class Marking:
    """Writes the mark of one database. One writer at a time."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._fd = -1

    def write(self, count: int) -> None:
        """Writes the mark after a commit. If the disk refuses, the mark lags; whatever else fails on that disk reports
        it."""
        text = f"{count} {_head_bytes(wal_of(self._database)).hex() or '-'}".encode()
        line = b"%b %08x" % (text, zlib.crc32(text))
        with contextlib.suppress(OSError):
            if self._fd < 0:
                self._fd = os.open(mark_of(self._database), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            os.pwrite(self._fd, line.ljust(_LINE) + b"\n", 0)
            os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read(database: Path) -> Mark | None:
    """None if there is no mark, or no complete one."""
    try:
        text, _, checksum = mark_of(database).read_bytes().strip().rpartition(b" ")
        count, head = text.decode().split(" ")
        return Mark(int(count), "" if head == "-" else head) if zlib.crc32(text) == int(checksum, 16) else None
    except (OSError, ValueError):
        return None


def _is_followed(wal: Path, start: int) -> bool:
    """Whether the entries' lengths connect from the log's head to its end."""
    size, at = wal.stat().st_size, start
    with wal.open("rb") as file:
        while at + ENTRY <= size:
            file.seek(at)
            at += ENTRY + int.from_bytes(file.read(8), "little")
    return at == size


def kept_aside(database: Path) -> Path | None:
    """Copies a log that the engine may partly drop, before the engine reads it and truncates the rest."""
    wal, known = wal_of(database), read(database)
    try:
        if known is None or not wal.exists() or not wal.stat().st_size:
            return None
        head = _head_bytes(wal)
        if head and head.hex() == known.head and _is_followed(wal, len(head)):
            return None
        aside = wal.with_name(f"{wal.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        shutil.copyfile(wal, aside)
        aside.chmod(0o600)
        return aside
    except OSError as error:
        log.warning("the write-ahead log cannot be copied before it is read", file=str(wal), error=str(error))
        return None


def compare(database: Path, count: int, aside: Path | None) -> str | None:
    """What the store lost since it was last written, in words, also saved in ``note_of``; None if nothing. ``aside`` is
    removed if it is not needed."""
    known = read(database)
    if known is None or count >= known.count:
        with contextlib.suppress(OSError):
            if aside is not None:
                aside.unlink()
        return None
    kept = f"; the log as it was is kept in {aside.name}" if aside is not None else ""
    text = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC: {database}: {known.count - count:,} committed transactions are missing (the store "
        f"has {count:,} of {known.count:,}): its write-ahead log was damaged or removed, or an older copy was put in its place. Lines "
        f"stored since the last checkpoint may be missing{kept}. What the spool still holds is read again and stored. Bring a "
        f"copy back if you have one; remove {note_of(database)} once you know"
    )
    log.error("lines may be missing in the store", reason=text)
    with contextlib.suppress(OSError):
        fd = os.open(note_of(database), os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    return text


def lost(folder: Path | None, name: str) -> list[str]:
    """All losses that were reported and not removed."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return note_of(folder / name).read_text(encoding="utf-8").splitlines() if folder is not None else []
    return []
