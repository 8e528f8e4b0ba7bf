"""Which events may show that a run exists, and when, where and how it ended.

Runs follow from accounting and slurmctld's own lines. Where these do not know a run or its end yet, lines of its nodes and
its own output show more. Every user of a node can write to a syslog file in the name of slurmd or slurmstepd, and whoever
reaches a log host can send it lines in the name of slurmctld. So such a line adds nothing where rows about jobs are
collected: those show the run. Without any such row, it counts as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from correlator.gather.kernel_lines import SENT
from correlator.gather.shared_lines import open_to
from correlator.gather.standing import OUTPUT
from correlator.model.nouns import Event
from correlator.site.open_lines import is_closed, is_remote
from correlator.site.senders import NOBODY, Senders
from parsers.writers import JOB, USERS

_OPEN = USERS - {JOB}


class Witnesses(NamedTuple):
    """Who is believed about runs. ``accounted``: there are rows about jobs, of accounting or another command of Slurm."""

    senders: Senders = NOBODY
    accounted: bool = False

    def about(self, events: Iterable[Event]) -> list[Event]:
        """The events about jobs that count for their runs."""
        return [
            e for e in events
            if e.job_id is not None and (e.authority not in _OPEN or e.source in OUTPUT or self._counts(e))
        ]  # fmt: skip

    def _counts(self, event: Event) -> bool:
        how = open_to(event, self.senders.relays)
        if how == SENT:
            return False
        if event.source == "slurmctld":  # which hosts' lines count is decided before (gather/standing.py)
            return not (self.accounted and is_remote(event, self.senders))
        return not how or is_closed(event, self.senders) or not self.accounted
