"""When the next round of concluding begins: soon where somebody waits for an answer, later where lines wait to be stored."""

from __future__ import annotations

import time

#: Between two rounds lies ``PAUSE`` times as long as the last one took: a quarter of one core at most goes into concluding
#: and into ordering what is stored, while much arrives a tenth, and a twentieth while the lines themselves wait in the spool. But
#: a job's end is answered within 5 s, so the pause is never longer than ``PROMPT_S``, unless lines wait in the spool, or while
#: much arrives a round had to conclude about everything (hours of lines come in seconds): then up to ``LONGEST_PAUSE``, seconds.
PAUSE, BUSY_PAUSE, BEHIND_PAUSE = 3.0, 9.0, 19.0
PROMPT_S, LONGEST_PAUSE = 3.5, 30.0
#: What a line costs to conclude about is learned from rounds over so many of them; the rest of a round is not by the line.
MANY_LINES = 50_000


class Pacing:
    """``is_time`` is asked before a round, ``done`` is told after it. Lines are counted since the service's start."""

    def __init__(self) -> None:
        self.not_before = 0.0
        #: When the last round ended, how many lines were stored then, and what each of the last many cost, seconds.
        self._ended = 0.0
        self._stored = 0
        self._line_s = 0.0

    def is_time(self, *, behind: bool, stored: int) -> bool:
        """Whether a round may begin. ``behind``: lines wait in the spool. Then what was stored since the last round counts, too:
        after a short round over the first second of a flood, the next one would be over all that came in its pause."""
        now = time.monotonic()
        if now < self.not_before:
            return False
        expected = self._line_s * (stored - self._stored)
        return not behind or now - self._ended >= min(expected * BEHIND_PAUSE, LONGEST_PAUSE)

    def done(self, took_s: float, lines: int, *, full: bool, behind: bool, busy: bool, stored: int) -> None:
        """A round over ``lines`` new ones, in part or over everything (``full``), took ``took_s``."""
        pause = took_s * (BEHIND_PAUSE if behind else BUSY_PAUSE if busy else PAUSE)
        patient = behind or (busy and full)
        self._ended, self._stored = time.monotonic(), stored
        if lines >= MANY_LINES:
            self._line_s = took_s / lines
        self.not_before = self._ended + min(pause, LONGEST_PAUSE if patient else PROMPT_S)
