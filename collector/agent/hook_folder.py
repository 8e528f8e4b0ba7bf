"""A spool of Slurm's hooks as whoever empties it sees it: one reader at a time, and what hooks could not hand over."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

#: Held by the process that empties the spool: two of them would both read a file before one removes it.
CLAIM = ".reader"
#: A hook ends after a second or two (docs/hooks.md); what it has not finished by then, nobody will.
DEAD_AFTER_S = 60.0


@dataclass
class HookFolder:
    path: Path
    _claim: int = -1

    def claim(self) -> bool:
        """Whether this process may empty the spool: True until ``release()``, False while another one does.

        A folder where no lock can be kept (a read-only disk) is nobody's: reading it twice is better than not at all.
        """
        if self._claim >= 0:
            return True
        try:
            handle = self._open()
        except OSError:
            return not (self.path / CLAIM).exists()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:  # a file system without locks
            os.close(handle)
            return True
        self._claim = handle
        return True

    def _open(self) -> int:
        """Who may look into the spool may lock it, as its owner beside root. Where users write into it (task prologs) they may
        not, and a lock that one of them put there is no reader's: it is taken away."""
        path, folder = self.path / CLAIM, self.path.stat()
        try:
            seen = path.lstat()
            if seen.st_uid not in (0, os.geteuid(), folder.st_uid) or not stat.S_ISREG(seen.st_mode):
                path.unlink()
        except FileNotFoundError:
            pass
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not folder.st_mode & stat.S_IWOTH and os.fstat(handle).st_uid == os.geteuid():
            os.fchmod(handle, 0o644)
        return handle

    def release(self) -> None:
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1

    def unfinished(self) -> list[Path]:
        """What hooks that were killed in the middle of writing left behind."""
        found, before = [], time.time() - DEAD_AFTER_S
        for path in sorted(self.path.glob(".*.hook.tmp")):
            try:
                seen = path.lstat()
            except FileNotFoundError:
                continue
            if seen.st_mtime < before:
                found.append(path)
        return found

    def given_up(self, name: str = "dropped") -> tuple[int, float]:
        """How many hooks gave up here (a byte each in ``dropped``), and when the last one did (seconds since 1970)."""
        try:
            seen = (self.path / name).lstat()
        except OSError:
            return 0, 0.0
        return (seen.st_size, seen.st_mtime) if stat.S_ISREG(seen.st_mode) else (0, 0.0)

    def begin_anew(self) -> str:
        """Moves ``dropped`` away, so that counting begins anew; the name of what was counted, to be removed once it is told.
        What was moved away and not removed before (a crash) comes first."""
        aside = ".dropped.told"
        if not (self.path / aside).exists() and self.given_up()[0]:
            (self.path / "dropped").rename(self.path / aside)
        return aside


def words_given_up(folder: Path, count: int) -> str:
    return f"{count} hooks gave up: the spool {folder} was full, or slow for a second"


def words_unfinished(path: Path) -> str:
    """The name says whose it is: ``.JOB.EVENT.HOST.PID.TIME.hook.tmp``."""
    job, event, host = (path.name.lstrip(".").split(".") + ["?"] * 3)[:3]
    return f"the {event} hook of job {job} on {host} ended in the middle of writing: {path}"
