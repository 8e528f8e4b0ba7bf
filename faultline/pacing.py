"""Schedules correlation rounds: soon while somebody waits for a result, later while lines wait to be stored."""

from __future__ import annotations

import time

#: The pause between two rounds is ``PAUSE`` times the duration of the last one: at most a quarter of one core goes into
#: correlating and into ordering stored lines, a tenth under load, and a twentieth while lines wait in the spool. But a
#: job's end must have a verdict within 5 s, so the pause is never longer than ``PROMPT_S`` seconds, unless lines wait
#: in the spool, or a round under load had to recompute everything (hours of lines arrive in seconds): then up to
#: ``LONGEST_PAUSE`` seconds, or until the flood is over.
PAUSE, BUSY_PAUSE, BEHIND_PAUSE = 3.0, 9.0, 19.0
PROMPT_S, LONGEST_PAUSE = 3.5, 30.0
#: The cost of a line is measured in rounds over at least this many; the fixed cost dominates smaller ones.
MANY_LINES = 50_000


class Pacing:
    """Call ``is_time`` before a round and ``done`` after it. Lines are counted since the service's start."""

    def __init__(self) -> None:
        self.not_before = 0.0
        #: The same once nothing waits and nothing arrives in quantity, whatever was so when the last round ended.
        self._calm = 0.0
        #: When the last round ended, how many lines were stored then, and the cost per line of the last large round, in
        #: seconds.
        self._ended = 0.0
        self._stored = 0
        self._line_s = 0.0

    def is_time(self, *, behind: bool, busy: bool, stored: int) -> bool:
        """Whether a round may begin. ``busy``: lines arrive in quantity; ``behind``: they wait in the spool. Then the lines stored since the last round
        count, too: after a short round over the first second of a flood, the next one would cover everything that
        arrived in its pause."""
        now = time.monotonic()
        if now < (self.not_before if behind or busy else self._calm):
            return False
        expected = self._line_s * (stored - self._stored)
        return not behind or now - self._ended >= min(expected * BEHIND_PAUSE, LONGEST_PAUSE)

    def done(self, took_s: float, lines: int, *, full: bool, behind: bool, busy: bool, stored: int) -> None:
        """Records a round over ``lines`` new ones, incremental or over everything (``full``), that took ``took_s``
        seconds."""
        pause = took_s * (BEHIND_PAUSE if behind else BUSY_PAUSE if busy else PAUSE)
        patient = behind or (busy and full)
        self._ended, self._stored = time.monotonic(), stored
        if lines >= MANY_LINES:
            self._line_s = took_s / lines
        self.not_before = self._ended + min(pause, LONGEST_PAUSE if patient else PROMPT_S)
        self._calm = min(self.not_before, self._ended + min(took_s * PAUSE, PROMPT_S))
