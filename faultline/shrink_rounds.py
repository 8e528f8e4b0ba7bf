"""When a running service gives free disk space of its store back.

The store reuses what is free in its database file, so a file that is partly free is normal while lines arrive. It is
shrunk when nothing has been stored for a while, and otherwise only if it is mostly free, as after a day that was much
larger than the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from store.door import Door
from store.errors import StoreError

log = structlog.get_logger()

#: Nothing has been stored for this long (seconds): the file need not keep room for what arrives.
QUIET_S = 600.0
#: The share of the file that must be free then, and otherwise.
QUIET_SHARE, SHARE = 0.1, 0.5
#: Seconds between two looks; and after one that freed nothing while lines arrive, since looking takes a second or two in a
#: large store.
EVERY_S, IN_VAIN_S = 300.0, 3600.0


@dataclass
class Shrinking:
    """``stored``: how many lines were stored so far; ``is_busy``: lines wait to be stored. Call ``look`` in every round, in
    the thread that settles lines: it remembers their places meanwhile."""

    store: Door
    stored: Callable[[], int]
    is_busy: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    _lines: int = field(default=-1, init=False)
    _since: float = field(default=0.0, init=False)
    _next: float | None = field(default=None, init=False)
    _was_quiet: bool = field(default=False, init=False)
    _is_done: bool = field(default=False, init=False)

    def again(self) -> None:
        """Something was deleted: the next look is about it. From any thread."""
        self._is_done, self._next = False, self.clock()

    def look(self) -> None:
        """Shrinks the file if it is time to; a failure is logged, and tried again at the next look."""
        now, lines = self.clock(), self.stored()
        if self._next is None:  # the start has enough to do
            self._next = now + EVERY_S
        if lines != self._lines:
            self._lines, self._since, self._was_quiet, self._is_done = lines, now, False, False
        is_quiet = now - self._since >= QUIET_S
        if is_quiet and not self._was_quiet:
            self._was_quiet, self._next = True, now
        if now < self._next or self._is_done or self.is_busy():
            return
        try:
            freed = self.store.shrink(share=QUIET_SHARE if is_quiet else SHARE)
        except StoreError as error:
            log.warning("the database file was not shrunk", error=str(error).splitlines()[0])
            self._next = now + EVERY_S
            return
        self._next = now + (EVERY_S if freed or is_quiet else IN_VAIN_S)
        self._is_done = is_quiet and not freed
        if freed:
            log.info("the database file was shrunk", bytes=freed)
