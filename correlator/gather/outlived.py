"""A node's loss that the runs on it outlived: slurmctld's own file says so, and what it says is not true.

slurmctld writes what a user chose into its own file, line ends included, so a line there may be a user's
(parsers/cut_quotes.py finds most of them). If slurmctld sets a node DOWN, it ends the jobs on it in the same moment. So a
run of that node that ended by itself later shows that it was not set DOWN, and a job that slurmctld says it killed with a
failed node was not if it ended by itself later. Accounting and slurmctld's own line about that end have to agree: then
neither a wrong zone nor a wrong clock can move the end behind the line.

Nothing is denied if a run of the node was lost at that time. Ends long after the line are not looked for: a tick looks 900 s back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from correlator.gather.confirmed import FOLLOWS_S
from correlator.model.nouns import Event, Run
from parsers.job_states import MAY_RUN_AGAIN, OWN_CODE

#: What speaks against such events.
OUTLIVED = "outlived"
#: How runs end by themselves, which slurmctld ended with their node.
_BY_THEMSELVES = OWN_CODE
_DOWN, _KILLED, _SILENT, _ENDED = "slurm.node_down", "slurm.job_node_fail", "slurm.node_not_responding", "slurm.job_end"
#: Its words for a node that it sets DOWN with the jobs on it (slurm src/slurmctld/ping_nodes.c, node_mgr.c).
_SETS_DOWN = re.compile(r"not responding, setting DOWN|update_node: node \S+ state set to DOWN")
_KILLS = re.compile(r"^Killing JobId=\S+ on failed node ")
#: Accounting has whole seconds, and ends jobs in the second of the line (seconds).
_LATER_S, _SAME_END_S = 2.5, 2.0
#: A run that was lost with the node ends within this; slurmctld tells of no answer this long before it.
_LOST_WITHIN_S, _SILENT_BEFORE_S = 60.0, 60.0

Hosts = Callable[[Event], Sequence[str]]


def outlived(
    by_kind: Mapping[str, Sequence[Event]],
    runs_on: Mapping[str, Sequence[Run]],
    of_job: Mapping[int, Sequence[Run]],
    hosts_of: Hosts,
) -> list[tuple[Event, str]]:
    """What slurmctld's file says of lost nodes and is not true, with why."""
    downs = [e for e in by_kind.get(_DOWN, ()) if e.source == "slurmctld" and _SETS_DOWN.search(e.message)]
    kills = [e for e in by_kind.get(_KILLED, ()) if e.source == "slurmctld" and _KILLS.search(e.message)]
    if not downs and not kills:
        return []
    ends: dict[int, list[float]] = {}
    for event in by_kind.get(_ENDED, ()):
        if event.source == "slurmctld" and event.job_id is not None:
            ends.setdefault(event.job_id, []).append(event.time)
    found: list[tuple[Event, str]] = []
    denied: dict[str, list[float]] = {}
    for event in downs:
        hosts = hosts_of(event)
        there = [run for host in hosts for run in runs_on.get(host, ())]
        # A job of several nodes may go on without one (--no-kill).
        if why := _outlived_by([run for run in there if len(run.nodes) == 1], there, event.time, ends):
            found.append((event, why))
            for host in hosts:
                denied.setdefault(host, []).append(event.time)
    for event in kills:
        runs = of_job.get(event.job_id, ()) if event.job_id is not None else ()
        if why := _outlived_by(runs, runs, event.time, ends):
            found.append((event, why))
    for event in by_kind.get(_SILENT, ()) if denied else ():
        times = (at for host in hosts_of(event) for at in denied.get(host, ()))
        if event.source == "slurmctld" and any(0.0 <= at - event.time <= _SILENT_BEFORE_S for at in times):
            found.append((event, "what it announced was not true"))
    return found


def _outlived_by(asked: Iterable[Run], beside: Iterable[Run], at: float, ends: Mapping[int, Sequence[float]]) -> str:
    """The run that went on, in words; empty if none did, or if one was lost then."""
    if any(
        r.state in MAY_RUN_AGAIN and r.end is not None and at - _LATER_S <= r.end <= at + _LOST_WITHIN_S for r in beside
    ):
        return ""
    for run in asked:
        if run.state not in _BY_THEMSELVES or run.start is None or run.end is None or not _is_accounted(run):
            continue
        reported = any(abs(time - run.end) <= _SAME_END_S for time in ends.get(run.job_id, ()))
        if run.start < at - _LATER_S and at + _LATER_S < run.end <= at + FOLLOWS_S and reported:
            return f"job {run.job_id} went on there, and ended {run.state} {run.end - at:.0f} s later"
    return ""


def _is_accounted(run: Run) -> bool:
    """Does anything but lines tell of the run? Lines name neither a user nor an exit code as accounting has it."""
    return bool(run.row.get("user")) and run.row.get("exit_code") is not None
