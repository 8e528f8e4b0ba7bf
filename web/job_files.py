"""What one run brought with it: its script and other files, its environment, and its output."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from parsers.job_states import Phase, in_phase
from store.questions import job_files
from web.reading import Reader, Row

#: A hook that delivers a run's files runs at most this long after its end: epilogs of lost nodes are late.
BROUGHT_WITHIN = timedelta(seconds=600)
#: States of runs that wait for their start.
_WAITING = in_phase(Phase.WAITING)


def has_not_started(run: Row) -> bool:
    """Whether a run is known to have no start: it waits, or was cancelled while it did. That no start is stored is not enough: one that
    only the line of its end tells of has none either."""
    cancelled = run["state"] == "CANCELLED" and run["submit"] is not None
    return run["start"] is None and not run["nodes"] and (cancelled or run["state"] in _WAITING)


def artifacts(read: Reader, run: Row, attempts: Sequence[Row]) -> list[Row]:
    """The own files of a run: of its restart, and of its time if its number was used for several jobs.

    A file without a time may belong to any of them. If several hooks delivered one, the longest is used. ``attempts``:
    all runs of its number (``Reader.attempts``).
    """
    return read.ask(
        job_files.artifacts(run["job_id"], run["cluster"], int(run["attempt"] or 0), *its_time(run, attempts))
    )


def its_time(run: Row, attempts: Sequence[Row]) -> tuple[datetime | None, datetime | None]:
    """From when to when a file is this run's, if its number was used for several jobs; None: without a bound."""
    attempt = int(run["attempt"] or 0)
    begin = until = None
    others = [o for o in attempts if o["own_key"] != run["own_key"] and int(o["attempt"] or 0) == attempt]
    if others and (begin := run["submit"] or run["start"]):
        following = [start for o in others if (start := o["submit"] or o["start"]) and start > begin]
        end = run["end"] + BROUGHT_WITHIN if run["end"] else None
        until = min([*following, *([end] if end else [])], default=None)
    return begin, until


def environment(read: Reader, run: Row) -> list[Row]:
    """The environment of a run, stored under Slurm's raw number also for a task of an array."""
    scope = f"job:{run['job_id']}" + (f"#{run['attempt']}" if run["attempt"] else "")
    return read.ask(job_files.settings(scope, run["cluster"]))


def output(
    read: Reader, run: Row, attempts: Sequence[Row], prefer: Collection[str], *, files: int, lines: int
) -> tuple[list[Row], int]:
    """The output of one run: for each file its last ``lines`` and how many there are, and how many files are left out.

    A file that was kept for another run is excluded. If all runs of a job write to one file, the lines after this run's
    start and before the next run's are this run's. ``attempts``: all runs of its number (``Reader.attempts``). Files in
    ``prefer`` are shown first.
    """
    which = whose_output(run, attempts)
    found = read.ask(job_files.output_files(*which))
    found.sort(key=lambda row: row["file"] not in prefer)
    shown = found[:files]
    for row in shown:
        tail = read.ask(job_files.output_tail(*which, row["file"], lines))
        row |= {"lines": tail[::-1], "evidence": row["file"] in prefer}
    return shown, len(found) - len(shown)


def whose_output(run: Row, attempts: Sequence[Row]) -> tuple[int, str | None, int, datetime | None, datetime | None]:
    """What questions about the output of one run ask for: job, cluster, restarts, and from when to when lines of a shared file are
    this run's."""
    following = [other["start"] for other in attempts if _behind(other, run)]
    until = min((start for start in following if start), default=None)
    begin = run["start"] if any(_behind(run, other) for other in attempts) else None
    return run["job_id"], run["cluster"], int(run["attempt"] or 0), begin, until


def _behind(one: Row, other: Row) -> bool:
    """Did a run of a number follow another one: a restart, or another job that used the number again?"""
    if one["start"] and other["start"]:
        return bool(one["start"] > other["start"])
    return (one["attempt"] or 0) > (other["attempt"] or 0)
