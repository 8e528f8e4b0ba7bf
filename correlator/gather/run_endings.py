"""How runs ended by their own output and their nodes' lines, if slurmctld and accounting have no end of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from correlator.gather.runs_fast import NOTHING
from correlator.model.moments import moment_of, seconds_of
from correlator.model.nouns import Event
from parsers.documents.fields import integer
from parsers.hostlist import fold
from parsers.job_states import OPEN
from parsers.record import JOB_OUTPUT

#: Start times of one run differ by up to this between two sources: whole seconds, rounded differently.
SAME_START_S = 2.0

END_STATES = {
    "slurm.job_end": "COMPLETED", "slurm.job_failed": "FAILED", "slurm.job_node_fail": "NODE_FAIL",
    "slurm.job_cancelled": "CANCELLED", "slurm.job_timeout": "TIMEOUT", "slurm.job_preempted": "PREEMPTED",
    "slurm.job_oom": "OUT_OF_MEMORY",
}  # fmt: skip


def as_written(event: Event) -> tuple[float, str, int]:
    """Sorts lines as they were written.

    Timestamps may have whole seconds; within one, the order in the file decides.
    """
    return event.time, event.file or "", event.line or 0


def number_of(text: object) -> int | None:
    """The number of an array or a task in a line, or None: a job's own output may have any digits there."""
    found = integer(text)
    return None if found is None or found < 0 else found


#: Lines of a run's output about a step that ended badly.
_BAD_STEP = frozenset({"job.exit_error", "job.segfault", "job.bus_error", "job.killed", "job.cuda_error"})


def with_last_words(rows: list[dict[str, Any]], events: list[Event]) -> list[dict[str, Any]]:
    """Marks a run FAILED if the log lost its exit status and its output shows that a step ended badly.

    slurmctld logs an exit status, then that the run is done. Without the first of these lines, such a run would be
    COMPLETED.
    """
    doubted = {row["job_id"]: row for row in rows if row.pop("unsaid", False)}
    if not doubted:
        return rows
    for event in events:
        row = doubted.get(event.job_id or 0)
        if row is None or event.kind not in _BAD_STEP or event.source not in JOB_OUTPUT:
            continue
        start, end = seconds_of(row.get("start")) or 0.0, seconds_of(row["end"]) or 0.0
        if max(start - SAME_START_S, end - LAST_WORDS_S) <= event.time <= end + LAST_WORDS_S:
            row["state"] = "FAILED"
    return rows


#: A run's last output is stamped, or placed if it has no timestamp, this near to its end (facts.jobs.lines.of_run);
#: the run survived what it wrote long before.
LAST_WORDS_S = 65.0


#: How a run ended by its nodes' lines and its own output, the most specific first.
_LAST_WORDS = (
    ("NODE_FAIL", frozenset({"slurm.job_node_fail", "job.node_failure"})), ("PREEMPTED", frozenset({"slurm.job_preempted", "job.preempted"})),
    ("TIMEOUT", frozenset({"slurm.job_timeout", "job.time_limit"})), ("REQUEUED", frozenset({"slurm.job_requeue", "job.requeued"})),
    ("CANCELLED", frozenset({"slurm.job_cancelled", "job.cancelled"})),
    ("OUT_OF_MEMORY", frozenset({"slurm.job_oom", "job.oom"})),
    ("FAILED", frozenset({"job.exit_error", "job.segfault", "job.bus_error", "job.killed", "job.cuda_error", "job.step_terminated", "job.cancelled"})),
)  # fmt: skip

_OF_RUN = frozenset(("slurmd", "slurmstepd", *JOB_OUTPUT))


