"""Checks that the clock is plausible before anything is deleted for its age.

A clock that jumps 13 years ahead makes every line old. So the time of the last round is stored in the data folder, and
retention is suspended while the clock is days ahead of it or behind it. It resumes when the clock has agreed for a day
with the timestamps of incoming lines, which other hosts wrote, or when an operator confirms it: ``faultline archive
--confirm-clock``.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from store.door import Door
from store.questions import sources

FILE = "clock.json"
#: How far the clock may be ahead of the last round: a service that was off over a weekend continues.
AHEAD = timedelta(days=4)
#: And how far behind it: clocks are set back by seconds, rarely by minutes.
BEHIND = timedelta(hours=1)
#: How long a clock that jumped has to agree with the lines.
AGREES_FOR = timedelta(days=1)
#: A line counts as evidence if it arrived within this many seconds of its host's timestamp.
NEAR_S = 3600


@dataclass
class ClockWatch:
    """``trouble`` gives the reason why retention is suspended, None if it is not."""

    store: Door
    trouble: str | None = None

    def look(self, now: datetime) -> bool:
        """Whether data too old at ``now`` (naive UTC) may be deleted; stores the time if so."""
        seen, jumped = self._remembered()
        if seen is None:
            seen = self._arrived()
            if seen is None:  # nothing to compare with: the next round compares with this one
                self._remember(now, None)
                return False
        if seen - BEHIND <= now <= seen + AHEAD:
            self._remember(max(seen, now), None)
            self.trouble = None
            return True
        if jumped is None or not jumped - BEHIND <= now:
            jumped = now
        if now - jumped >= AGREES_FOR and self._agrees(now):
            self.confirm(now)
            return True
        self._remember(seen, jumped)
        ahead = now > seen
        self.trouble = (
            f"nothing is dropped for its age: the clock says {now:%Y-%m-%d %H:%M} UTC, which is {_days(abs(now - seen))} "
            f"{'after' if ahead else 'before'} the last time that was seen ({seen:%Y-%m-%d %H:%M}). Correct the clock; if it is right, "
            "run faultline archive --confirm-clock, or wait a day while lines come in whose stamps agree with it"
        )
        return False

    def confirm(self, now: datetime) -> None:
        """Confirms the clock, on behalf of an operator or after a day of agreeing lines."""
        self._remember(now, None)
        self.trouble = None

    def begin(self, now: datetime) -> None:
        """For a store that was just filled from files: their lines, however old, say nothing about the clock of today."""
        if self._remembered()[0] is None:
            self._remember(now, None)

    def _arrived(self) -> datetime | None:
        found: datetime | None = self.store.ask(sources.LAST_ARRIVAL)[0]["last"]
        return found

    def _agrees(self, now: datetime) -> bool:
        found = self.store.ask(sources.agreeing(now - AGREES_FOR, now + BEHIND, NEAR_S))[0]
        return bool(found["lines"]) and 2 * int(found["near"]) > int(found["lines"])

    def _remembered(self) -> tuple[datetime | None, datetime | None]:
        path = self._path()
        if path is None:
            return None, None
        try:
            document = json.loads(path.read_text(encoding="ascii"))
            return datetime.fromisoformat(document["seen"]), document["jumped"] and datetime.fromisoformat(
                document["jumped"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None, None

    def _remember(self, seen: datetime, jumped: datetime | None) -> None:
        path = self._path()
        if path is None:
            return
        draft = path.with_name(f".{path.name}.draft")
        with contextlib.suppress(OSError):  # if the disk is full, nothing is deleted either
            draft.write_text(
                json.dumps({"seen": seen.isoformat(), "jumped": jumped.isoformat() if jumped else None}),
                encoding="ascii",
            )
            draft.chmod(0o600)
            draft.replace(path)

    def _path(self) -> Path | None:
        return None if self.store.folder is None else self.store.folder / FILE


def _days(difference: timedelta) -> str:
    return f"{difference.days:,} days" if difference.days else f"{difference.total_seconds() / 3600:.1f} hours"
