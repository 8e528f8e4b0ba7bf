"""A node's loss that the runs on it outlived: slurmctld's own file says so, and what it says is not true.

slurmctld writes what a user chose into its own file, line ends included, so a line there may be a user's
(parsers/cut_quotes.py finds most of them). If slurmctld sets a node DOWN, it ends the jobs on it in the same moment. So a
run of that node that ended by itself later shows that it was not set DOWN, and a job that slurmctld says it killed with a
failed node was not if it ended by itself later. Accounting and slurmctld's own line about that end have to agree: then
neither a wrong zone nor a wrong clock can move the end behind the line.

Nothing is denied if a run of the node was lost at that time. Ends long after the line are not looked for: a tick looks 900 s back.

slurmd and slurmstepd write what a user chose, too. ``fatal`` is slurmd's last word: if slurmd then launches a job that ended by
itself, and no start is between, it went on. slurmd's own file and accounting have to agree on that job: the steps of other jobs
outlive slurmd, and write into its file what their users chose. A second slurmd that may not run beside the first ends so, too;
its line is true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from correlator.gather.confirmed import FOLLOWS_S
from correlator.model.nouns import Event, Run
from parsers.job_states import MAY_RUN_AGAIN, OWN_CODE

#: What speaks against such events.
OUTLIVED = "outlived"
#: What speaks against slurmd's last words, and against those of a second slurmd.
WROTE_ON, SECOND = "wrote on", "second"
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

_FATAL, _LAUNCH, _START = "slurm.daemon_fatal", "slurm.step_start", "slurm.daemon_start"
#: slurmd logs a launch within this of what accounting calls the start (seconds).
_LAUNCHED_S = 5.0
#: Why a second slurmd ends (slurm src/slurmd/slurmd/slurmd.c, src/common/daemonize.c).
_OF_A_SECOND = re.compile(r"\bbind|in use|already running|pid ?file", re.IGNORECASE)

Hosts = Callable[[Event], Sequence[str]]


def outlived(
    by_kind: Mapping[str, Sequence[Event]],
    runs_on: Mapping[str, Sequence[Run]],
    of_job: Mapping[int, Sequence[Run]],
    hosts_of: Hosts,
) -> list[tuple[Event, str, str]]:
    """What Slurm's own files say of lost nodes and of slurmd's end and is not true, with how it is known and why."""
    lost = _outlived_losses(by_kind, runs_on, of_job, hosts_of)
    return [*((event, OUTLIVED, why) for event, why in lost), *_wrote_on(by_kind, of_job)]


def _wrote_on(
    by_kind: Mapping[str, Sequence[Event]], of_job: Mapping[int, Sequence[Run]]
) -> Iterable[tuple[Event, str, str]]:
    fatals = [e for e in by_kind.get(_FATAL, ()) if e.source == "slurmd" and e.own and e.host]
    if not fatals:
        return
    hosts = {e.host for e in fatals}
    launches = [e for e in by_kind.get(_LAUNCH, ()) if e.host in hosts and e.source == "slurmd" and e.own]
    starts = [e for e in by_kind.get(_START, ()) if e.host in hosts and e.source != "slurmctld"]
    for event in fatals:
        again = min((e.time for e in starts if e.host == event.host and e.time >= event.time), default=inf)
        until = min(again, event.time + FOLLOWS_S)
        later = (e for e in launches if e.host == event.host and event.time + _LATER_S < e.time < until)
        if job := next((e.job_id for e in later if _began(event, e, of_job)), None):
            how = SECOND if _OF_A_SECOND.search(event.message) else WROTE_ON
            yield event, how, f"this slurmd launched job {job} later, without a start between"


def _began(fatal: Event, launch: Event, of_job: Mapping[int, Sequence[Run]]) -> bool:
    """Does accounting know of the launch, after what is called slurmd's end, and of the job's own end?"""
    return any(
        run.state in _BY_THEMSELVES
        and run.start is not None
        and run.nodes == (fatal.host,)
        and _is_accounted(run)
        and run.start > fatal.time + _LATER_S
        and abs(run.start - launch.time) <= _LAUNCHED_S
        for run in of_job.get(launch.job_id or 0, ())
    )


def _outlived_losses(
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
