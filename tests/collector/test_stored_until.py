"""What followers of new lines rely on: nothing that was received before the moment is still to be stored."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace

import pytest

from collector import stored_until
from collector.stored_until import StoredUntil


def test_the_moment_moves_with_what_is_stored_also_if_something_always_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    spool, hour = SimpleNamespace(synced=5, committed=0, waiting_bytes=1), [0]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(2026, 11, 21, hour[0])

    monkeypatch.setattr(stored_until, "datetime", Clock)
    until = StoredUntil(spool)

    def at(when: int, synced: int, committed: int) -> int | None:
        hour[0], spool.synced, spool.committed = when, synced, committed
        found = until()
        return None if found == datetime.min else found.hour

    assert at(1, 5, 0) is None, "batches of an earlier run wait"
    assert at(2, 9, 4) is None
    assert at(3, 12, 5) == 1, "what was there at one o'clock is stored"
    assert at(4, 20, 11) == 1
    assert at(5, 20, 12) == 3
    assert at(6, 20, 20) == 6
    assert at(7, 21, 20) == 6
    spool.waiting_bytes = 0  # an empty segment was begun
    assert at(8, 22, 20) == 8
