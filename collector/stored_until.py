"""Until when everything that was received is in the store: whoever follows new lines must look back that far."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any


class StoredUntil:
    """Asked now and then, from any thread. Lines get their time of receipt before they are on disk, and may wait for
    their segment for a moment after the watermark passed them: who needs each line allows some seconds more."""

    def __init__(self, spool: Any) -> None:
        self._spool, self._lock = spool, threading.Lock()
        #: Before the first answer nothing is known: batches of an earlier run may wait.
        self._known = datetime.min
        self._next: tuple[datetime, Any] | None = None

    def __call__(self) -> datetime:
        """The moment, in UTC without a zone."""
        with self._lock:
            now, synced = datetime.now(UTC).replace(tzinfo=None), self._spool.synced
            committed = self._spool.committed
            if committed >= synced or not self._spool.waiting_bytes:
                self._known, self._next = now, None
            elif self._next is None:
                self._next = now, synced
            elif committed >= self._next[1]:
                self._known, self._next = self._next[0], (now, synced)
            return self._known