def of_unknown_runs(events: list[Event]) -> list[dict[str, Any]]:
    """Runs that neither accounting nor slurmctld knows, with their ends from their nodes' lines and their output."""
    of_job: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.job_id is not None:
            of_job[event.job_id].append(event)
    rows = []
    for job, lines in sorted(of_job.items()):
        ended = [
            e
            for e in lines
            if e.source == "slurmctld" and e.kind in END_STATES and "registered" not in e.message.lower()
        ]
        if ended:  # the line of its start was lost, or is older than what was collected
            first = min(ended, key=as_written)
            rows.append(_ended(job, END_STATES[first.kind], first.time, lines))
            continue
        if any(e.source not in _OF_RUN for e in lines):
            continue  # slurmctld knows the job and started no run of it: steps of an older run are being cleaned up
        for state, kinds in _LAST_WORDS:
            endings = [e for e in lines if e.kind in kinds and _states_end(e, state)]
            if endings:
                rows.append(_ended(job, state, max(e.time for e in endings), lines))
                break
    return rows


def _ended(job: int, state: str, end: float, lines: list[Event]) -> dict[str, Any]:
    """A run of which only the end is known; its nodes are those that log about it or that its lines name."""
    begun = [e.time for e in lines if e.kind == "slurm.step_start" and e.time <= end]
    nodes = {h for e in lines for h in ([e.host] if e.host and e.source in _OF_RUN else e.entities.get("nodes") or ())}
    array = {
        name: number_of(e.entities.get(name))
        for e in lines
        for name in ("array_job_id", "array_task")
        if e.entities.get(name)
    }
    row = {
        "job_id": job, "source": "log", "state": state, "end": moment_of(end), "nodes": sorted(nodes), "node_list": fold(sorted(nodes)),
        "start": moment_of(min(begun, default=None)), "array_job_id": array.get("array_job_id"), "array_task_id": array.get("array_task"),
    }  # fmt: skip
    return {name: value for name, value in row.items() if value not in NOTHING}


def _states_end(event: Event, state: str) -> bool:
    """Does the line show the end of the whole run?

    A step may be cancelled by its own srun, and an allocation of memory that fails is the program's error.
    """
    text = event.message.lower()
    if event.kind.endswith("cancelled"):
        whole = event.entities.get("step_id") in (None, "batch") and "due to task failure" not in text
        return whole == (state == "CANCELLED")
    return state != "OUT_OF_MEMORY" or "oom-kill" in text or "oom_kill" in text


#: slurmstepd's line about the run or a step, as it writes it to the run's output and to slurmd's log (slurm
#: src/slurmd/slurmstepd/req.c).
_STEPD_ENDS = re.compile(r"\*\*\* \S.* ON \S+ CANCELLED AT ")


#: The start of one run differs by up to this between two sources: prologs and boots of its nodes may lie between.
LOGGED_START_S = 30.0


def of_open_runs(by_job: Mapping[int, Iterable[Mapping[str, Any]]], events: Iterable[Event]) -> list[dict[str, Any]]:
    """The ends of started runs whose end only the slurmstepd of their batch script reports."""
    left = {job: begun for job, rows in by_job.items() if (begun := _open_since(rows))}
    endings: dict[tuple[int, float], Event] = {}
    for event in events if left else ():
        if event.job_id not in left or event.source not in _OF_RUN or not _STEPD_ENDS.search(event.message):
            continue
        run = max((begun for begun in left[event.job_id] if begun <= event.time), default=None)
        whole = event.entities.get("step_id") in (None, "batch")
        if run is not None and whole and _is_finer(event, endings.get((event.job_id, run))):
            endings[event.job_id, run] = event
    states = {run: next((s for s, kinds in _LAST_WORDS if e.kind in kinds), None) for run, e in endings.items()}
    return [
        {"job_id": job, "source": "log", "state": states[job, begun], "start": moment_of(begun), "end": moment_of(event.time)}
        for (job, begun), event in sorted(endings.items(), key=itemgetter(0)) if states[job, begun]
    ]  # fmt: skip


def _open_since(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    """The start times of a job's runs for which no row has an end."""
    begun: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        begun[row.get("state", "") in OPEN].append(seconds_of(row.get("start")) or 0.0)
    return [t for t in begun[True] if t and not any(abs(t - ended) <= LOGGED_START_S for ended in begun[False])]


def _is_finer(event: Event, known: Event | None) -> bool:
    """Is this copy of a line timed more precisely than the other?"""
    return known is None or (event.sigma, event.time, event.id) < (known.sigma, known.time, known.id)
