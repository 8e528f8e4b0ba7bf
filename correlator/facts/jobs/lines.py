"""Which lines are about a run, and which of them about its end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from correlator.facts.jobs.output import APPLICATION, COMMUNICATION, logged_timeout
from correlator.facts.world import World
from correlator.model.nouns import Event, Run
from parsers.record import JOB_OUTPUT

#: How far from the run's end a line about that end may lie: sacct has whole seconds, output is flushed late.
END_SLACK_S = 5.0
_ERRORS = COMMUNICATION | APPLICATION | {"job.oom", "job.launch_error"}


def of_run(run: Run, events: Iterable[Event], slack: float = END_SLACK_S) -> list[Event]:
    """Events that name the job and lie within this run (not within an earlier or later run of the same job)."""
    low = (run.start or run.submit or 0.0) - slack
    high = (run.end if run.end is not None else float("inf")) + slack + 60.0
    return [e for e in events if low <= e.time <= high]


#: Output this long before the end is something the run survived. Time of waiting for other ranks is added (watchdogs
#: of ten minutes and more, which log their timeout).
LIVED_S = 600.0


def last_messages(lines: list[Event], end: float, *, ended_itself: bool) -> list[Event]:
    """The lines about a run's end, without output from long before.

    Nothing is left out for a run that ended by itself and logged no error later.
    """
    early = end - LIVED_S
    if not [e for e in lines if e.time < early and e.source in JOB_OUTPUT]:
        return lines  # as nearly always; a wait would only add to the time that counts
    waited = logged_timeout([e for e in lines if e.kind in COMMUNICATION]) or 0.0
    since = early - waited
    old = [e for e in lines if e.time < since and e.source in JOB_OUTPUT]
    errors = any(e.time >= since and e.kind in _ERRORS and e.source in JOB_OUTPUT for e in lines)
    if not old or (ended_itself and not errors):
        return lines
    return [e for e in lines if e.time >= since or e.source not in JOB_OUTPUT]


def of_other_parts(world: World, run: Run) -> list[Event]:
    """Output of the other components of a heterogeneous job: its one script writes under the first component."""
    parts = world.het_components.get(run.job_id, frozenset()) - {run.job_id}
    return [e for part in sorted(parts) for e in of_run(run, world.by_job.get(part, ())) if e.source in JOB_OUTPUT]


def between(events: Sequence[Event], low: float, high: float) -> Sequence[Event]:
    """The events from ``low`` to ``high``, of events in time order."""
    return events[bisect_left(events, low, key=_time) : bisect_right(events, high, key=_time)]


def _time(event: Event) -> float:
    return event.time
