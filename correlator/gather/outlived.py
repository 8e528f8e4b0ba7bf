"""A node's loss that the runs on it outlived: slurmctld's own file says so, and what it says is not true.

slurmctld writes what a user chose into its own file, line ends included, so a line there may be a user's
(parsers/cut_quotes.py finds most of them). If slurmctld sets a node DOWN, it ends the jobs on it in the same moment. So a
run of that node that ended by itself later shows that it was not set DOWN, and a job that slurmctld says it killed with a
failed node was not if it ended by itself later. Accounting and slurmctld's own line about that end have to agree: then
neither a wrong zone nor a wrong clock can move the end behind the line.

Nothing is denied if a run of the node was lost at that time. Ends long after the line are not looked for: a tick looks 900 s back.

``fatal`` is slurmd's last word, mostly: a slurmd that fails to reconfigure forks another one, which ends so, and goes on itself; so
does a second one that may not run beside the first; and slurmd's and slurmstepd's file has users' lines in it. So if slurmd
launched a job later without a start between, or a run there went on across it and ended by itself, the line is in doubt, and no
more than that: a start may be in a file that was not collected, a clock may have been set back, and steps outlive a slurmd that
starts again. slurmctld that gets no answer, a run that was lost, and systemd in a file that no user can write to make it count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile

from correlator.gather.confirmed import FOLLOWS_S
from correlator.model.nouns import Event, Run
from parsers.formats.base import SLURM
from parsers.job_states import MAY_RUN_AGAIN, OWN_CODE
from parsers.writers import NO_USERS

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

_FATAL, _LAUNCH, _START = "slurm.daemon_fatal", "slurm.step_start", "slurm.daemon_start"
_UNIT, _SETTINGS = "sys.service_failed", "slurm.config_error"
#: slurmd logs a launch within this of what accounting calls the start (seconds).
_LAUNCHED_S = 5.0
#: slurmd says that it goes on this soon after the one that it forked had ended (seconds; slurm src/slurmd/slurmd/slurmd.c).
_RESUMED, _RESUMES_S = "Resuming operation", 60.0
#: Others tell of a slurmd that ended from this long before its line on (seconds).
_SAME_DEATH_S = 30.0
#: slurmd starts again no sooner than this, unless systemd says so (seconds).
_STARTS_S = 1.0
#: Why such a line does not count.
WENT_ON_WHY = "slurmd of {host} went on without starting again ({how}), and nothing else shows that it had ended"

Hosts = Callable[[Event], Sequence[str]]


Refuted = list[tuple[Event, str, str]]


def outlived(
    by_kind: Mapping[str, Sequence[Event]],
    runs_on: Mapping[str, Sequence[Run]],
    of_job: Mapping[int, Sequence[Run]],
    hosts_of: Hosts,
) -> tuple[Refuted, dict[str, list[tuple[Event, str]]]]:
    """What slurmctld's own file says of lost nodes and is not true, with how it is known and why; and by host the last words of
    slurmds that went on, as far as is known, with why in words."""
    lost = _outlived_losses(by_kind, runs_on, of_job, hosts_of)
    untrue = {event.id for event, _ in lost}
    witnesses = (one for one in _witnesses(by_kind, hosts_of) if one[1].id not in untrue)
    return [(event, OUTLIVED, why) for event, why in lost], _went_on(by_kind, runs_on, of_job, witnesses)


def _went_on(
    by_kind: Mapping[str, Sequence[Event]],
    runs_on: Mapping[str, Sequence[Run]],
    of_job: Mapping[int, Sequence[Run]],
    witnesses: Iterable[tuple[str, Event]],
) -> dict[str, list[tuple[Event, str]]]:
    fatals = [e for e in by_kind.get(_FATAL, ()) if e.source == "slurmd" and e.own and e.host]
    if not fatals:
        return {}
    hosts = {e.host or "" for e in fatals}
    mine = (e for e in by_kind.get(_LAUNCH, ()) if e.source == "slurmd" and e.own)
    launches = _times_by_host(((e.host or "", e) for e in mine), hosts)
    starts = _times_by_host(((e.host or "", e) for e in by_kind.get(_START, ()) if e.source != "slurmctld"), hosts)
    resumed = _times_by_host(((e.host or "", e) for e in by_kind.get(_SETTINGS, ()) if _RESUMED in e.message), hosts)
    shown = _times_by_host(witnesses, hosts)
    found: dict[str, list[tuple[Event, str]]] = {}
    for event in fatals:
        host, at = event.host or "", event.time
        there = runs_on.get(host, ())
        lost = any(_is_lost(run, at - _LATER_S, at + FOLLOWS_S) for run in there)
        if lost or next(_within(shown.get(host, ()), at - _SAME_DEATH_S, at + FOLLOWS_S), None):
            continue
        again = next((e.time for e in _within(starts.get(host, ()), at + _STARTS_S, at + FOLLOWS_S)), at + FOLLOWS_S)
        later = _within(launches.get(host, ()), at + _LATER_S, again)
        how = ""
        if next(_within(resumed.get(host, ()), at - _LATER_S, at + _RESUMES_S), None):
            how = "it failed to reconfigure, as it says"
        elif job := next((e.job_id for e in later if _began(event, e, of_job)), None):
            how = f"it launched job {job} later"
        elif across := next((run for run in there if _is_across(run, at)), None):
            how = f"job {across.job_id} went on there, and ended {across.state} {(across.end or at) - at:.0f} s later"
        if how:
            found.setdefault(host, []).append((event, WENT_ON_WHY.format(host=host, how=how)))
    return found


def _times_by_host(events: Iterable[tuple[str, Event]], hosts: Collection[str]) -> dict[str, list[Event]]:
    """Events of these hosts, in order of time."""
    found: dict[str, list[Event]] = {}
    for host, event in events:
        if host in hosts:
            found.setdefault(host, []).append(event)
    for some in found.values():
        some.sort(key=_time)
    return found


def _time(event: Event) -> float:
    return event.time


def _within(events: Sequence[Event], first: float, last: float) -> Iterator[Event]:
    """Those from ``first`` to ``last`` (epoch seconds); ``events`` are in order."""
    return takewhile(lambda e: e.time <= last, islice(events, bisect_left(events, first, key=_time), None))


def _witnesses(by_kind: Mapping[str, Sequence[Event]], hosts_of: Hosts) -> Iterator[tuple[str, Event]]:
    """What no user can have written and shows that a host's slurmd is away."""
    for event in chain(by_kind.get(_DOWN, ()), by_kind.get(_SILENT, ())):
        if event.source == "slurmctld":
            yield from ((host, event) for host in hosts_of(event))
    for event in chain(by_kind.get(_UNIT, ()), by_kind.get(_START, ())):
        if (
            event.source not in SLURM
            and event.authority in NO_USERS
            and event.host
            and "slurm" in event.message.lower()
        ):
            yield event.host, event


def _is_lost(run: Run, first: float, last: float) -> bool:
    return run.state in MAY_RUN_AGAIN and run.end is not None and first <= run.end <= last


def _is_across(run: Run, at: float) -> bool:
    """Did a run begin before that moment, and end by itself well after it, while a tick still looks back at it?"""
    return (
        run.state in _BY_THEMSELVES and run.start is not None and run.end is not None and _is_accounted(run)
        and len(run.nodes) == 1 and run.start < at - _LATER_S and at + _LOST_WITHIN_S < run.end <= at + FOLLOWS_S
    )  # fmt: skip


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
    if any(_is_lost(run, at - _LATER_S, at + _LOST_WITHIN_S) for run in beside):
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
