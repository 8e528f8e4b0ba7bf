"""Sessions that ended early: a small file, so that a restart revives none of them.

One line each, ``ID UNTIL`` (Unix seconds, when the session would have ended by itself); after that its line is dropped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger()
ENDED_FILE = "session.ended"
#: The file is rewritten without expired sessions after this many lines were added.
PRUNED_EACH = 1000


class Ended:
    """``path``: the file, None to keep them in memory only."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self._lock = threading.Lock()
        self._until = self._kept()
        self._added = 0
        if self.path is not None and self.path.exists():
            self._prune()

    def __contains__(self, identity: str) -> bool:
        return identity in self._until

    def add(self, identity: str, until: float) -> None:
        """Ends a session at once.

        If the disk refuses the line, it is ended until the next restart, and the log reports it.
        """
        with self._lock:
            if identity in self._until:
                return
            self._until[identity] = until
            self._added += 1
            if self.path is None:
                return
            try:
                self._append(f"{identity} {until:.0f}\n")
                if self._added % PRUNED_EACH == 0:
                    self._prune()
            except OSError:
                log.exception(
                    "a sign-out could not be written; after a restart the session would go on", file=str(self.path)
                )

    def _kept(self) -> dict[str, float]:
        if self.path is None:
            return {}
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        found = {}
        for line in lines:
            identity, _, until = line.partition(" ")
            if identity and until.isdigit():  # a line cut off by a crash is ignored
                found[identity] = float(until)
        return found

    def _append(self, line: str) -> None:
        assert self.path is not None
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)

    def _prune(self) -> None:
        assert self.path is not None
        now = self._clock()
        self._until = {identity: until for identity, until in self._until.items() if until >= now}
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.writelines(f"{identity} {until:.0f}\n" for identity, until in self._until.items())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
