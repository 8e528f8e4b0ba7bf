"""When a running service moves lines of days that are not closed into files, where they take a third of the space.

A line has settled ``early_minutes`` after it arrived. Settled lines are moved when nothing has been stored for as long,
even if there are few, and otherwise only when there are many: each move makes a file, which is written again when its
day closes, and lines that stay behind in a segment are put in order again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from faultline.config import Store as StoreSettings
from store.door import Door
from store.errors import StoreError

log = structlog.get_logger()

#: Seconds between two looks. Looking reads two columns of the lines in DuckDB.
EVERY_S = 300.0
#: So many settled lines of a day make a file when nothing more arrives, and otherwise.
QUIET_LINES, LINES = 50_000, 1_000_000


def _utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


@dataclass
class EarlyRounds:
    """``stored``: how many lines were stored so far; ``is_behind``: more lines wait than are stored at once; ``freed`` is
    called when the database file has free space; ``ended`` is set when the service stops. The scheduler's job is ``look``."""

    store: Door
    settings: StoreSettings
    stored: Callable[[], int]
    is_behind: Callable[[], bool]
    freed: Callable[[], None] = lambda: None
    ended: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = _utc_now
    #: Lines are moved at this moment: the database file is not shrunk meanwhile.
    is_working: bool = field(default=False, init=False)
    _lines: int = field(default=-1, init=False)
    _since: float = field(default=0.0, init=False)

    def look(self) -> None:
        """Moves settled lines if it is time to; a failure is logged, and tried again at the next look."""
        minutes, moment, lines = self.settings.early_minutes, self.clock(), self.stored()
        if lines != self._lines:
            self._lines, self._since = lines, moment
        if not minutes or self.is_behind():
            return
        is_quiet = moment - self._since >= 60.0 * minutes
        self.is_working = True
        try:
            done = self.store.close_settled(
                self.now() - timedelta(minutes=minutes),
                least=QUIET_LINES if is_quiet else LINES,
                hot_days=self.settings.hot_days,
                is_wanted=lambda: not self.ended.is_set(),
            )
        except (OSError, StoreError) as error:
            log.warning("settled lines not moved", error=str(error).split("\n")[0] or type(error).__name__)
            return
        finally:
            self.is_working = False
        if done.lines:
            log.info("settled lines moved", lines=done.lines, files=done.files, bytes=done.bytes)
            self.freed()
